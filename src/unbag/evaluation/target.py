"""Class shares of a new set of rows without labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from unbag.drawing import draw_intervals
from unbag.evaluation.estimate import Estimate
from unbag.evaluation.groups import column_of, read_groups
from unbag.priors import ClassPriors
from unbag.summary import Shown, Summary, data_frame
from unbag.validation import as_generator, check_choice, check_number, invalid

__all__ = ["PriorEstimate", "estimate_prior"]

_Floats = NDArray[np.float64]
_MOST_STEPS, _TOLERANCE = 1000, 1e-6  # of expectation maximisation


@dataclass(frozen=True, eq=False)
class PriorEstimate(Shown):
    """Class shares of a set of rows.

    Attributes
    ----------
    classes : array of shape (K,)
    shares : list of Estimate
    method : str
    """

    classes: NDArray[Any]
    shares: list[Estimate]
    method: str

    @property
    def prior(self) -> _Floats:
        """(K,) shares, to be used as ``predict(X, prior=...)``."""
        return np.array([float(share) for share in self.shares])

    def summary(self) -> Summary:
        """Give the shares with their intervals."""
        rows = [
            (label, f"{share:.2%}", f"{share.low:.2%}", f"{share.high:.2%}")
            for label, share in zip(self.classes.tolist(), self.shares, strict=True)
        ]
        return Summary("Class shares of new rows", ("class", "share", "from", "to"), rows)

    def to_frame(self) -> Any:
        """Give a DataFrame of pandas with one row per class: share, low and high."""
        low, high = zip(*(share.interval for share in self.shares), strict=True)
        columns = {"share": self.prior, "low": low, "high": high}
        return data_frame(columns, self.classes, "class")

    def plot(self, ax: Any = None) -> Any:
        """Draw the shares with their intervals, with matplotlib; return the axes."""
        low, high = zip(*(share.interval for share in self.shares), strict=True)
        return draw_intervals(self.classes.tolist(), self.prior, low, high, ax)


def estimate_prior(
    estimator: Any,
    X_target: Any,
    *,
    X: Any = None,
    bag_ids: Any = None,
    method: str = "auto",
    level: float = 0.95,
    n_bootstrap: int = 200,
    random_state: Any = 0,
    by: Any = None,
) -> Any:
    """Estimate the class shares of rows that come from elsewhere, where only the shares differ.

    - ``"confusion"``: the shares of the predictions on the target are those of its classes, mixed
      by the confusion matrix, which held-out rows of bags give: the mixture is undone. Nothing is
      asked of the probabilities.
    - ``"em"``: expectation maximisation on the probabilities (Saerens and others, 2002); narrower,
      but only as good as their calibration.

    Parameters
    ----------
    estimator : fitted UnbagClassifier
    X_target : array of shape (n, ...)
    X, bag_ids : arrays, optional
        Held-out rows and their bags; needed for ``"confusion"``.
    method : {"auto", "confusion", "em"}
        "auto" is "confusion" where held-out rows are given.
    level : float, default=0.95
    n_bootstrap : int, default=200
        Resamples for the intervals (percentiles).
    random_state : int or Generator, default=0
    by : array of shape (n,) or str, optional
        A group of every row of the target, or the name of a column of it.

    Returns
    -------
    PriorEstimate, or with ``by`` a dict of them by group
        The intervals of groups hold for all of them at once (Bonferroni).
    """
    if by is not None:
        groups, codes = read_groups(column_of(X_target, by), _num_samples(X_target))
        options = {"X": X, "bag_ids": bag_ids, "method": method, "n_bootstrap": n_bootstrap}
        options |= {"level": 1 - (1 - level) / len(groups), "random_state": random_state}
        return {
            group: estimate_prior(
                estimator, _safe_indexing(X_target, np.flatnonzero(codes == g)), **options
            )
            for g, group in enumerate(groups)
        }
    check_choice("method", method, ("auto", "confusion", "em"))
    check_number("level", level, low=0, high=1, low_open=True, high_open=True)
    check_number("n_bootstrap", n_bootstrap, low=20, integer=True)
    has_held_out = X is not None and bag_ids is not None
    if method == "auto":
        method = "confusion" if has_held_out else "em"
    rng = as_generator(random_state)
    classes = estimator.classes_
    if method == "em":
        draws = _by_maximisation(estimator, X_target, n_bootstrap, rng)
    elif has_held_out:
        draws = _by_confusion(estimator, X_target, X, bag_ids, n_bootstrap, rng)
    else:
        raise invalid("X and bag_ids", "held-out rows for method='confusion'", "None")
    tail = (1 - level) / 2
    low, high = np.quantile(draws[1:], [tail, 1 - tail], axis=0)
    triples = zip(draws[0], low, high, strict=True)
    return PriorEstimate(classes, [Estimate(*triple) for triple in triples], method)


def _by_maximisation(estimator: Any, X: Any, n_bootstrap: int, rng: np.random.Generator) -> _Floats:
    """Shares (1 + B, K): the estimate, then resamples of the rows."""
    start = estimator.test_prior_
    ratio = estimator.predict_proba(X) / np.maximum(start, 1e-12)  # (n, K)
    n = len(ratio)
    weights = np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), n_bootstrap)])

    def step(shares: _Floats) -> _Floats:
        total = np.maximum(shares @ ratio.T, 1e-300)  # (1 + B, n)
        return np.asarray(shares * ((weights / total) @ ratio) / n)

    return _converge(step, np.repeat(start[None], len(weights), axis=0))


def _by_confusion(
    estimator: Any,
    X_target: Any,
    X: Any,
    bag_ids: Any,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> _Floats:
    """Shares (1 + B, K): the estimate, then resamples of target and bags."""
    table = ClassPriors.of(estimator.priors if estimator.priors is not None else estimator.priors_)
    k = table.n_classes

    def code(rows: Any) -> NDArray[np.int64]:
        return table.encode_classes("classes_", estimator.predict(rows), source="predictions have")

    bag_index, predicted = table.encode(bag_ids), code(X)
    if len(predicted) != len(bag_index):
        raise invalid("bag_ids", f"one for each of {len(predicted)} rows", f"{len(bag_index)}")
    counts = np.bincount(bag_index * k + predicted, minlength=table.n_bags * k).reshape(-1, k)
    here = counts.sum(1) > 0
    rest, counts = table.subset(here), counts[here]
    rest.check_rank()
    target = np.bincount(code(X_target), minlength=k)
    samples = np.stack([_resample(row, n_bootstrap, rng) for row in [*counts, target]], axis=1)
    return _undo(samples[:, -1], samples[:, :-1], rest.values)


def _resample(counts: NDArray[np.int64], n_bootstrap: int, rng: np.random.Generator) -> _Floats:
    """Put resamples of counts (K,) below them: (1 + B, K)."""
    total = counts.sum()
    return np.vstack([counts, rng.multinomial(total, counts / total, n_bootstrap)])


def _undo(target: _Floats, counts: _Floats, theta: _Floats) -> _Floats:
    """Likeliest shares π (B, K) of the classes behind counts of predictions on the target (B, K).

    They solve Cᵀπ = v for the predictions' shares v as well as shares can, with the likeliest
    confusion matrix C of the counts in bags (B, M, K).
    """
    k = theta.shape[1]

    def sharpen(confusion: _Floats) -> _Floats:
        scaled = confusion * (theta.T @ (counts / np.maximum(theta @ confusion, 1e-300)))
        return np.asarray(scaled / np.maximum(scaled.sum(-1, keepdims=True), 1e-300))

    start = np.full((k, k), 0.2 / k) + 0.8 * np.eye(k)
    confusion = _converge(sharpen, np.broadcast_to(start, (len(counts), k, k)))
    predicted = target / target.sum(-1, keepdims=True)

    def step(shares: _Floats) -> _Floats:
        ratio = predicted / np.maximum(np.einsum("by,byk->bk", shares, confusion), 1e-300)
        scaled = shares * np.einsum("byk,bk->by", confusion, ratio)
        return np.asarray(scaled / scaled.sum(-1, keepdims=True))

    return _converge(step, np.full((len(counts), k), 1 / k))


def _converge(step: Callable[[_Floats], _Floats], values: _Floats) -> _Floats:
    """Repeat a step of expectation maximisation until the values barely change."""
    for _ in range(_MOST_STEPS):
        before, values = values, step(values)
        if np.abs(values - before).max() < _TOLERANCE:
            break
    return values

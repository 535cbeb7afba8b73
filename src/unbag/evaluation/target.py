r"""Class shares of a new set of rows without labels.

Take features of a row that depend on the row alone: which class is predicted, or probabilities.
In bag m their mean is :math:`\sum_y \theta_{my} G_y`, with the class means G (K×K), and in the
target it is :math:`\pi^\top G`. So held-out rows of bags give :math:`\hat G = L \bar F` by a left
inverse L of Θ, and the mean q of the target gives

.. math:: \hat\pi = \hat G^{-\top} q, \qquad
          \hat\pi - \pi \approx G^{-\top} \Bigl( q - \sum_m (L^\top \pi)_m \bar F_m \Bigr)

whatever the probabilities mean: bad calibration costs precision and no more. The term in brackets
is a sum of independent means, which gives the covariance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import nnls
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from unbag.drawing import draw_intervals
from unbag.evaluation.core import Core
from unbag.evaluation.estimate import Estimate
from unbag.evaluation.groups import column_of, read_groups
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors
from unbag.summary import Shown, Summary, data_frame
from unbag.validation import check_choice, check_number, invalid, warn_replaced

__all__ = ["PriorEstimate", "estimate_prior"]

_Floats = NDArray[np.float64]
_MOST_STEPS, _TOLERANCE = 1000, 1e-6  # of expectation maximisation
_SMALLEST, _RIDGE = 1e-12, 1e-9


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
    n_bootstrap: int | None = None,
    random_state: Any = None,
    by: Any = None,
) -> Any:
    """Estimate the class shares of rows that come from elsewhere, where only the shares differ.

    - ``"confusion"``: the shares of the predictions on the target are those of its classes, mixed
      by the confusion matrix, which held-out rows of bags give: the mixture is undone.
    - ``"em"``: expectation maximisation on the probabilities (Saerens and others, 2002), and then
      the same step with the probabilities that it ends with in place of predictions. It is
      narrower. Without held-out rows that step is left out, and estimate and intervals are only as
      good as the calibration of the probabilities.

    Errors of the shares of the bags are part of the intervals.

    Parameters
    ----------
    estimator : fitted UnbagClassifier
    X_target : array of shape (n, ...)
    X, bag_ids : arrays, optional
        Held-out rows and their bags; needed for ``"confusion"``.
    method : {"auto", "confusion", "em"}
        "auto" is "confusion" where held-out rows are given.
    level : float, default=0.95
    n_bootstrap, random_state : optional
        Needed no more: intervals are found without resampling.
    by : array of shape (n,) or str, optional
        A group of every row of the target, or the name of a column of it.

    Returns
    -------
    PriorEstimate, or with ``by`` a dict of them by group
        The intervals of groups hold for all of them at once (Bonferroni).
    """
    if by is not None:
        groups, codes = read_groups(column_of(X_target, by), _num_samples(X_target))
        options = {"X": X, "bag_ids": bag_ids, "method": method}
        options["level"] = 1 - (1 - level) / len(groups)
        return {
            group: estimate_prior(
                estimator, _safe_indexing(X_target, np.flatnonzero(codes == g)), **options
            )
            for g, group in enumerate(groups)
        }
    check_choice("method", method, ("auto", "confusion", "em"))
    check_number("level", level, low=0, high=1, low_open=True, high_open=True)
    if n_bootstrap is not None or random_state is not None:
        warn_replaced("n_bootstrap, random_state", "estimate_prior without them")
    has_held_out = X is not None and bag_ids is not None
    if method == "auto":
        method = "confusion" if has_held_out else "em"
    if method == "confusion" and not has_held_out:
        raise invalid("X and bag_ids", "held-out rows for method='confusion'", "None")
    z = float(stats.norm.ppf(0.5 + level / 2))
    if method == "confusion":
        bags = _HeldOut(estimator, X, bag_ids)
        eye = np.eye(bags.priors.n_classes)
        free, covariance = bags.unmix(eye[bags.predicted], eye[bags.predict(X_target)])
    else:
        ratios = _ratios(estimator, X_target)
        free = _maximise(ratios, estimator.test_prior_)
        covariance = _inverse_information(ratios, free)
        if has_held_out:
            # Half of the start, so that no class is without a probability.
            prior = (free + estimator.test_prior_) / 2
            features, target = _posterior(_ratios(estimator, X), prior), _posterior(ratios, prior)
            free, covariance = _HeldOut(estimator, X, bag_ids).unmix(features, target)
    return PriorEstimate(estimator.classes_, _intervals(free, covariance, z), method)


def _intervals(free: _Floats, covariance: _Floats, z: float) -> list[Estimate]:
    """Put an estimate without limits (K,) on the simplex; intervals as those of an accuracy."""
    shares = _on_simplex(free, covariance)
    half = z * np.sqrt(np.maximum(np.diag(covariance), 0))
    nearest = np.clip(free, 0, 1)  # an estimate beyond a limit has the interval of that limit
    low = np.minimum(np.maximum(nearest - half, 0), shares)
    high = np.maximum(np.minimum(nearest + half, 1), shares)
    return [Estimate(*triple) for triple in zip(shares, low, high, strict=True)]


def _on_simplex(free: _Floats, covariance: _Floats) -> _Floats:
    """Find the shares (K,) that are the likeliest for an estimate with errors of a covariance."""
    if (free >= 0).all():
        return np.asarray(free / free.sum())
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors / np.sqrt(np.maximum(values, _RIDGE * values[-1] + _SMALLEST))).T  # (K, K)
    heavy = 1e3 * np.abs(root).max()  # for the sum of 1
    system = np.vstack([root, np.full(len(free), heavy)])
    shares = nnls(system, np.append(root @ free, heavy))[0]
    return np.asarray(shares / shares.sum())


class _HeldOut:
    """Held-out rows in bags, with a left inverse of the shares of these."""

    priors: ClassPriors
    bag_index: NDArray[np.int64]

    def __init__(self, estimator: Any, X: Any, bag_ids: Any) -> None:
        table: ClassPriors = estimator.known_priors_
        self._estimator, self._table = estimator, table
        index, self.predicted = table.encode(bag_ids), self.predict(X)
        if len(self.predicted) != len(index):
            raise invalid("bag_ids", f"one for each of {len(self.predicted)} rows", len(index))
        self.priors, self.bag_index, _ = table.with_rows(index)
        self.priors.check_rank()
        m, k = self.priors.n_bags, self.priors.n_classes
        counts = np.bincount(self.bag_index * k + self.predicted, minlength=m * k).reshape(m, k)
        self.counts = counts.sum(1).astype(np.float64)
        core = Core(counts, self.priors, BagSample.of(self.priors, self.counts))
        self.inverse = core.inverse

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Position of the predicted class of every row."""
        predicted = self._estimator.predict(X)
        return self._table.encode_classes("classes_", predicted, source="predictions have")

    def unmix(self, features: _Floats, target: _Floats) -> tuple[_Floats, _Floats]:
        """Shares of the classes in the target (K,), without limits, and their covariance.

        Parameters
        ----------
        features : array of shape (n, K)
            Of the held-out rows; they sum to 1.
        target : array of shape (n', K)
        """
        means, spreads = self._moments(features)  # (M, K), (M, K, K)
        mean, spread = target.mean(0), np.cov(target.T, bias=True)
        by_class = self.inverse.matrix @ means  # (K, K)
        undo = np.linalg.pinv(by_class.T)
        free = undo @ mean
        # The variance is that of a possible answer, which the first one may not be.
        mixed = self.inverse.influence.T @ _on_simplex(free, np.eye(len(free)))  # (M,)
        noise = spreads / self.counts[:, None, None]
        if self.priors.errors is not None:
            noise = noise + by_class.T @ self.priors.errors.covariance @ by_class
        total = spread / len(target) + np.einsum("m,mij->ij", mixed**2, noise)
        return free, undo @ total @ undo.T

    def _moments(self, features: _Floats) -> tuple[_Floats, _Floats]:
        """Mean of each bag (M, K), and covariance of its rows (M, K, K)."""
        m, k = len(self.counts), features.shape[1]
        means, squares = np.zeros((m, k)), np.zeros((m, k, k))
        ends = np.cumsum(self.counts).astype(np.int64)[:-1]
        rows = np.split(features[np.argsort(self.bag_index, kind="stable")], ends)
        for i, bag in enumerate(rows):
            means[i] = bag.mean(0)
            squares[i] = (bag - means[i]).T @ (bag - means[i])
        within = squares.sum(0) / max(self.counts.sum() - m, 1)  # of all bags
        # A row of the average bag stands in for what a bag of few rows does not show.
        return means, (squares + within) / self.counts[:, None, None]


def _ratios(estimator: Any, X: Any) -> _Floats:
    """Probabilities over the shares under which they hold, (n, K)."""
    return np.asarray(estimator.predict_proba(X) / np.maximum(estimator.test_prior_, _SMALLEST))


def _posterior(ratios: _Floats, prior: _Floats) -> _Floats:
    chances = ratios * prior
    return np.asarray(chances / np.maximum(chances.sum(1, keepdims=True), 1e-300))


def _maximise(ratios: _Floats, start: _Floats) -> _Floats:
    """Likeliest shares (K,) of the rows, by expectation maximisation."""
    shares = start
    for _ in range(_MOST_STEPS):
        before, shares = shares, _posterior(ratios, shares).mean(0)
        if np.abs(shares - before).max() < _TOLERANCE:
            break
    return np.asarray(shares)


def _inverse_information(ratios: _Floats, shares: _Floats) -> _Floats:
    """Covariance of the likeliest shares (K, K), whose errors sum to 0."""
    k = len(shares)
    scores = ratios / np.maximum(ratios @ shares, 1e-300)[:, None]
    free = np.linalg.svd(np.ones((1, k)))[2][1:].T  # (K, K−1), directions that sum to 0
    information = free.T @ (scores.T @ scores) @ free
    return np.asarray(free @ np.linalg.pinv(information) @ free.T)

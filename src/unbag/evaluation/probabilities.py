"""Numbers that depend on predicted probabilities, without labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.evaluation.estimate import Estimate
from unbag.evaluation.inverses import LeftInverse
from unbag.priors import ClassPriors, ShareErrors
from unbag.validation import as_float_array, check_number, detached, invalid

__all__ = [
    "ProbabilityMetrics",
    "RocCurve",
    "check_probabilities",
    "clustering",
    "probability_metrics",
]

_Floats = NDArray[np.float64]
_SMALLEST = np.finfo(np.float64).eps  # probability, so that a log-loss is finite


@dataclass(frozen=True, eq=False)
class RocCurve:
    """Receiver operating characteristic of the second of two classes, without labels.

    The raw curve is unbiased at every threshold and need not be monotone.

    Attributes
    ----------
    thresholds : array of shape (T,)
        Descending scores; a row is called positive when its score is at least the threshold.
    false_positive_rate, true_positive_rate : arrays of shape (T,)
    auc : Estimate
    """

    thresholds: _Floats
    false_positive_rate: _Floats
    true_positive_rate: _Floats
    auc: Estimate

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return vars(self)

    def threshold_for_recall(self, recall: float) -> float:
        """Largest threshold at which at least this share of the positives is found.

        The running maximum of the raw curve is used, as a true curve never falls.
        """
        check_number("recall", recall, low=0, high=1)
        reached = np.maximum.accumulate(self.true_positive_rate) >= recall - 1e-9
        if not reached.any():
            got = f"{recall:g} (at most {self.true_positive_rate.max():.3f} is reached)"
            raise invalid("recall", "a share that the estimated curve reaches", got)
        return float(self.thresholds[reached.argmax()])


@dataclass(frozen=True, eq=False)
class ProbabilityMetrics:
    """Quality of probabilities.

    Attributes
    ----------
    log_loss, brier : Estimate
    roc : RocCurve or None
        For two classes.
    """

    log_loss: Estimate
    brier: Estimate
    roc: RocCurve | None

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return vars(self)


def check_probabilities(given: Any, n: int, k: int, name: str = "probabilities") -> _Floats:
    """Refuse what is not n rows of K probabilities that sum to 1."""
    chances = as_float_array(name, detached(name, given), ndim=2)
    if chances.shape != (n, k):
        raise invalid(name, f"an array of shape ({n}, {k})", f"shape {chances.shape}")
    if not np.isfinite(chances).all() or (chances < 0).any():
        raise invalid(name, "probabilities from 0 to 1", "negative or non-finite numbers")
    off = np.abs(chances.sum(1) - 1)
    if (off > 1e-3).any():
        got = f"the sum {chances[off.argmax()].sum():g} in row {off.argmax()}"
        raise invalid(name, "probabilities that sum to 1", got, "apply a softmax first.")
    return chances


def probability_metrics(
    chances: _Floats,
    bag_index: NDArray[np.int64],
    priors: ClassPriors,
    test_prior: _Floats,
    level: float,
    clusters: NDArray[np.int64] | None = None,
    excess: _Floats | float = 0.0,
    inverse: _Floats | None = None,
) -> ProbabilityMetrics:
    r"""Estimate means of losses that depend on a row and its unknown class.

    .. math:: \sum_m \frac{1}{n_m} \sum_{i \in m} \sum_k W_{mk} \ell_k(x_i)

    with the risk weights W of the size-weighted left inverse: a sum of independent means. Its
    interval is Student's, with Satterthwaite's degrees of freedom.

    Parameters
    ----------
    chances : array of shape (n, K)
    bag_index : integer array of shape (n,)
    priors : ClassPriors
        Of bags that all have rows; intervals allow for their errors.
    test_prior : array of shape (K,)
    level : float
    clusters : integer array of shape (n,), optional
        Record number of every row.
    excess : float or array of shape (M,)
        Variance of a bag's mean by drift between bags, over the variance of one row.
    inverse : array of shape (K, M), optional
        A left inverse of Θ in place of the size-weighted one, where shares have errors.
    """
    counts = np.bincount(bag_index, minlength=priors.n_bags).astype(np.float64)
    if inverse is None:
        inverse = LeftInverse(priors, counts).matrix  # (K, M)
    rows = _Rows(counts, bag_index, inverse, level, clusters, priors.errors, excess)
    weights = inverse.T * test_prior  # (M, K)
    log_loss = rows.estimate(weights, -np.log(np.maximum(chances, _SMALLEST)))
    brier = rows.estimate(weights, (chances**2).sum(1, keepdims=True) - 2 * chances + 1)
    roc = _roc(chances[:, 1], rows) if priors.n_classes == 2 else None
    return ProbabilityMetrics(log_loss, brier, roc)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of bags, and sums of means over them."""

    counts: _Floats  # (M,)
    bag_index: NDArray[np.int64]  # (n,)
    inverse: _Floats  # (K, M)
    level: float
    clusters: NDArray[np.int64] | None
    errors: ShareErrors | None
    excess: _Floats | float = 0.0

    def means(self, values: _Floats) -> _Floats:
        """Mean of values (n,) in every bag, (M,)."""
        sums = np.bincount(self.bag_index, weights=values, minlength=len(self.counts))
        return np.asarray(sums / self.counts)

    def estimate(self, weights: _Floats, losses: _Floats, value: float | None = None) -> Estimate:
        """Sum over bags of the means of Σ_k W_mk ℓ_k, for W (M, K) and ℓ (n, K), and its interval.

        ``value`` is the estimate where the sum is only its linear part.
        """
        values = (weights[self.bag_index] * losses).sum(1)  # (n,)
        means = self.means(values)
        variance, freedom = self._variance(values - means[self.bag_index])
        if self.errors is not None:
            by_class = self.inverse @ np.stack([self.means(loss) for loss in losses.T], 1)
            moved = weights @ by_class.T  # (M, K): mean of a row of bag m and class y
            variance += float(self.errors.added_variance(moved))
        half = float(stats.t.ppf(0.5 + self.level / 2, freedom)) * np.sqrt(variance)
        value = float(means.sum()) if value is None else value
        return Estimate(value, value - half, value + half)

    def _variance(self, residual: _Floats) -> tuple[float, float]:
        """Variance of a sum of the bags' means, and Satterthwaite's degrees of freedom of it."""
        counts, second = self.counts, self.means(residual**2)
        # A bag of one row says nothing of its variance: the average of the others stands in.
        alone = counts < 2
        spread = second * counts / np.maximum(counts - 1, 1)
        if alone.any():
            known = np.average(spread[~alone], weights=counts[~alone]) if (~alone).any() else np.nan
            spread = np.where(alone, known, spread)
        variance = float((spread * (1 / counts + self.excess)).sum())
        noise = np.maximum(self.means(residual**4) - second**2, 0) / counts**3
        freedom = 2 * variance**2 / float(noise.sum()) if noise.any() else np.inf
        if self.clusters is not None:
            variance *= clustering(residual / counts[self.bag_index], self.clusters)
        return variance, max(freedom, 3.0)


def clustering(parts: _Floats, record: NDArray[np.int64]) -> float:
    """Variance of a sum of parts (n,), those of a record together, over that of apart; 1 at least.

    Parts of a record that is in several bags may cancel. Whether the sum then varies less depends
    on how the bags were drawn: not where each was drawn on its own. So 1 is the least.
    """
    together = np.bincount(record, weights=parts)
    apart = float(parts @ parts)
    return max(1.0, float(together @ together) / apart) if apart > 0 else 1.0


def _roc(scores: _Floats, rows: _Rows) -> RocCurve:
    """Shares of each class above every score, and the area: linear in the rows of the bags."""
    # Weight of a row in the distribution of each class, (2, n).
    row_weights = (rows.inverse / rows.counts)[:, rows.bag_index]
    thresholds, place = np.unique(-scores, return_inverse=True)
    mass = np.stack([np.bincount(place, weights=w) for w in row_weights])  # (2, T)
    above = mass.cumsum(1)  # share of the class with at least this score
    below = 1 - above + mass / 2  # with ties counted half
    negatives_below, positives_below = below[:, place]
    area = float(row_weights[1] @ negatives_below)
    # Each row counts once as a negative and once as a positive: the derivative by its weight.
    influence = np.stack([1 - positives_below, negatives_below], 1)  # (n, 2)
    auc = rows.estimate(rows.inverse.T, influence, area)
    return RocCurve(-thresholds, above[0], above[1], auc)

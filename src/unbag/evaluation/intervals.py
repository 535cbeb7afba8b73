r"""Score intervals of functionals of the confusion matrix.

The variance of an estimate depends on the unknown confusion matrix C: with exact counts it
vanishes for a perfect model. So a value T₀ belongs to the interval when the estimate is within z
deviations of it, the deviation taken at a confusion matrix that has the value T₀, as in Wilson's
interval for a share. Those matrices form a path from a perfect model to a useless one. All of them
predict the classes as often as it was observed, a number that is known well even where C is not,
and their errors follow a pattern: the estimate of C, each entry drawn to that of a model which
errs alike everywhere, the more the less is known about it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

__all__ = [
    "EstimatePath",
    "class_path",
    "error_pattern",
    "errors_beyond_limits",
    "overall_path",
    "score_interval",
]

_Floats = NDArray[np.float64]

# Error rates along a path: none, rare, frequent.
_RATES = np.concatenate([[0.0], np.geomspace(1e-5, 0.2, 30), np.linspace(0.22, 0.98, 28)])
_TINY = 1e-12
# Of all misses, where the other side has none; nearly all would be right for estimates that are
# normal, but those of rare errors jump, and then miss half as often again.
_ONE_SIDE = 0.7
_NO_SKEWNESS = 1e-6
# That no error occurs has a chance of its own, of which a gamma distribution knows nothing. With
# this part of the normal quantile on the short side, Poisson counts of errors are covered in 94 %
# or more from one expected error on (in 91.5 % with none of it, in 83.6 % by normal quantiles).
_TOWARDS_NORMAL = 0.5


def error_pattern(
    raw: _Floats, theta: _Floats, counts: _Floats, predicted: _Floats, inverse: _Floats
) -> _Floats:
    """Shrink the raw confusion matrix towards that of a model which errs alike everywhere.

    Parameters
    ----------
    raw : array of shape (K, K)
        Unbiased estimate of C.
    theta : array of shape (M, K)
    counts : array of shape (M,)
    predicted : array of shape (K,)
        Shares of the predicted classes in all rows.
    inverse : array of shape (K, M)
        A left inverse of Θ.

    Returns
    -------
    array of shape (K, K)
        Rows sum to 1, no entry is negative.
    """
    k = theta.shape[1]
    pooled = counts @ theta / counts.sum()
    eye = np.eye(k)
    low = min(1 / k, 1 - 2 / counts.sum())
    accuracy = np.clip(pooled @ np.diag(raw), low, 1 - 2 / counts.sum())
    excess = np.maximum(predicted - pooled, 0).sum()  # errors that the shares alone prove
    error = max(1 - accuracy, excess)
    smooth = (predicted + 0.2 / k) / 1.2
    off = np.where(eye > 0, 0, smooth / np.maximum(1 - smooth, 0.1))
    even = error * off / off.sum(1, keepdims=True)
    # What is known of an entry: its variance with exact counts. What is believed beforehand: an
    # entry may well be twice the average or nothing.
    spread = (inverse**2 / counts) @ (theta @ (even * (1 - even)))
    belief = even**2
    drawn = even + belief / np.maximum(belief + spread, _TINY) * (raw - even)
    errors = np.where(eye > 0, 0, np.maximum(drawn, 0.05 * even))
    errors /= np.maximum(1, errors.sum(1, keepdims=True) / 0.98)
    return np.asarray(errors + eye * (1 - errors.sum(1))[:, None])


def overall_path(pattern: _Floats, pooled: _Floats, predicted: _Floats) -> _Floats:
    """Confusion matrices from a perfect model to a useless one, (G, K, K).

    Along it the share of errors grows. A class that is predicted more often than it occurs must
    have at least that many false positives, the others false negatives; what errors there are
    beyond these follow the pattern. Row and column sums are fitted by proportional scaling.
    """
    k = len(pooled)
    eye = np.eye(k)
    error = _RATES[:, None]  # (G, 1)
    surplus = predicted - pooled
    proven = np.maximum(surplus, 0).sum()
    scale = np.minimum(1, error / max(proven, _TINY))
    error_shares = pooled * (1 - np.diag(pattern)) + _TINY
    error_shares = _at_most_half(error_shares / error_shares.sum())
    rest = np.maximum(error - proven, 0) * error_shares
    missed = np.minimum(np.maximum(-surplus, 0) * scale + rest, 0.99 * pooled)  # (G, K)
    false = np.maximum(surplus, 0) * scale + rest
    false = false * missed.sum(1, keepdims=True) / np.maximum(false.sum(1, keepdims=True), _TINY)
    mass = np.where(eye > 0, 0, pattern * pooled[:, None] + 1e-14)
    cells = np.repeat(mass[None], len(error), axis=0)
    for _ in range(15):
        cells = cells * (false / np.maximum(cells.sum(1), 1e-18))[:, None, :]
        cells = cells * (missed / np.maximum(cells.sum(2), 1e-18))[:, :, None]
    errors = cells / np.maximum(pooled, _TINY)[:, None]
    return np.asarray(errors + eye * (1 - errors.sum(2))[:, :, None])


def _at_most_half(shares: _Floats) -> _Floats:
    """No class may have more than half of the errors: each is another's false positive."""
    for _ in range(5):
        shares = np.minimum(shares, 0.5)
        free = shares < 0.5 - 1e-9
        room = 1 - shares.sum()
        shares = np.where(free, shares * (1 + room / max(shares[free].sum(), _TINY)), shares)
    return np.asarray(shares)


def class_path(
    k: int, pattern: _Floats, pooled: _Floats, predicted: _Floats, n_rows: float
) -> _Floats:
    """Column k of confusion matrices, (G, K): recall of class k from one to nearly none.

    The other entries of the column, false positives, make up the share predicted as k. It is
    drawn a little to that of the average class, by the weight of one row.
    """
    recall = 1 - _RATES
    column = np.where(np.arange(len(pooled)) == k, 0, pattern[:, k])
    usual = (pooled * (1 - np.diag(pattern))).sum() / len(pooled) * n_rows + 0.3
    false = np.maximum(predicted[k] - pooled[k] * recall, 0) * n_rows
    false = (false + 1) / (1 + 1 / usual) / n_rows  # (G,)
    factor = false / max(column @ pooled, 1e-9)
    path = np.clip(column * factor[:, None], 0, 1)
    path[:, k] = recall
    return np.asarray(path)


class EstimatePath(NamedTuple):
    """A number along a path of confusion matrices, and how its estimate varies there.

    Attributes
    ----------
    values, variances, third_moments : arrays of shape (G,)
        Value of the number; variance of its estimate; third central moment of its estimate.
    """

    values: _Floats
    variances: _Floats
    third_moments: _Floats


def score_interval(
    value: float, path: EstimatePath, z: float, limits: tuple[float, float] = (0.0, 1.0)
) -> tuple[float, float]:
    """All T₀ from which the estimate is not too far, by what is known of its distribution at T₀.

    The distribution is that of Pearson's type III (a shifted gamma) with the variance and the
    skewness at T₀, which is normal without skewness. Where only few errors are expected, an
    estimate is far from normal: it is slightly too large when none occurs, and much too small when
    one does.

    An estimate beyond a limit counts as at the limit. So only an estimate that no T₀ explains
    misses a T₀ that is near that limit, and most of all misses, at most seven in ten, may be on
    the other side, in place of one half.

    Parameters
    ----------
    value : float
        The estimate; by chance it may lie outside the limits.
    path : EstimatePath
    z : float
        Quantile of the normal distribution.
    limits : (float, float)
        Least and greatest value that the number can have; T₀ lies between them.

    Returns
    -------
    (float, float)
        The interval of an estimate beyond the limits is that of the nearest limit, so that it is
        not narrow by being cut. Where no T₀ explains the estimate, it is centred on the estimate,
        as wide as at the T₀ that comes nearest to explaining it.
    """
    nearest_limit = min(max(value, limits[0]), limits[1])
    near = _candidates(nearest_limit, path, z, limits)
    distance = np.abs(value - near.values)
    reach = near.reach(value, z)
    if not (distance <= reach).any():
        nearest = np.argmin(distance / np.maximum(reach, _TINY))
        half = float(reach[nearest])
        return value - half, value + half
    is_above = near.values > nearest_limit
    room = np.where(is_above, limits[1] - near.values, near.values - limits[0])
    x, variances = _in_order(path.values, path.variances)
    at_limits = np.interp(limits, x, variances)
    beyond = z * np.sqrt(np.where(is_above, at_limits[1], at_limits[0]))
    least, greatest = near.explained(z)
    unexplained = np.where(is_above, greatest - near.values, near.values - least)
    misses = ndtr(-unexplained / np.maximum(near.deviations, _TINY))
    all_misses = 2 * ndtr(-z)
    other_side = np.clip(all_misses - misses, all_misses / 2, _ONE_SIDE * all_misses)
    quantile = np.where(room < beyond, -ndtri(other_side), z)
    inside = near.values[np.abs(nearest_limit - near.values) <= near.reach(nearest_limit, quantile)]
    return float(inside.min(initial=nearest_limit)), float(inside.max(initial=nearest_limit))


def errors_beyond_limits(
    value: float, path: EstimatePath, limits: tuple[float, float] = (0.0, 1.0)
) -> float:
    """Count the standard errors between an estimate and the T₀ that explains it best.

    It is 0 for an estimate within its limits.

    Examples
    --------
    >>> x = np.linspace(0, 1, 101)
    >>> path = EstimatePath(x, np.full(101, 0.01), np.zeros(101))
    >>> round(errors_beyond_limits(1.2, path), 6), errors_beyond_limits(0.9, path)
    (2.0, 0.0)
    """
    nearest_limit = min(max(value, limits[0]), limits[1])
    if value == nearest_limit:
        return 0.0
    near = _candidates(nearest_limit, path, 1.0, limits)
    return float((np.abs(value - near.values) / np.maximum(near.deviations, _TINY)).min())


class _Candidates(NamedTuple):
    """Values T₀ (C,), and what the estimate is distributed like there."""

    values: _Floats
    deviations: _Floats
    skewness: _Floats

    def reach(self, value: float, z: float | _Floats) -> _Floats:
        """How far from T₀ an estimate on the side of a value may be."""
        side = np.where(value < self.values, -1.0, 1.0)
        quantile = side * pearson_quantile(side * z, self.skewness)
        short = quantile + _TOWARDS_NORMAL * (z - quantile)
        return self.deviations * np.maximum(np.where(quantile < z, short, quantile), 0)

    def explained(self, z: float) -> tuple[float, float]:
        """Least and greatest estimate that some T₀ explains."""
        below = self.values - self.reach(-np.inf, z)
        return float(below.min()), float((self.values + self.reach(np.inf, z)).max())


def pearson_quantile(z: _Floats, skewness: _Floats) -> _Floats:
    """Quantile of the standardised Pearson type III distribution, by Wilson and Hilferty.

    Parameters
    ----------
    z : array
        Quantile of the normal distribution, which it is without skewness.
    skewness : array

    Examples
    --------
    >>> pearson_quantile(np.array([-1.96, 1.96]), np.array([1.0, 1.0])).round(2)
    array([-1.46,  2.38])
    """
    g = np.where(np.abs(skewness) < _NO_SKEWNESS, _NO_SKEWNESS, skewness)
    root = np.maximum(1 + g * z / 6 - g**2 / 36, 0)
    return np.asarray(2 / g * (root**3 - 1))


def _candidates(
    centre: float, path: EstimatePath, z: float, limits: tuple[float, float]
) -> _Candidates:
    """Values T₀ within the limits, finely around a centre."""
    x, variances, thirds = _in_order(*path)
    least, greatest = limits
    local = float(np.sqrt(np.interp(centre, x, variances)))
    # Finely at both ends as well, of which one is a perfect model.
    near_end = np.geomspace(1e-7, 0.3, 600) * (greatest - least)
    values = np.concatenate(
        [
            centre + np.linspace(-1, 1, 2401) * max(6, 2 * z) * local,
            np.linspace(least, greatest, 4001),
            greatest - near_end,
            least + near_end,
        ]
    )
    values = values[(values >= least) & (values <= greatest)]
    deviations = np.sqrt(np.interp(values, x, variances))
    skewness = np.interp(values, x, thirds) / np.maximum(deviations, 1e-100) ** 3
    return _Candidates(values, deviations, np.where(deviations > 0, skewness, 0.0))


def _in_order(path_values: _Floats, *others: _Floats) -> tuple[_Floats, ...]:
    order = np.argsort(path_values)
    return path_values[order], *(other[order] for other in others)

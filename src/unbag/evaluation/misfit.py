"""How much bags disagree about a model beyond chance, and what that adds to every interval."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

if TYPE_CHECKING:
    from unbag.evaluation.variances import BagSample

__all__ = ["Misfit", "drift_directions", "measure_misfit"]

_Floats = NDArray[np.float64]
_ALARM = 0.05  # p-value below which bags disagree, and a bag stands out
# Student's quantile has no bound to its mean with one degree of freedom: where a single bag is
# spare, one in three intervals would say nothing, and the allowance holds a little less instead.
_LEAST_DEGREES = 2.0


@dataclass(frozen=True)
class Misfit:
    """How much the bags disagree about a model.

    Attributes
    ----------
    p_value : float
        Chance of bags that disagree as much if rows of a class are alike in all of them.
    drift : float
        Estimated standard deviation of the recall of a class between bags, beyond chance; 0 where
        bags disagree no more than chance allows.
    degrees : float
        Degrees of freedom of that estimate.
    bags : tuple of (bag id, float)
        Bags that stand out, worst first: squared deviation over what chance gives, 1 on average.
    """

    p_value: float
    drift: float
    degrees: float
    bags: tuple[tuple[Any, float], ...]

    @property
    def is_significant(self) -> bool:
        """Whether chance explains the disagreement in fewer than 5% of cases."""
        return self.p_value < _ALARM

    def allowance(self, level: float) -> float:
        """Drift to add to the intervals of a level: larger where few bags tell how large it is."""
        tail = 0.5 + level / 2
        degrees = max(self.degrees, _LEAST_DEGREES)
        return float(self.drift * stats.t.ppf(tail, degrees) / stats.norm.ppf(tail))

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return vars(self)


def drift_directions(pattern: _Floats) -> _Floats:
    r"""How predictions of a class move when its recall grows: (K, K).

    .. math:: a_y = e_y - q_y

    where :math:`q_y` are the shares of the classes among the errors of class y.

    Examples
    --------
    >>> drift_directions(np.array([[0.8, 0.1, 0.1], [0.0, 0.9, 0.1], [0.2, 0.2, 0.6]])).round(6)
    array([[ 1. , -0.5, -0.5],
           [-0. ,  1. , -1. ],
           [-0.5, -0.5,  1. ]])
    """
    errors = np.where(np.eye(len(pattern)) > 0, 0.0, pattern + 1e-12)  # even where there are none
    return np.asarray(np.eye(len(pattern)) - errors / errors.sum(1, keepdims=True))


def measure_misfit(
    shares: _Floats,
    inverse: _Floats,
    sample: "BagSample",
    confusion: _Floats,
    directions: _Floats,
    bag_ids: NDArray[Any],
    design_effect: float = 1.0,
) -> Misfit | None:
    r"""Measure how much more the shares of predictions vary between bags than chance explains.

    With the residuals :math:`r_m = V_m - \theta_m \hat C` of the size-weighted fit, leverages
    :math:`h_m`, and a recall of class y in bag m that differs from that of all bags by a random
    :math:`d_{my}` of variance τ²,

    .. math:: \mathrm{E} \sum_m n_m \lVert r_m \rVert^2 = \sum_m (1 - h_m) \, n_m
        \bigl( \operatorname{tr} \operatorname{Cov} V_m + \tau^2 \operatorname{tr} A_m \bigr),
        \qquad A_m = \sum_y \theta_{my}^2 a_y a_y^\top

    with the directions :math:`a_y` of :func:`drift_directions`. That gives τ. Without drift the
    sum is about a scaled χ² with this mean and the variance of the sum, which gives the p-value.

    Parameters
    ----------
    shares : array of shape (M, K)
        V, the share of each bag predicted as each class.
    inverse : array of shape (K, M)
        The size-weighted left inverse of Θ.
    sample : BagSample
        The bags, without drift.
    confusion : array of shape (K, K)
        A valid confusion matrix that fits the shares.
    directions : array of shape (K, K)
    bag_ids : array of shape (M,)
    design_effect : float
        Variance with repeated rows over that of distinct ones.

    Returns
    -------
    Misfit or None
        None with as many bags as classes: any shares fit then.
    """
    theta, counts = sample.theta, sample.counts
    m, k = theta.shape
    if m <= k:
        return None
    spare = np.maximum(1 - (theta * inverse.T).sum(1), 0)  # (M,), 1 − h
    if sample.errors is not None:  # no projection at right angles then: what r_m adds to the sum
        kept = np.eye(m) - theta @ inverse  # (M, M)
        spare = counts @ kept**2 / counts
    residuals = counts * ((shares - theta @ (inverse @ shares)) ** 2).sum(1)
    covariance = sample.prediction_covariance(confusion)  # (M, K, K), of a row
    alone = np.trace(covariance, axis1=1, axis2=2)
    noise = design_effect * counts * sample.share_variance(confusion.T).sum(0)  # with errors of Θ
    # tr S² and half the fourth cumulant, by which the mean square of few or rare predictions
    # varies more than that of normal ones.
    spread = (covariance**2).sum((1, 2))
    fourth = _fourth_moment(sample, confusion) - alone**2 - 2 * spread
    spread = spread + np.maximum(fourth, 0) / (2 * counts)
    squares = spread * (noise / np.maximum(alone, 1e-300)) ** 2
    expected = float(spare @ noise)
    squared = theta**2 * sample.scattering[:, None]
    drifts = np.einsum("my,yk,yl->mkl", squared, directions, directions)
    by_drift = counts * np.trace(drifts, axis1=1, axis2=2)
    scale = float(spare @ by_drift)
    if expected <= 0 or scale <= 0:
        return None
    total = float(residuals.sum())
    degrees = expected**2 / float(spare @ squares)
    own_degrees = noise**2 / np.maximum(squares, 1e-300)
    ratios = residuals / np.maximum(spare * noise, 1e-300)
    ratios[spare < 1e-6] = 1.0  # a bag that the fit must follow
    chances = stats.chi2.sf(ratios * own_degrees, own_degrees)
    order = np.argsort(chances, kind="stable")
    holm = chances[order] * np.arange(m, 0, -1)
    n_out = int((np.maximum.accumulate(holm) < _ALARM).sum())
    p_value = float(stats.chi2.sf(total / expected * degrees, degrees))
    # A single spare bag shows that one is off, but not which.
    ids = bag_ids[order[:n_out]].tolist() if p_value < _ALARM and m > k + 1 else []
    return Misfit(
        p_value=p_value,
        drift=float(np.sqrt(max(total - expected, 0) / scale)),
        degrees=float(scale**2 / (spare @ (counts**2 * (drifts**2).sum((1, 2))))),
        bags=tuple((bag, float(ratios[i])) for bag, i in zip(ids, order, strict=False)),
    )


def _fourth_moment(sample: "BagSample", confusion: _Floats) -> _Floats:
    """Mean fourth power of the distance of a row's prediction from its mean, by bag: (M,)."""

    def of(shares: _Floats) -> _Floats:
        """Of predictions with these shares, (..., K)."""
        length = (shares**2).sum(-1, keepdims=True)
        return np.asarray((shares * (1 - 2 * shares + length) ** 2).sum(-1))

    free, of_class = of(sample.theta @ confusion), sample.theta @ of(confusion)
    return np.asarray(sample.noise * free + (1 - sample.noise) * of_class)

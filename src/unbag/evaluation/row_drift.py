r"""What predictions may owe to bags and not to classes, where rows of a class differ between bags.

Let predictions of class y in bag m have the shares :math:`C_y + (\theta_m - p) G`: those of a class
move with the shares of its bag, as with rows of the old and the young. Then
:math:`V_m = \theta_m (C + G) - p G` is linear in the shares, nothing disagrees, and the estimate
:math:`\hat C = C + G - 1 p^\top G` is wrong. If a part λ of what differs between bags comes from
the bags, :math:`G = \lambda \hat C`, and the confusion matrix of all rows is

.. math:: \bar C(\lambda) = (1 - \lambda) \hat C + \lambda A \hat C, \qquad
          A_{yk} = \sum_m \frac{w_m \theta_{my} \theta_{mk}}{p_y}

with the shares w of the bags in all rows. It runs from Goodman's regression (λ = 0) to the
"neighborhood model" of Freedman et al. (1991), in which predictions in a bag tell nothing of the
classes (λ = 1). Nothing but labels can tell λ. But the rows show how far bags differ beside what
the shares explain: δ standard deviations within bags. If drift along the shares is as large,

.. math:: \lambda = \min\Bigl(1, z \, \delta \sqrt{v} \Big/
          \sqrt{\operatorname{tr}(\hat C^\top S \hat C)}\Bigr)

with the variance v of the predictions within bags, S that of the shares between bags, and the
normal quantile z of the level. Intervals reach from :math:`\hat C` to :math:`\bar C(\lambda)`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.residuals import Residuals

__all__ = ["RowDrift", "mixing", "part_of_bags"]

_Floats = NDArray[np.float64]
_ALARM = 0.05


@dataclass(frozen=True)
class RowDrift:
    """How far rows of a class differ between bags, and what intervals make of it.

    Attributes
    ----------
    p_value : float
        Chance of rows that differ as much if those of a class are alike in all bags.
    deviation : float
        How far bag means of the rows are from mixes of class means, beyond chance, in standard
        deviations within bags.
    part : float
        λ, the part of the contrast between bags that may come from the bags; 0 where ``p_value``
        is 0.05 or more.
    accuracy : float
        What the accuracy would be if all of it did. Intervals reach as far towards it as λ says.
    """

    p_value: float
    deviation: float
    part: float
    accuracy: float

    @classmethod
    def of(cls, found: Residuals, part: float, accuracy: float) -> "RowDrift":
        """Describe the drift that a test found."""
        is_found = found.p_value < _ALARM
        return cls(found.p_value, found.deviation, part if is_found else 0.0, accuracy)

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return vars(self)


def mixing(theta: _Floats, counts: _Floats) -> _Floats:
    """Give A, (K, K): the classes of a random row in the bag of a row of each class.

    Examples
    --------
    >>> mixing(np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([50.0, 50.0])).round(2)
    array([[0.82, 0.18],
           [0.18, 0.82]])
    """
    weight = counts / counts.sum()
    pooled = weight @ theta
    pairs = (theta.T * weight) @ theta
    absent = pooled <= 0
    return np.asarray(pairs / np.where(absent, 1, pooled)[:, None] + np.diag(absent * 1.0))


def part_of_bags(
    deviation: float, z: float, shares: _Floats, theta: _Floats, counts: _Floats, confusion: _Floats
) -> float:
    """Give λ.

    Parameters
    ----------
    deviation, z : float
    shares : array of shape (M, K)
        V, the share of each bag predicted as each class.
    theta : array of shape (M, K)
    counts : array of shape (M,)
    confusion : array of shape (K, K)

    Examples
    --------
    >>> theta, counts = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([50.0, 50.0])
    >>> confusion = np.array([[0.8, 0.2], [0.2, 0.8]])
    >>> round(part_of_bags(0.1, 2.0, theta @ confusion, theta, counts, confusion), 3)
    0.366
    """
    weight = counts / counts.sum()
    within = weight @ (shares * (1 - shares)).sum(1)
    between = weight @ (((theta - weight @ theta) @ confusion) ** 2).sum(1)
    drift = z * deviation * math.sqrt(within)
    return 1.0 if drift >= math.sqrt(between) else float(drift / math.sqrt(between))

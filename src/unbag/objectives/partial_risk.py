"""Partial risk regularisation, the method of the paper."""

from typing import Any

import torch
from torch import Tensor

from unbag.objectives.base import RiskObjective
from unbag.objectives.losses import LossOfEveryClass
from unbag.statistics import BagStatistics

__all__ = ["PartialRiskRegularized"]

# A share that equals its level must count as reached in any precision. E moves in steps of one
# over the rows of a bag in a batch, far above this.
_ROUNDING = 1e-6


class PartialRiskRegularized(RiskObjective):
    r"""Rewritten risk with every partial risk kept at its level (method ``u-prr``).

    .. math::
        \alpha R_U + (1-\alpha) \sum_{m,k} |W_{mk}| \, s_{mk} \bigl(R_{mk} - (1-\theta_{mk})\bigr)

    .. math::
        s_{mk} = \begin{cases} 1 & E_{mk} \ge 1-\theta_{mk} \\ -s_{GA} & \text{else}
        \end{cases}

    where :math:`R_{mk}` is a partial risk, :math:`E_{mk}` its zero-one form (the share of bag m
    not predicted as k), and :math:`1-\theta_{mk}` the value :math:`E_{mk}` has at the optimum of
    separable classes. The sign :math:`s` is a constant for the gradient: descend while
    too few rows of the bag are predicted as k, climb at scale :math:`s_{GA}` when too many are
    (Eqs. 12 to 14 and Algorithm 1 of Tang et al., 2022).

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    test_prior : array of shape (K,)
    alpha : float in [0, 1], default=0.7
        α, the share of the rewritten risk. The paper tries 0.1, 0.3, 0.5, 0.7 and 0.9.
    ascent_scale : float, default=5.0
        s_GA, the scale of gradient ascent. The paper tries 0.1, 0.2, 0.5, 1, 2, 5 and 10.
    loss : str or callable, default="cross-entropy"

    Examples
    --------
    >>> import torch
    >>> objective = PartialRiskRegularized(
    ...     [[0.8, 0.2], [0.3, 0.7]], test_prior=[0.5, 0.5], alpha=0.5, ascent_scale=5.0
    ... )
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    0.445
    """

    alpha: Tensor
    ascent_scale: Tensor
    hyperparameters = ("alpha", "ascent_scale")

    def __init__(
        self,
        priors: Any,
        test_prior: Any,
        *,
        alpha: float = 0.7,
        ascent_scale: float = 5.0,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, test_prior, loss=loss)
        self._register_hyperparameter("alpha", alpha, low=0, high=1)
        self._register_hyperparameter("ascent_scale", ascent_scale, low=0)

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        risks = statistics.risks  # (..., M, K)
        level = 1 - self.theta.to(risks)
        ascent = self.ascent_scale.to(risks)[..., None, None]
        reached = statistics.zero_one_risks >= level - _ROUNDING
        sign = torch.where(reached, torch.ones_like(ascent), -ascent)
        terms = self.risk_weights.to(risks).abs() * sign * (risks - level)
        regulariser = (terms * statistics.presence[..., None]).sum((-2, -1))
        alpha = self.alpha.to(risks)
        return alpha * self.empirical_risk(statistics) + (1 - alpha) * regulariser

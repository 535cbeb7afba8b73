"""The risk corrected class by class."""

from torch import Tensor

from unbag.objectives.base import RiskObjective
from unbag.statistics import BagStatistics

__all__ = ["Corrected"]


class Corrected(RiskObjective):
    r"""Rewritten risk with the part of every class kept non-negative (method ``u-correct``).

    .. math:: \sum_k \Bigl| \sum_m W_{mk} R_{mk} \Bigr|

    where :math:`R_{mk}` is a partial risk and :math:`W = (\Pi\Theta^\dagger)^\top` the risk
    weights: the true risk of a class cannot be negative, so its estimate is not let below zero
    (the correction of Lu et al., 2020, as used by Tang et al., 2022).

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    test_prior : array of shape (K,)
    loss : str or callable, default="cross-entropy"

    Examples
    --------
    >>> import torch
    >>> objective = Corrected([[0.8, 0.2], [0.3, 0.7]], test_prior=[0.5, 0.5])
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    0.0863
    """

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        return self.weighted_risks(statistics).sum(-2).abs().sum(-1)

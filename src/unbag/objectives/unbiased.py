"""The rewritten risk itself."""

from torch import Tensor

from unbag.objectives.base import RiskObjective
from unbag.statistics import BagStatistics

__all__ = ["Unbiased"]


class Unbiased(RiskObjective):
    r"""Unbiased estimator of the classification risk (methods ``unbiased`` and ``u-stop``).

    .. math:: R_U = \sum_{m,k} W_{mk} R_{mk}

    where :math:`R_{mk}` is the mean loss of the rows of bag m if all were of class k, and
    :math:`W = (\Pi\Theta^\dagger)^\top` (Eqs. 4 and 6 of Tang et al., 2022). Flexible models
    drive it far below zero and overfit; ``u-stop`` ends training when that begins.

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    test_prior : array of shape (K,)
    loss : str or callable, default="cross-entropy"

    Examples
    --------
    >>> import torch
    >>> objective = Unbiased([[0.8, 0.2], [0.3, 0.7]], test_prior=[0.5, 0.5])
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    -0.0613
    """

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        return self.empirical_risk(statistics)

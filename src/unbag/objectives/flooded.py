"""The risk kept above one flood level."""

from typing import Any

from torch import Tensor

from unbag.objectives.base import RiskObjective
from unbag.objectives.losses import LossOfEveryClass
from unbag.statistics import BagStatistics

__all__ = ["Flooded"]


class Flooded(RiskObjective):
    r"""Rewritten risk with flooding (method ``u-flood``).

    .. math:: |R_U - b| + b

    where :math:`R_U = \sum_{mk} W_{mk} R_{mk}` is the rewritten risk and b the flood level: below
    it, training climbs instead of descending (Ishida et al., 2020; Eq. 8 of Tang et al., 2022).

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    test_prior : array of shape (K,)
    flood_level : float, default=0.05
        b, at least 0. The paper tries 0, 0.05 and 0.1.
    loss : str or callable, default="cross-entropy"

    Examples
    --------
    >>> import torch
    >>> objective = Flooded([[0.8, 0.2], [0.3, 0.7]], test_prior=[0.5, 0.5], flood_level=0.1)
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    0.2613
    """

    flood_level: Tensor
    hyperparameters = ("flood_level",)

    def __init__(
        self,
        priors: Any,
        test_prior: Any,
        *,
        flood_level: float = 0.05,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, test_prior, loss=loss)
        self._register_hyperparameter("flood_level", flood_level, low=0)

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        risk = self.empirical_risk(statistics)
        level = self.flood_level.to(risk)
        return (risk - level).abs() + level

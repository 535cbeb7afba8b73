"""Every row is labelled with the largest class of its bag."""

from typing import Any

import numpy as np
from torch import Tensor

from unbag.objectives.base import Objective
from unbag.objectives.losses import LossOfEveryClass
from unbag.statistics import BagStatistics

__all__ = ["Biased"]


class Biased(Objective):
    r"""Supervised loss with the largest class of the bag as every row's label (method ``biased``).

    .. math:: \sum_m \frac{n_m}{n} R_{m, k(m)}, \qquad k(m) = \arg\max_k \theta_{mk}

    where :math:`R_{mk}` is a partial risk and :math:`n_m/n` the share of bag m among all rows.

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    bag_shares : array of shape (M,), optional
        n_m/n. By default the shares in the batch, which are right for batches drawn from all rows
        at random.
    loss : str or callable, default="cross-entropy"

    Examples
    --------
    >>> import torch
    >>> objective = Biased([[0.8, 0.2], [0.3, 0.7]])
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    0.5845
    """

    major: Tensor
    bag_shares: Tensor | None

    def __init__(
        self,
        priors: Any,
        *,
        bag_shares: Any = None,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, loss=loss)
        theta = self.priors.values
        self._register("major", np.eye(theta.shape[1])[theta.argmax(1)])  # (M, K)
        if bag_shares is None:
            self.register_buffer("bag_shares", None)
        else:
            self._register("bag_shares", self._check_bag_shares(bag_shares))

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        if self.bag_shares is None:
            shares = statistics.counts / statistics.counts.sum(-1, keepdim=True)
        else:
            shares = self.bag_shares.to(statistics.counts) * statistics.presence
        major_risks = (self.major.to(statistics.risks) * statistics.risks).sum(-1)  # (..., M)
        return (shares * major_risks).sum(-1)

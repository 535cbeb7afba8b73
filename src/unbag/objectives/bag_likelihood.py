"""The likelihood of every row's bag: forward correction by the class priors."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.objectives.base import Objective
from unbag.objectives.losses import LossOfEveryClass
from unbag.statistics import BagStatistics
from unbag.validation import as_float_array, invalid

__all__ = ["BagLikelihood"]

_SMALLEST = 1e-30  # share, so that the logarithm of a class that a bag lacks is finite


class BagLikelihood(Objective):
    r"""Cross-entropy of the bag that a row lies in (method ``bag-likelihood``).

    .. math::
        \sum_m s_m \frac1{n_m} \sum_{i \in m} -\log P(m \mid x_i), \qquad
        P(m \mid x) = s_m \sum_k \frac{\theta_{mk}}{p_k} \eta_k(x)

    where :math:`s_m = n_m / n` is the share of bag m among all rows, :math:`p = \sum_m s_m
    \theta_m` the pooled prior and :math:`\eta` the softmax, which estimates the posterior under p.
    It needs no inverse of Θ, is never negative, and costs K numbers a row whatever the number of
    bags. With Θ = I it is cross-entropy.

    The minimiser is the true posterior where Θ has full column rank. Where it has not, P(m | x) is
    still learned, but posteriors that differ by a vector v with :math:`\sum_k v_k \theta_{mk} /
    p_k = 0` for all m cannot be told apart: two classes with the same shares everywhere, say.

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    bag_shares : array of shape (M,), optional
        s; by default all bags are of the same size.
    loss : str or callable, default="cross-entropy"
        Only for the partial risks of the history.

    Examples
    --------
    >>> import torch
    >>> objective = BagLikelihood([[0.8, 0.2], [0.3, 0.7]])
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    0.5734
    """

    log_ratios: Tensor
    bag_shares: Tensor

    def __init__(
        self,
        priors: Any,
        *,
        bag_shares: Any = None,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, loss=loss)
        if bag_shares is None:
            shares = np.full(self.n_bags, 1 / self.n_bags)
        else:
            shares = as_float_array("bag_shares", bag_shares, ndim=1)
            if len(shares) != self.n_bags:
                raise invalid("bag_shares", f"of length {self.n_bags}", f"length {len(shares)}")
            if not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
                got = f"numbers from {shares.min():g} that sum to {shares.sum():g}"
                raise invalid("bag_shares", "shares that sum to 1", got)
        pooled = shares @ self.priors.values
        # A class that no bag has gets the ratio 1: nothing is known of it but p = 0.
        ratios = np.where(pooled > 0, self.priors.values / np.where(pooled > 0, pooled, 1), 1.0)
        self._register("log_ratios", np.log(np.maximum(ratios, _SMALLEST)))
        self._register("bag_shares", shares)

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        logits, shares = statistics.logits, self.bag_shares.to(statistics.logits)  # (..., M)
        log_ratios = self.log_ratios.to(logits)
        own = statistics.bag_index[..., None].expand(*logits.shape[:-1], logits.shape[-1])
        own = log_ratios.expand(*logits.shape[:-2], *log_ratios.shape[-2:]).gather(-2, own)
        log_chance = torch.logsumexp(torch.log_softmax(logits, -1) + own, -1, keepdim=True)
        losses = -statistics.bag_mean(log_chance).squeeze(-1)  # (..., M)
        # A bag without rows in training has no share, and no rows here.
        losses = losses - torch.log(torch.where(shares > 0, shares, torch.ones_like(shares)))
        return (shares * statistics.presence * losses).sum(-1)

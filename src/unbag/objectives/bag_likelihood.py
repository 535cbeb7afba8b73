"""The likelihood of every row's bag: forward correction by the class priors."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.objectives.base import Objective
from unbag.objectives.losses import LossOfEveryClass
from unbag.statistics import BagStatistics

__all__ = ["BagLikelihood", "MatchedLikelihood"]

_SMALLEST = 1e-30  # share, so that the logarithm of a class that a bag lacks is finite
_FLOOR = 0.1  # over K: keeps distances of the smallest shares from ruling the others
_FEWEST = 1e-3  # pairs for every row, below which a bag has one row as far as rounding goes


class BagLikelihood(Objective):
    r"""Cross-entropy of the bag that a row lies in (method ``bag-likelihood``).

    .. math::
        \sum_m s_m \frac1{n_m} \sum_{i \in m} -\log P(m \mid x_i), \qquad
        P(m \mid x) = s_m \sum_k \frac{\theta_{mk}}{p_k} \eta_k(x)

    where :math:`s_m = n_m / n` is the share of bag m among all rows, :math:`p = \sum_m s_m
    \theta_m` the pooled prior and :math:`\eta` the softmax, which estimates the posterior under p.
    It needs no inverse of Θ, is never negative, and costs K numbers per row whatever the number of
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
    0.537
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
        equal = np.full(self.n_bags, 1 / self.n_bags)
        shares = equal if bag_shares is None else self._check_bag_shares(bag_shares)
        pooled = shares @ self.priors.values
        # A class that no bag has is taken for impossible.
        ratios = np.where(pooled > 0, self.priors.values / np.where(pooled > 0, pooled, 1), 0.0)
        self._register("log_ratios", np.log(np.maximum(ratios, _SMALLEST)))
        self._register("bag_shares", shares)

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        return self._likelihood(statistics, self._joint(statistics))

    def _joint(self, statistics: BagStatistics) -> Tensor:
        """Logarithms of θ_mk η_k / p_k for the bag m of every row. Shape (..., n, K)."""
        log_eta = torch.log_softmax(statistics.logits, -1)
        return log_eta + self._of_bags(self.log_ratios.to(log_eta), statistics)

    @staticmethod
    def _of_bags(table: Tensor, statistics: BagStatistics) -> Tensor:
        """Row of a table (..., M, K) for the bag of every row. Shape (..., n, K)."""
        rows, k = statistics.bag_index.shape, table.shape[-1]
        whole = table.expand(*rows[:-1], *table.shape[-2:])
        return whole.gather(-2, statistics.bag_index[..., None].expand(*rows, k))

    def _likelihood(self, statistics: BagStatistics, joint: Tensor) -> Tensor:
        shares = self.bag_shares.to(joint)  # (..., M)
        log_chance = torch.logsumexp(joint, -1, keepdim=True)
        losses = -statistics.bag_mean(log_chance).squeeze(-1)  # (..., M)
        # A bag without rows in training has no share, and no rows here.
        losses = losses - torch.log(torch.where(shares > 0, shares, torch.ones_like(shares)))
        return (shares * statistics.presence * losses).sum(-1)


class MatchedLikelihood(BagLikelihood):
    r"""Bag likelihood, with the mean posterior of every bag held at its shares.

    Method ``matched-likelihood``. With the posterior of row i given its bag m, :math:`q_{ik}
    \propto \theta_{mk} \eta_k(x_i) / p_k`,

    .. math::
        -\sum_m s_m \frac1{n_m} \sum_{i \in m} \log P(m \mid x_i) + \lambda c^2 \sum_m s_m
        \sum_k \frac{1}{\theta_{mk} + 0.1 / K} \cdot
        \frac{\sum_{i \ne j \in m} (q_{ik} - \theta_{mk}) (q_{jk} - \theta_{mk})}{n_m (n_m - 1)}

    At the true posterior the mean of q over a bag is θ, whether classes overlap or not, while a
    network that has memorised bags has q near one class. Each part has its reason:

    - Pairs of different rows estimate the squared distance of the mean without the noise of few
      rows, which would drive q towards θ: to a model that predicts the prior everywhere.
    - The confidence :math:`c = (\sum_k \overline{\eta_k^2} / p_k - 1) / (K - 1)`, a constant for
      the gradient, is 0 for a model that predicts the prior and 1 for one that is certain. Near
      the former the distance would punish a network that begins to learn.
    - The distance alone cannot distinguish a model that predicts the prior from a good one; the
      likelihood can.

    There is no inverse of Θ and no level that supposes separable classes. With Θ = I it is
    cross-entropy.

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    bag_shares : array of shape (M,), optional
        s; by default all bags are of the same size.
    trust : array of shape (M,), optional
        How far the shares of each bag are those of its rows, at most 1: a factor of its distance.
    matching : float, default=8.0
        λ.
    loss : str or callable, default="cross-entropy"
        Only for the partial risks of the history.

    Examples
    --------
    >>> import torch
    >>> objective = MatchedLikelihood([[0.8, 0.2], [0.3, 0.7]])
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    0.4851
    """

    matching: Tensor
    trust: Tensor
    hyperparameters = ("matching",)

    def __init__(
        self,
        priors: Any,
        *,
        bag_shares: Any = None,
        trust: Any = None,
        matching: float = 8.0,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, bag_shares=bag_shares, loss=loss)
        self._register("trust", np.ones(self.n_bags) if trust is None else trust)
        self._register_hyperparameter("matching", matching, low=0)

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        joint = self._joint(statistics)
        distance = self._confidence(statistics) ** 2 * self._distance(statistics, joint)
        return self._likelihood(statistics, joint) + self.matching.to(distance) * distance

    def _distance(self, statistics: BagStatistics, joint: Tensor) -> Tensor:
        """Squared distance of mean posteriors from the shares. Shape (...)."""
        theta = self.theta.to(joint)
        gap = torch.softmax(joint, -1) - self._of_bags(theta, statistics)  # (..., n, K)
        weight = torch.ones_like(gap[..., :1])
        if statistics.weight is not None:
            weight = statistics.weight[..., None].to(gap)

        def pairs(values: Tensor) -> Tensor:
            """Sum of products over pairs of different rows of a bag. Shape (..., M, K)."""
            return statistics.bag_sum(values) ** 2 - statistics.bag_sum(values**2)

        number = pairs(weight)
        some = number > _FEWEST * statistics.bag_sum(weight**2)
        square = torch.where(some, pairs(weight * gap) / torch.where(some, number, 1.0), 0.0)
        shares = (self.bag_shares.to(gap) * self.trust.to(gap) * statistics.presence)[..., None]
        return (shares * square / (theta + _FLOOR / theta.shape[-1])).sum((-2, -1))

    def _confidence(self, statistics: BagStatistics) -> Tensor:
        """c, without gradient. Shape (...)."""
        eta = torch.softmax(statistics.logits.detach(), -1)
        pooled = (self.bag_shares[..., None] * self.theta).sum(-2).to(eta)  # (..., K)
        occurs = pooled > 0
        squares = statistics.mean(eta**2)
        mean_squares = torch.where(occurs, squares / torch.where(occurs, pooled, 1.0), 0.0)
        return ((mean_squares.sum(-1) - 1) / (occurs.sum(-1) - 1).clamp_min(1)).clamp(0, 1)

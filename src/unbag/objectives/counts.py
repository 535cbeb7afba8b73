"""The likelihood of the class counts of whole bags."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from unbag.objectives.base import Objective
from unbag.objectives.losses import LossOfEveryClass
from unbag.statistics import BagStatistics, bag_sum, take_bags
from unbag.validation import as_float_array, invalid

__all__ = ["CountLikelihood", "log_count_chance"]

_MOST_ROWS = 256  # of a bag whose counts have their exact distribution
_STEPS, _LARGEST_STEP, _LARGEST_TILT = 12, 4.0, 48.0  # of Newton's method
_LEAST_VARIANCE = 0.05
_ROUNDING = 1 / 12  # variance of what is left of a number that was rounded


class CountLikelihood(Objective):
    r"""Likelihood of the number of rows of each class in every bag (method ``count-likelihood``).

    .. math:: -\sum_m \frac{s_m}{n_m} \sum_k \log P(N_{mk} = n_m \theta_{mk}), \qquad
        N_{mk} = \sum_{i \in m} B_i, \quad B_i \sim \mathrm{Bernoulli}(\eta_k(x_i))

    where :math:`\eta` is the softmax, :math:`n_m` the rows of bag m and :math:`s_m` its share of
    all rows. The number of rows of one class in a bag has a Poisson-binomial distribution: its
    chance is computed exactly, by a discrete Fourier transform of the exponentially tilted
    distribution whose mean is the known count, so that it keeps its digits however unlikely the
    count is. The gradient by the log-odds of a row is its probability less its probability given
    the count, so it is never above one.

    Counts of bags above 256 rows, of bags of which a batch holds a part, of bags whose shares are
    not exact, and of rows with weights are taken as normal, with the variance of what is missing.

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    bag_counts : array of shape (M,), optional
        Rows of every bag; by default a batch holds all rows of its bags.
    bag_shares : array of shape (M,), optional
        s; by default all bags are of the same size.
    excess : array of shape (M,), optional
        How far the shares of every bag may be off: variance of the counts of its rows around the
        known ones, in units of n θ (1 − θ); 0, the default, where they are exact.
    loss : str or callable, default="cross-entropy"
        Only for the partial risks of the history.

    Examples
    --------
    >>> objective = CountLikelihood([[0.5, 0.5], [1.0, 0.0]])
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 0, 1])).item(), 4)
    0.4311
    """

    bag_counts: Tensor
    bag_shares: Tensor
    excess: Tensor

    def __init__(
        self,
        priors: Any,
        *,
        bag_counts: Any = None,
        bag_shares: Any = None,
        excess: Any = None,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, loss=loss)
        self._register("bag_counts", self._check_per_bag("bag_counts", bag_counts))
        # Rows of the largest bag; none where a batch is taken to hold all rows of its bags.
        self.longest = int(self.bag_counts.max())
        self._register("excess", self._check_per_bag("excess", excess))
        equal = np.full(self.n_bags, 1 / self.n_bags)
        shares = equal if bag_shares is None else self._check_bag_shares(bag_shares)
        self._register("bag_shares", shares)

    def _check_per_bag(self, name: str, given: Any) -> NDArray[np.float64]:
        if given is None:
            return np.zeros(self.n_bags)
        values = as_float_array(name, given, ndim=1)
        if len(values) != self.n_bags or not (values >= 0).all():
            allowed = f"a number of at least 0 for each of {self.n_bags} bags"
            raise invalid(name, allowed, f"{len(values)} numbers from {values.min(initial=0):g}")
        return values

    @classmethod
    def stack(cls, objectives: Sequence[Self], n_bags: int | None = None) -> Self:
        """Join objectives into one whose buffers have a leading replica axis."""
        joined = super().stack(objectives, n_bags)
        joined.longest = max(objective.longest for objective in objectives)
        return joined

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        log_eta = torch.log_softmax(statistics.logits, -1)
        bags, index = statistics.present_bags()  # (..., L), (..., n)
        theta = take_bags(self.theta.to(log_eta), bags)
        rows, size, excess, weight = (
            take_bags(table.to(log_eta)[..., None], bags).squeeze(-1)
            for table in (
                statistics.counts,
                self.bag_counts,
                self.excess,
                self.bag_shares.to(log_eta) * statistics.presence,
            )
        )
        size = torch.maximum(size, rows)
        # Of a part of a bag, counts vary as those of rows that are drawn without replacement.
        unknown = rows * (1 - rows / torch.where(size > 0, size, 1.0) + excess)
        missing = unknown[..., None] * theta * (1 - theta)
        sums = partial(statistics.bag_sum, bags=(index, bags.shape[-1]))
        chance = log_count_chance(
            log_eta,
            index,
            rows[..., None] * theta,
            rows,
            missing,
            longest=self.longest or log_eta.shape[-2],
            weight=statistics.weight,
            sums=sums,
        )
        return -(weight * chance.sum(-1) / torch.where(rows > 0, rows, 1.0)).sum(-1)


def log_count_chance(
    log_eta: Tensor,
    bag_index: Tensor,
    counts: Tensor,
    rows: Tensor,
    missing: Tensor,
    *,
    longest: int,
    weight: Tensor | None = None,
    sums: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Log-probability of the number of rows of each class in every bag.

    Parameters
    ----------
    log_eta : Tensor of shape (..., n, K)
        Log-probabilities of the rows.
    bag_index : integer Tensor of shape (..., n)
    counts : Tensor of shape (..., M, K)
        The known numbers.
    rows : Tensor of shape (..., M)
        Rows of every bag.
    missing : Tensor of shape (..., M, K)
        Variance of the counts around the known ones; 0 where these are exact.
    longest : int
        No bag has more rows.
    weight : Tensor of shape (..., n), optional
        Weight of every row; ``rows`` and ``counts`` are sums of weights then.
    sums : callable, optional
        Sums over the rows of every bag, of all processes: (..., n, d) to (..., M, d).

    Returns
    -------
    Tensor of shape (..., M, K)
        0 for a bag without rows.

    Examples
    --------
    >>> log_eta = torch.log(torch.tensor([[0.9, 0.1], [0.5, 0.5]]))
    >>> one_bag, none = torch.zeros(2, dtype=torch.long), torch.zeros(1, 2)
    >>> rows = torch.tensor([2.0])
    >>> log_count_chance(log_eta, one_bag, torch.ones(1, 2), rows, none, longest=2).exp()
    tensor([[0.5000, 0.5000]])
    """
    log_odds = log_eta - _log_of_others(log_eta)  # (..., n, K)
    if sums is None:
        sums = partial(bag_sum, bag_index=bag_index, n_bags=counts.shape[-2])
    q = torch.sigmoid(log_odds)
    each = torch.ones_like(q[..., :1]) if weight is None else weight[..., None].to(q)
    variance = sums(each.square() * q * (1 - q)) + missing + _ROUNDING
    gap = sums(each * q) - counts
    normal = -(gap.square() / variance + torch.log(2 * math.pi * variance)) / 2
    if weight is not None:
        return torch.where((rows > 0)[..., None], normal, 0.0)
    longest = min(longest, _MOST_ROWS)
    exact = _log_exact(log_odds, bag_index, counts.round(), longest, sums)
    is_exact = (missing == 0) & (rows <= longest)[..., None]
    return torch.where((rows > 0)[..., None], torch.where(is_exact, exact, normal), 0.0)


def _log_of_others(log_eta: Tensor) -> Tensor:
    """Logarithm of the probability of all other classes, also next to certainty: (..., n, K)."""
    top = log_eta.argmax(-1, keepdim=True)
    others = torch.logsumexp(log_eta.scatter(-1, top, -torch.inf), -1, keepdim=True)
    small = torch.log1p(-log_eta.exp().clamp_max(0.5))
    return small.scatter(-1, top, others)


def _log_exact(
    log_odds: Tensor,
    bag_index: Tensor,
    counts: Tensor,
    longest: int,
    sums: Callable[[Tensor], Tensor],
) -> Tensor:
    r"""Logarithm of the Poisson-binomial probability of whole counts: (..., M, K).

    For any tilt s, with :math:`q_i = \sigma(o_i + s)` for the log-odds o,

    .. math:: P(N = c) = e^{-sc} \prod_i \frac{1 + e^{o_i + s}}{1 + e^{o_i}} \cdot
        \frac1T \sum_{t < T} e^{-\mathrm{i} \omega_t c}
        \prod_i (1 - q_i + q_i e^{\mathrm{i} \omega_t}), \qquad \omega_t = 2 \pi t / T

    for any T above the number of rows. Probabilities are real, so half of the terms suffice.
    """
    tilt = _find_tilt(log_odds.detach(), bag_index, counts, sums)
    tilted = log_odds + _of_rows(tilt, bag_index)
    growth = sums(softplus(tilted) - softplus(log_odds)) - tilt * counts
    q = torch.sigmoid(tilted)[..., None]  # (..., n, K, 1)
    period = 2 * (longest // 2 + 1)
    steps = torch.arange(period // 2 + 1, device=q.device, dtype=q.dtype)
    omega = steps * (2 * math.pi / period)
    is_end = (steps == 0) | (steps == period // 2)
    weight = torch.where(is_end, 1.0, 2.0).to(q)
    # Logarithm of the length, and angle, of each factor add up over the rows of a bag.
    shrink = (2 * q * (1 - q) * (1 - torch.cos(omega))).clamp_max(1 - torch.finfo(q.dtype).eps)
    length = torch.log1p(-shrink) / 2
    angle = torch.atan2(q * torch.sin(omega), 1 - q + q * torch.cos(omega))
    shape = (*counts.shape, len(omega))
    length, angle = (sums(part.flatten(-2)).view(shape) for part in (length, angle))
    wave = weight * torch.exp(length) * torch.cos(angle - omega * counts[..., None])
    return growth + torch.log((wave.sum(-1) / period).clamp_min(torch.finfo(q.dtype).eps))


@torch.no_grad()
def _find_tilt(
    log_odds: Tensor, bag_index: Tensor, counts: Tensor, sums: Callable[[Tensor], Tensor]
) -> Tensor:
    """Shift of the log-odds of a bag's rows at which their sum is the known count: (..., M, K)."""
    tilt = torch.zeros_like(counts)
    for _ in range(_STEPS):
        q = torch.sigmoid(log_odds + _of_rows(tilt, bag_index))
        step = (counts - sums(q)) / (sums(q * (1 - q)) + _LEAST_VARIANCE)
        tilt += step.clamp(-_LARGEST_STEP, _LARGEST_STEP)
        tilt.clamp_(-_LARGEST_TILT, _LARGEST_TILT)
    return tilt


def _of_rows(table: Tensor, bag_index: Tensor) -> Tensor:
    """Row of a table (..., M, K) for the bag of every row: (..., n, K)."""
    index = bag_index[..., None].expand(*bag_index.shape, table.shape[-1])
    return table.gather(-2, index)

"""Bag statistics: a batch of logits becomes a few small M×K matrices.

Everything unbag does with a batch goes through these matrices: objectives, histories, label-free
evaluation. Each is one segment sum over the rows, with any leading dimensions (a stack of models
has one, the replica), and never a Python loop over bags or classes.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from unbag.validation import invalid

__all__ = ["BagStatistics", "bag_sum", "present_bags", "take_bags", "wide", "zero_one_losses"]

# A product with the one-hot bag matrix is deterministic on CUDA, where scattered additions into a
# few bags would be neither that nor fast. It costs M numbers per row, so only where M is small.
_ONE_HOT_LIMIT = 64
_HALF = (torch.float16, torch.bfloat16)
_CHUNK = 1 << 18  # numbers that are converted at a time


def wide(values: Tensor) -> Tensor:
    """Return values to sum up: on the CPU in float64, so that their order plays no part.

    Several processes that share a batch then round the same sums as one process does.
    """
    return values.double() if _is_widened(values) else values


def _is_widened(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype == torch.float32


def bag_sum(values: Tensor, bag_index: Tensor, n_bags: int) -> Tensor:
    r"""Sum the rows of every bag.

    .. math:: S_{mk} = \sum_{i : m_i = m} v_{ik}

    Parameters
    ----------
    values : Tensor of shape (..., n, K)
        One vector :math:`v_i` for every row.
    bag_index : integer Tensor of shape (..., n)
        The bag :math:`m_i` of every row, from 0 to M−1.
    n_bags : int
        M.

    Returns
    -------
    Tensor of shape (..., M, K)
        A bag without rows sums to zero.

    Examples
    --------
    >>> bag_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 0]), n_bags=3)
    tensor([[5.],
            [0.],
            [2.]])
    """
    if values.is_cuda and n_bags <= _ONE_HOT_LIMIT:
        return _sum_by_product(values, bag_index, n_bags)
    return _sum_by_addition(values, bag_index, n_bags)


def _sum_by_product(values: Tensor, bag_index: Tensor, n_bags: int) -> Tensor:
    bags = torch.arange(n_bags, device=bag_index.device)
    one_hot = (bags[:, None] == bag_index[..., None, :]).to(values.dtype)  # (..., M, n)
    return one_hot @ values  # (..., M, K)


def _sum_by_addition(values: Tensor, bag_index: Tensor, n_bags: int) -> Tensor:
    lead, (n, k) = values.shape[:-2], values.shape[-2:]
    stacks = lead.numel()
    offset = torch.arange(stacks, device=bag_index.device).view(*lead, 1) * n_bags
    flat = values.new_zeros(stacks * n_bags, k)
    flat = flat.index_add(0, (bag_index + offset).reshape(-1), values.reshape(stacks * n, k))
    return flat.view(*lead, n_bags, k)


def _wide_bag_sum(values: Tensor, bag_index: Tensor, n_bags: int) -> Tensor:
    """Sum the rows of every bag, in the type of :func:`wide`."""
    if not _is_widened(values):
        return bag_sum(values, bag_index, n_bags)
    if values.numel() <= _CHUNK:
        return bag_sum(values.double(), bag_index, n_bags)
    return cast(Tensor, _WideBagSum.apply(values, bag_index, n_bags))  # type: ignore[no-untyped-call]


class _WideBagSum(torch.autograd.Function):
    """Sums in float64 of numbers in float32, which are never all held in float64."""

    @staticmethod
    def forward(values: Tensor, bag_index: Tensor, n_bags: int) -> Tensor:
        total: Tensor | None = None
        rows = max(1, _CHUNK // max(1, values.shape[-1]))
        for some, bags in zip(
            torch.split(values, rows, -2), torch.split(bag_index, rows, -1), strict=True
        ):
            part = bag_sum(some.double(), bags, n_bags)
            total = part if total is None else total.add_(part)
        assert total is not None
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004 - of torch
        ctx.save_for_backward(inputs[1])
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (bag_index,) = ctx.saved_tensors
        gradient = gradients[0].to(ctx.dtype)
        index = bag_index[..., None].expand(*bag_index.shape, gradient.shape[-1])
        return gradient.gather(-2, index), None, None


def present_bags(bag_index: Tensor, n_bags: int) -> tuple[Tensor, Tensor]:
    """Bags that a batch can hold, and the place of every row's bag among them.

    All bags, or, where a batch has fewer rows than there are bags, as many as rows: those of its
    rows first, and after them ``n_bags`` for none.

    Shapes: (..., n) to (..., L) and (..., n).

    Examples
    --------
    >>> present_bags(torch.tensor([7, 7, 3]), n_bags=9)
    (tensor([3, 7, 9]), tensor([1, 1, 0]))
    """
    n = bag_index.shape[-1]
    if n_bags <= n:
        return torch.arange(n_bags, device=bag_index.device).expand(*bag_index.shape[:-1], -1), (
            bag_index
        )
    ordered = bag_index.sort(-1).values
    is_new = torch.ones_like(ordered, dtype=torch.bool)
    is_new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    bags = torch.full_like(ordered, n_bags).scatter(-1, is_new.cumsum(-1) - 1, ordered)
    return bags, torch.searchsorted(bags, bag_index)


def take_bags(table: Tensor, bags: Tensor) -> Tensor:
    """Entries (..., M, d) of bags, zero for one that is none: (..., L, d)."""
    n_bags, d = table.shape[-2:]
    table = table.expand(*bags.shape[:-1], n_bags, d)
    index = bags.clamp_max(n_bags - 1)[..., None].expand(*bags.shape, d)
    return table.gather(-2, index) * (bags < n_bags)[..., None].to(table)


def zero_one_losses(logits: Tensor) -> Tensor:
    """Zero-one loss of every class: 0 for the predicted class of a row, 1 for the others.

    Shapes: (..., K) to (..., K).
    """
    classes = torch.arange(logits.shape[-1], device=logits.device)
    return (classes != logits.argmax(-1, keepdim=True)).to(logits.dtype)


class BagStatistics:
    r"""The M×K statistics of one batch, each computed when first asked for.

    .. math::
        R_{mk} = \frac{1}{n_m} \sum_{i : m_i = m} \ell_k(x_i), \quad
        E_{mk} = \frac{1}{n_m} \sum_{i : m_i = m} [\hat y_i \ne k], \quad
        Q_{mk} = \frac{1}{n_m} \sum_{i : m_i = m} \eta_k(x_i)

    where :math:`n_m` counts the rows of bag m in the batch, :math:`\ell_k(x_i)` is the loss of row
    i if its class were k, :math:`\hat y_i` the predicted class and :math:`\eta` the softmax of the
    logits. With weights every mean is a weighted mean and :math:`n_m` the sum of weights. All are
    zero for a bag without rows; ``presence`` tells such bags apart.

    Parameters
    ----------
    logits : Tensor of shape (..., n, K)
    bag_index : integer Tensor of shape (..., n)
    n_bags : int
        M.
    loss : callable
        Maps logits (..., n, K) to the loss of every class (..., n, K).
    weight : Tensor of shape (..., n), optional
        Weight of every row.
    inclusion : Tensor of shape (..., M), optional
        The chance of each bag to be present in a batch, where that is below one.
    known : pair of Tensors, optional
        Counts (..., M) and partial risks (..., M, K), where they were computed before.
    total : callable, optional
        Adds up a tensor over all processes that have rows of this batch; by default this one has
        all. Every statistic is then that of the whole batch.
    """

    def __init__(
        self,
        logits: Tensor,
        bag_index: Tensor,
        n_bags: int,
        loss: Callable[[Tensor], Tensor],
        weight: Tensor | None = None,
        inclusion: Tensor | None = None,
        known: tuple[Tensor, Tensor] | None = None,
        total: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        # Half precision cannot count the rows of a bag, nor tell a share from its level.
        self.logits = logits.float() if logits.dtype in _HALF else logits
        self.bag_index = bag_index
        self.n_bags = n_bags
        self.loss = loss
        self.weight = weight
        self.inclusion = inclusion
        self._total = total
        self._risks: Tensor | None = None
        self._zero_one_risks: Tensor | None = None
        if known is not None:
            self.counts, self._risks = known
            return
        rows = torch.ones_like(self.logits[..., :1])
        if weight is not None:
            rows = weight[..., None].to(rows)
        self.counts = self.bag_sum(rows).squeeze(-1)  # (..., M)

    def part(self, replicas: slice) -> "BagStatistics":
        """Return the statistics of some replicas of a stack; what they share is computed once."""
        return BagStatistics(
            self.logits[replicas],
            self.bag_index[replicas],
            self.n_bags,
            self.loss,
            None if self.weight is None else self.weight[replicas],
            None if self.inclusion is None else self.inclusion[replicas],
            known=(self.counts[replicas], self.risks[replicas]),
            total=self._total,
        )

    def present_bags(self) -> tuple[Tensor, Tensor]:
        """:func:`present_bags`; all bags where several processes have rows of the batch."""
        if self._total is None:
            return present_bags(self.bag_index, self.n_bags)
        bags = torch.arange(self.n_bags, device=self.bag_index.device)
        return bags.expand(*self.bag_index.shape[:-1], -1), self.bag_index

    def bag_sum(self, values: Tensor, bags: tuple[Tensor, int] | None = None) -> Tensor:
        """Sum over the rows of every bag: (..., n, d) to (..., M, d).

        ``bags``, the place of every row's bag and the number of places, are those of
        :meth:`present_bags`.
        """
        index, n_bags = (self.bag_index, self.n_bags) if bags is None else bags
        sums = _wide_bag_sum(values, index, n_bags)
        return (sums if self._total is None else self._total(sums)).to(values.dtype)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over all rows of the batch: (..., n, d) to (..., d)."""
        wider = wide(values)
        if self._total is None:
            return wider.mean(-2).to(values.dtype)
        rows = torch.full_like(wider[..., :1, 0], values.shape[-2])  # (..., 1)
        sums = self._total(torch.cat([wider.sum(-2), rows], -1))
        return (sums[..., :-1] / sums[..., -1:]).to(values.dtype)

    def bag_mean(self, values: Tensor) -> Tensor:
        """Mean over the rows of every bag, 0 for one without rows: (..., n, d) to (..., M, d)."""
        if self.weight is not None:
            values = values * self.weight[..., None].to(values)
        count = torch.where(self.counts > 0, self.counts, torch.ones_like(self.counts))
        return self.bag_sum(values) / count[..., None]

    @property
    def presence(self) -> Tensor:
        """Zero for a bag without rows, else one over its chance to be present. Shape (..., M)."""
        present = (self.counts > 0).to(self.counts.dtype)
        return present if self.inclusion is None else present / self.inclusion.to(present)

    @property
    def risks(self) -> Tensor:
        """Partial risks R. Shape (..., M, K)."""
        if self._risks is None:
            losses = self.loss(self.logits)
            if losses.shape != self.logits.shape:
                allowed = f"a function to the loss of every class, {tuple(self.logits.shape)} here"
                raise invalid("loss", allowed, f"one that returns {tuple(losses.shape)}")
            self._risks = self.bag_mean(losses)
        return self._risks

    @property
    def zero_one_risks(self) -> Tensor:
        """Zero-one partial risks E, without gradient. Shape (..., M, K)."""
        if self._zero_one_risks is None:
            self._zero_one_risks = self.bag_mean(zero_one_losses(self.logits.detach()))
        return self._zero_one_risks

    @property
    def mean_probabilities(self) -> Tensor:
        """Mean predicted probabilities Q. Shape (..., M, K)."""
        return self.bag_mean(torch.softmax(self.logits, -1))

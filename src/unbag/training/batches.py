"""Which rows are in which batch, for a whole stack of replicas at once.

``shuffled``: all rows of a replica in random order, cut into batches, as in the paper.
``stratified``: every batch holds each bag in proportion to its rows, and at least one row of each
where the batch is large enough.
``whole-bags``: every bag in one batch, for many small bags.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unbag.training.randomness import derive, permutation_keys, uniform

__all__ = [
    "BATCHINGS",
    "Batches",
    "ShuffledBatches",
    "StratifiedBatches",
    "WholeBagBatches",
    "expected_counts",
]

# The plan of an epoch is made for several steps at a time; this bounds its numbers.
_PLAN_SIZE = 1 << 23
_GRID = 1 << 20
_ORDER, _START, _BAGS = range(3)  # what a derived key is for


def expected_counts(counts: NDArray[np.int64], batch_size: int) -> NDArray[np.float64]:
    r"""Return the expected rows of each bag in a stratified batch, summing to the batch size.

    .. math:: e_m = \max(1, c \, n_m / n), \quad c \text{ such that } \sum_m e_m = B

    for the bags with rows, where :math:`n_m` are the bag sizes and B is the batch size; where
    there are more such bags than B, :math:`e_m = B n_m / n`.

    Examples
    --------
    >>> expected_counts(np.array([9500, 450, 50]), 32)
    array([29.59798995,  1.40201005,  1.        ])
    >>> expected_counts(np.array([6, 2, 0]), 4)
    array([3., 1., 0.])
    """
    size: NDArray[np.float64] = counts.astype(np.float64)
    expected: NDArray[np.float64] = batch_size * size / size.sum()
    raised = np.zeros(len(size), dtype=bool)
    if np.count_nonzero(size) > batch_size:
        return expected
    # Raising some bags to one row lowers the others; at most M rounds, in practice two or three.
    while np.any(low := (expected < 1) & (size > 0) & ~raised):
        raised |= low
        expected[raised] = 1.0
        rest = ~raised
        expected[rest] = (batch_size - raised.sum()) * size[rest] / size[rest].sum()
    return expected


class Batches:
    """Base of the ways to draw batches.

    Parameters
    ----------
    bag_index : Tensor of shape (R, n)
        The bag of every row; −1 marks padding behind replicas with fewer rows.
    n_bags : int
        M, the largest of the stack.
    batch_size : int
    keys : Tensor of shape (R,)
        Random key of every replica.

    Attributes
    ----------
    n_steps : int
        Batches in an epoch.
    inclusion : Tensor of shape (R, M) or None
        The chance of each bag to be present in a batch, as far as means should be divided by it.
    """

    def __init__(self, bag_index: Tensor, n_bags: int, batch_size: int, keys: Tensor) -> None:
        self.bag_index = bag_index
        self.n_bags = n_bags
        self.batch_size = batch_size
        self.keys = keys
        rows = bag_index.cpu().numpy()
        self.sizes = np.stack([np.bincount(r[r >= 0], minlength=n_bags) for r in rows])  # (R, M)
        self.n_steps = int(self.sizes.sum(1).min()) // batch_size
        self.inclusion: Tensor | None = None

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        """Yield positions of rows, several steps at a time: shape (R, steps, B)."""
        raise NotImplementedError


class ShuffledBatches(Batches):
    """All rows in random order; a bag that is absent from a batch is absent.

    Rows left over by the last whole batch are left out, others in every epoch.
    """

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        """Yield positions of rows, all steps at once: shape (R, steps, B)."""
        replicas, n = self.bag_index.shape
        order = permutation_keys(derive(self.keys, _ORDER, epoch), n)
        order = order.masked_fill_(self.bag_index < 0, 1 << 32).argsort(dim=1, stable=True)
        used = order[:, : self.n_steps * self.batch_size]
        yield used.view(replicas, self.n_steps, self.batch_size)


class StratifiedBatches(Batches):
    """Every batch holds each bag in proportion, so bag means are unbiased whatever the sizes.

    Bag m gets e_m rows in expectation (:func:`expected_counts`) and ⌊e_m⌋ or ⌈e_m⌉ in any batch
    (systematic sampling with a random start), taken in turn from a random order of its rows, which
    starts again where the bag is used up. ``inclusion`` is min(1, e_m), or None where all are 1.
    """

    def __init__(self, bag_index: Tensor, n_bags: int, batch_size: int, keys: Tensor) -> None:
        super().__init__(bag_index, n_bags, batch_size, keys)
        device = bag_index.device
        expected = np.stack([expected_counts(s, batch_size) for s in self.sizes])  # (R, M)
        chance = np.where(self.sizes > 0, np.minimum(expected, 1.0), 1.0)
        # Shares such as n_m/n miss whole numbers by a rounding, and a sure bag must stay sure.
        chance[chance > 1 - 1e-9] = 1.0
        self.inclusion = None if (chance == 1).all() else torch.tensor(chance, device=device)
        self._expected = torch.tensor(expected, device=device)
        self._sizes = torch.tensor(self.sizes, device=device)
        self._offsets = self._sizes.cumsum(1) - self._sizes  # where a bag begins among sorted rows

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        """Yield positions of rows, several steps at a time: shape (R, steps, B)."""
        replicas, n = self.bag_index.shape
        order = permutation_keys(derive(self.keys, _ORDER, epoch), n)
        order.add_(self.bag_index, alpha=1 << 32)
        order.masked_fill_(self.bag_index < 0, self.n_bags << 32)  # padding is last
        rows = order.argsort(dim=1, stable=True)  # (R, n), bag by bag
        del order  # of many rows this is much memory

        bags = permutation_keys(derive(self.keys, _BAGS, epoch), self.n_bags).argsort(dim=1)
        sizes, offsets = self._sizes.gather(1, bags), self._offsets.gather(1, bags)  # (R, M)
        # Both summands on one grid: their floors then differ by whole rows wherever e_m is whole.
        bounds = (self._expected.gather(1, bags).cumsum(1) * _GRID).round() / _GRID
        starts = uniform(derive(self.keys, _START, epoch), self.n_steps, 1)  # (R, S, 1)
        starts = (starts.double() * _GRID).floor() / _GRID
        taken = torch.zeros_like(sizes)  # rows of each bag used so far in this epoch
        slots = torch.arange(self.batch_size, device=rows.device)
        # On a GPU, fewer and larger pieces; on the CPU they would only take memory.
        plan_size = _PLAN_SIZE if rows.is_cuda else _PLAN_SIZE >> 3
        chunk = max(1, plan_size // (replicas * max(self.n_bags, self.batch_size)))
        for start in torch.split(starts, chunk, dim=1):
            ends = (bounds[:, None] + start).floor().long()  # (R, c, M)
            counts = ends.diff(dim=-1, prepend=torch.zeros_like(ends[..., :1]))
            first = counts.cumsum(1) - counts + taken[:, None] - (ends - counts)
            taken = taken + counts.sum(1)
            slot = slots.expand(*ends.shape[:2], -1).contiguous()  # (R, c, B)
            bag = torch.searchsorted(ends, slot, right=True)  # (R, c, B)
            place = (first.gather(2, bag) + slot).flatten(1)
            bag = bag.flatten(1)
            place = place % sizes.gather(1, bag) + offsets.gather(1, bag)
            yield rows.gather(1, place).view(slot.shape)


class WholeBagBatches(Batches):
    """Bags in random order, one after another, cut into batches of equal size.

    Rows of a bag are in random order as well. A bag at a cut has rows in two batches; where all
    bags have the same size, and batches are a multiple of it, none has. Rows behind the last whole
    batch are left out, others in every epoch.
    ``inclusion`` is the chance that a batch holds rows of a bag.
    """

    def __init__(self, bag_index: Tensor, n_bags: int, batch_size: int, keys: Tensor) -> None:
        super().__init__(bag_index, n_bags, batch_size, keys)
        rows = self.sizes.sum(1, keepdims=True)
        if (rows == batch_size).all():
            return
        largest = self.sizes.max(1, keepdims=True)
        whole = ((self.sizes == largest) | (self.sizes == 0)).all(1, keepdims=True)
        whole &= batch_size % largest == 0
        cut = np.stack(
            [self._chance(sizes, int(n)) for sizes, n in zip(self.sizes, rows[:, 0], strict=True)]
        )
        chance = np.where(whole, np.minimum(batch_size / rows, 1.0), cut)
        chance = np.where(self.sizes > 0, chance, 1.0)
        self.inclusion = torch.tensor(chance, device=bag_index.device)

    def _chance(self, sizes: NDArray[np.int64], n: int) -> NDArray[np.float64]:
        """Chance of bags that begin at any of n rows to have rows in a batch. Shape (M,)."""
        size, inverse = np.unique(sizes, return_inverse=True)
        first = self.batch_size * np.arange(self.n_steps)[:, None]
        starts = np.minimum(first + self.batch_size - 1, n - size) - np.maximum(0, first - size + 1)
        chance: NDArray[np.float64] = np.maximum(starts + 1, 0).mean(0) / (n - size + 1)
        return chance[inverse]

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        """Yield positions of rows, all steps at once: shape (R, steps, B)."""
        replicas, n = self.bag_index.shape
        order = permutation_keys(derive(self.keys, _BAGS, epoch), self.n_bags).argsort(dim=1)
        place = torch.empty_like(order)  # of every bag in the random order
        place.scatter_(1, order, torch.arange(self.n_bags, device=order.device).expand_as(order))
        key = place.gather(1, self.bag_index.clamp_min(0)) << 32
        key += permutation_keys(derive(self.keys, _ORDER, epoch), n)
        key = key.masked_fill_(self.bag_index < 0, self.n_bags << 32)  # padding is last
        used = key.argsort(dim=1, stable=True)[:, : self.n_steps * self.batch_size]
        yield used.view(replicas, self.n_steps, self.batch_size)


BATCHINGS: dict[str, type[Batches]] = {
    "stratified": StratifiedBatches,
    "shuffled": ShuffledBatches,
    "whole-bags": WholeBagBatches,
}

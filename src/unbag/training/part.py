"""The part of every batch that a process takes, and sums over the rows of all parts."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from unbag.processes import Processes
from unbag.statistics import wide
from unbag.training.sums import N_BLOCKS, block_length

__all__ = ["ALL_ROWS", "Part", "SharedPart", "part_of"]

T = TypeVar("T")


class Part:
    """All rows of every batch: what a process takes that is alone.

    Attributes
    ----------
    is_whole : bool
        Whether there are no other parts.
    """

    is_whole = True

    def take(self, positions: Tensor) -> Tensor:
        """Rows of this part, of those of the batch: (..., B) to (..., b)."""
        return positions

    def n_rows(self, x: Tensor) -> int:
        """Rows of the batch of which x (R, b, ...) is this part."""
        return x.shape[1]

    def numbers(self, x: Tensor) -> int | Tensor:
        """Numbers in the batch of the rows of x (R, b, ...), or how many, where these are all."""
        return x.shape[1]

    def whole(self, x: Tensor) -> Tensor:
        """All rows of the batch of which x is this part: (R, b, ...) to (R, B, ...)."""
        return x

    def sum(self, values: Tensor) -> Tensor:
        """Sum over all parts; what follows must be computed by all processes alike."""
        return values

    def mean(self, values: Tensor) -> Tensor:
        """Mean over the rows of the batch: (R, b) to (R,)."""
        return self.total(values) / self.n_rows(values)

    def total(self, values: Tensor) -> Tensor:
        """Sum over the rows of the batch: (R, b) to (R,)."""
        return self.sum(wide(values).sum(1)).to(values.dtype)

    def add(self, values: Tensor) -> Tensor:
        """Add up over all parts, in place and without gradient."""
        return values

    def deal(self, pieces: Iterable[T]) -> Iterator[tuple[int, T]]:
        """Give the pieces of some work that this process does, with their numbers."""
        return enumerate(pieces)

    def same_everywhere(self, modules: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """Modules with the weights that they have in the first process."""
        return modules


ALL_ROWS = Part()


class SharedPart(Part):
    """The rows of one of several processes.

    The last row of a batch is the partner of the first one, and so on. Partners are in one part, so
    that turning its rows around is turning the batch around.

    Parameters
    ----------
    processes : Processes
    n : int
        B, the rows of a batch.
    device : torch.device
    """

    is_whole = False

    def __init__(self, processes: Processes, n: int, device: torch.device) -> None:
        self._processes = processes
        self.n = n
        parts = deal_rows(n, processes.size)
        self.rows = parts[processes.rank].to(device)  # numbers in the batch, (b,)
        counts = torch.tensor([len(rows) for rows in parts], device=device)
        self._shares = counts.double() / n  # (processes,)

    def take(self, positions: Tensor) -> Tensor:
        """Rows of this part, of those of the batch: (..., B) to (..., b)."""
        return positions[..., self.rows]

    def n_rows(self, x: Tensor) -> int:  # noqa: ARG002 - of the base
        """Rows of the batch."""
        return self.n

    def numbers(self, x: Tensor) -> int | Tensor:  # noqa: ARG002 - of the base
        """Numbers in the batch of the rows of this part."""
        return self.rows

    def whole(self, x: Tensor) -> Tensor:
        """All rows of the batch: (R, b, ...) to (R, B, ...)."""
        batch = x.new_zeros(len(x), self.n, *x.shape[2:])
        batch[:, self.rows] = x
        return self.sum(batch)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over all parts; what follows must be computed by all processes alike."""
        total = _Sum.apply(values, self)  # type: ignore[no-untyped-call]
        return cast(Tensor, total)

    def add(self, values: Tensor) -> Tensor:
        """Add up over all parts, in place and without gradient."""
        return self._processes.add(values)

    def deal(self, pieces: Iterable[T]) -> Iterator[tuple[int, T]]:
        """Give the pieces of some work that this process does, with their numbers."""
        rank, size = self._processes.rank, self._processes.size
        return (pair for pair in enumerate(pieces) if pair[0] % size == rank)

    def same_everywhere(self, modules: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """Copy modules, with the weights that they have in the first process."""
        modules = [copy.deepcopy(module) for module in modules]
        for module in modules:
            self._processes.copy_first([*module.parameters(), *module.buffers()])
        return modules

    def join_moments(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance over the batch from those over this part."""
        # Variances of parts and the variance between them: nothing large is subtracted.
        moments = mean.new_zeros(len(self._shares), 2, *mean.shape)
        moments[self._processes.rank, 0], moments[self._processes.rank, 1] = mean, var
        means, variances = self.add(moments).unbind(1)
        shares = self._shares.to(mean.dtype).view(-1, *[1] * mean.ndim)
        mean = (shares * means).sum(0)
        return mean, (shares * (variances + (means - mean).square())).sum(0)


class _Sum(torch.autograd.Function):
    """Sum over processes that go on alike: each has the gradient of the sum already."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, part: Part) -> Tensor:  # noqa: ARG004 - of torch
        return part.add(values.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004 - of torch
        return gradients[0], None


def part_of(processes: Processes, n: int, device: torch.device) -> Part:
    """Return the part of this process of batches of n rows."""
    return ALL_ROWS if processes.size == 1 else SharedPart(processes, n, device)


def deal_rows(n: int, size: int) -> list[Tensor]:
    """Deal the numbers of the rows of a batch out to processes, partners together.

    Examples
    --------
    >>> [rows.tolist() for rows in deal_rows(7, 2)]
    [[0, 1, 5, 6], [2, 3, 4]]
    """
    half, block = -(-n // 2), block_length(n)
    places = [i * half // size for i in range(1, size)]
    if N_BLOCKS // 2 % size == 0:  # whole blocks, see sums.py
        places = [i * (N_BLOCKS // 2 // size) * block or place for i, place in enumerate(places, 1)]
    halves = np.split(np.arange(half), places)
    return [torch.from_numpy(np.union1d(half, n - 1 - half)) for half in halves]

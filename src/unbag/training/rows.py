"""The rows of a stack on the device: each source once, and the indices of every replica into it."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.training.replica import Replica, Scored

__all__ = ["CHUNK", "Rows", "ScoredStack"]

CHUNK = 2500  # rows of a forward pass outside of training


class Rows:
    """Training and test rows of a stack.

    Parameters
    ----------
    replicas : sequence of Replica
    device : torch.device
    dtype : torch.dtype
        Of the numbers that networks are given; rows are kept in the type they came in.

    Attributes
    ----------
    n_classes : int
    bag_index : Tensor of shape (R, n)
        The bag of every row; −1 marks padding behind replicas with fewer rows.
    weight : Tensor of shape (R, n) or None
    logit_shift : Tensor of shape (R, 1, K)
        What is added to logits before an error is taken.
    scored : dict of ScoredStack
        Rows whose error is recorded, by its name in the history.
    predicted : Tensor of shape (R, n') or None
        Indices of the rows whose logits are wanted at the end, the first row behind those of
        replicas with fewer.
    """

    def __init__(
        self, replicas: Sequence[Replica], device: torch.device, dtype: torch.dtype
    ) -> None:
        self.dtype = dtype
        sources: dict[int, Tensor] = {}
        offsets: dict[int, int] = {}
        total = 0
        for replica in replicas:
            others = [s.source for s in replica.scored.values()]
            if replica.predicted is not None:
                others.append(replica.predicted.source)
            for source in (replica.bags.source, *others):
                if id(source) not in sources:
                    sources[id(source)] = _as_tensor(source).to(device)
                    offsets[id(source)] = total
                    total += len(source)
        parts = list(sources.values())
        self.data = parts[0] if len(parts) == 1 else torch.cat(parts)

        length = max(r.bags.n_rows for r in replicas)
        size = (len(replicas), _room(length))
        index, bag_index = np.zeros(size, np.int64), np.full(size, -1, np.int64)
        weight = np.zeros(size)
        for r, replica in enumerate(replicas):
            bags, n = replica.bags, replica.bags.n_rows
            index[r, :n] = np.arange(n) if bags.rows is None else bags.rows
            index[r, :n] += offsets[id(bags.source)]
            bag_index[r, :n] = bags.bag_index
            if replica.sample_weight is not None:
                weight[r, :n] = replica.sample_weight
        weighted = replicas[0].sample_weight is not None
        self.index = torch.from_numpy(index).to(device)  # (R, n)
        self.bag_index = torch.from_numpy(bag_index).to(device)
        self.weight = torch.tensor(weight, device=device, dtype=dtype) if weighted else None

        self.scored = {
            name: ScoredStack([r.scored[name] for r in replicas], offsets, device)
            for name in replicas[0].scored
        }
        self.predicted = self._place_predicted(replicas, offsets, device)
        self.n_classes = replicas[0].bags.priors.n_classes
        none = np.zeros(self.n_classes)
        shifts = [none if r.logit_shift is None else r.logit_shift for r in replicas]
        self.logit_shift = torch.tensor(np.stack(shifts), device=device, dtype=dtype)[:, None]

    @staticmethod
    def _place_predicted(
        replicas: Sequence[Replica], offsets: dict[int, int], device: torch.device
    ) -> Tensor | None:
        parts = []
        for replica in replicas:
            if (bags := replica.predicted) is None:
                return None
            rows = torch.arange(bags.n_rows) if bags.rows is None else torch.as_tensor(bags.rows)
            parts.append(rows.to(torch.int64) + offsets[id(bags.source)])
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(device)

    def numbers(self, index: Tensor) -> Tensor:
        """Rows of these indices as numbers of the weights' type; bytes are scaled to [0, 1]."""
        x = self.data[index]
        return x.to(self.dtype) / 255 if x.dtype == torch.uint8 else x.to(self.dtype)

    def batch(self, positions: Tensor) -> Tensor:
        """Rows at these positions of each replica: (R, B) to (R, B, ...)."""
        return self.numbers(self.index.gather(1, positions))


class ScoredStack:
    """Rows of every replica whose error is recorded, padded to one length.

    Parameters
    ----------
    parts : sequence of Scored
        One a replica.
    offsets : dict
        Where a source begins among the rows on the device, by its ``id``.
    device : torch.device
    """

    def __init__(
        self, parts: Sequence[Scored], offsets: dict[int, int], device: torch.device
    ) -> None:
        lengths = [len(part.group) for part in parts]
        groups = max(len(part.table) for part in parts)
        index = np.zeros((len(parts), max(lengths)), np.int64)
        group = np.full_like(index, groups)  # padding: an extra group that adds nothing
        table = np.zeros((len(parts), groups + 1, parts[0].table.shape[1]))
        for r, (part, n) in enumerate(zip(parts, lengths, strict=True)):
            index[r, :n] = np.arange(n) if part.rows is None else part.rows
            index[r, :n] += offsets[id(part.source)]
            group[r, :n] = part.group
            table[r, : len(part.table)] = part.table
        self.n_rows = torch.tensor(lengths, device=device)
        self.table = torch.tensor(table, device=device)
        self._index = torch.from_numpy(index).to(device)
        self._group = torch.from_numpy(group).to(device)

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield indices of rows and their groups, some thousand at a time."""
        yield from zip(
            torch.split(self._index, CHUNK, 1), torch.split(self._group, CHUNK, 1), strict=True
        )

    @staticmethod
    def sum_errors(predicted: Tensor, group: Tensor, table: Tensor) -> Tensor:
        """Sum what rows add to the error: (R, n), (R, n) and (R, G, K) to (R,)."""
        cell = group * table.shape[2] + predicted
        return table.flatten(1).gather(1, cell).sum(1)


def _room(n: int) -> int:
    """Round n up by a sixteenth at most, or to 64: a compiled step serves rows of one length.

    Examples
    --------
    >>> _room(50), _room(47_487), _room(47_512)
    (64, 49152, 49152)
    """
    step = max(64, 1 << max(0, n.bit_length() - 5))
    return -(-n // step) * step


def _as_tensor(rows: Any) -> Tensor:
    """Rows as a tensor, without a copy: they may be memory-mapped and larger than memory."""
    if isinstance(rows, np.ndarray) and any(stride < 0 for stride in rows.strides):
        rows = rows.copy()  # torch has no rows in reverse order
    with warnings.catch_warnings():
        # Where memory is read-only torch warns that it could write there; rows are only read.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.as_tensor(rows)

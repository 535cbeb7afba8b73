"""The rows of a stack on the device: each source once, and the indices of every replica into it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.training.replica import Replica

__all__ = ["Rows"]

_TEST_CHUNK = 2500


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
    bag_index : Tensor of shape (R, n)
        The bag of every row; −1 marks padding behind replicas with fewer rows.
    weight : Tensor of shape (R, n) or None
    logit_shift : Tensor of shape (R, 1, K)
        What is added to logits before a test.
    tested : int
        Test rows of each replica, or 0.
    """

    def __init__(
        self, replicas: Sequence[Replica], device: torch.device, dtype: torch.dtype
    ) -> None:
        self.dtype = dtype
        sources: dict[int, Tensor] = {}
        offsets: dict[int, int] = {}
        total = 0
        for replica in replicas:
            for source in (replica.bags.source, replica.test.X if replica.test else None):
                if source is not None and id(source) not in sources:
                    sources[id(source)] = _as_tensor(source).to(device)
                    offsets[id(source)] = total
                    total += len(source)
        parts = list(sources.values())
        self.data = parts[0] if len(parts) == 1 else torch.cat(parts)

        size = (len(replicas), max(r.bags.n_rows for r in replicas))
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
        self.index = torch.tensor(index, device=device)  # (R, n)
        self.bag_index = torch.tensor(bag_index, device=device)
        self.weight = torch.tensor(weight, device=device, dtype=dtype) if weighted else None

        tests = [replica.test for replica in replicas if replica.test is not None]
        self.tested = len(tests[0].y) if tests else 0
        if tests:
            rows = [np.arange(self.tested) + offsets[id(test.X)] for test in tests]
            self._test_index = torch.tensor(np.stack(rows), device=device)
            self._test_labels = torch.tensor(np.stack([test.y for test in tests]), device=device)
        none = np.zeros(replicas[0].objective.theta.shape[-1])
        shifts = [none if r.logit_shift is None else r.logit_shift for r in replicas]
        self.logit_shift = torch.tensor(np.stack(shifts), device=device, dtype=dtype)[:, None]

    def numbers(self, index: Tensor) -> Tensor:
        """Rows of these indices as numbers of the weights' type; bytes are scaled to [0, 1]."""
        x = self.data[index]
        return x.to(self.dtype) / 255 if x.dtype == torch.uint8 else x.to(self.dtype)

    def batch(self, positions: Tensor) -> Tensor:
        """Rows at these positions of each replica: (R, B) to (R, B, ...)."""
        return self.numbers(self.index.gather(1, positions))

    def test_chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield indices and labels of test rows, some thousand at a time."""
        yield from zip(
            torch.split(self._test_index, _TEST_CHUNK, 1),
            torch.split(self._test_labels, _TEST_CHUNK, 1),
            strict=True,
        )


def _as_tensor(rows: Any) -> Tensor:
    """Rows as a tensor without a copy; torch cannot share memory that is marked read-only."""
    readonly = isinstance(rows, np.ndarray) and not rows.flags.writeable
    return torch.as_tensor(rows.copy() if readonly else rows)

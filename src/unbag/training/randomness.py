"""Counter-based randomness: a number is a hash of (seed, counters, position), nothing else.

A replica therefore draws the same batches and dropout alone or among others, in any order, and a
resumed run needs no generator state. The hash is a 32-bit multiply-and-shift mixer, in torch
operations that run, and fuse, on any device.
"""

import numpy as np
import torch
from torch import Tensor

__all__ = ["derive", "permutation_keys", "seed_keys", "uniform"]


def _mix_number(x: int) -> int:
    """Scramble one number as :func:`_mix` does; as a number, it never has to reach a device."""
    x &= 0xFFFFFFFF
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    x ^= x >> 16
    return x - (1 << 32) if x >> 31 else x


def _mix(x: Tensor) -> Tensor:
    """Scramble int32 numbers one to one. Right shifts are made logical by masking the sign."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * (0x846CA68B - (1 << 32))
    return x ^ ((x >> 16) & 0xFFFF)


def seed_keys(seeds: list[int], device: torch.device) -> Tensor:
    """Turn whole numbers of any size into keys, shape (R,) of int32."""
    words = [np.random.SeedSequence(seed).generate_state(1)[0] for seed in seeds]
    return torch.tensor(np.array(words, np.uint32).view(np.int32), device=device)


def derive(keys: Tensor, *counters: int | Tensor) -> Tensor:
    """Derive new keys, shape (R,), from keys and counters (numbers or int32 tensors)."""
    for position, counter in enumerate(counters):
        shifted = counter + (0x3C6EF372 + position)
        keys = _mix(keys ^ (_mix(shifted) if isinstance(shifted, Tensor) else _mix_number(shifted)))
    return keys


def permutation_keys(keys: Tensor, n: int) -> Tensor:
    """Return sort keys of n positions for every key: shape (R, n) of int64 in [0, 2³²)."""
    positions = torch.arange(n, dtype=torch.int32, device=keys.device)
    return _mix(keys[:, None] ^ _mix(positions)).to(torch.int64) + (1 << 31)


def uniform(keys: Tensor, rows: int | Tensor, d: int) -> Tensor:
    """Return uniform numbers in [0, 1) for every key, row and column: shape (R, n, d).

    Rows are given by their numbers, shape (n,), or by how many there are.
    """
    if not isinstance(rows, Tensor):
        rows = torch.arange(rows, dtype=torch.int32, device=keys.device)
    rows = rows.to(torch.int32)
    columns = torch.arange(d, dtype=torch.int32, device=keys.device)
    row_keys = _mix(keys[:, None] ^ _mix(rows))  # (R, n)
    bits = _mix(row_keys[..., None] ^ _mix(columns + 0x1B873593))  # (R, n, d)
    return ((bits >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24

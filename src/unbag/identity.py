"""Which rows are the same record."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["hash_rows", "identify"]

_CHUNK = 1 << 22  # numbers hashed at a time


def identify(rows: Any) -> NDArray[np.int64]:
    """Give equal rows equal numbers, from 0 in order of appearance. Shape (n,).

    Rows are compared by their bytes, which is exact and quicker than sorting them; 0.0 and −0.0
    differ, and so do numbers of different types.

    Examples
    --------
    >>> identify(np.array([[1, 2], [3, 4], [1, 2]]))
    array([0, 1, 0])
    """
    if isinstance(rows, torch.Tensor):
        # As bytes, because numpy lacks some of torch's dtypes.
        rows = rows.cpu().reshape(len(rows), -1).contiguous().view(torch.uint8).numpy()
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    records = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))[:, 0]
    seen: dict[bytes, int] = {}
    codes = [seen.setdefault(record, len(seen)) for record in records.tolist()]
    return np.array(codes, dtype=np.int64)


def hash_rows(rows: Any) -> NDArray[np.uint64]:
    """Hash every row to 64 bits by its numbers, whatever their type. Shape (n,).

    Two different rows of n have the same hash with a chance of about n² / 2⁶⁵.

    Examples
    --------
    >>> bytes_, floats = np.array([[1, 2], [3, 4]], np.uint8), np.array([[3.0, 4.0]])
    >>> bool(hash_rows(bytes_)[1] == hash_rows(floats)[0])
    True
    """
    if isinstance(rows, torch.Tensor):
        rows = rows.detach().cpu().double().numpy()
    flat = np.asarray(rows).reshape(len(rows), -1)
    width = max(1, flat.shape[1])
    factors = np.random.default_rng(0).integers(1, 2**63, width, dtype=np.uint64) | np.uint64(1)
    hashes = np.empty(len(flat), dtype=np.uint64)
    step = max(1, _CHUNK // width)
    for start in range(0, len(flat), step):
        numbers = flat[start : start + step].astype(np.float64) + 0.0  # −0 becomes 0
        bits = np.ascontiguousarray(numbers).view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        bits ^= bits >> np.uint64(29)
        hashes[start : start + step] = (bits * factors).sum(1, dtype=np.uint64)
    return hashes

"""Which rows are the same record."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["SKETCH_SIZE", "hash_rows", "identify", "select", "share_known", "sketch"]

SKETCH_SIZE = 1 << 16  # hashes that are kept of rows

_CHUNK = 1 << 18  # numbers read at a time: rows may be memory-mapped and larger than memory


def identify(rows: Any, index: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Give equal rows equal numbers, from 0 in order of appearance. Shape (n,).

    Rows are compared by their bytes, which is exact; 0.0 and −0.0 differ, and so do numbers of
    different types. Those of equal hashes are compared only, so that no row has to be kept.

    Parameters
    ----------
    rows : array or Tensor of shape (N, ...)
    index : integer array of shape (n,), optional
        Which of them; None means all.

    Examples
    --------
    >>> identify(np.array([[1, 2], [3, 4], [1, 2]]))
    array([0, 1, 0])
    """
    n = len(rows) if index is None else len(index)
    hashes = np.empty(n, dtype=np.uint64)
    for part, chunk in _chunks(rows, index):
        hashes[part] = _hash(_words(chunk).astype(np.uint64))
    ordered = np.sort(hashes)
    if (ordered[1:] != ordered[:-1]).all():
        del hashes, ordered
        return np.arange(n)
    del ordered
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    equal_to = first[inverse]  # (n,) the first row of the same hash
    repeated = np.flatnonzero(equal_to != np.arange(n))
    first_rows = equal_to[repeated]
    pairs = zip(
        _chunks(rows, repeated if index is None else index[repeated]),
        _chunks(rows, first_rows if index is None else index[first_rows]),
        strict=True,
    )
    seen: dict[bytes, int] = {}  # rows that share only their hash with the first: very rare
    for (part, chunk), (_, known) in pairs:
        words = _words(chunk)
        for i in np.flatnonzero((words != _words(known)).any(1)):
            row = repeated[part][i]
            equal_to[row] = seen.setdefault(words[i].tobytes(), row)
    is_first = equal_to == np.arange(n)
    numbers: NDArray[np.int64] = (np.cumsum(is_first) - 1)[equal_to]
    return numbers


def hash_rows(rows: Any, index: NDArray[np.int64] | None = None) -> NDArray[np.uint64]:
    """Hash every row to 64 bits by its numbers, whatever their type. Shape (n,).

    Two different rows of n have the same hash with a chance of about n² / 2⁶⁵.

    Parameters
    ----------
    rows : array or Tensor of shape (N, ...)
    index : integer array of shape (n,), optional
        Which of them; None means all.

    Examples
    --------
    >>> bytes_, floats = np.array([[1, 2], [3, 4]], np.uint8), np.array([[3.0, 4.0]])
    >>> bool(hash_rows(bytes_)[1] == hash_rows(floats)[0])
    True
    """
    hashes = np.empty(len(rows) if index is None else len(index), dtype=np.uint64)
    for part, chunk in _chunks(rows, index):
        if isinstance(chunk, torch.Tensor):
            chunk = chunk.double().numpy()
        numbers = chunk.astype(np.float64) + 0.0  # −0 becomes 0
        hashes[part] = _hash(numbers.view(np.uint64))
    return hashes


def sketch(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Keep the smallest distinct hashes, at most ``SKETCH_SIZE`` of them, in ascending order.

    Of many rows a random choice is kept, which still recognises other rows.

    Examples
    --------
    >>> sketch(np.array([7, 3, 7, 5], np.uint64))
    array([3, 5, 7], dtype=uint64)
    """
    ordered = np.sort(hashes)  # of many, this takes less memory than np.unique
    repeated = np.append(False, ordered[1:] == ordered[:-1])
    kept: NDArray[np.uint64] = ordered[~repeated][:SKETCH_SIZE].copy()
    return kept


def share_known(hashes: NDArray[np.uint64], known: NDArray[np.uint64]) -> float:
    """Estimate the share of rows with these hashes that a sketch was made of.

    It is exact where the sketch holds all hashes. A full one says nothing of hashes above its
    largest, so only those below count; without any, the share is 0.

    Examples
    --------
    >>> share_known(np.array([3, 4], np.uint64), sketch(np.array([7, 3, 5], np.uint64)))
    0.5
    """
    if len(known) >= SKETCH_SIZE:
        hashes = hashes[hashes <= known[-1]]
    return float(np.isin(hashes, known).mean()) if len(hashes) else 0.0


def select(rows: Any, index: Any) -> Any:
    """Rows of an array or Tensor by an integer array or a slice."""
    if isinstance(rows, torch.Tensor) and not isinstance(index, slice):
        index = torch.as_tensor(index, device=rows.device)
    return rows[index]


def _chunks(rows: Any, index: NDArray[np.int64] | None) -> Iterator[tuple[slice, Any]]:
    """Yield places and flat rows, (c, d) in C order and on the CPU, some at a time."""
    rows = rows.detach() if isinstance(rows, torch.Tensor) else np.asarray(rows)
    step = max(1, _CHUNK // max(1, math.prod(rows.shape[1:])))
    for start in range(0, len(rows) if index is None else len(index), step):
        part = slice(start, start + step)
        chunk = select(rows, part if index is None else index[part])
        chunk = chunk.reshape(len(chunk), -1)
        if isinstance(chunk, torch.Tensor):
            yield part, chunk.cpu().contiguous()
        else:
            yield part, np.ascontiguousarray(chunk)


def _words(chunk: Any) -> NDArray[Any]:
    """Bytes of flat rows as whole numbers without sign, (c, w), as wide as divide a row."""
    if isinstance(chunk, torch.Tensor):
        chunk = chunk.view(torch.uint8).numpy()  # as bytes, because numpy lacks some dtypes
    length = chunk.shape[1] * chunk.itemsize
    words: NDArray[Any] = chunk.view(f"u{math.gcd(length, 8)}")
    return words


def _hash(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash rows of 64-bit numbers (c, w), which are overwritten, to one number each. Shape (c,)."""
    width = bits.shape[1]
    factors = np.random.default_rng(0).integers(1, 2**63, width, dtype=np.uint64) | np.uint64(1)
    bits ^= bits >> np.uint64(32)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    hashes: NDArray[np.uint64] = np.einsum("ij,j->i", bits, factors)
    return hashes

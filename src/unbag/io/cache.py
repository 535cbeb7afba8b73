"""Encoded rows in a folder, memory-mapped, written whole or not at all."""

import errno
import hashlib
import io
import os
import shutil
import tempfile
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.files import (
    digest,
    discard,
    discarded,
    new_file,
    read_regular,
    sync,
    write_whole,
)
from unbag.schema import seal, unseal
from unbag.validation import invalid

__all__ = ["CacheWriter", "CachedRows", "open_cache"]

_MAX_ABOUT = 1 << 30  # bytes
ROWS, CODES, LEVELS, ABOUT = "X.npy", "bags.npy", "bag_ids.arrow", "about.json"

# What NumPy, Arrow and the system raise at damaged or missing files.
DAMAGED: tuple[type[Exception], ...] = (
    *(OSError, ValueError, TypeError, LookupError, EOFError, pa.ArrowException),
    *(SyntaxError, tokenize.TokenError),
)


class About(msgspec.Struct):
    """The small file of a cache: digests of the others, and what its writer wanted to be kept."""

    digests: dict[str, str | None]  # by name
    about: dict[str, Any]


@dataclass(frozen=True, eq=False)
class CachedRows:
    """What a cache holds.

    Attributes
    ----------
    X
        (n, d) float32, memory-mapped. Pages come from the file; writing to it changes memory only,
        so that torch can share it.
    bags
        (n,) position of every row's bag id among the different ones, and these; None without bags.
    about
        What the writer wanted to be kept, as plain JSON.
    """

    X: NDArray[np.float32]
    bags: tuple[NDArray[np.int32], pa.Array] | None
    about: dict[str, Any]


def open_cache(folder: Path, key: str) -> CachedRows | None:
    """Open the finished cache of this key; None if there is none, or, with a warning, a damaged."""
    place = folder / key
    if not os.path.lexists(place):
        return None
    try:
        about = unseal(read_regular(place / ABOUT, _MAX_ABOUT), About)
        if all(digest(place / name) == known for name, known in about.digests.items()):
            return _mapped(place, about)
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise MemoryError(f"{place / ROWS} cannot be mapped.") from None
    discard(place)
    discarded(f"The cache {place}", "was damaged")
    return None


def _mapped(place: Path, about: About) -> CachedRows:
    X = np.load(place / ROWS, mmap_mode="c", allow_pickle=False)
    if CODES not in about.digests:
        return CachedRows(X, None, about.about)
    codes = np.load(place / CODES, allow_pickle=False)
    with pa.OSFile(str(place / LEVELS)) as file:
        levels = pa.ipc.open_file(file).read_all().column(0).combine_chunks()
    return CachedRows(X, (codes, levels), about.about)


class CacheWriter:
    """Writes a cache to a temporary folder, which gets its final name once it is complete.

    Use it as a context manager; leaving it without :meth:`finish` removes all that was written.
    What a killed process left of the same cache is removed first. If two processes write the same
    cache at once, the later one to start wins.

    Parameters
    ----------
    folder
        Holds any number of caches.
    key
        Name of this cache; another one for other content.
    shape
        (n, d) of the rows to come.
    """

    def __init__(self, folder: Path, key: str, shape: tuple[int, int]) -> None:
        self._folder, self._key, self._shape = folder, key, shape
        self._rows = 0
        with self._refusing():
            folder.mkdir(parents=True, exist_ok=True)
            for left_over in folder.glob(f"{key}.partial-*"):
                discard(left_over)
            needed, free = 4 * shape[0] * (shape[1] + 1), shutil.disk_usage(folder).free
            if needed > free:
                got = f"{free / 1e6:,.1f} MB at {folder}"
                remedy = "free some, or choose another folder for the cache."
                raise invalid("free disk space", f"at least {needed / 1e6:,.1f} MB", got, remedy)
            self._partial = Path(tempfile.mkdtemp(prefix=f"{key}.partial-", dir=folder))
            self._file = (self._partial / ROWS).open("wb")
            header = io.BytesIO()
            values = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(header, values)
            self._hash = hashlib.sha256()
            self._append(header.getbuffer())

    def __enter__(self) -> "CacheWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        with suppress(OSError):
            discard(self._partial)

    def write(self, X: NDArray[np.float32]) -> None:
        """Append rows."""
        self._rows += len(X)
        with self._refusing():
            self._append(np.ascontiguousarray(X, dtype="<f4").reshape(-1).data)

    def _append(self, data: memoryview) -> None:
        """Write bytes, not through a memory map, where a full disk would end the process."""
        self._file.write(data)
        self._hash.update(data)

    def finish(
        self, about: dict[str, Any], bags: tuple[NDArray[np.int32], pa.Array] | None = None
    ) -> CachedRows:
        """Add the bag ids and what is to be kept about the rows, and give the cache its name."""
        if self._rows != self._shape[0]:
            raise invalid("rows written", str(self._shape[0]), self._rows, "did the files change?")
        with self._refusing():
            self._file.close()
            sync(self._partial / ROWS)  # a crash must not leave the name without the content
            digests: dict[str, str | None] = {ROWS: self._hash.hexdigest()}
            if bags is not None:
                codes, levels = bags
                with new_file(self._partial / CODES) as temporary, temporary.open("wb") as file:
                    np.save(file, codes)
                table = pa.table({"bag": levels})
                with (
                    new_file(self._partial / LEVELS) as temporary,
                    pa.ipc.new_file(str(temporary), table.schema) as writer,
                ):
                    writer.write(table)
                digests |= {name: digest(self._partial / name) for name in (CODES, LEVELS)}
            content = About(digests, about)
            write_whole(self._partial / ABOUT, seal(content))
            final = self._folder / self._key
            discard(final)  # a damaged one
            self._partial.rename(final)
            sync(self._folder)
        return _mapped(final, content)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Say in words what the system refused."""
        try:
            yield
        except OSError as error:
            remedy = "choose another folder for the cache."
            got = error.strerror or str(error)
            allowed = "a folder that can be written"
            raise invalid(f"cache {self._folder}", allowed, got, remedy) from None

"""Encoded rows in a folder, memory-mapped, written whole or not at all."""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.validation import invalid

__all__ = ["CacheWriter", "CachedRows", "open_cache"]

_X, _CODES, _LEVELS, _ABOUT = "X.npy", "bags.npy", "bag_ids.arrow", "about.json"


@dataclass(frozen=True, eq=False)
class CachedRows:
    """What a cache holds.

    Attributes
    ----------
    X
        (n, d) float32, memory-mapped. Pages come from the file; writing to it changes memory only,
        so that torch can share it.
    codes, levels
        (n,) position of every row's bag id among the different ones; None without bags.
    about
        What the writer wanted to be kept, as plain JSON.
    """

    X: NDArray[np.float32]
    codes: NDArray[np.int32] | None
    levels: Any  # pa.Array
    about: dict[str, Any]


def open_cache(folder: Path, key: str) -> CachedRows | None:
    """Open the finished cache of this key; None if there is none, or if it is damaged."""
    place = folder / key
    try:
        about = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
        X = np.load(place / _X, mmap_mode="c", allow_pickle=False)
        codes = levels = None
        if about["has_bags"]:
            codes = np.load(place / _CODES, allow_pickle=False)
            with pa.OSFile(str(place / _LEVELS)) as file:
                levels = pa.ipc.open_file(file).read_all().column(0).combine_chunks()
        sound = X.dtype == np.float32 and list(X.shape) == about["shape"]
        if codes is not None and levels is not None:
            sound &= len(codes) == len(X) and codes.min() >= 0 and codes.max() < len(levels)
        return CachedRows(X, codes, levels, about["about"]) if sound else None
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, pa.ArrowException):
        return None


class CacheWriter:
    """Writes a cache in a folder of its own, which gets its final name once it is complete.

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
        self._final = folder / key
        self._shape = shape
        self._rows = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left_over in folder.glob(f"{key}.partial-*"):
                shutil.rmtree(left_over, ignore_errors=True)
            needed, free = 4 * shape[0] * (shape[1] + 1), shutil.disk_usage(folder).free
            if needed > free:
                got = f"{free / 1e9:.1f} GB at {folder}"
                remedy = "free some, or choose another folder for the cache."
                raise invalid("free disk space", f"at least {needed / 1e9:.1f} GB", got, remedy)
            self._partial = Path(tempfile.mkdtemp(prefix=f"{key}.partial-", dir=folder))
            self._file = (self._partial / _X).open("wb")
        except OSError as error:
            raise self._refused(error) from None
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> "CacheWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        shutil.rmtree(self._partial, ignore_errors=True)

    def write(self, X: NDArray[np.float32]) -> None:
        """Append rows."""
        self._rows += len(X)
        try:
            # Not through a memory map, where a full disk would end the process.
            self._file.write(np.ascontiguousarray(X, dtype="<f4").data)
        except OSError as error:
            raise self._refused(error) from None

    def finish(
        self,
        about: dict[str, Any],
        codes: NDArray[np.int32] | None = None,
        levels: pa.Array | None = None,
    ) -> None:
        """Add the bag ids and what is to be kept about the rows, and give the cache its name."""
        if self._rows != self._shape[0]:
            raise invalid("rows written", str(self._shape[0]), self._rows, "did the files change?")
        try:
            self._sync_and_close()
            if codes is not None:
                np.save(self._partial / _CODES, codes)
                table = pa.table({"bag": levels})
                with pa.ipc.new_file(str(self._partial / _LEVELS), table.schema) as file:
                    file.write(table)
            content = {"shape": self._shape, "has_bags": codes is not None, "about": about}
            (self._partial / _ABOUT).write_text(json.dumps(content), encoding="utf-8")
            shutil.rmtree(self._final, ignore_errors=True)  # a damaged one
            self._partial.rename(self._final)
        except OSError as error:
            raise self._refused(error) from None

    def _sync_and_close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())  # a crash must not leave the name without the content
        self._file.close()

    def _refused(self, error: OSError) -> InvalidInputError:
        remedy = "choose another folder for the cache."
        got = error.strerror or str(error)
        return invalid(f"cache {self._final.parent}", "a folder that can be written", got, remedy)

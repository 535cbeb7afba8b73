"""Rows from NumPy archives (.npz): a table of numbers or images, and the bag of every row."""

import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.io.input_rows import Encoding, InputRows, check_kind
from unbag.io.numeric import LARGEST
from unbag.io.packed import check_expansion
from unbag.validation import invalid, shorten

__all__ = ["ArrayEncoding", "read_npz"]

ROWS = "X"
MAX_ROW = 100_000_000  # numbers in a row; more is a mistake or an attack
# What NumPy raises at the header or the content of an array that is damaged.
DAMAGED = (ValueError, TypeError, SyntaxError, tokenize.TokenError, MemoryError, RecursionError)


class ArrayEncoding(Encoding, frozen=True, tag="array"):
    """Rows that are numbers already: the shape and type that a model expects.

    Parameters
    ----------
    row_shape
        (d,) for a table, (C, H, W) for images.
    dtype
        "float32" for a table, "uint8" for images.

    Examples
    --------
    >>> encoding = ArrayEncoding.of(np.zeros((5, 28, 28), dtype=np.uint8))
    >>> encoding
    ArrayEncoding(row_shape=(1, 28, 28), dtype='uint8')
    >>> encoding.transform(np.zeros((2, 28, 28), dtype=np.uint8)).shape
    (2, 1, 28, 28)
    """

    row_shape: tuple[int, ...]
    dtype: Literal["float32", "uint8"]

    def __post_init__(self) -> None:
        """Refuse shapes that no rows have."""
        shape, is_image = self.row_shape, self.dtype == "uint8"
        right = len(shape) == (3 if is_image else 1) and min(shape) > 0
        if not right or math.prod(shape) > MAX_ROW or (is_image and shape[0] not in (1, 3)):
            allowed = "(d,) for float32, (1 or 3, H, W) for uint8"
            raise invalid("row_shape of the encoding", allowed, repr(shape)[:80])

    @classmethod
    def of(cls, X: NDArray[Any]) -> Self:
        """Describe (n, d) numbers, or images (n, H, W) or (n, C, H, W) of bytes."""
        if X.ndim == 2 and X.dtype.kind in "biuf" and X.shape[1]:
            return cls((X.shape[1],), "float32")
        if X.ndim not in (3, 4) or X.dtype != np.uint8:
            allowed = "numbers of shape (n, d), or images (n, H, W) or (n, C, H, W) of type uint8"
            raise invalid("X", allowed, f"{X.dtype} of shape {X.shape}")
        shape = (1, *X.shape[1:]) if X.ndim == 3 else X.shape[1:]
        if shape[0] not in (1, 3):
            got = f"shape {X.shape}"
            last = X.ndim == 4 and X.shape[3] in (1, 3)
            remedy = "put channels before height and width: X.transpose(0, 3, 1, 2)." * last
            raise invalid("X", "images of 1 or 3 channels, (n, C, H, W)", got, remedy)
        if 0 in shape:
            raise invalid("X", "images of at least one pixel", f"shape {X.shape}")
        return cls(shape, "uint8")

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Give the rows this shape and type; refuse rows of another one."""
        actual = ArrayEncoding.of(X)
        if actual != self:
            kind = f"{self.dtype} rows of shape {self.row_shape}, as the model was fitted on"
            raise invalid("X", kind, f"{actual.dtype} rows of shape {actual.row_shape}")
        with np.errstate(over="ignore"):  # checked below
            rows = X.astype(self.dtype, order="C", copy=False).reshape(len(X), *self.row_shape)
        if rows.dtype != np.uint8:
            _check_finite(rows)
        return rows


def read_npz(
    path: str | os.PathLike[str],
    *,
    bag: str | None = "bag_ids",
    encoding: ArrayEncoding | None = None,
) -> InputRows:
    """Read rows and bag ids from a NumPy archive; nothing in it is unpickled.

    Parameters
    ----------
    path
        A ``.npz`` file, as ``numpy.savez(path, X=..., bag_ids=...)`` writes it, with an array
        ``X``: numbers of shape (n, d), or images (n, H, W) or (n, C, H, W) of type uint8.
    bag
        Name of the array with the bag id of every row; None where ids are not needed.
    encoding
        What the rows must be, by default what they are.

    Returns
    -------
    InputRows, with (n, d) float32 or (n, C, H, W) uint8 rows.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "rows.npz"), X=[[1.0, 2.0], [3.0, 4.0]], bag_ids=["a", "b"])
    ...     rows = read_npz(Path(folder, "rows.npz"))
    >>> rows.X.shape, rows.bag_ids
    ((2, 2), array(['a', 'b'], dtype='<U1'))
    """
    check_kind(encoding, ArrayEncoding)
    path = Path(path)
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no such file"
        raise invalid("rows", "a .npz file", f"{got}: {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            for name in (ROWS,) if bag is None else (ROWS, bag):
                if name not in names:
                    got = f"only {shorten(names)}" if names else "no arrays"
                    remedy = "" if name == ROWS else "name the array of bag ids with bag=."
                    raise invalid(path.name, f"an archive with an array {name!r}", got, remedy)
            X = _read_member(archive, ROWS)
            bag_ids = None if bag is None else _read_member(archive, bag)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
        got = f"an error ({error})"
        raise invalid(path.name, "a readable .npz file", got, "write it again.") from None
    except RuntimeError as error:  # how zipfile says that there is a password
        raise invalid(path.name, "a .npz file without a password", f"an error ({error})") from None
    if X.ndim == 0 or len(X) == 0:
        raise invalid("X", "at least one row", f"shape {X.shape}")
    if bag_ids is not None:
        _check_bag_ids(str(bag), bag_ids, len(X))
    if encoding is None:
        encoding = ArrayEncoding.of(X)
    return InputRows(encoding.transform(X), bag_ids, encoding, ())


def _read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read one array, if the size that its header tells fits its bytes."""
    member = archive.getinfo(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name)
    try:
        with archive.open(member) as file:
            shape, _, dtype = _read_header(file)
            start = file.tell()
    except DAMAGED as error:
        raise _damaged(name, str(error)) from None
    if dtype.hasobject:
        remedy = "save it as numbers, or as text with .astype(str)."
        raise invalid(name, "an array of numbers, text or dates", "Python objects", remedy)
    size = math.prod(shape) * dtype.itemsize
    if size != member.file_size - start:
        got = f"{member.file_size - start:,} bytes for an array of {size:,}"
        raise _damaged(name, got)
    stored = min(member.compress_size, Path(str(archive.filename)).stat().st_size)
    remedy = "if this is meant, save it with numpy.savez instead of savez_compressed."
    check_expansion(name, "an array", size, stored, remedy)
    with archive.open(member) as file:
        try:
            array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
        except DAMAGED as error:
            raise _damaged(name, str(error)) from None
    return array


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(file)
    if version not in readers:
        raise ValueError(f"format version {version}")
    return readers[version](file)


def _damaged(name: str, got: str) -> InvalidInputError:
    return invalid(name, "a whole array in NumPy's format", got.splitlines()[0] if got else "none")


def _check_bag_ids(name: str, bag_ids: NDArray[Any], n_rows: int) -> None:
    if bag_ids.shape != (n_rows,):
        allowed = f"of shape ({n_rows},), one for each row of X"
        raise invalid(name, allowed, f"shape {bag_ids.shape}")
    if bag_ids.dtype.kind not in "biufUM":
        remedy = "convert them with .astype(str)."
        raise invalid(name, "of text, whole numbers, bool or dates", f"{bag_ids.dtype}", remedy)


def _check_finite(rows: NDArray[np.float32]) -> None:
    """Refuse rows with NaN, infinity or numbers whose squares overflow, part by part."""
    step = max(1, (1 << 22) // rows.shape[1])
    parts = (rows[i : i + step] for i in range(0, len(rows), step))
    bad = [~(np.abs(part) <= LARGEST).all(axis=1) for part in parts]
    wrong = np.flatnonzero(np.concatenate(bad))
    if len(wrong):
        got = f"NaN, infinity or more than {LARGEST:.2g} in {len(wrong)} rows"
        remedy = f"the first is row {wrong[0]} (counted from 0); fill in or drop missing values."
        raise invalid("X", "an array of finite, moderate numbers", got, remedy)

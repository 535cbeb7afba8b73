"""Rows: what is accepted as numeric rows or images, and the checks that every use shares."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from unbag.validation import as_float_array, check_dense, invalid, is_frame, repeated, shorten

__all__ = ["Rows", "check_rows", "read_numbers"]

_CHUNK = 1 << 20  # numbers checked at a time
Rows: TypeAlias = NDArray[Any] | torch.Tensor  # (n, d), (n, H, W) or (n, C, H, W)


def check_rows(
    X: Any, feature_names: Sequence[str] | None = None
) -> tuple[Rows, tuple[str, ...] | None]:
    """Check rows and convert them to a numeric array or tensor; return their column names too."""
    if hasattr(X, "toarray"):  # a sparse matrix
        X = X.toarray()
    if is_frame(X):
        feature_names = feature_names or [str(name) for name in X.columns]
        numbers = read_numbers(X)
        if numbers is None:
            raise invalid("X", "numbers", "columns of other kinds", "encode or drop these.")
        X = numbers
    if isinstance(X, torch.Tensor):
        check_dense("X", X)
    rows: Rows = X.detach() if isinstance(X, torch.Tensor) else np.asarray(X)
    if rows.ndim < 2 or 0 in rows.shape:
        remedy = "use X.reshape(-1, 1) for a single feature." if rows.ndim == 1 else ""
        raise invalid("X", "rows of shape (n, d) or images", f"shape {tuple(rows.shape)}", remedy)
    rows = _as_numeric(rows)
    names = None if feature_names is None else tuple(feature_names)
    if names is not None and len(names) != rows.shape[1]:
        raise invalid("feature_names", f"{rows.shape[1]} names, one per column", len(names))
    _check_finite(rows, names)
    return rows, names


def _check_finite(rows: Rows, names: tuple[str, ...] | None) -> None:
    """Refuse NaN and infinite values, in parts that need little memory."""
    total = 0
    first: tuple[int, ...] = ()
    step = max(1, _CHUNK // math.prod(rows.shape[1:]))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        if isinstance(part, torch.Tensor):
            finite = torch.isfinite(part).cpu().numpy()
        else:
            finite = np.isfinite(part)
        if not finite.all():
            row, *column = (int(i) for i in np.unravel_index(finite.argmin(), finite.shape))
            first = first or (start + row, *column)
            total += finite.size - int(np.count_nonzero(finite))
    if first:
        where = repr(names[first[1]]) if names else ", ".join(map(str, first[1:]))
        got = f"{total} NaN or infinite values, the first in row {first[0]}, column {where}"
        raise invalid("X", "finite", got, "drop or impute them.")


def _as_numeric(rows: Rows) -> Rows:
    """Keep numbers as they are; bool becomes float32, objects that are numbers float64."""
    if isinstance(rows, torch.Tensor):
        if rows.is_complex():
            raise invalid("X", "real numbers", rows.dtype)
        return rows.float() if rows.dtype == torch.bool else rows
    if rows.dtype.kind in "iuf":
        return rows
    if rows.dtype.kind == "b":
        return rows.astype(np.float32)
    if rows.dtype.kind != "O":
        raise invalid("X", "real numbers", rows.dtype)
    return as_float_array("X", rows, rows.ndim)


def read_numbers(frame: Any) -> NDArray[Any] | None:
    """Convert a pandas or polars DataFrame of numbers; None where a column holds something else."""

    def is_numeric(dtype: Any) -> bool:
        if hasattr(dtype, "kind"):  # pandas
            return dtype.kind in "biuf"
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"  # polars

    if not all(map(is_numeric, frame.dtypes)):
        return None
    if twice := repeated(map(str, frame.columns)):
        got = f"{shorten(twice)} more than once"
        raise invalid("columns of X", "of different names", got, "rename some.")
    if not len(frame.columns):
        raise invalid("X", "a table of at least one column", "none")
    array: NDArray[Any] = frame.to_numpy()
    if array.dtype == object and hasattr(frame, "index"):  # nullable or mixed columns of pandas
        array = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return array

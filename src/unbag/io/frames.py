"""Tables in memory as rows: numbers stay as they are, all else is encoded as files are."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.ids import id_array
from unbag.io.bag_column import BagColumn, bag_id_array
from unbag.io.drift import Drift
from unbag.io.encoding import TableEncoding
from unbag.io.frame_table import FrameTable
from unbag.io.input_rows import InputRows
from unbag.rows import Rows, check_rows, read_numbers
from unbag.validation import invalid, is_frame, is_table

__all__ = ["encode_frame", "is_encoded", "rows_of"]

_HOLDS_IDS = "it holds the bag ids"


def is_encoded(X: Any, ids: Any = None) -> bool:
    """Whether rows are a table that must be encoded before it is learned from.

    That is every table but DataFrames that hold numbers alone, none of them missing and no column
    of them the bag ids: these are rows of numbers, as scikit-learn takes them.
    """
    if not is_table(X):
        return False
    numbers = read_numbers(X) if is_frame(X) else None
    if numbers is None:
        return True
    return bool(numbers.dtype.kind == "f" and np.isnan(numbers).any()) or _has_column(numbers, ids)


def rows_of(
    X: Any, ids: Any = None, feature_names: Sequence[str] | None = None
) -> tuple[Rows, tuple[str, ...] | None, TableEncoding | None]:
    """Give rows as numbers, with the names of their features and their encoding, if any.

    Parameters
    ----------
    X
        An array, a tensor or a table.
    ids
        (n,) bag id, or class, of every row; columns that hold the same are left out.
    feature_names
        Those of X, where it has no names itself.
    """
    if not is_encoded(X, ids):
        return *check_rows(X, feature_names), None
    read = encode_frame(X, ids)
    encoding: Any = read.encoding
    return read.X, encoding.feature_names, encoding


def encode_frame(X: Any, ids: Any = None, *, bag: str | None = None) -> InputRows:
    """Learn the encoding of a table, and encode it.

    Parameters
    ----------
    X
        A table of pandas, polars, Arrow or others.
    ids
        (n,) bag id of every row. Columns that hold the same are left out.
    bag
        Or the column of X that holds them.
    """
    if not is_table(X):
        remedy = "give the bag ids as y instead."
        raise invalid("bag", "left out where X is no table", repr(bag), remedy)
    table = FrameTable(X)
    if bag is not None:
        column = BagColumn(table, bag)
        for batch in table.batches([bag]):
            column.update(batch.column(0))
        ids, out = bag_id_array(*column.collected(), from_text=False), [bag]
    else:
        ids = None if ids is None else id_array("y", ids)
        out = [] if ids is None else _columns_of_ids(table, ids)
    encoding = TableEncoding.fit(table, leave_out=out)
    left_out = {**encoding.left_out, **dict.fromkeys(out, _HOLDS_IDS)}
    notes = [f"Column {name!r} is left out: {_HOLDS_IDS}." for name in out if bag is None]
    encoding = msgspec.structs.replace(encoding, left_out=left_out, notes=(*encoding.notes, *notes))
    drift = Drift(encoding)
    rows = encoding.transform(table, drift)  # not X, which may be a stream that has been read
    encoding = msgspec.structs.replace(encoding, seen=drift.seen)
    return InputRows(rows, ids, encoding, encoding.notes)


def _has_column(numbers: NDArray[Any], ids: Any) -> bool:
    """Whether a column of numbers holds the bag ids."""
    ids = None if ids is None else np.asarray(ids)
    if ids is None or ids.dtype.kind not in "iuf" or ids.shape != (len(numbers),):
        return False
    likely = np.flatnonzero(numbers[:1] == ids[:1, None])
    return bool((numbers[:, likely] == ids[:, None]).all(axis=0).any())


def _columns_of_ids(table: FrameTable, ids: NDArray[Any]) -> list[str]:
    """Name the columns that hold the bag ids."""
    found = []
    for field in table.schema:
        try:
            same = pa.array(ids).cast(field.type)
            rows = [batch.column(0) for batch in table.batches([field.name])]
            if pa.chunked_array(rows, field.type).equals(pa.chunked_array([same])):
                found.append(field.name)
        except MemoryError:
            raise
        except pa.ArrowException:  # ids of another kind, or of several
            continue
    return found

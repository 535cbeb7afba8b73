"""The bag ids of a table, collected batch by batch as small codes."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.ids import check_length, natural_ids
from unbag.io.column_types import as_plain, empty_as_null, is_missing, is_text
from unbag.io.tables import Table
from unbag.text_ids import ids_from_text
from unbag.validation import invalid

__all__ = ["BagColumn", "bag_id_array"]

EXACT = 2.0**53  # floats beyond it do not hold every whole number


class BagColumn:
    """Collects the bag ids of a table: every different id once, and a code for every row.

    Parameters
    ----------
    table
        The table; files are read with ``ids=(name,)``.
    name
        The column of bag ids.
    """

    def __init__(self, table: Table, name: str) -> None:
        table.check_columns("bag", [name])
        self._table, self._name = table, name
        self._dtype = _id_type(name, table.schema.field(name).type)
        self._known: dict[Any, int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def update(self, array: pa.Array) -> None:
        """Take in the next rows."""
        if self._missing(array).any():
            self._refuse_missing()
        try:
            # Days may be written with a time of day, but different times must stay different.
            ids = array.cast(self._dtype, safe=self._dtype != pa.date32()).dictionary_encode()
            values = ids.dictionary.to_pylist()
        except (pa.ArrowInvalid, ValueError, OverflowError) as error:  # dates that Python has not
            got = " ".join(str(error).split())[:200]
            raise invalid(f"bag column {self._name!r}", str(self._dtype), got) from None
        check_length(f"bag column {self._name!r}", values)
        known = self._known
        codes = [known.setdefault(value, len(known)) for value in values]
        self._codes.append(np.array(codes, dtype=np.int32)[ids.indices.to_numpy()])

    def collected(self) -> tuple[NDArray[np.int32], pa.Array]:
        """Give the code of every row, and the different ids in order of appearance."""
        levels = pa.array(list(self._known), self._dtype)
        if self._dtype == pa.float64() and max(abs(value) for value in self._known) > EXACT:
            remedy = "store them as text or int64."
            got = "floats too large to hold every whole number"
            raise invalid(f"bag column {self._name!r}", "exact ids", got, remedy)
        return np.concatenate(self._codes), levels

    def _missing(self, array: pa.Array) -> NDArray[np.bool_]:
        return is_missing(empty_as_null(as_plain(array)))

    def _refuse_missing(self) -> None:
        missing = [self._missing(batch.column(0)) for batch in self._table.batches([self._name])]
        rows = np.flatnonzero(np.concatenate(missing))
        got = f"none in {len(rows):,} of {self._table.n_rows:,} rows"
        where = self._table.locate(int(rows[0]))
        remedy = f"the first is {where}: drop these rows or fill in their ids."
        raise invalid(f"bag column {self._name!r}", "a bag id in every row", got, remedy)


def bag_id_array(codes: NDArray[np.int32], levels: pa.Array, *, from_text: bool) -> NDArray[Any]:
    """Give every row its bag id: str, int, bool, float or date. Shape (n,).

    Parameters
    ----------
    codes
        (n,) position of every row's id among the different ones.
    levels
        The different ids.
    from_text
        Whether the ids come from a CSV file, where "1" is a whole number.

    Examples
    --------
    >>> bag_id_array(np.array([0, 0, 1], np.int32), pa.array(["7", "5"]), from_text=True)
    array([7, 7, 5])
    """
    values = levels.to_pylist()
    as_objects = np.empty(len(values), dtype=object)
    as_objects[:] = ids_from_text(values) if from_text else values
    natural = natural_ids(as_objects)
    # Rows share the text of their bag as an object; numpy's own text would be copied to each.
    ids: NDArray[Any] = (as_objects if natural.dtype.kind == "U" else natural)[codes]
    return ids


def _id_type(name: str, dtype: pa.DataType) -> pa.DataType:
    """Choose the type in which ids are collected, refusing what cannot be an id."""
    if is_text(dtype) or pa.types.is_boolean(dtype) or pa.types.is_null(dtype):
        return dtype
    if pa.types.is_integer(dtype):
        return pa.int64()
    if pa.types.is_floating(dtype):
        return pa.float64()
    if pa.types.is_date(dtype):
        return pa.date32()
    if pa.types.is_timestamp(dtype):
        return pa.timestamp("us", None if dtype.tz is None else "UTC")
    remedy = "convert them to text, for example."
    raise invalid(f"bag column {name!r}", "text, whole numbers, bool or dates", dtype, remedy)

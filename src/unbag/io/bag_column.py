"""The bag ids of a table, collected batch by batch as small codes."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.ids import natural_ids
from unbag.io.column_types import is_date, is_text
from unbag.io.columns import is_missing
from unbag.io.tables import TableFiles
from unbag.io.text_ids import ids_from_text
from unbag.validation import invalid

__all__ = ["BagColumn", "bag_id_array"]

_EXACT = 2.0**53  # floats beyond it do not hold every whole number


class BagColumn:
    """Collects the bag ids of a table: every different id once, and a code for every row.

    Parameters
    ----------
    table
        The table, read with ``ids=(name,)``.
    name
        The column of bag ids.
    """

    def __init__(self, table: TableFiles, name: str) -> None:
        self._table, self._name = table, name
        self._dtype = _id_type(name, table.schema.field(name).type)
        self._known: dict[Any, int] = {}
        self._codes: list[NDArray[np.int32]] = []

    def update(self, array: pa.Array) -> None:
        """Take in the next rows."""
        if is_missing(array).any():
            self._refuse_missing()
        try:
            found = array.cast(self._dtype, safe=not is_date(self._dtype)).dictionary_encode()
        except pa.ArrowInvalid as error:
            got = " ".join(str(error).split())[:200]
            raise invalid(f"bag column {self._name!r}", str(self._dtype), got) from None
        known = self._known
        codes = [known.setdefault(value, len(known)) for value in found.dictionary.to_pylist()]
        self._codes.append(np.array(codes, dtype=np.int32)[found.indices.to_numpy()])

    @property
    def codes(self) -> NDArray[np.int32]:
        """(n,) position of every row's id in ``levels``."""
        self._codes = [np.concatenate(self._codes)]
        return self._codes[0]

    @property
    def levels(self) -> pa.Array:
        """The different ids, in order of appearance."""
        levels = pa.array(list(self._known), self._dtype)
        if self._dtype == pa.float64() and max(abs(value) for value in self._known) > _EXACT:
            remedy = "store them as text or int64."
            got = "floats too large to hold every whole number"
            raise invalid(f"bag column {self._name!r}", "exact ids", got, remedy)
        return levels

    def _refuse_missing(self) -> None:
        missing = [is_missing(batch.column(0)) for batch in self._table.batches([self._name])]
        rows = np.flatnonzero(np.concatenate(missing))
        got = f"none in {len(rows):,} of {self._table.n_rows:,} rows"
        where = self._table.locate(int(rows[0]))
        remedy = f"the first is {where}: drop these rows or fill their ids in."
        raise invalid(f"bag column {self._name!r}", "a bag id in every row", got, remedy)


def bag_id_array(levels: pa.Array, codes: NDArray[np.int32], *, from_text: bool) -> NDArray[Any]:
    """Give every row its bag id: str, int, bool, float or date. Shape (n,).

    Parameters
    ----------
    levels
        The different ids.
    codes
        (n,) position of every row's id among them.
    from_text
        Whether the ids come from a CSV file, where "1" is a whole number.

    Examples
    --------
    >>> bag_id_array(pa.array(["7", "5"]), np.array([0, 0, 1], np.int32), from_text=True)
    array([7, 7, 5])
    """
    values = levels.to_pylist()
    if from_text:
        values = ids_from_text(values)
    as_objects = np.empty(len(values), dtype=object)
    as_objects[:] = values
    natural = natural_ids(as_objects)
    # Rows share the text of their bag as an object; numpy's own text would be copied to each.
    chosen = as_objects if natural.dtype.kind == "U" else natural
    ids: NDArray[Any] = chosen[codes]
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

"""A table in memory: of pandas, polars, Arrow, DuckDB and others."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from unbag.io.column_types import plain_type
from unbag.io.table_part import cast_batch
from unbag.io.tables import Table
from unbag.validation import arrow_table, invalid, repeated, shorten

__all__ = ["FrameTable"]


class FrameTable(Table):
    """A DataFrame or Arrow table, read as tables in files are.

    Parameters
    ----------
    frame
        A DataFrame of pandas (without its index) or polars, or whatever has
        ``__arrow_c_stream__``. It is not copied where its columns are Arrow's already.
    name
        What it is called in messages.
    """

    is_csv = False
    notes = ()

    def __init__(self, frame: Any, name: str = "X") -> None:
        self._name = name
        self._table: pa.Table = arrow_table(name, frame)
        if twice := repeated(self._table.column_names):
            got = f"{shorten(twice)} more than once"
            raise invalid(f"columns of {name}", "of different names", got, "rename some.")
        try:  # another package may have made it, and Arrow trusts offsets and text
            self._table.validate(full=True)
        except pa.ArrowInvalid as error:
            got = " ".join(str(error).split())[:300]
            raise invalid(name, "a sound table of Arrow, in UTF-8", got) from None
        self.schema = pa.schema(
            [(field.name, plain_type(field.type)) for field in self._table.schema]
        )
        self.n_rows = self._table.num_rows
        if self.n_rows == 0:
            raise invalid(f"rows of {name}", "at least one", "only column names")

    def locate(self, row: int) -> str:
        """Say where a row is, for messages."""
        return f"row {row} of {self._name}, counted from 0"

    def _read(
        self, names: Sequence[str], batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(name) for name in names])
        rows = self._table.select(names)
        for start in range(skip_rows, self.n_rows, batch_rows):
            # One batch, however the columns are cut: rounding may depend on it.
            whole = rows.slice(start, batch_rows).combine_chunks()
            arrays = [pa.concat_arrays(column.chunks) for column in whole.columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
            yield cast_batch(self._name, batch, {}, schema)

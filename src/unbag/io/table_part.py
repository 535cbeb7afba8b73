"""One file of a table, with the columns of its folders, and its rows that meet a condition."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from unbag.io.column_types import as_plain
from unbag.io.csv_file import CsvTable
from unbag.io.parquet_file import ParquetTable
from unbag.io.where import Condition
from unbag.io.whole_files import WholeTable
from unbag.validation import invalid

__all__ = ["FileTable", "TablePart", "cast_batch"]

_COUNTED_ROWS = 65_536
FileTable: TypeAlias = ParquetTable | CsvTable | WholeTable


class TablePart:
    """The rows of one file.

    Parameters
    ----------
    file
        Its reader.
    constants
        Columns that its folders tell.
    schema
        Of the whole table.
    condition
        What rows must meet; None for all.

    Attributes
    ----------
    n_rows
        Number of rows that meet it.
    """

    def __init__(
        self,
        file: FileTable,
        constants: Mapping[str, pa.Scalar],
        schema: pa.Schema,
        condition: Condition | None,
    ) -> None:
        self._file, self._constants, self._schema = file, constants, schema
        self._condition = condition
        self.n_rows = file.n_rows
        self._places = [(0, 0)]  # rows that meet the condition, and all, up to some places
        if condition is not None:
            if isinstance(file, ParquetTable):
                file.keep(condition.expression(schema), constants)
            self._count(condition)

    def batches(
        self, names: Sequence[str], *, batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of the columns, without the first ``skip_rows`` of the rows."""
        n_rows, start = skip_rows, skip_rows
        if self._condition is not None:
            place = bisect_right(self._places, skip_rows, key=lambda kept_all: kept_all[0]) - 1
            kept, start = self._places[place]
            n_rows = kept
        for batch in self._filtered(names, batch_rows, start):
            n_rows += len(batch)
            if n_rows > self.n_rows:
                break
            # Rows before those wanted may come with a condition, which is not met at equal steps.
            wanted = max(0, min(len(batch), n_rows - skip_rows))
            batch = batch.slice(len(batch) - wanted)
            if len(batch):
                yield batch
        if n_rows != self.n_rows:  # it is damaged, or somebody changed it
            more = "more" if n_rows > self.n_rows else f"{n_rows:,}"
            raise invalid(f"rows of {self._file.path}", f"{self.n_rows:,} as at first", more)

    def _filtered(
        self, names: Sequence[str], batch_rows: int, start: int
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows that meet the condition, from row ``start`` of the file on."""
        needed = () if self._condition is None else self._condition.columns
        read = list(dict.fromkeys([*names, *needed]))
        schema = pa.schema([self._schema.field(name) for name in read])
        stored = [name for name in read if name not in self._constants]
        where = str(self._file.path)
        for rows in self._file.batches(stored, batch_rows=batch_rows, skip_rows=start):
            batch = cast_batch(where, rows, self._constants, schema)
            if self._condition is not None:
                batch = self._condition.filter(batch).select(list(names))
            yield batch

    def _count(self, condition: Condition) -> None:
        """Count the rows that meet a condition, and note where they are."""
        kept = read = 0
        stored = [name for name in condition.columns if name not in self._constants]
        schema = pa.schema([self._schema.field(name) for name in condition.columns])
        for rows in self._file.batches(stored, batch_rows=_COUNTED_ROWS, skip_rows=0):
            batch = cast_batch(str(self._file.path), rows, self._constants, schema)
            kept += len(condition.filter(batch))
            read += len(rows)
            self._places.append((kept, read))
        self.n_rows = kept


def cast_batch(
    where: str, batch: pa.RecordBatch, constants: Mapping[str, pa.Scalar], schema: pa.Schema
) -> pa.RecordBatch:
    """Bring the columns of a batch into the order and types of the whole table."""
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(pa.repeat(constants[field.name], len(batch)))
            continue
        try:
            is_time = pa.types.is_timestamp(field.type)
            array = as_plain(batch.column(field.name))
            arrays.append(array.cast(field.type, safe=is_time))
        except MemoryError:  # which Arrow's is, too
            raise
        except pa.ArrowException as error:
            got = " ".join(str(error).split())[:200]
            raise invalid(f"column {field.name!r} of {where}", str(field.type), got) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

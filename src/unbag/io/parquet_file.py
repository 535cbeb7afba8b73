"""One Parquet file, read in batches."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unbag.exceptions import InvalidInputError
from unbag.io.column_types import plain_type
from unbag.validation import invalid

__all__ = ["ParquetTable"]

_BUFFERS = 64 << 20  # bytes read at a time, of all columns together, instead of a row group
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError)  # what pyarrow raises at bad files


class ParquetTable:
    """A Parquet file: its columns, its number of rows, and its rows in batches."""

    def __init__(self, path: Path, what: str = "") -> None:
        self.path = path
        self._what = what or f"table {path}"
        self.notes: tuple[str, ...] = ()
        self._buffer = 1 << 14
        with self._open() as file:
            self.schema: pa.Schema = file.schema_arrow
            self.n_rows: int = file.metadata.num_rows
            width = max(1, file.metadata.num_columns)
            self._buffer = max(1 << 14, min(1 << 20, _BUFFERS // width))

    def batches(
        self, columns: Sequence[str], *, batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of the columns; row groups before ``skip_rows`` are not touched."""
        with self._open() as file:
            groups: list[int] = []
            for group in range(file.metadata.num_row_groups):
                n_rows = file.metadata.row_group(group).num_rows
                if groups or skip_rows < n_rows:
                    groups.append(group)
                else:
                    skip_rows -= n_rows
            try:
                for batch in file.iter_batches(
                    batch_rows, row_groups=groups, columns=list(columns), use_threads=False
                ):
                    _check_text(batch)
                    skipped = min(skip_rows, len(batch))
                    skip_rows -= skipped
                    if skipped < len(batch):
                        yield batch.slice(skipped)
            except _BROKEN as error:
                raise self._broken(error) from None

    def _open(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self.path, pre_buffer=False, buffer_size=self._buffer)
        except _BROKEN as error:
            raise self._broken(error) from None

    def _broken(self, error: Exception) -> InvalidInputError:
        got = " ".join(str(error).split())[:200].rstrip(".")
        remedy = "write it again, or give it the suffix of what it is, such as .csv."
        return invalid(self._what, "a whole, readable Parquet file", got, remedy)


def _check_text(batch: pa.RecordBatch) -> None:
    """Refuse text that is not UTF-8, which the reader does not look at."""
    for column in batch.columns:
        if plain_type(column.type) == pa.string():
            column.validate(full=True)

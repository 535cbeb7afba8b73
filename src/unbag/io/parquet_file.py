"""One Parquet file, read in batches."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from unbag.exceptions import InvalidInputError
from unbag.io.column_types import plain_type
from unbag.io.stores import StoredFile
from unbag.validation import invalid

__all__ = ["ParquetTable"]

_BUFFERS = 64 << 20  # bytes read at a time, of all columns together, instead of a row group
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError)  # what pyarrow raises at bad files


class ParquetTable:
    """A Parquet file, here or in a store: its columns, its number of rows, its rows in batches."""

    def __init__(self, path: Path | StoredFile, what: str = "") -> None:
        self.path = path
        self._what = what or f"table {path}"
        self.notes: tuple[str, ...] = ()
        self._buffer = 1 << 14
        self._groups: list[int] | None = None  # those of row groups that are read; None for all
        with self._open() as file:
            self.schema: pa.Schema = file.schema_arrow
            self.n_rows: int = file.metadata.num_rows
            width = max(1, file.metadata.num_columns)
            self._buffer = max(1 << 14, min(1 << 20, _BUFFERS // width))

    def keep(self, condition: pc.Expression, constants: Mapping[str, pa.Scalar]) -> None:
        """Leave out row groups whose statistics say that no row of them meets a condition.

        ``constants`` are the columns of which all rows of the file have the same value.
        """
        known = pc.scalar(True)
        for name, value in constants.items():
            known = known & (pc.field(name) == value)
        fields = [*self.schema, *(pa.field(name, v.type) for name, v in constants.items())]
        try:
            fragment = ds.ParquetFileFormat().make_fragment(
                self._place, self._filesystem, partition_expression=known
            )
            kept = fragment.subset(filter=condition, schema=pa.schema(fields))
            self._groups = [group.id for group in kept.row_groups]
        except (pa.ArrowException, OSError):  # of types whose statistics cannot be compared
            return
        with self._open() as file:
            sizes = [file.metadata.row_group(group).num_rows for group in self._groups]
        self.n_rows = sum(sizes)

    def batches(
        self, columns: Sequence[str], *, batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of the columns; row groups before ``skip_rows`` are not touched."""
        with self._open() as file:
            groups: list[int] = []
            kept = range(file.metadata.num_row_groups) if self._groups is None else self._groups
            for group in kept:
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
            except MemoryError:  # which Arrow's is, too
                raise
            except _BROKEN as error:
                raise self._broken(error) from None

    def _open(self) -> pq.ParquetFile:
        try:
            if isinstance(self.path, StoredFile):  # every read of a store takes a while
                filesystem = self.path.filesystem
                return pq.ParquetFile(self._place, filesystem=filesystem, pre_buffer=True)
            return pq.ParquetFile(self.path, pre_buffer=False, buffer_size=self._buffer)
        except MemoryError:
            raise
        except _BROKEN as error:
            raise self._broken(error) from None

    @property
    def _place(self) -> str:
        return str(self.path.path if isinstance(self.path, StoredFile) else self.path)

    @property
    def _filesystem(self) -> pa.fs.FileSystem:
        return (
            self.path.filesystem if isinstance(self.path, StoredFile) else pa.fs.LocalFileSystem()
        )

    def _broken(self, error: Exception) -> InvalidInputError:
        got = " ".join(str(error).split())[:200].rstrip(".")
        remedy = "write it again, or give it the suffix of what it is, such as .csv."
        return invalid(self._what, "a whole, readable Parquet file", got, remedy)


def _check_text(batch: pa.RecordBatch) -> None:
    """Refuse text that is not UTF-8, which the reader does not look at."""
    for column in batch.columns:
        if plain_type(column.type) == pa.string():
            column.validate(full=True)

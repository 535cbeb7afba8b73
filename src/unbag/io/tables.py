"""Tables that are read in batches; those on disk are Parquet or CSV files of one schema."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unbag.io.column_types import common_type, plain_type
from unbag.io.csv_file import CsvTable
from unbag.io.folders import list_files, partition_columns
from unbag.io.parquet_file import ParquetTable
from unbag.io.stores import Fetched, StoredFile
from unbag.io.table_part import FileTable, TablePart
from unbag.io.where import Condition, parse_condition
from unbag.io.whole_files import WHOLE, Decompressed, WholeTable
from unbag.validation import check_number, invalid, repeated, shorten

__all__ = ["Table", "TableFiles", "batch_rows_of"]

_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_KINDS = {  # by the ending of the name
    **dict.fromkeys(_PARQUET, "Parquet"),
    **dict.fromkeys(_CSV, "CSV"),
    **{ending: kind for ending, (kind, _) in WHOLE.items()},
}
_BATCH_ROWS = 65_536
_BATCH_CELLS = 1 << 22
_AT_ONCE = 16  # files of a store that are opened at once


class Table(ABC):
    """A table that is read in batches.

    Attributes
    ----------
    schema
        Names and types of the columns.
    n_rows
        Number of rows.
    is_csv
        Whether it comes from CSV files, so that ids are known as text only.
    notes
        What a user should know, one sentence each.
    """

    schema: pa.Schema
    n_rows: int
    is_csv: bool
    notes: tuple[str, ...]

    def check_columns(self, name: str, columns: Collection[str]) -> None:
        """Refuse names that are no columns of this table."""
        if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
            raise invalid(name, "a sequence of column names", repr(columns))
        known = set(self.schema.names)
        unknown = [column for column in columns if column not in known]
        if unknown:
            remedy = f"the table has {shorten(self.schema.names, limit=20)}."
            raise invalid(name, "in the table", f"unknown {shorten(unknown)}", remedy)
        if twice := repeated(columns):
            raise invalid(name, "different columns", f"{shorten(twice)} more than once")

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        batch_rows: int = _BATCH_ROWS,
        skip_rows: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows in order, in batches, in bounded memory.

        Parameters
        ----------
        columns
            Names of the columns to read; all by default.
        batch_rows
            Most rows of one batch.
        skip_rows
            Rows to pass over at the start, without reading most of them.
        """
        names = self.schema.names if columns is None else columns
        self.check_columns("columns", names)
        check_number("batch_rows", batch_rows, low=1, integer=True)
        check_number("skip_rows", skip_rows, low=0, integer=True)
        return self._read(names, batch_rows, skip_rows)

    @abstractmethod
    def locate(self, row: int) -> str:
        """Say where a row is, for messages."""

    @abstractmethod
    def _read(
        self, names: Sequence[str], batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of columns that are known to be there."""


class TableFiles(Table):
    r"""One table in one or more files of the same kind and columns.

    They are Parquet, CSV (also ``.csv.gz``), JSON lines (``.jsonl``), Feather (``.feather``,
    ``.arrow``) or Excel files (``.xlsx``, the first sheet; with the extra ``excel``). Parquet and
    CSV files may be larger than memory; the others are read whole.

    CSV files are read once on construction, to count their rows and to find types that fit all
    of them. In CSV, nothing, ``NA``, ``NaN`` and ``null`` are missing values; the delimiter (comma,
    semicolon, tab, vertical bar) is found from the line of column names. The names of subfolders
    such as ``year=2024`` become columns.

    Any of them may be an address such as ``s3://bucket/rows``: of S3, Google Cloud Storage
    (``gs://``) or HDFS, which pyarrow reads, or of what fsspec opens. Parquet files are read where
    they are; others are copied to a temporary folder first.

    Parameters
    ----------
    paths
        A file, a folder, a pattern such as ``part-*.csv``, an address, or a sequence of them. The
        files of a folder come in order of their names. Files whose names start with ``.`` or ``_``
        are not read, and subfolders only if they are partitions: their names have the form
        ``name=value``.
    text
        Columns of CSV files to read as text, whatever they hold. Names that do not occur are
        allowed.
    ids
        Columns of CSV files to read as text exactly as it is written, where only nothing at all
        is missing: bag ids may be 007, or NA for Namibia.
    where
        A condition on columns that rows must meet, such as ``"year = 2024 and age >= 18"``; see
        :func:`unbag.io.where.parse_condition`. Files of other partitions are not opened, and row
        groups of Parquet files whose statistics rule them out are not read.

    Attributes
    ----------
    files
        The files, in the order of their rows.
    schema
        Names and types of the columns. Where files differ, integers and floats are float64, and
        a column without any value takes its type from the other files; all else is refused.
    n_rows
        Number of rows of all files.
    kind
        "Parquet", "CSV", "JSON lines", "Feather" or "Excel".
    is_csv
        Whether the files are CSV, so that ids are known as text only.
    notes
        What a user should know, one sentence each.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("age,city\n31,Turku\n42.5,Oulu\n")
    ...     table = TableFiles(folder)
    >>> table
    TableFiles(2 rows, 2 columns, 1 CSV file)
    >>> table.schema.types
    [DataType(double), DataType(string)]
    """

    files: tuple[Path | StoredFile, ...]
    kind: str
    schema: pa.Schema
    n_rows: int
    is_csv: bool
    notes: tuple[str, ...]

    def __init__(
        self,
        paths: Any,
        *,
        text: Collection[str] = (),
        ids: Collection[str] = (),
        where: str | None = None,
    ) -> None:
        condition = None if where is None else parse_condition(where)
        self.files, roots, ignored = list_files(paths, tuple(_KINDS))
        one = {_kind(file): file.name for file in self.files}
        if len(one) > 1:
            got = " and ".join(repr(name) for name in one.values())
            raise invalid("the files of a table", "all of one kind", got, "convert some.")
        (self.kind,) = one
        self.is_csv = self.kind == "CSV"
        for file in self.files:
            if _stat(file)[0] == 0:
                raise invalid(f"table {file}", f"a {self.kind} file", "an empty file")
        as_text = (*text, *ids) if self.is_csv else text
        self._in_folders = partition_columns(self.files, roots, as_text)
        if condition is not None:
            self._leave_out_files(condition)
        self._copies: list[Decompressed | Fetched] = []
        opened = self._open_all(text, ids)
        for table in opened:
            _check_names(table.path, [*table.schema.names, *self._in_folders])
        self.schema = _common_schema(opened)
        for name, values in self._in_folders.items():
            self.schema = self.schema.append(pa.field(name, values.type))
        if condition is not None:
            condition.check(self.schema)
        self._condition = condition
        self._parts = [
            TablePart(table, self._constants(i), self.schema, condition)
            for i, table in enumerate(opened)
        ]
        self.n_rows = sum(part.n_rows for part in self._parts)
        if self.n_rows == 0 and condition is not None:
            raise invalid("where", "a condition that some rows meet", repr(condition.text))
        if self.n_rows == 0:
            where = f"table {self.files[0]}" if len(self.files) == 1 else "the tables"
            raise invalid(f"rows of {where}", "at least one", "only column names")
        self.notes = tuple(note for table in opened for note in table.notes)
        if ignored:
            self.notes += (f"Files that are not tables are not read: {shorten(ignored)}.",)

    def _leave_out_files(self, condition: Condition) -> None:
        """Leave out files whose folders say that no row of them meets the condition."""
        kept = [i for i in range(len(self.files)) if condition.may_hold(self._constants(i))]
        if not kept:
            raise invalid("where", "a condition that some rows meet", repr(condition.text))
        self.files = tuple(self.files[i] for i in kept)
        self._in_folders = {name: values.take(kept) for name, values in self._in_folders.items()}

    def _constants(self, file: int) -> dict[str, pa.Scalar]:
        """Columns that the folders of a file tell."""
        return {name: values[file] for name, values in self._in_folders.items()}

    def _open_all(self, text: Collection[str], ids: Collection[str]) -> list[FileTable]:
        if self.kind == "Parquet" and isinstance(self.files[-1], StoredFile):
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                return list(pool.map(ParquetTable, self.files))
        return [self._open(file, text, ids) for file in self.files]

    def _open(
        self, file: Path | StoredFile, text: Collection[str], ids: Collection[str]
    ) -> FileTable:
        if self.kind == "Parquet":
            return ParquetTable(file)
        if isinstance(file, StoredFile):
            self._copies.append(Fetched(file))
            file = self._copies[-1].path
        if not self.is_csv:
            return WholeTable(file, text)
        if file.suffix.lower() != ".gz":
            return CsvTable(file, text, ids)
        self._copies.append(Decompressed(file))
        return CsvTable(file, text, ids, content=self._copies[-1].path)

    def __repr__(self) -> str:
        files = f"{len(self.files)} {self.kind} file{'s' if len(self.files) > 1 else ''}"
        return f"TableFiles({self.n_rows:,} rows, {len(self.schema)} columns, {files})"

    def fingerprint(self) -> str:
        """Give a string that changes when a file changes: its name, size, time or columns."""
        parts = (
            [str(self.schema)]
            if self._condition is None
            else [str(self.schema), self._condition.text]
        )
        for file in self.files:
            size, changed = _stat(file)
            parts.append(f"{file.name} {size} {changed}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def locate(self, row: int) -> str:
        """Say where a row is, counted from 1 in its file, for messages."""
        ends = np.cumsum([part.n_rows for part in self._parts])
        file = int(np.searchsorted(ends, row, side="right"))
        start = int(ends[file - 1]) if file else 0
        kept = "" if self._condition is None else " among the rows that where keeps"
        return f"row {row - start + 1} of {self.files[file].name}{kept}"

    def _read(
        self, names: Sequence[str], batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            if skip_rows < part.n_rows:
                yield from part.batches(names, batch_rows=batch_rows, skip_rows=skip_rows)
            skip_rows = max(0, skip_rows - part.n_rows)


def _stat(file: Path | StoredFile) -> tuple[int, int | str]:
    """Tell the size of a file, and when it was changed."""
    if isinstance(file, StoredFile):
        return file.size, file.changed
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns


def _kind(file: Path | StoredFile) -> str:
    """Tell the kind of a file by its name."""
    return next(kind for end, kind in _KINDS.items() if file.name.lower().endswith(end))


def batch_rows_of(width: int) -> int:
    """Choose a number of rows for batches of this many columns or features, to bound the memory."""
    return max(256, min(_BATCH_ROWS, _BATCH_CELLS // width))


def _check_names(path: Path | StoredFile, names: Sequence[str]) -> None:
    if twice := repeated(names):
        got = f"{shorten(twice)} more than once"
        raise invalid(f"columns of {path}", "of different names", got, "rename or remove some.")


def _common_schema(parts: Sequence[FileTable]) -> pa.Schema:
    """Find one type for every column, refusing files of other columns or types."""
    first = parts[0]
    types = {field.name: plain_type(field.type) for field in first.schema}
    for part in parts[1:]:
        other = {field.name: plain_type(field.type) for field in part.schema}
        for name in [*types, *other]:
            if name not in types or name not in other:
                has, lacks = (first, part) if name in types else (part, first)
                got = f"column {name!r} in {has.path.name} but not in {lacks.path.name}"
                raise invalid("the files of a table", "of the same columns", got)
            common = common_type(types[name], other[name])
            if common is None:
                got = f"column {name!r} as {other[name]} in {part.path.name}, {types[name]} before"
                remedy = "convert one of them, or give the files one by one."
                raise invalid("the files of a table", "of the same types", got, remedy)
            types[name] = common
    return pa.schema(list(types.items()))

"""Tables that are read in batches; those on disk are Parquet or CSV files of one schema."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from unbag.io.column_types import as_plain, common_type, plain_type
from unbag.io.csv_file import CsvTable
from unbag.io.folders import list_files, partition_columns
from unbag.io.parquet_file import ParquetTable
from unbag.io.whole_files import WHOLE, Decompressed, WholeTable
from unbag.validation import check_number, invalid, shorten

__all__ = ["Table", "TableFiles", "batch_rows_of", "cast_batch"]

_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_KINDS = {  # by the ending of the name
    **dict.fromkeys(_PARQUET, "Parquet"),
    **dict.fromkeys(_CSV, "CSV"),
    **{ending: kind for ending, (kind, _) in WHOLE.items()},
}
_BATCH_ROWS = 65_536
_BATCH_CELLS = 1 << 22


_Part: TypeAlias = ParquetTable | CsvTable | WholeTable


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
        unknown = [column for column in columns if column not in self.schema.names]
        if unknown:
            remedy = f"the table has {shorten(self.schema.names, limit=20)}."
            raise invalid(name, "in the table", f"unknown {shorten(unknown)}", remedy)
        twice = sorted({column for column in columns if list(columns).count(column) > 1})
        if twice:
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

    Parameters
    ----------
    paths
        A file, a folder, a pattern such as ``part-*.csv``, or a sequence of them. The files of a
        folder come in order of their names. Files whose names start with ``.`` or ``_`` are not
        read, and subfolders only if they are partitions: their names have the form ``name=value``.
    text
        Columns of CSV files to read as text, whatever they hold. Names that do not occur are
        allowed.
    ids
        Columns of CSV files to read as text exactly as it is written, where only nothing at all
        is missing: bag ids may be 007, or NA for Namibia.

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

    files: tuple[Path, ...]
    kind: str
    schema: pa.Schema
    n_rows: int
    is_csv: bool
    notes: tuple[str, ...]

    def __init__(
        self, paths: Any, *, text: Collection[str] = (), ids: Collection[str] = ()
    ) -> None:
        self.files, roots, ignored = list_files(paths, tuple(_KINDS))
        one = {_kind(file): file.name for file in self.files}
        if len(one) > 1:
            got = " and ".join(repr(name) for name in one.values())
            raise invalid("the files of a table", "all of one kind", got, "convert some.")
        (self.kind,) = one
        self.is_csv = self.kind == "CSV"
        for file in self.files:
            if file.stat().st_size == 0:
                raise invalid(f"table {file}", f"a {self.kind} file", "an empty file")
        self._unpacked: list[Decompressed] = []
        self._parts: list[_Part] = [self._open(file, text, ids) for file in self.files]
        as_text = (*text, *ids) if self.is_csv else text
        self._in_folders = partition_columns(self.files, roots, as_text)
        for part in self._parts:
            _check_names(part.path, [*part.schema.names, *self._in_folders])
        self.schema = _common_schema(self._parts)
        for name, values in self._in_folders.items():
            self.schema = self.schema.append(pa.field(name, values.type))
        self.n_rows = sum(part.n_rows for part in self._parts)
        if self.n_rows == 0:
            where = f"table {self.files[0]}" if len(self.files) == 1 else "the tables"
            raise invalid(f"rows of {where}", "at least one", "only column names")
        self.notes = tuple(note for part in self._parts for note in part.notes)
        if ignored:
            self.notes += (f"Files that are not tables were not read: {shorten(ignored)}.",)

    def _open(self, file: Path, text: Collection[str], ids: Collection[str]) -> "_Part":
        if self.kind == "Parquet":
            return ParquetTable(file)
        if not self.is_csv:
            return WholeTable(file, text)
        if file.suffix.lower() != ".gz":
            return CsvTable(file, text, ids)
        self._unpacked.append(Decompressed(file))
        return CsvTable(file, text, ids, content=self._unpacked[-1].path)

    def __repr__(self) -> str:
        files = f"{len(self.files)} {self.kind} file{'s' if len(self.files) > 1 else ''}"
        return f"TableFiles({self.n_rows:,} rows, {len(self.schema)} columns, {files})"

    def fingerprint(self) -> str:
        """Give a string that changes when a file changes: its name, size, time or columns."""
        parts = [str(self.schema)]
        for file in self.files:
            stat = file.stat()
            parts.append(f"{file.name} {stat.st_size} {stat.st_mtime_ns}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def locate(self, row: int) -> str:
        """Say where a row is, counted from 1 in its file, for messages."""
        ends = np.cumsum([part.n_rows for part in self._parts])
        file = int(np.searchsorted(ends, row, side="right"))
        start = int(ends[file - 1]) if file else 0
        return f"row {row - start + 1} of {self.files[file].name}"

    def _read(
        self, names: Sequence[str], batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.schema.field(name) for name in names])
        stored = [name for name in names if name not in self._in_folders]
        for i, part in enumerate(self._parts):
            if skip_rows < part.n_rows:
                constants = {name: values[i] for name, values in self._in_folders.items()}
                n_rows = skip_rows
                for batch in part.batches(stored, batch_rows=batch_rows, skip_rows=skip_rows):
                    n_rows += len(batch)
                    if n_rows > part.n_rows:
                        break
                    yield cast_batch(str(part.path), batch, constants, schema)
                if n_rows != part.n_rows:  # it is damaged, or somebody changed it
                    more = "more" if n_rows > part.n_rows else f"{n_rows:,}"
                    raise invalid(f"rows of {part.path}", f"{part.n_rows:,} as at first", more)
            skip_rows = max(0, skip_rows - part.n_rows)


def _kind(file: Path) -> str:
    """Tell the kind of a file by its name."""
    return next(kind for end, kind in _KINDS.items() if file.name.lower().endswith(end))


def batch_rows_of(width: int) -> int:
    """Choose a number of rows for batches of this many columns or features, to bound the memory."""
    return max(256, min(_BATCH_ROWS, _BATCH_CELLS // width))


def _check_names(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        got = f"{shorten(twice)} more than once"
        raise invalid(f"columns of {path}", "of different names", got, "rename or remove some.")


def _common_schema(parts: Sequence[_Part]) -> pa.Schema:
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


def cast_batch(
    where: str, batch: pa.RecordBatch, constants: dict[str, pa.Scalar], schema: pa.Schema
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
        except pa.ArrowException as error:
            got = " ".join(str(error).split())[:200]
            raise invalid(f"column {field.name!r} of {where}", str(field.type), got) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

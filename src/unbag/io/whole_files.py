"""Files that are read whole: JSON lines, Feather and Excel; and CSV files that are compressed."""

import datetime
import gzip
import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.json

from unbag.io.column_types import plain_type
from unbag.validation import import_optional, invalid

__all__ = ["EXCEL", "WHOLE", "Decompressed", "WholeTable", "read_excel"]

EXCEL = (".xlsx",)
_EMPTY = (None, "")


class WholeTable:
    """A table in a file of one of these kinds, in memory.

    Parameters
    ----------
    path
        The file.
    text
        Columns to read as text, whatever they hold.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, path: Path, text: Collection[str] = ()) -> None:
        self.path = path
        kind, read = WHOLE[path.suffix.lower()]
        try:
            table = read(path)
        except (pa.ArrowException, OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
            got = " ".join(str(error).split())[:200].rstrip(".")
            raise invalid(f"table {path}", f"a readable {kind} file", got) from None
        for i, field in enumerate(table.schema):
            if field.name in text and plain_type(field.type) != pa.string():
                table = table.set_column(i, field.name, table[i].cast(pa.string()))
        self._table = table
        self.schema: pa.Schema = table.schema
        self.n_rows: int = table.num_rows

    def batches(
        self, columns: Sequence[str], *, batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of the columns, from row ``skip_rows`` on."""
        rows = self._table.select(columns).slice(skip_rows)
        yield from rows.to_batches(max_chunksize=batch_rows)


class Decompressed:
    """The content of a .gz file, as a file that is there for as long as this object is.

    Attributes
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        folder = tempfile.mkdtemp(prefix="unbag-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, path.name[: -len(".gz")])
        try:
            with gzip.open(path) as packed, self.path.open("wb") as file:
                shutil.copyfileobj(packed, file)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise invalid(f"table {path}", "a whole .gz file", str(error)) from None


def read_excel(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Read the names and the cells of the columns of the first sheet; the first row has the names.

    Formulas have the values that they had when the file was saved.
    """
    openpyxl: Any = import_optional("openpyxl", "excel")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        got = str(error)[:200].rstrip(".")
        raise invalid(f"table {path}", "a readable Excel file (.xlsx)", got) from None
    try:
        rows = [row for row in book.worksheets[0].iter_rows(values_only=True) if _has_value(row)]
    finally:
        book.close()
    if not rows:
        raise invalid(f"table {path}", "a sheet with column names in its first row", "an empty one")
    width = max(i + 1 for row in rows for i, cell in enumerate(row) if cell not in _EMPTY)
    names = ["" if name is None else str(name) for name in rows[0][:width]]
    names += [""] * (width - len(names))
    cells = [[row[i] if i < len(row) else None for row in rows[1:]] for i in range(width)]
    return names, cells


def _has_value(row: Sequence[Any]) -> bool:
    """Whether a row is not blank."""
    return any(cell not in _EMPTY for cell in row)


def _excel_table(path: Path) -> pa.Table:
    names, cells = read_excel(path)
    return pa.table([_one_kind(column) for column in cells], names=names)


def _one_kind(cells: list[Any]) -> pa.Array:
    """Make a column of one type: text, where cells are of several kinds."""
    kinds = {type(cell) for cell in cells if cell is not None}
    numbers = kinds <= {int, float}
    days = kinds <= {datetime.datetime, datetime.date}
    if len(kinds) > 1 and not (numbers or days):
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    if numbers and float in kinds:
        return pa.array(cells, pa.float64())
    return pa.array(cells)


def _read_json(path: Path) -> pa.Table:
    return pyarrow.json.read_json(path)


def _read_feather(path: Path) -> pa.Table:
    return pyarrow.feather.read_table(path, memory_map=True)


WHOLE: dict[str, tuple[str, Callable[[Path], pa.Table]]] = {
    ".jsonl": ("JSON lines", _read_json),
    ".ndjson": ("JSON lines", _read_json),
    ".feather": ("Feather", _read_feather),
    ".arrow": ("Feather", _read_feather),
    ".xlsx": ("Excel", _excel_table),
}

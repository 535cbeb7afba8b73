"""Files that are read whole: JSON lines, Feather and Excel; and CSV files that are compressed."""

import datetime
import gzip
import itertools
import re
import shutil
import tempfile
import warnings
import weakref
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.json

from unbag.exceptions import InvalidInputError
from unbag.io.column_types import plain_type
from unbag.io.csv_text import BLOCK
from unbag.io.packed import check_expansion
from unbag.validation import import_optional, invalid

__all__ = ["EXCEL", "WHOLE", "Decompressed", "WholeTable", "read_excel"]

EXCEL = (".xlsx",)
_EMPTY = (None, "")
_PART = 1 << 20  # bytes unpacked at a time
_MOST_ROWS = 1 << 20  # of a sheet
_DEEPEST = 64  # lists and objects in one another; the parser calls itself for each
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"')


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
            _ = table.schema.names  # they may be no UTF-8
            table.validate(full=True)  # Arrow trusts offsets, which in a damaged file lead anywhere
        except MemoryError as error:  # a damaged file may ask for petabytes
            asked = re.search(r"malloc of size (\d+)", str(error))
            size, stored = int(asked[1]) if asked else 0, path.stat().st_size
            check_expansion(f"table {path}", f"a whole {kind} file", size, stored, "")
            raise
        except InvalidInputError:
            raise
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
            stored, size = path.stat().st_size, 0
            with gzip.open(path) as packed, self.path.open("wb") as file:
                while part := packed.read(_PART):
                    size += len(part)
                    remedy = "if this is meant, unpack it before."
                    check_expansion(f"table {path}", "content", size, stored, remedy)
                    file.write(part)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise invalid(f"table {path}", "a whole .gz file", str(error)) from None


def read_excel(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Read the names and the cells of the columns of the first sheet; the first row has the names.

    Formulas have the values that they had when the file was saved.
    """
    openpyxl: Any = import_optional("openpyxl", "excel")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        remedy = "if this is meant, save the sheet as CSV."
        check_expansion(f"table {path}", "content", size, path.stat().st_size, remedy)
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions, which change no value
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            try:
                sheet = book.worksheets[0]
                sheet.reset_dimensions()  # some programs write too small ones
                with closing(sheet.iter_rows(values_only=True)) as given:
                    rows = list(_filled_rows(path, itertools.islice(given, _MOST_ROWS), size))
                    is_longer = next(given, None) is not None
            finally:
                book.close()
    except (InvalidInputError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 — openpyxl may stumble anywhere in a damaged file
        got = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise invalid(f"table {path}", "a readable Excel file (.xlsx)", got) from None
    if is_longer:
        raise invalid(f"table {path}", f"a sheet of at most {_MOST_ROWS:,} rows", "a longer one")
    if not rows:
        raise invalid(f"table {path}", "a sheet with column names in its first row", "an empty one")
    width = max(i + 1 for row in rows for i, cell in enumerate(row) if cell not in _EMPTY)
    names = ["" if name is None else str(name) for name in rows[0][:width]]
    names += [""] * (width - len(names))
    cells = [[row[i] if i < len(row) else None for row in rows[1:]] for i in range(width)]
    return names, cells


def _filled_rows(path: Path, rows: Iterator[Sequence[Any]], size: int) -> Iterator[Sequence[Any]]:
    """Give the rows that are not blank; ``size`` is that of the content in bytes.

    A row reaches to its last cell, however few are before it. More cells than bytes are in no real
    sheet, and would fill the memory.
    """
    most, cells = max(size, _PART), 0
    for row in rows:
        cells += len(row)
        if cells > most:
            raise invalid(f"table {path}", "a sheet of fewer cells than bytes", "more cells")
        if any(cell not in _EMPTY for cell in row):
            yield row


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
    _check_depth(path)
    try:
        return pyarrow.json.read_json(path, pyarrow.json.ReadOptions(block_size=BLOCK))
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
        got = f"a row longer than {BLOCK >> 20} MB"
        raise invalid(f"table {path}", "a JSON lines file of one row per line", got) from None


def _check_depth(path: Path) -> None:
    """Refuse a file that would take more of the stack than there is."""
    depth = 0
    with path.open("rb") as file:
        while lines := file.readlines(_PART):
            signs = np.frombuffer(_TEXT.sub(b"", b"".join(lines)), dtype=np.uint8)
            opens, closes = (np.isin(signs, np.frombuffer(s, np.uint8)) for s in (b"[{", b"]}"))
            steps = opens.astype(np.int64) - closes
            if len(steps) and depth + steps.cumsum().max() > _DEEPEST:
                allowed = f"lists and objects in one another at most {_DEEPEST} deep"
                raise invalid(f"table {path}", allowed, "more")
            depth += int(steps.sum())


def _read_feather(path: Path) -> pa.Table:
    return pyarrow.feather.read_table(path, memory_map=True)


WHOLE: dict[str, tuple[str, Callable[[Path], pa.Table]]] = {
    ".jsonl": ("JSON lines", _read_json),
    ".ndjson": ("JSON lines", _read_json),
    ".feather": ("Feather", _read_feather),
    ".arrow": ("Feather", _read_feather),
    ".xlsx": ("Excel", _excel_table),
}

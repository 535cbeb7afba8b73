"""The columns of a priors file: cells as they are written, numbers and bag ids read from them."""

import datetime
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.io.csv_text import CsvText
from unbag.io.parquet_file import ParquetTable
from unbag.io.text_ids import ids_from_text
from unbag.validation import invalid, shorten

__all__ = ["Column", "check_names", "grouped_digits", "read_bag_ids", "read_columns"]

MAX_CELLS = 5_000_000  # a table of priors is small; a file of rows given by mistake is not read
SEPARATORS = {".csv": ",;\t|", ".txt": ",;\t|", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
MISSING = {"", "-", "na", "n/a", "nan", "none", "null"}  # in place of a number, never of a bag id
NAME_TYPES = (str, int, float, Decimal, datetime.date)  # bool is an int, datetime a date
PANDAS_INDEX = "__index_level_0__"  # what pandas calls an index without a name in Parquet

# A number that starts with a needless zero, such as 007, is a code.
NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
GROUPED = re.compile(r"[1-9]\d{0,2}(?:[.,]\d{3})+", re.ASCII)


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a priors file.

    Attributes
    ----------
    name
        The header; empty where there is none.
    cells
        n cells: text where the file is a CSV, otherwise Python values, None for missing.
    numbers
        (n,) the cells as numbers, NaN where missing or not a number.
    odd
        Positions of the cells that are neither missing nor a number.
    signs
        (n,) whether a cell has a percent sign.
    from_csv
        Whether the file is a CSV, so that all cells are text whatever they mean.
    """

    name: str
    cells: list[Any]
    numbers: NDArray[np.float64]
    odd: NDArray[np.int64]
    signs: NDArray[np.bool_]
    from_csv: bool

    @property
    def is_numeric(self) -> bool:
        """Whether there is a number in the column, and nothing else but missing cells."""
        return len(self.odd) == 0 and not np.isnan(self.numbers).all()

    @property
    def is_whole(self) -> bool:
        """Whether all cells are whole numbers without a percent sign."""
        with np.errstate(invalid="ignore"):
            whole = (self.numbers == np.round(self.numbers)) & np.isfinite(self.numbers)
        return bool(whole.all() and not self.signs.any())


def read_columns(path: Path) -> tuple[list[Column], list[str]]:
    """Read all columns of a CSV or Parquet file, and notes on how it is written."""
    kind = path.suffix.casefold()
    if kind not in SEPARATORS and kind not in PARQUET:
        excel = kind in (".xlsx", ".xls", ".ods")
        remedy = "save the sheet as CSV." if excel else "rename it, or save it as one of these."
        raise invalid(f"priors file {path.name}", "a .csv or .parquet file", repr(kind), remedy)
    if not path.is_file():
        got = "a folder" if path.is_dir() else "none of that name"
        raise invalid(f"priors file {path}", "an existing file", got)
    separator = None
    if kind in PARQUET:
        names, cells = _read_parquet(path)
    else:
        names, cells, separator = _read_csv(path, SEPARATORS[kind])
    # Where commas separate the columns, a comma in a cell cannot be told from a thousands mark.
    comma = separator not in (None, ",")
    stripped = [name.strip() for name in names]
    notes = ["Spaces around column names are left out."] if stripped != names else []
    names = stripped
    if not cells or not cells[0]:
        raise invalid(f"priors file {path.name}", "a table with at least one bag", "no rows")
    columns = [
        _column(name, column, comma, from_csv=separator is not None)
        for name, column in zip(names, cells, strict=True)
    ]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        got = f"{shorten(repeated)} more than once"
        raise invalid(f"priors file {path.name}", "a table with every column name once", got)
    if comma:
        notes += _check_decimal_marks(path, columns)
    return columns, notes


def grouped_digits(columns: Iterable[Column]) -> list[str]:
    """List cells such as 1.000, which may be one or one thousand."""
    cells = (str(cell).strip() for column in columns for cell in column.cells)
    return [cell for cell in cells if GROUPED.fullmatch(cell)]


def check_names(column: Column, what: str) -> None:
    """Refuse cells that cannot name a bag or a class, and missing ones."""
    missing = [
        i + 1
        for i, cell in enumerate(column.cells)
        if cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())
    ]
    if missing:
        got = f"none in row {shorten(missing)} below the header"
        raise invalid(f"column {column.name!r}", f"{what} in every row", got)
    odd = [cell for cell in column.cells if not isinstance(cell, NAME_TYPES)]
    if odd:
        got = f"{shorten(odd[:1])} ({type(odd[0]).__name__})"
        raise invalid(f"column {column.name!r}", f"{what}: text, whole numbers or dates", got)


def read_bag_ids(column: Column) -> list[Any]:
    """Give bag ids the kind that they are written in: whole numbers, dates, bool or text.

    Text stays text where any id has a needless zero: 007 is not 7.
    """
    check_names(column, "bag ids")
    if column.is_numeric and not column.is_whole:
        got = shorten(dict.fromkeys(column.cells), limit=3)
        remedy = "name the column of bag ids with bag=."
        raise invalid(
            f"column {column.name!r}", "bag ids: text, whole numbers or dates", got, remedy
        )
    if column.from_csv:
        return ids_from_text(column.cells)
    return [int(cell) if isinstance(cell, Decimal) else cell for cell in column.cells]


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    table = ParquetTable(path, f"priors file {path.name}")
    _check_cells(path, table.n_rows * len(table.schema))
    names = table.schema.names
    cells: list[list[Any]] = [[] for _ in names]
    for batch in table.batches(names, batch_rows=MAX_CELLS, skip_rows=0):
        for values, column, name in zip(cells, batch.columns, names, strict=True):
            values += _plain_values(name, column)
    return ["" if name == PANDAS_INDEX else name for name in names], cells


def _plain_values(name: str, column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        got = f"one that Python cannot hold ({error})"
        raise invalid(f"column {name!r}", "of dates from year 1 to 9999", got) from None
    return values


def _read_csv(path: Path, separators: str) -> tuple[list[str], list[list[Any]], str]:
    """Read header and columns as text."""
    text = CsvText(path, f"priors file {path.name}", separators)
    cells: list[list[Any]] = [[] for _ in text.names]
    for block in text.blocks():
        for column, values in zip(cells, text.parse_text(block), strict=True):
            column += values.to_pylist()
        _check_cells(path, len(cells) * (1 + len(cells[0])))
    return text.names, cells, text.delimiter


def _check_cells(path: Path, cells: int) -> None:
    if cells > MAX_CELLS:
        allowed = f"a table of at most {MAX_CELLS:,} cells"
        remedy = "is this the file of rows?"
        raise invalid(f"priors file {path.name}", allowed, "more", remedy)


def _column(name: str, cells: list[Any], comma: bool, *, from_csv: bool) -> Column:
    numbers = np.full(len(cells), np.nan)
    signs = np.zeros(len(cells), dtype=bool)
    odd = []
    for i, cell in enumerate(cells):
        text = cell.strip() if isinstance(cell, str) else cell
        if isinstance(text, str) and text.endswith("%"):
            signs[i], text = True, text[:-1].rstrip()
        number = _number(text, comma)
        if number is None:
            odd.append(i)
        else:
            numbers[i] = number
    return Column(name, cells, numbers, np.array(odd, dtype=np.int64), signs, from_csv)


def _number(cell: Any, comma: bool) -> float | None:
    """Read one cell: NaN where it is missing, None where it is something else than a number."""
    if cell is None or (isinstance(cell, str) and cell.casefold() in MISSING):
        return np.nan
    if isinstance(cell, bool | datetime.date | bytes):
        return None
    if isinstance(cell, str):
        if not NUMBER.fullmatch(cell) or ("," in cell and not comma):
            return None
        cell = cell.replace(",", ".")
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _check_decimal_marks(path: Path, columns: list[Column]) -> list[str]:
    """Refuse a table that has both 0,5 and 0.5; say where commas were read as decimal marks."""
    cells = [str(cell) for column in columns if column.is_numeric for cell in column.cells]
    commas = [cell for cell in cells if "," in cell]
    points = [cell for cell in cells if "." in cell]
    if commas and points:
        got = f"{shorten(commas, 2)} as well as {shorten(points, 2)}"
        allowed = "a table with one decimal mark"
        remedy = "write all numbers with a decimal point and without thousands marks."
        raise invalid(f"priors file {path.name}", allowed, got, remedy)
    return [f"Commas are read as decimal marks, as in {commas[0]!r}."] if commas else []

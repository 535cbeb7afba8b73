"""The columns of a file of class shares."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from unbag.io.csv_text import CsvText
from unbag.io.parquet_file import ParquetTable
from unbag.io.whole_files import EXCEL, Decompressed, read_excel
from unbag.priors.cells import Column, make_column
from unbag.validation import invalid, shorten

__all__ = ["read_columns"]

MAX_CELLS = 5_000_000  # a table of priors is small; a file of rows given by mistake is not read
SEPARATORS = {".csv": ",;\t|", ".txt": ",;\t|", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
PANDAS_INDEX = "__index_level_0__"  # what pandas calls an index without a name in Parquet


def read_columns(path: Path) -> tuple[list[Column], list[str]]:
    """Read all columns of a CSV, Parquet or Excel file, and notes on how it is written."""
    kind = path.suffix.casefold()
    packed = Decompressed(path) if kind == ".gz" and path.is_file() else None
    file = path if packed is None else packed.path
    kind = file.suffix.casefold()
    if kind not in SEPARATORS and kind not in (*PARQUET, *EXCEL):
        allowed = "a .csv, .csv.gz, .parquet or .xlsx file"
        remedy = "rename it, or save it as one of these."
        raise invalid(f"shares file {path.name}", allowed, repr(kind), remedy)
    if not path.is_file():
        got = "a folder" if path.is_dir() else "nothing of that name"
        raise invalid(f"shares file {path}", "an existing file", got)
    separator = None
    if kind in EXCEL:
        names, cells = read_excel(path)
        _check_cells(path, len(names) * len(cells[0]))
    elif kind in PARQUET:
        names, cells = _read_parquet(path)
    else:
        names, cells, separator = _read_csv(file, SEPARATORS[kind])
    # Where commas separate the columns, a comma in a cell cannot be told from a thousands mark.
    comma = separator not in (None, ",")
    stripped = [name.strip() for name in names]
    notes = ["Spaces around column names were removed."] if stripped != names else []
    names = stripped
    if not cells or not cells[0]:
        raise invalid(f"shares file {path.name}", "a table with at least one bag", "no rows")
    columns = [
        make_column(name, column, comma=comma, from_csv=separator is not None)
        for name, column in zip(names, cells, strict=True)
    ]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        got = f"{shorten(repeated)} more than once"
        raise invalid(f"shares file {path.name}", "a table with every column name once", got)
    if comma:
        notes += _check_decimal_marks(path, columns)
    return columns, notes


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    table = ParquetTable(path, f"shares file {path.name}")
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
    text = CsvText(path, f"shares file {path.name}", separators)
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
        raise invalid(f"shares file {path.name}", allowed, "more", remedy)


def _check_decimal_marks(path: Path, columns: list[Column]) -> list[str]:
    """Refuse a table that has both 0,5 and 0.5; say where commas were read as decimal marks."""
    cells = [str(cell) for column in columns if column.is_numeric for cell in column.cells]
    commas = [cell for cell in cells if "," in cell]
    points = [cell for cell in cells if "." in cell]
    if commas and points:
        got = f"{shorten(commas, 2)} as well as {shorten(points, 2)}"
        allowed = "a table with one kind of decimal mark"
        remedy = "write all numbers with a decimal point and without thousands marks."
        raise invalid(f"shares file {path.name}", allowed, got, remedy)
    return [f"Commas are read as decimal marks, as in {commas[0]!r}."] if commas else []

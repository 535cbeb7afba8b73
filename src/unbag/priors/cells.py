"""The columns of a table of class shares: cells as they are written, numbers and ids of them."""

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.text_ids import ids_from_text
from unbag.validation import invalid, shorten

__all__ = ["Column", "check_names", "grouped_digits", "make_column", "read_bag_ids"]

UNKNOWN = "?"  # a share that nobody knows; a cell that is left empty may be a mistake
MISSING = {"", "-", "na", "n/a", "nan", "none", "null"}  # in place of a number, never of a bag id
NAME_TYPES = (str, int, float, Decimal, datetime.date)  # bool is an int, datetime a date

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
    unknown
        (n,) whether a cell says that its number is not known.
    from_csv
        Whether the file is a CSV, so that all cells are text whatever they mean.
    """

    name: Any
    cells: list[Any]
    numbers: NDArray[np.float64]
    odd: NDArray[np.int64]
    signs: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
    from_csv: bool

    @property
    def is_numeric(self) -> bool:
        """Whether there is a number in the column, and nothing else but missing cells."""
        numbers = ~np.isnan(self.numbers) | self.unknown
        return len(self.odd) == 0 and bool(numbers.any())

    @property
    def is_whole(self) -> bool:
        """Whether all cells are whole numbers without a percent sign."""
        with np.errstate(invalid="ignore"):
            whole = (self.numbers == np.round(self.numbers)) & np.isfinite(self.numbers)
        return bool(whole.all() and not self.signs.any())


def make_column(
    name: Any, cells: list[Any], *, comma: bool = False, from_csv: bool = False
) -> Column:
    """Make a column of its cells; say whether commas are decimal marks, and all cells text."""
    numbers = np.full(len(cells), np.nan)
    signs, unknown = np.zeros((2, len(cells)), dtype=bool)
    odd = []
    for i, cell in enumerate(cells):
        text = cell.strip() if isinstance(cell, str) else cell
        if isinstance(text, str) and text.endswith("%"):
            signs[i], text = True, text[:-1].rstrip()
        unknown[i] = isinstance(text, str) and text == UNKNOWN
        number = np.nan if unknown[i] else _number(text, comma)
        if number is None:
            odd.append(i)
        else:
            numbers[i] = number
    places = np.array(odd, dtype=np.int64)
    return Column(name, cells, numbers, places, signs, unknown, from_csv)


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

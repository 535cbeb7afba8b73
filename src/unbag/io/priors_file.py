"""Class priors from a CSV or Parquet file, and whether they fit the bags of the rows."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unbag.ids import compare_ids, index_ids
from unbag.io.priors_cells import Column, check_names, grouped_digits, read_bag_ids, read_columns
from unbag.io.priors_units import Unit, refuse_totals, tell_unit
from unbag.priors import ClassPriors
from unbag.validation import invalid, shorten

__all__ = ["PriorsFile", "match_bags", "read_priors"]

BAG_NAMES = ("bag", "bag_id", "bag_ids")
CLASS_NAMES = ("class", "classes", "class_name", "label", "category")
VALUE_NAMES = (
    *("value", "share", "shares", "percent", "percentage", "proportion", "fraction", "prior"),
    *("count", "counts", "n"),
)
LONG_REMEDY = (
    "name the three columns of the long form bag, class and value; the wide form has one row per "
    "bag and one column per class, and bag= names its column of bag ids."
)


@dataclass(frozen=True, eq=False)
class PriorsFile:
    """Class priors with how they were written.

    Attributes
    ----------
    priors
        The shares.
    form
        "wide": one row per bag and one column per class; "long": one row per bag and class.
    unit
        What the numbers were: "shares", "percent" or "counts".
    counts
        (M, K) counts as they were written, None for other units.
    notes
        How the file was read, one sentence each.
    """

    priors: ClassPriors
    form: Literal["wide", "long"]
    unit: Unit
    counts: NDArray[np.float64] | None
    notes: tuple[str, ...]


@dataclass(eq=False)
class _Table:
    """Cells of a file as a table of bags and classes; NaN where the file has no cell."""

    form: Literal["wide", "long"]
    bag_ids: list[Any]
    classes: list[Any]
    values: NDArray[np.float64]  # (M, K)
    absent: NDArray[np.bool_]  # (M, K): pairs that a long form leaves out
    sources: list[Column]  # the columns that hold the values
    notes: list[str]


def read_priors(path: str | os.PathLike[str], *, bag: str | None = None) -> PriorsFile:
    r"""Read class priors from a CSV or Parquet file.

    The wide form has one row per bag and one column per class. Its bag ids are in the column
    ``bag`` if there is one, else in the only column that is not of numbers, else in a column
    without a name or called bag, else in the first. The long form has three columns in
    any order: bag, class and value.

    Numbers are shares where every row (bag) sums to 1, percent where it sums to 100, and counts
    where all are whole and sum to something else. Rounded figures may be off by half a unit of
    the last digit for each class (always by half a percent, never by more than five), and are
    then divided by their sum. The notes say how the file was read where it could have
    been read in another way; anything else is an error.

    Parameters
    ----------
    path
        A ``.csv``, ``.txt`` or ``.tsv`` file (UTF-8; separated by commas, semicolons, tabs or
        bars, and with decimal commas only in the latter three), or a ``.parquet`` file. In a CSV,
        bag ids are whole numbers, ISO dates or text (007 is text), and class names are text.
    bag
        Column of the bag ids.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "shares.csv"
    >>> _ = path.write_text("district,yes,no\nnorth,30,70\nsouth,55.5,44.5\n")
    >>> read = read_priors(path, bag="district")
    >>> read.priors.values
    array([[0.3  , 0.7  ],
           [0.555, 0.445]])
    >>> read.unit, read.notes
    ('percent', ('Every row sums to 100: the numbers are read as percent.',))
    >>> folder.cleanup()
    """
    columns, notes = read_columns(Path(path))
    if len(columns) < 3:
        got = f"only {shorten(column.name for column in columns)}"
        allowed = "a table with a column of bag ids and at least two classes"
        raise invalid(f"priors file {Path(path).name}", allowed, got)
    roles = _long_roles(columns, bag) if len(columns) == 3 else None
    table = _read_wide(columns, bag) if roles is None else _read_long(*roles)
    if bag is not None and bag not in [column.name for column in columns]:
        notes.append(f"The priors file has no column {bag!r}.")
    notes += table.notes
    signs = _check_cells(table)
    values = np.where(table.absent, 0.0, table.values)
    refuse_totals(values, table.bag_ids, table.classes)
    unit, unit_notes = tell_unit(values, table.bag_ids, percent_signs=signs)
    notes += unit_notes
    if table.absent.any():
        notes.append(_check_absent(table, unit))
    if unit == "counts" and (grouped := grouped_digits(table.sources)):
        remedy = "write 1000 or 1."
        raise invalid("counts", "whole numbers without thousands marks", shorten(grouped), remedy)
    priors = ClassPriors(values, table.bag_ids, table.classes, normalize=True)
    return PriorsFile(priors, table.form, unit, values if unit == "counts" else None, tuple(notes))


def match_bags(bag_ids: Any, priors: ClassPriors) -> tuple[str, ...]:
    """Check that every row's bag has priors; return notes on priors without rows.

    Bag ids match strictly by kind and value, as everywhere; the error lists what does not match,
    both ways, and points at ids that would match if written alike.

    Parameters
    ----------
    bag_ids
        (n,) bag id of every row.
    priors
        Their class priors.

    Examples
    --------
    >>> priors = ClassPriors([[0.2, 0.8], [0.6, 0.4]], ["north", "south"])
    >>> match_bags(["south", "south"], priors)
    ("1 of 2 bags of the priors has no rows: 'north'.",)
    """
    compared = compare_ids("bag_ids", bag_ids, index_ids("bag_ids", priors.bag_ids))
    n_absent, n_bags = len(compared.absent), priors.n_bags
    has = "has" if n_absent == 1 else "have"
    note = f"{n_absent} of {n_bags} bags of the priors {has} no rows: {shorten(compared.absent)}."
    if compared.unknown:
        shown = ", ".join(
            f"{shorten([bag])} ({n} row{'s' if n > 1 else ''})" for bag, n in compared.unknown[:5]
        )
        more = f" and {len(compared.unknown) - 5} more" if len(compared.unknown) > 5 else ""
        n_rows = sum(n for _, n in compared.unknown)
        got = f"{n_rows} of {compared.n_rows} rows in bags without priors: {shown}{more}"
        remedy = " ".join(part for part in (compared.hint, note if n_absent else "") if part)
        raise invalid("bag_ids", "bags with class priors", got, remedy)
    return (note,) if n_absent else ()


def _read_wide(columns: list[Column], bag: str | None) -> _Table:
    column, why = _bag_column(columns, bag)
    ids = read_bag_ids(column)
    index_ids(f"bag ids of the priors ({column.name!r})", np.fromiter(ids, dtype=object))
    classes = [other for other in columns if other is not column]
    unnamed = [other for other in classes if not other.name]
    if unnamed:
        got = f"one without (cells {shorten(unnamed[0].cells, 3)})"
        remedy = "pandas writes such a column for its index: use index=False."
        raise invalid("columns of classes", "named", got, remedy)
    values = np.column_stack([other.numbers for other in classes])  # (M, K)
    notes = [f"Bag ids are in the column {column.name!r}, {why}."] if why else []
    names = [other.name for other in classes]
    return _Table("wide", ids, names, values, np.zeros(values.shape, dtype=bool), classes, notes)


def _bag_column(columns: list[Column], bag: str | None) -> tuple[Column, str]:
    """Find the column of bag ids of a wide table, and say why it is this one."""
    named = [column for column in columns if bag is not None and column.name == bag]
    if named:
        return named[0], ""
    texts = [column for column in columns if not column.is_numeric]
    if len(texts) > 1:
        cells = [f"{column.name!r} (as {shorten(_first_odd(column))})" for column in texts[:5]]
        remedy = (
            "name the column of bag ids with bag=, correct the cells, and leave out columns that "
            "are no classes; the long form has exactly three columns: bag, class and value."
        )
        allowed = "numbers in all columns but that of the bag ids"
        got = f"{len(texts)} columns with other cells: {', '.join(cells)}"
        raise invalid("priors file", allowed, got, remedy)
    if texts:
        return texts[0], "the only one that is not of numbers"
    for column in columns:
        if not column.name:
            return column, "the one without a name"
    for column in columns:
        if column.name in BAG_NAMES:
            return column, "by its name"
    return columns[0], "the first one"


def _first_odd(column: Column) -> list[Any]:
    return [column.cells[i] for i in column.odd[:1]] or [None]


def _long_roles(columns: list[Column], bag: str | None) -> tuple[Column, Column, Column] | None:
    """Tell bag, class and value of a long table apart; None where the table is wide."""
    roles: dict[str, Column] = {}
    known_names: list[tuple[str, tuple[str, ...]]] = [
        ("bag", () if bag is None else (bag,)),
        ("class", CLASS_NAMES),
        ("value", VALUE_NAMES),
        ("bag", BAG_NAMES),
    ]
    for role, names in known_names:
        fitting = [column for column in columns if column.name.casefold() in names]
        fitting = [column for column in columns if column.name in names] or fitting
        if role not in roles and len(fitting) == 1 and fitting[0] not in roles.values():
            roles[role] = fitting[0]
    if not {"class", "value"} <= roles.keys() and not _looks_long(columns, bag):
        return None
    if "value" not in roles:
        # Bags and classes are text or whole numbers, so numbers of another kind are values.
        rest = [column for column in columns if column not in roles.values()]
        numeric = [column for column in rest if column.is_numeric]
        fractions = [column for column in numeric if not column.is_whole]
        known = next((some for some in (rest, numeric, fractions) if len(some) == 1), None)
        if known is None:
            got = f"the columns {shorten(c.name for c in rest)}, any of which may be the value"
            raise invalid("priors file", "clearly of long or wide form", got, LONG_REMEDY)
        roles["value"] = known[0]
    rest = [column for column in columns if column not in roles.values()]
    if len(rest) == 2:
        return (*_bag_and_class(rest, roles["value"]), roles["value"])
    missing = next((role for role in ("bag", "class") if role not in roles), None)
    if missing and rest:
        roles[missing] = rest[0]
    return roles["bag"], roles["class"], roles["value"]


def _looks_long(columns: list[Column], bag: str | None) -> bool:
    """Whether a table of three columns cannot be wide, because bag ids repeat in it."""
    texts = [column for column in columns if not column.is_numeric]
    if len(texts) > 1:
        return len(texts) == 2 and all(_repeats(column) for column in texts)
    ids, _ = _bag_column(columns, bag)
    others = [column for column in columns if column is not ids]
    return _repeats(ids) and any(not other.is_numeric or other.is_whole for other in others)


def _repeats(column: Column) -> bool:
    return len(set(map(repr, column.cells))) < len(column.cells)


def _bag_and_class(pair: list[Column], value: Column) -> tuple[Column, Column]:
    """Tell which of two columns holds the bags: values must sum to 1 or 100 in each of them."""
    fitting = []
    for bags, classes in (pair, pair[::-1]):
        _, codes = np.unique([repr(cell) for cell in bags.cells], return_inverse=True)
        sums = np.bincount(codes, weights=value.numbers)
        if any(np.allclose(sums, total, rtol=0.005, atol=0) for total in (1, 100)):
            fitting.append((bags, classes))
    if len(fitting) == 1:
        return fitting[0]
    got = f"the columns {shorten(column.name for column in pair)}, either of which may be the bag"
    raise invalid("priors file", "a long table with a column of bag ids", got, LONG_REMEDY)


def _read_long(bag: Column, class_: Column, value: Column) -> _Table:
    ids = read_bag_ids(bag)
    check_names(class_, "class names")
    bags = {bag_id: m for m, bag_id in enumerate(dict.fromkeys(ids))}
    classes = {name: k for k, name in enumerate(dict.fromkeys(class_.cells))}
    values = np.full((len(bags), len(classes)), np.nan)
    absent = np.ones(values.shape, dtype=bool)
    for bag_id, name, number in zip(ids, class_.cells, value.numbers, strict=True):
        at = bags[bag_id], classes[name]
        if not absent[at]:
            got = f"bag {shorten([bag_id])} and class {shorten([name])} more than once"
            raise invalid("priors file", "a long table with every pair once", got)
        values[at], absent[at] = number, False
    notes = [
        f"The file is of long form: bag ids in the column {bag.name!r}, classes in "
        f"{class_.name!r}, values in {value.name!r}."
    ]
    return _Table("long", list(bags), list(classes), values, absent, [value], notes)


def _check_cells(table: _Table) -> bool:
    """Refuse cells that are no number, missing or negative; return whether they are percent."""
    for column in table.sources:
        if len(column.odd):
            i = int(column.odd[0])
            where = f"in row {i + 1} below the header"
            remedy = "write numbers with a decimal point and without thousands marks."
            got = f"{shorten([column.cells[i]])} {where}"
            raise invalid(f"column {column.name!r}", "numbers", got, remedy)
    if len(table.classes) < 2:
        raise invalid("priors file", "a table with at least two classes", shorten(table.classes))
    missing = ~np.isfinite(table.values) & ~table.absent
    for bad, allowed, remedy in (
        (missing, "a number for every bag and class", "write a share of 0 as 0."),
        (table.values < 0, "of no negative numbers", ""),
    ):
        if bad.any():
            m, k = np.argwhere(bad)[0]
            what = "none" if bad is missing else f"{table.values[m, k]:g}"
            more = f" and {bad.sum() - 1} more" if bad.sum() > 1 else ""
            where = f"for bag {shorten([table.bag_ids[m]])} and class {shorten([table.classes[k]])}"
            raise invalid("priors", allowed, f"{what} {where}{more}", remedy)
    signs = np.concatenate([column.signs for column in table.sources])
    if signs.any() and not signs.all():
        cells = [cell for column in table.sources for cell in column.cells]
        got = shorten(cell for cell, sign in zip(cells, signs, strict=True) if not sign)
        raise invalid("priors", "written with percent signs everywhere or nowhere", got)
    return bool(signs.any())


def _check_absent(table: _Table, unit: Unit) -> str:
    """Say that pairs left out of a long table are 0, where the sums of their bags prove it."""
    m, k = np.argwhere(table.absent)[0]
    where = f"bag {shorten([table.bag_ids[m]])} and class {shorten([table.classes[k]])}"
    n_absent = int(table.absent.sum())
    if unit == "counts":
        more = f" and {n_absent - 1} more" if n_absent > 1 else ""
        remedy = "write a count of 0 as 0."
        raise invalid(
            "priors", "a count for every bag and class", f"none for {where}{more}", remedy
        )
    return (
        f"Pairs of bag and class that are not in the file ({n_absent}, such as {where}) are read "
        "as 0, because the other values of their bags sum up."
    )

"""The form of a table of class shares: wide or long, and which column is what."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unbag.ids import index_ids
from unbag.priors.cells import Column, check_names, grouped_digits, read_bag_ids
from unbag.priors.partial import complete, from_ranges
from unbag.priors.told import Told, split_told
from unbag.priors.units import Unit, refuse_totals, tell_unit
from unbag.validation import invalid, shorten

__all__ = ["BAG_NAMES", "SharesTable", "read_table", "read_wide"]

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


@dataclass(eq=False)
class SharesTable:
    """A table of bags and classes, with how it was written."""

    form: Literal["wide", "long"]
    bag_ids: list[Any]
    classes: list[Any]
    values: NDArray[np.float64]  # (M, K); 0 where a long form has no cell
    absent: NDArray[np.bool_]  # (M, K): pairs that a long form leaves out
    sources: list[Column]  # the columns that hold the values
    notes: list[str]  # how it was read, one sentence each
    unit: Unit = "shares"
    told: Told = field(default_factory=Told)  # errors of the shares, and what these are of
    guessed: NDArray[np.float64] | None = None  # (M, K) errors of shares that are not known

    def arguments(self) -> dict[str, Any]:
        """Arguments of ClassPriors."""
        names = {"values": self.values, "bag_ids": self.bag_ids, "classes": self.classes}
        signs = any(column.signs.any() for column in self.sources)
        told = self.told.arguments(self.classes, self.values, self.guessed, percent_signs=signs)
        return {**names, "normalize": True, **told}


def read_table(
    columns: list[Column], bag: str | None = None, *, any_sums: bool = False
) -> SharesTable:
    """Tell which column is what, and what the numbers are.

    Parameters
    ----------
    columns
        All columns of a table.
    bag
        Name of the column of bag ids, where it is known.
    any_sums
        Whether rows may sum to anything, as those of counts that are estimates.
    """
    columns, told = split_told(columns)
    if len(columns) < 3:
        got = f"only {shorten(column.name for column in columns)}"
        raise invalid("priors", "a table with a column of bag ids and at least two classes", got)
    roles = _long_roles(columns, bag) if len(columns) == 3 else None
    if roles is not None:
        if told.per_bag or told.per_class or told.together:
            allowed = "of wide form, with one row per bag, where columns tell of errors"
            raise invalid("priors", allowed, "the long form")
        return _checked(_read_long(*roles), any_sums=any_sums)
    column, why = _bag_column(columns, bag)
    ids = read_bag_ids(column)
    index_ids(f"bag ids of the priors ({column.name!r})", np.fromiter(ids, dtype=object))
    notes = [f"Bag ids are in the column {column.name!r}, {why}."] if why else []
    classes = [other for other in columns if other is not column]
    return read_wide(ids, classes, notes, told, any_sums=any_sums)


def read_wide(
    bag_ids: list[Any],
    classes: list[Column],
    notes: list[str] | None = None,
    told: Told | None = None,
    *,
    any_sums: bool = False,
) -> SharesTable:
    """Read a table of one row per bag and one column per class."""
    if told is None:
        classes, told = split_told(classes)
    unnamed = [column for column in classes if column.name in ("", None)]
    if unnamed:
        got = f"one without (cells {shorten(unnamed[0].cells, 3)})"
        remedy = "pandas writes such a column for its index: use index=False."
        raise invalid("columns of classes", "named", got, remedy)
    values = np.column_stack([column.numbers for column in classes])  # (M, K)
    names = [column.name for column in classes]
    absent = np.zeros(values.shape, dtype=bool)
    table = SharesTable("wide", bag_ids, names, values, absent, classes, notes or [], told=told)
    return _checked(table, any_sums=any_sums)


def _checked(table: SharesTable, *, any_sums: bool) -> SharesTable:
    """Check the numbers, and tell their unit."""
    unknown = _unknown(table)
    signs = _check_cells(table, unknown)
    values = np.where(table.absent, 0.0, table.values)
    if any_sums and not unknown.any():
        table.values, table.unit = values, "counts"
        return table
    whole = ~unknown.any(1)
    ids = [table.bag_ids[m] for m in np.flatnonzero(whole)]
    if whole.any():
        refuse_totals(values[whole], ids, table.classes)
        table.unit, notes = tell_unit(values[whole], ids, percent_signs=signs)
        table.notes += notes
    elif signs:
        table.unit = "percent"
    if not whole.all():
        values = _guess(table, values, unknown)
    if table.absent.any():
        table.notes.append(_check_absent(table))
    if table.unit == "counts" and (grouped := grouped_digits(table.sources)):
        remedy = "write 1000 or 1."
        raise invalid("counts", "whole numbers without thousands marks", shorten(grouped), remedy)
    table.values = values
    return table


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
        raise invalid("priors", allowed, got, remedy)
    if texts:
        return texts[0], "the only one that is not of numbers"
    for column in columns:
        if column.name in ("", None):
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
        fitting = [column for column in columns if str(column.name).casefold() in names]
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
            raise invalid("priors", "clearly of long or wide form", got, LONG_REMEDY)
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
    raise invalid("priors", "a long table with a column of bag ids", got, LONG_REMEDY)


def _read_long(bag: Column, class_: Column, value: Column) -> SharesTable:
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
            raise invalid("priors", "a long table with every pair once", got)
        values[at], absent[at] = number, False
    notes = [
        f"The table is read as long form: bag ids in the column {bag.name!r}, classes in "
        f"{class_.name!r}, values in {value.name!r}."
    ]
    return SharesTable("long", list(bags), list(classes), values, absent, [value], notes)


def _unknown(table: SharesTable) -> NDArray[np.bool_]:
    """(M, K) whether a share is not known, as its cell says."""
    if table.form == "long":
        return np.zeros(table.values.shape, dtype=bool)
    return np.column_stack([column.unknown for column in table.sources])


def _guess(
    table: SharesTable, values: NDArray[np.float64], unknown: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Fill in shares that are not known, in the unit of the others."""
    bags = np.flatnonzero(unknown.any(1))
    if table.unit == "counts":
        got = f"counts, and unknown ones for bag {shorten([table.bag_ids[m] for m in bags])}"
        raise invalid("priors", "shares or percent where some are not known", got)
    total = 100.0 if table.unit == "percent" else 1.0
    shares = np.where(unknown, np.nan, values) / total
    errors = np.zeros_like(shares)
    if {"low", "high"} <= table.told.per_class.keys():
        signs = any(column.signs.any() for column in table.sources)
        low, high = (
            table.told.cells(kind, table.classes, percent_signs=signs, may_lack=True) / total
            for kind in ("low", "high")
        )
        told = unknown.all(1) & np.isfinite(low + high).all(1)
        ids = [table.bag_ids[m] for m in np.flatnonzero(told)]
        shares[told], errors[told] = from_ranges(low[told], high[told], ids)
    merged = table.told.merged(table.classes, total)
    shares, guessed = complete(shares, table.bag_ids, table.classes, merged)
    table.guessed = errors + guessed
    some = shorten([table.bag_ids[m] for m in bags], limit=5)
    table.notes.append(
        f"Shares of {len(bags)} of {len(values)} bags are not known or known in part ({some}): "
        "what is missing is guessed from ranges, sums of classes and the other bags, and the "
        "errors of the guess are taken into account."
    )
    return shares * total


def _check_cells(table: SharesTable, unknown: NDArray[np.bool_]) -> bool:
    """Refuse cells that are no number, missing or negative; return whether they are percent."""
    for column in table.sources:
        if len(column.odd):
            i = int(column.odd[0])
            where = f"in row {i + 1} below the header"
            remedy = "write numbers with a decimal point and without thousands marks."
            got = f"{shorten([column.cells[i]])} {where}"
            raise invalid(f"column {column.name!r}", "numbers", got, remedy)
    if len(table.classes) < 2:
        raise invalid("priors", "a table with at least two classes", shorten(table.classes))
    missing = ~np.isfinite(table.values) & ~table.absent & ~unknown
    spelling = "write a share of 0 as 0, and one that is not known as ?."
    for bad, allowed, remedy in (
        (missing, "a number for every bag and class", spelling),
        (table.values < 0, "numbers of 0 or more", ""),
    ):
        if bad.any():
            m, k = np.argwhere(bad)[0]
            what = "none" if bad is missing else f"{table.values[m, k]:g}"
            more = f" and {bad.sum() - 1} more" if bad.sum() > 1 else ""
            where = f"for bag {shorten([table.bag_ids[m]])} and class {shorten([table.classes[k]])}"
            raise invalid("priors", allowed, f"{what} {where}{more}", remedy)
    known = np.concatenate([~column.unknown for column in table.sources])
    signs = np.concatenate([column.signs for column in table.sources])[known]
    if signs.any() and not signs.all():
        cells = [cell for column in table.sources for cell in column.cells]
        cells = [cell for cell, is_known in zip(cells, known, strict=True) if is_known]
        got = shorten(cell for cell, sign in zip(cells, signs, strict=True) if not sign)
        raise invalid("priors", "written with percent signs everywhere or nowhere", got)
    return bool(signs.any())


def _check_absent(table: SharesTable) -> str:
    """Say that pairs left out of a long table are 0, where the sums of their bags prove it."""
    m, k = np.argwhere(table.absent)[0]
    where = f"bag {shorten([table.bag_ids[m]])} and class {shorten([table.classes[k]])}"
    n_absent = int(table.absent.sum())
    if table.unit == "counts":
        more = f" and {n_absent - 1} more" if n_absent > 1 else ""
        remedy = "write a count of 0 as 0."
        raise invalid(
            "priors", "a count for every bag and class", f"none for {where}{more}", remedy
        )
    return (
        f"Pairs of bag and class that are not in the table ({n_absent}, such as {where}) are read "
        "as 0, because the other values of their bags sum up."
    )

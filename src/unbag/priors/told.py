"""Columns beside the shares that say how far these may be off, and what they are of."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.priors.cells import Column, grouped_digits
from unbag.priors.errors import ShareErrors
from unbag.validation import invalid, shorten

__all__ = ["Told", "split_told"]

_PER_BAG = ("rows_counted", "laplace_scale", "gaussian_scale", "shares_of")
_PER_CLASS = ("error", "low", "high")


@dataclass(frozen=True, eq=False)
class Told:
    """Columns of one number per bag, and of one per bag and class, by what they hold."""

    per_bag: dict[str, Column] = field(default_factory=dict)
    per_class: dict[str, dict[Any, Column]] = field(default_factory=dict)  # by kind and class

    def arguments(
        self, classes: list[Any], values: NDArray[np.float64], *, percent_signs: bool
    ) -> dict[str, Any]:
        """Arguments ``errors`` and ``shares_of`` of ClassPriors, for values (M, K) of a table.

        Errors have the unit of the values: shares, percent (with or without signs) or counts.
        """
        totals = values.sum(1)
        found: dict[str, Any] = {}
        if "rows_counted" in self.per_bag:
            rows = self.per_bag["rows_counted"]
            numbers = _numbers(rows, percent_signs=False)
            if rows.from_csv and (grouped := grouped_digits([rows])):
                remedy = "write 1000 or 1."
                allowed = "of whole numbers without thousands marks"
                raise invalid("column 'rows_counted'", allowed, shorten(grouped), remedy)
            found["rows_counted"] = ShareErrors.from_rows(numbers)
        for name, make in (
            ("laplace_scale", ShareErrors.laplace),
            ("gaussian_scale", ShareErrors.gaussian),
        ):
            if name in self.per_bag:
                scale = _numbers(self.per_bag[name], percent_signs=percent_signs)
                found[name] = make(scale / totals)
        cells = {
            kind: self._cells(kind, classes, percent_signs) / totals[:, None]
            for kind in self.per_class
        }
        if "error" in cells:
            found["error"] = cells["error"]
        if {"low", "high"} & cells.keys():
            if not {"low", "high"} <= cells.keys():
                got = f"only {shorten(sorted(cells))}"
                raise invalid("columns of intervals", "both low and high of every class", got)
            found["low and high"] = ShareErrors.from_intervals(cells["low"], cells["high"])
        if len(found) > 1:
            got = f"columns of {shorten(found)}"
            raise invalid("errors of the shares", "told in one way", got)
        return {"errors": next(iter(found.values()), None), "shares_of": self._shares_of()}

    def _cells(self, kind: str, classes: list[Any], percent_signs: bool) -> NDArray[np.float64]:
        columns = self.per_class[kind]
        absent = [f"{name}_{kind}" for name in classes if name not in columns]
        if absent:
            allowed = f"a column {kind!r} for every class or for none"
            raise invalid("columns of errors", allowed, f"no {shorten(absent)}")
        numbers = [_numbers(columns[name], percent_signs=percent_signs) for name in classes]
        return np.column_stack(numbers)

    def _shares_of(self) -> Any:
        if "shares_of" not in self.per_bag:
            return None
        cells = list(dict.fromkeys(self.per_bag["shares_of"].cells))
        if len(cells) > 1:
            raise invalid("column 'shares_of'", "the same for all bags", shorten(cells))
        return cells[0]


def _numbers(column: Column, *, percent_signs: bool) -> NDArray[np.float64]:
    """Give the numbers of a column, in the unit of the shares."""
    others = [column.cells[i] for i in np.flatnonzero(np.isnan(column.numbers))]
    if others:
        raise invalid(f"column {column.name!r}", "of a number in every row", shorten(others))
    if (column.signs != percent_signs).any():
        got = shorten([column.cells[i] for i in np.flatnonzero(column.signs != percent_signs)])
        allowed = "with" if percent_signs else "without"
        remedy = "write the shares and their errors in the same way."
        raise invalid(f"column {column.name!r}", f"of numbers {allowed} percent signs", got, remedy)
    return column.numbers


def split_told(columns: list[Column]) -> tuple[list[Column], Told]:
    """Take the columns that say something about the shares out of those of a wide table.

    These are: ``rows_counted``, ``laplace_scale``, ``gaussian_scale`` and ``shares_of``, and for a
    class such as ``yes`` its ``yes_error``, or ``yes_low`` and ``yes_high``.
    """
    told, rest = Told(), []
    names = {column.name for column in columns}
    for column in columns:
        name = str(column.name)
        of_class, _, kind = name.rpartition("_")
        if name in _PER_BAG:
            told.per_bag[name] = column
        elif kind in _PER_CLASS and of_class in names:
            told.per_class.setdefault(kind, {})[of_class] = column
        else:
            rest.append(column)
    return rest, told

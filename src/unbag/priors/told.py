"""Columns beside the shares: how far these may be off, what they are of, and sums of classes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.priors.cells import Column, grouped_digits
from unbag.priors.errors import GivenErrors, ShareErrors
from unbag.priors.partial import Merged
from unbag.validation import invalid, shorten

__all__ = ["Told", "split_told"]

_PER_BAG = ("rows_counted", "laplace_scale", "gaussian_scale", "shares_of")
_PER_CLASS = ("error", "low", "high")
_TOGETHER = "|"  # between the names of classes whose shares are known together


@dataclass(frozen=True, eq=False)
class Told:
    """Columns of one number per bag, and of one per bag and class, by what they hold."""

    per_bag: dict[str, Column] = field(default_factory=dict)
    per_class: dict[str, dict[Any, Column]] = field(default_factory=dict)  # by kind and class
    together: list[Column] = field(default_factory=list)  # sums of classes

    def arguments(
        self,
        classes: list[Any],
        values: NDArray[np.float64],
        guessed: NDArray[np.float64] | None = None,
        *,
        percent_signs: bool,
    ) -> dict[str, Any]:
        """Arguments ``errors`` and ``shares_of`` of ClassPriors, for values (M, K) of a table.

        Errors have the unit of the values: shares, percent (with or without signs) or counts.
        ``guessed`` are standard errors (M, K) of shares that were not known, in shares; zero for
        those that were.
        """
        totals, may_lack = values.sum(1), guessed is not None
        partial = np.zeros(len(values), bool)
        if guessed is not None:
            partial = guessed.sum(1) > 0
        found: dict[str, GivenErrors] = {}
        if "rows_counted" in self.per_bag:
            column = self.per_bag["rows_counted"]
            rows = _numbers(column, percent_signs=False, may_lack=may_lack)
            if column.from_csv and (grouped := grouped_digits([column])):
                remedy = "write 1000 or 1."
                allowed = "of whole numbers without thousands marks"
                raise invalid("column 'rows_counted'", allowed, shorten(grouped), remedy)
            # What is guessed was not counted in any rows, and has no error beside its own.
            rows = np.where(partial & np.isnan(rows), np.inf, rows)
            found["rows_counted"] = ShareErrors.from_rows(rows)
        for name, make in (
            ("laplace_scale", ShareErrors.laplace),
            ("gaussian_scale", ShareErrors.gaussian),
        ):
            if name in self.per_bag:
                scale = _numbers(self.per_bag[name], percent_signs=percent_signs, may_lack=may_lack)
                scale = scale / totals
                found[name] = make(np.where(partial & np.isnan(scale), 0, scale))
        cells = {
            kind: self.cells(kind, classes, percent_signs=percent_signs, may_lack=may_lack)
            / totals[:, None]
            for kind in self.per_class
        }
        for kind, numbers in cells.items():
            # Ranges of guessed shares are in their own errors; bags without any have none.
            ranged = np.isnan(numbers) if kind == "error" else partial[:, None]
            blank = np.isnan(numbers).sum(1) == (np.inf if guessed is None else len(classes))
            cells[kind] = np.where((partial[:, None] & ranged) | blank[:, None], 0, numbers)
        if "error" in cells:
            found["error"] = GivenErrors("cells", cells["error"])
        if {"low", "high"} & cells.keys():
            if not {"low", "high"} <= cells.keys():
                got = f"only {shorten(sorted(cells))}"
                raise invalid("columns of intervals", "both low and high of every class", got)
            found["low and high"] = ShareErrors.from_intervals(cells["low"], cells["high"])
        if len(found) > 1:
            got = f"columns of {shorten(found)}"
            raise invalid("errors of the shares", "told in one way", got)
        errors = next(iter(found.values()), None)
        if guessed is not None:
            errors = GivenErrors("guessed", guessed, beside=errors)
        return {"errors": errors, "shares_of": self._shares_of()}

    def merged(self, classes: list[Any], total: float) -> Merged:
        """Give sums of shares that are known together, for values that sum to a total."""
        return [
            ([classes.index(part) for part in _parts(column)], column.numbers / total)
            for column in self.together
        ]

    def cells(
        self, kind: str, classes: list[Any], *, percent_signs: bool, may_lack: bool
    ) -> NDArray[np.float64]:
        """Numbers (M, K) of the columns of a kind, one per class."""
        columns = self.per_class[kind]
        absent = [f"{name}_{kind}" for name in classes if name not in columns]
        if absent:
            allowed = f"a column {kind!r} for every class or for none"
            raise invalid("columns of errors", allowed, f"no {shorten(absent)}")
        numbers = [
            _numbers(columns[name], percent_signs=percent_signs, may_lack=may_lack)
            for name in classes
        ]
        return np.column_stack(numbers)

    def _shares_of(self) -> Any:
        if "shares_of" not in self.per_bag:
            return None
        cells = list(dict.fromkeys(self.per_bag["shares_of"].cells))
        if len(cells) > 1:
            raise invalid("column 'shares_of'", "the same for all bags", shorten(cells))
        return cells[0]


def _numbers(column: Column, *, percent_signs: bool, may_lack: bool) -> NDArray[np.float64]:
    """Give the numbers of a column, in the unit of the shares."""
    missing = np.isnan(column.numbers)
    others = [column.cells[i] for i in np.flatnonzero(missing)]
    if others and (not may_lack or len(column.odd)):
        raise invalid(f"column {column.name!r}", "of a number in every row", shorten(others))
    other_sign = (column.signs != percent_signs) & ~missing
    if other_sign.any():
        got = shorten([column.cells[i] for i in np.flatnonzero(other_sign)])
        allowed = "with" if percent_signs else "without"
        remedy = "write the shares and their errors in the same way."
        raise invalid(f"column {column.name!r}", f"of numbers {allowed} percent signs", got, remedy)
    return column.numbers


def split_told(columns: list[Column]) -> tuple[list[Column], Told]:
    """Take the columns that say something about the shares out of those of a wide table.

    These are: ``rows_counted``, ``laplace_scale``, ``gaussian_scale`` and ``shares_of``, and for a
    class such as ``yes`` its ``yes_error``, or ``yes_low`` and ``yes_high``. A column ``yes|no``
    holds the sum of these two classes, where it alone is known.
    """
    told, rest = Told(), []
    names = {column.name for column in columns}
    for column in columns:
        name = str(column.name)
        of_class, _, kind = name.rpartition("_")
        if name in _PER_BAG:
            told.per_bag[name] = column
        elif _TOGETHER in name and set(_parts(column)) <= names:
            told.together.append(column)
        elif kind in _PER_CLASS and of_class in names:
            told.per_class.setdefault(kind, {})[of_class] = column
        else:
            rest.append(column)
    return rest, told


def _parts(column: Column) -> list[str]:
    """Names of the classes that a column is the sum of."""
    return [part.strip() for part in str(column.name).split(_TOGETHER)]

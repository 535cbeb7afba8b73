"""How rows differ from those of training: values out of range, not seen before, or missing."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats

from unbag.io.column_types import as_days, as_numbers, is_missing
from unbag.io.columns import Category
from unbag.io.numeric import Date, Number
from unbag.validation import shorten

if TYPE_CHECKING:
    from unbag.io.encoding import TableEncoding

__all__ = ["Drift", "Seen"]

_LEAST = 0.01  # smallest difference of shares that is told
_CHANCE = 1e-4  # of a difference that is told all the same where there is none
_MOST_DAYS = 3e6  # up to the year 9999 or so
Count = Annotated[int, msgspec.Meta(ge=0)]


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a column held.

    Parameters
    ----------
    rows, missing
        How many rows there were, and how many without a value.
    others
        How many values have no feature of their own, or are out of the range given.
    low, high
        The smallest and the largest number, or day since 1970.
    """

    rows: Count = 0
    missing: Count = 0
    others: Count = 0
    low: float | None = None
    high: float | None = None


class Drift:
    """Counts what the columns of rows hold, and compares it with what they held in training.

    Parameters
    ----------
    encoding
        Of the columns.
    """

    def __init__(self, encoding: "TableEncoding") -> None:
        self._known: Mapping[str, Seen] = encoding.seen
        self._encoders: dict[str, Any] = {}
        for encoder in encoding.encoders:
            self._encoders.setdefault(encoder.column, encoder)
        self.seen = dict.fromkeys(self._encoders, Seen())
        self._examples: dict[str, list[Any]] = {name: [] for name in self._encoders}

    def update(self, arrays: Mapping[str, pa.Array]) -> None:
        """Take in the values of some rows, by column."""
        for name, encoder in self._encoders.items():
            array, old = arrays[name], self.seen[name]
            rows, missing = old.rows + len(array), old.missing + int(is_missing(array).sum())
            others, low, high = old.others, old.low, old.high
            if isinstance(encoder, Category):
                text = array.cast(pa.string())
                known = pa.compute.is_in(text, value_set=pa.array(encoder.levels, pa.string()))
                new = text.filter(pa.compute.and_(pa.compute.invert(known), text.is_valid()))
                others += len(new)
                self._remember(name, new.slice(0, 1000).unique().to_pylist())
            elif isinstance(encoder, Number | Date):
                numbers = _numbers(encoder, array)
                numbers = numbers[~np.isnan(numbers)]
                if len(numbers):
                    low = min(float(numbers.min()), math.inf if low is None else low)
                    high = max(float(numbers.max()), -math.inf if high is None else high)
                    others += self._out_of_range(name, numbers)
            self.seen[name] = Seen(rows, missing, others, low, high)

    def add(self, other: "Drift") -> None:
        """Take in what another counted of further rows, with the same encoding."""
        for name, more in other.seen.items():
            old = self.seen[name]
            lows = [low for low in (old.low, more.low) if low is not None]
            highs = [high for high in (old.high, more.high) if high is not None]
            self.seen[name] = Seen(
                old.rows + more.rows,
                old.missing + more.missing,
                old.others + more.others,
                min(lows, default=None),
                max(highs, default=None),
            )
            self._remember(name, other._examples[name])

    def messages(self) -> tuple[str, ...]:
        """Say where the rows differ from those of training, and by how much."""
        found = []
        for name, now in self.seen.items():
            before = self._known.get(name)
            if before is None or not now.rows:
                continue
            if _differs(now.missing, now.rows, before.missing, before.rows):
                found.append(
                    f"Column {name!r}: {_share(now.missing, now.rows)} of the values are missing "
                    f"({_share(before.missing, before.rows)} in training)."
                )
            present = now.rows - now.missing
            is_text = isinstance(self._encoders[name], Category)
            known = before.others if is_text else 1  # two values of training are its ends
            if not _differs(now.others, present, known, before.rows - before.missing):
                continue
            if is_text:
                there = _share(known, before.rows - before.missing)
                found.append(
                    f"Column {name!r}: {_share(now.others, present)} of the values were rare or "
                    f"absent in training ({there} of the values there), such as "
                    f"{shorten(self._examples[name], limit=3)}."
                )
            else:
                show = _shown(self._encoders[name])
                found.append(
                    f"Column {name!r}: {_share(now.others, present)} of the values are outside the "
                    f"range of training: they go from {show(now.low)} to {show(now.high)}, those "
                    f"of training from {show(before.low)} to {show(before.high)}."
                )
        return tuple(found)

    def _out_of_range(self, name: str, numbers: NDArray[np.float64]) -> int:
        known = self._known.get(name)
        if known is None or known.low is None or known.high is None:
            return 0
        return int(((numbers < known.low) | (numbers > known.high)).sum())

    def _remember(self, name: str, values: list[Any]) -> None:
        kept = self._examples[name]
        kept += [value for value in values if value not in kept][: 3 - len(kept)]


def _numbers(encoder: Number | Date, array: pa.Array) -> NDArray[np.float64]:
    return as_days(encoder.dates(array)) if isinstance(encoder, Date) else as_numbers(array)


def _differs(count: int, n: int, known: int, known_n: int) -> bool:
    """Whether a share is larger than that of training, by a point and by more than chance.

    Given the share of training, a count of other rows is beta-binomial.
    """
    if not n or count / n - known / max(1, known_n) <= _LEAST:
        return False
    chance = stats.betabinom.sf(count - 1, n, known + 1, known_n - known + 1)
    return bool(chance < _CHANCE)


def _share(count: int, n: int) -> str:
    return f"{count / max(1, n):.1%}"


def _shown(encoder: Number | Date) -> Callable[[float | None], str]:
    def show(value: float | None) -> str:
        if value is None:
            return "none"
        if isinstance(encoder, Date) and abs(value) < _MOST_DAYS:
            return str(np.datetime64(math.floor(value), "D"))
        return f"{value:,.6g}"

    return show

"""Columns of numbers, and of dates and times: standardised over the training rows."""

import math
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unbag.io.column import (
    CHOOSE,
    CONSTANT,
    MIN_ID_ROWS,
    Choice,
    Column,
    ColumnFit,
    Learning,
    check_different,
)
from unbag.io.column_types import (
    ISO,
    TEXT_DATES,
    as_days,
    as_numbers,
    is_date,
    is_text,
    parse_dates,
    quantity_of,
)
from unbag.validation import invalid, shorten

__all__ = ["LARGEST", "Date", "Number"]

CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # lengths in days
LARGEST = math.sqrt(np.finfo(np.float32).max)  # the square of a larger number overflows float32
MAX_DISTINCT = 50_000  # whole numbers looked at to find one that is repeated


class Number(Column, frozen=True, tag="number"):
    """(value - mean) / scale; durations and times of day count in seconds."""

    mean: float
    scale: float
    quantity: Literal["number", "duration", "time of day"]

    def __post_init__(self) -> None:
        """Refuse settings that no column gives."""
        _check_moments(self.mean, self.scale)

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return {"duration": "durations", "time of day": "times of day"}.get(
            self.quantity, "numbers"
        )

    @classmethod
    def learn(cls, fit: "ColumnFit") -> Learning:
        """Learn mean and deviation, and whether the numbers only number the rows."""
        moments, n_infinite = _Moments(), 0
        last = np.empty(0)  # the last value of the batch before
        directions: set[float] = set()  # signs of the differences from row to row
        different: set[int] = set()  # until one value comes twice or there are many
        is_whole = all_differ = pa.types.is_integer(fit.dtype)
        while (array := (yield)) is not None:
            values = as_numbers(array)
            is_finite = np.isfinite(values)
            n_infinite += int((~is_finite).sum())
            values = values[is_finite]
            moments.update(values)
            if is_whole and len(directions) < 2:
                directions |= set(np.unique(np.sign(np.diff(np.append(last, values)))).tolist())
                last = values[-1:]
            if all_differ and len(different) < MAX_DISTINCT:
                n = len(different) + len(array)
                different.update(array.to_pylist())
                all_differ = len(different) == n
        if n_infinite:
            got = f"{n_infinite:,} infinite value{'s' if n_infinite > 1 else ''}"
            remedy = "replace them, by missing values for example, or leave the column out."
            raise invalid(f"values of column {fit.column!r}", "finite numbers", got, remedy)
        if problem := moments.problem(fit.column):
            return Choice(reason=problem)
        long_enough = fit.n_rows >= MIN_ID_ROWS and not fit.chosen
        if long_enough and directions in ({1.0}, {-1.0}) and not fit.n_missing:
            return Choice(reason=f"it numbers the rows, like an id; {CHOOSE}")
        note = ""
        if all_differ and fit.n_present >= MIN_ID_ROWS and not fit.chosen:
            note = (
                f"Column {fit.column!r} holds whole numbers, and none is repeated in "
                f"{len(different):,} rows. If they only name the rows, leave the column out "
                "(--leave-out)."
            )
        quantity: Any = quantity_of(fit.dtype)
        return Choice((cls(fit.column, moments.mean, moments.scale, quantity),), note=note)

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is of the same quantity."""
        return quantity_of(dtype) == self.quantity

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature."""
        out[:, 0] = _standardised(self.column, as_numbers(array), self.mean, self.scale)


class Date(Column, frozen=True, tag="date"):
    """Days since 1970, standardised, and the sine and cosine of cycles of time.

    Times with a zone count in UTC. A zone shifts the phase of a cycle, which only mixes its sine
    and cosine, so nothing is lost. Text is read as dates too.
    """

    mean: float
    scale: float
    cycles: tuple[Literal["year", "week", "day"], ...]
    zoned: bool
    form: Literal["", *TEXT_DATES] = ""  # type: ignore[valid-type]  # how dates in text are written

    def __post_init__(self) -> None:
        """Refuse settings that no column gives."""
        _check_moments(self.mean, self.scale)
        check_different("cycles", self.cycles)

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return f"dates or times {'with' if self.zoned else 'without'} a time zone"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The days, then two names per cycle."""
        waves = [f"{self.column} {cycle} {f}" for cycle in self.cycles for f in ("sine", "cosine")]
        return (self.column, *waves)

    @classmethod
    def learn(cls, fit: "ColumnFit") -> Learning:
        """Learn mean and deviation, and which cycles of time the dates show."""
        moments = _Moments()
        # Smallest and largest cosine and sine of every cycle: it is of use where they vary.
        low, high = np.full((3, 2), 2.0), np.full((3, 2), -2.0)
        while (array := (yield)) is not None:
            days = as_days(array)
            moments.update(days)
            for i, length in enumerate(CYCLES.values()):
                angle = days * (2 * np.pi / length)
                waves = np.stack([np.cos(angle), np.sin(angle)])  # (2, n)
                low[i] = np.minimum(low[i], waves.min(1))
                high[i] = np.maximum(high[i], waves.max(1))
        if problem := moments.problem(fit.column):
            return Choice(reason=problem)
        spread = dict(zip(CYCLES, (high - low).max(1), strict=True))
        span = moments.high - moments.low
        cycles: Any = tuple(c for c in CYCLES if span > CYCLES[c] and spread[c] > 0.1)
        zoned = getattr(fit.dtype, "tz", None) is not None
        return Choice((cls(fit.column, moments.mean, moments.scale, cycles, zoned),))

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is a date, with a time zone only if there was one in training."""
        if is_text(dtype):
            return not self.zoned
        return is_date(dtype) and (getattr(dtype, "tz", None) is not None) == self.zoned

    def dates(self, array: pa.Array) -> pa.Array:
        """Give values as dates, also those that are text."""
        if not is_text(array.type):
            return array
        form = self.form or ISO
        read = parse_dates(array, form)
        wrong = array.filter(pc.and_(read.is_null(), array.is_valid()))
        if len(wrong):
            got = shorten(wrong.unique().to_pylist())
            raise invalid(f"column {self.column!r}", f"dates such as {form}", got)
        return read

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write the days, then two features per cycle; 0 where missing."""
        days = as_days(self.dates(array))
        out[:, 0] = _standardised(self.column, days, self.mean, self.scale)
        for i, cycle in enumerate(self.cycles):
            angle = days * (2 * np.pi / CYCLES[cycle])
            out[:, 1 + 2 * i] = np.nan_to_num(np.sin(angle))
            out[:, 2 + 2 * i] = np.nan_to_num(np.cos(angle))


class _Moments:
    """Mean and deviation of numbers, merged batch by batch (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = self.squares = 0.0  # squares: Σ (x - mean)²
        self.low, self.high = math.inf, -math.inf

    @property
    def scale(self) -> float:
        return math.sqrt(self.squares / self.n)

    def update(self, values: NDArray[np.float64]) -> None:
        if not len(values):
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(values.mean())
            squares = float(np.square(values - mean).sum())
        n, shift = self.n + len(values), mean - self.mean
        self.squares += squares + shift * shift * self.n * (len(values) / n)
        self.mean += shift * (len(values) / n)
        self.n = n
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))

    def problem(self, column: str) -> str:
        """Why the numbers cannot be standardised; empty if they can."""
        if self.low == self.high:
            return CONSTANT
        if not math.isfinite(self.mean) or not math.isfinite(self.squares):
            got = f"numbers up to {max(abs(self.low), abs(self.high)):g}, whose squares overflow"
            name = f"values of column {column!r}"
            raise invalid(name, "moderate numbers", got, "rescale the column.")
        return "its values are too close to each other to be told apart" * (self.scale < 1e-150)


def _standardised(
    column: str, values: NDArray[np.float64], mean: float, scale: float
) -> NDArray[np.float64]:
    # In double precision, because a date or an amount may be large against its deviation.
    with np.errstate(over="ignore"):
        standardised = (values - mean) / scale
    if (too_large := np.abs(standardised) > LARGEST).any():
        more = f" and {too_large.sum() - 1:,} more" if too_large.sum() > 1 else ""
        got = f"{values[too_large][0]:g}{more}, too far from the values of training"
        remedy = "replace such values, by missing values for example."
        raise invalid(f"values of column {column!r}", "finite, moderate numbers", got, remedy)
    return np.nan_to_num(standardised, copy=False)  # a missing value becomes the mean


def _check_moments(mean: float, scale: float) -> None:
    if not math.isfinite(mean):
        raise invalid("mean", "a finite number", mean)
    if not (0 < scale < math.inf and math.isfinite(1 / scale)):
        raise invalid("scale", "a finite number above 0 whose inverse is finite", scale)

"""What one pass over a column must know to choose its encoders."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unbag.io.column_types import is_date, is_text
from unbag.io.columns import (
    CYCLES,
    MAX_LEVEL_LENGTH,
    MAX_LEVELS,
    Boolean,
    Category,
    Date,
    Encoder,
    Missing,
    Number,
    as_days,
    as_numbers,
    is_missing,
    quantity_of,
)
from unbag.validation import invalid

__all__ = ["Choice", "Summary", "summary_of"]

_MAX_DISTINCT = 50_000  # different values counted before a column is taken for ids or free text
_MAX_MEAN_LENGTH = 100  # characters; longer texts are sentences
_MIN_ID_ROWS = 20  # so few increasing whole numbers may be increasing by chance
_HOW = "to use it all the same, name it in columns (--columns)"


@dataclass(frozen=True)
class Choice:
    """The encoders of a column, or why it has none; and a note on what is lost."""

    encoders: tuple[Encoder, ...] = ()
    reason: str = ""
    note: str = ""


class Summary:
    """What is known of one column so far. A subclass a kind of column."""

    def __init__(self, column: str, dtype: pa.DataType, chosen: bool) -> None:
        self.column = column
        self.dtype = dtype
        self.chosen = chosen  # named by the user, so used even where it looks like an id
        self.n_rows = 0
        self.n_missing = 0

    def update(self, array: pa.Array) -> None:
        """Take in the next values."""
        missing = is_missing(array)
        self.n_missing += int(missing.sum())
        self.n_rows += len(array)
        if self.n_missing and missing.any():
            array = array.filter(pa.array(~missing))
        if len(array):
            self._update(array)

    def choose(self) -> Choice:
        """Choose the encoders, once all rows are in."""
        choice = self._choose() if self.n_missing < self.n_rows else Choice(reason="it is empty")
        if self.n_missing in (0, self.n_rows) or (choice.reason and not self._is_constant):
            return choice
        note = (
            f"Column {self.column!r} lacks {self.n_missing:,} of {self.n_rows:,} values; a feature "
            "of its own says where."
        )
        return Choice((*choice.encoders, Missing(self.column)), "", f"{choice.note} {note}".strip())

    @property
    def _is_constant(self) -> bool:
        return False

    def _update(self, array: pa.Array) -> None:
        raise NotImplementedError

    def _choose(self) -> Choice:
        raise NotImplementedError


class _Moments(Summary):
    """Mean and deviation of numbers, by merging those of batches (Chan, Golub and LeVeque)."""

    def __init__(self, column: str, dtype: pa.DataType, chosen: bool) -> None:
        super().__init__(column, dtype, chosen)
        self.n = 0
        self.mean = 0.0
        self.squares = 0.0  # Σ (x − mean)²
        self.low, self.high = math.inf, -math.inf

    def _merge(self, values: NDArray[np.float64]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(values.mean())
            squares = float(np.square(values - mean).sum())
        n, shift = self.n + len(values), mean - self.mean
        self.squares += squares + shift * shift * self.n * (len(values) / n)
        self.mean += shift * (len(values) / n)
        self.n = n
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))

    @property
    def _is_constant(self) -> bool:
        return self.low == self.high

    @property
    def _scale(self) -> float:
        return math.sqrt(self.squares / self.n)

    def _check_scale(self) -> Choice | None:
        if self._is_constant:
            return Choice(reason="all its values are the same")
        if not math.isfinite(self.mean) or not math.isfinite(self.squares):
            got = f"values up to {max(abs(self.low), abs(self.high)):g}, whose squares overflow"
            raise invalid(f"column {self.column!r}", "of moderate numbers", got, "rescale it.")
        if self._scale < 1e-150:
            return Choice(reason="its values are too close to each other to be told apart")
        return None


class _NumberSummary(_Moments):
    """Numbers, durations and times of day."""

    def __init__(self, column: str, dtype: pa.DataType, chosen: bool) -> None:
        super().__init__(column, dtype, chosen)
        self.n_infinite = 0
        self.previous: float | None = None
        self.steps: set[float] = set()  # signs of the differences from row to row
        self.different: set[int] = set()  # whole numbers, until one comes twice or there are many
        self.repeats = not pa.types.is_integer(dtype)  # or is not looked at

    def _update(self, array: pa.Array) -> None:
        values = as_numbers(array)
        finite = np.isfinite(values)
        if not finite.all():
            self.n_infinite += int((~finite).sum())
            values = values[finite]
        if pa.types.is_integer(self.dtype) and len(self.steps) < 2 and len(values):
            before = values[0] if self.previous is None else self.previous
            steps = np.sign(np.diff(values, prepend=before))
            self.steps |= set(steps[self.previous is None :].tolist())
            self.previous = float(values[-1])
        if len(values):
            self._merge(values)
        if not self.repeats and len(self.different) < _MAX_DISTINCT:
            n = len(self.different) + len(array)
            self.different.update(array.to_pylist())
            self.repeats = len(self.different) < n

    def _choose(self) -> Choice:
        if self.n_infinite:
            got = f"{self.n_infinite:,} infinite values"
            remedy = "replace them, by missing values for example, or leave the column out."
            raise invalid(f"column {self.column!r}", "of finite numbers", got, remedy)
        if (problem := self._check_scale()) is not None:
            return problem
        in_order = self.steps in ({1.0}, {-1.0}) and self.n_missing == 0
        if in_order and self.n_rows >= _MIN_ID_ROWS and not self.chosen:
            return Choice(reason=f"it numbers the rows, like an id; {_HOW}")
        note = ""
        if not self.repeats and self.n >= _MIN_ID_ROWS and not self.chosen:
            note = (
                f"Column {self.column!r} holds whole numbers of which none comes twice in "
                f"{len(self.different):,} rows; if they only name the rows, leave it out "
                "(--leave-out)."
            )
        quantity = quantity_of(self.dtype)
        return Choice((Number(self.column, self.mean, self._scale, str(quantity)),), note=note)


class _BooleanSummary(Summary):
    """True and false."""

    n_true = 0

    def _update(self, array: pa.Array) -> None:
        self.n_true += int(pc.sum(array).as_py())

    @property
    def _is_constant(self) -> bool:
        return self.n_true in (0, self.n_rows - self.n_missing)

    def _choose(self) -> Choice:
        if self._is_constant:
            return Choice(reason="all its values are the same")
        return Choice((Boolean(self.column, self.n_true / (self.n_rows - self.n_missing)),))


class _TextSummary(Summary):
    """Texts, counted for as long as they look like categories."""

    def __init__(self, column: str, dtype: pa.DataType, chosen: bool) -> None:
        super().__init__(column, dtype, chosen)
        self.counts: Counter[str] = Counter()
        self.n_characters = 0

    def _update(self, array: pa.Array) -> None:
        self.n_characters += int(pc.sum(pc.utf8_length(array)).as_py())
        if self._is_long or len(self.counts) > _MAX_DISTINCT:
            return
        found = pc.value_counts(array)
        values, counts = found.field("values").to_pylist(), found.field("counts").to_pylist()
        self.counts.update(dict(zip(values, counts, strict=True)))

    @property
    def _n(self) -> int:
        return self.n_rows - self.n_missing

    @property
    def _is_long(self) -> bool:
        return not self.chosen and self.n_characters > _MAX_MEAN_LENGTH * self._n

    @property
    def _is_constant(self) -> bool:
        return len(self.counts) == 1

    def _choose(self) -> Choice:
        if self._is_constant:
            return Choice(reason="all its values are the same")
        if self._is_long:
            length = self.n_characters // self._n
            return Choice(reason=f"it is text of {length:,} characters on average; {_HOW}")
        if len(self.counts) > _MAX_DISTINCT:
            return Choice(reason=f"it has more than {_MAX_DISTINCT:,} different values")
        least = max(2, min(10, self.n_rows // 100), self.n_rows // 1_000)
        ranked = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        frequent = [
            level
            for level, count in ranked[:MAX_LEVELS]
            if count >= least and len(level) <= MAX_LEVEL_LENGTH
        ]
        covered = sum(self.counts[level] for level in frequent)
        different = f"it has {len(self.counts):,} different values in {self._n:,} rows"
        if not frequent:
            return Choice(reason=f"{different}, all of them rare, like ids or free text")
        if covered < self._n / 2 and not self.chosen:
            return Choice(reason=f"{different}, most of them rare, like ids or free text; {_HOW}")
        rest = len(self.counts) - len(frequent)
        note = ""
        if rest:
            note = (
                f"{rest:,} rare values of column {self.column!r} ({self._n - covered:,} rows) "
                "share one feature."
            )
        return Choice((Category(self.column, tuple(sorted(frequent)), rest > 0),), note=note)


class _DateSummary(_Moments):
    """Dates and times, and which cycles of time they show."""

    def __init__(self, column: str, dtype: pa.DataType, chosen: bool) -> None:
        super().__init__(column, dtype, chosen)
        # Smallest and largest cosine and sine of every cycle: it is of use where they vary.
        self.extremes = {cycle: np.array([[2.0, 2.0], [-2.0, -2.0]]) for cycle in CYCLES}

    def _update(self, array: pa.Array) -> None:
        days = as_days(array)
        self._merge(days)
        for cycle, length in CYCLES.items():
            angle = days * (2 * np.pi / length)
            waves = np.stack([np.cos(angle), np.sin(angle)])  # (2, n)
            low, high = self.extremes[cycle]
            np.minimum(low, waves.min(1), out=low)
            np.maximum(high, waves.max(1), out=high)

    def _choose(self) -> Choice:
        if (problem := self._check_scale()) is not None:
            return problem
        cycles = tuple(
            cycle
            for cycle, length in CYCLES.items()
            if self.high - self.low > length and np.ptp(self.extremes[cycle], axis=0).max() > 0.1
        )
        zoned = getattr(self.dtype, "tz", None) is not None
        return Choice((Date(self.column, self.mean, self._scale, cycles, zoned),))


class _OtherSummary(Summary):
    """Types that have no encoder."""

    def _update(self, array: pa.Array) -> None:
        """Nothing to know."""

    def _choose(self) -> Choice:
        return Choice(reason=f"values of type {self.dtype} are not numbers, text or dates")


def summary_of(column: str, dtype: pa.DataType, chosen: bool) -> Summary:
    """Start the summary of a column of this (plain) type."""
    if quantity_of(dtype):
        return _NumberSummary(column, dtype, chosen)
    if pa.types.is_boolean(dtype):
        return _BooleanSummary(column, dtype, chosen)
    if is_text(dtype):
        return _TextSummary(column, dtype, chosen)
    return (_DateSummary if is_date(dtype) else _OtherSummary)(column, dtype, chosen)

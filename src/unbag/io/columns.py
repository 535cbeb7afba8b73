"""How one column of a table becomes features: one small class a kind of feature."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unbag.io.column_types import is_date, is_number, is_text
from unbag.validation import check_choice, check_number, invalid, shorten

__all__ = [
    "CYCLES",
    "MAX_LEVELS",
    "MAX_LEVEL_LENGTH",
    "QUANTITIES",
    "Boolean",
    "Category",
    "Date",
    "Encoder",
    "Missing",
    "Number",
    "as_days",
    "as_numbers",
    "encoder_from_dict",
    "is_missing",
    "quantity_of",
]

MAX_LEVELS = 100  # values of a category with a feature of their own
MAX_LEVEL_LENGTH = 1_000
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # lengths in days
QUANTITIES = ("number", "duration", "time of day")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_LARGEST = float(np.finfo(np.float64).max)  # JSON allows integers beyond it


@dataclass(frozen=True)
class Encoder:
    """What all encoders share: the name of their column.

    Missing values become the mean of the training rows (0 for a category), also where there were
    none in training.
    """

    column: str
    kind: ClassVar[str] = ""

    @property
    def wants(self) -> str:
        """What the column must hold, for messages."""
        return "anything"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order in which they are written."""
        return (self.column,)

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether a column of this (plain) type can be encoded."""
        raise NotImplementedError

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write the features of n values to ``out``, of shape (n, number of features)."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse settings that no fit gives."""
        if not isinstance(self.column, str):
            raise invalid("column", "a name", repr(self.column))

    def to_dict(self) -> dict[str, Any]:
        """Give the settings as plain values, with the kind of this encoder."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Number(Encoder):
    """(value − mean) / scale; durations and times of day count in seconds."""

    mean: float
    scale: float
    quantity: str = "number"
    kind: ClassVar[str] = "number"

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return {"number": "numbers", "duration": "durations", "time of day": "times of day"}[
            self.quantity
        ]

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is of the same quantity."""
        return quantity_of(dtype) == self.quantity

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature."""
        _standardise(self.column, as_numbers(array), self.mean, self.scale, out[:, 0])

    def check(self) -> None:
        """Refuse settings that no fit gives."""
        super().check()
        check_choice("quantity", self.quantity, QUANTITIES)
        _check_moments(self.mean, self.scale)


@dataclass(frozen=True)
class Boolean(Encoder):
    """1 for true, 0 for false."""

    mean: float
    kind: ClassVar[str] = "boolean"

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return "true or false"

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is boolean."""
        return bool(pa.types.is_boolean(dtype))

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature."""
        values = array.cast(pa.float32())
        out[:, 0] = values.fill_null(self.mean) if array.null_count else values

    def check(self) -> None:
        """Refuse settings that no fit gives."""
        super().check()
        check_number("mean", self.mean, low=0, high=1)


@dataclass(frozen=True)
class Category(Encoder):
    """A feature for every frequent value, 1 where the column has it, else 0.

    Where there were other values in training, the last feature is 1 for them and for values that
    were not seen; where there were none, unseen values have 0 in all features.
    """

    levels: tuple[str, ...]
    others: bool
    kind: ClassVar[str] = "category"

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return "text"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name a value, and one for the others."""
        names = tuple(f"{self.column}={level}" for level in self.levels)
        return (*names, f"{self.column} is another") if self.others else names

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is text."""
        return is_text(dtype)

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature a value, and one for the others."""
        codes = pc.index_in(array, value_set=pa.array(self.levels, pa.string()))
        if self.others:
            codes = codes.fill_null(len(self.levels))
        found = codes.is_valid().to_numpy(zero_copy_only=False)
        if array.null_count:
            found &= array.is_valid().to_numpy(zero_copy_only=False)
        out[:] = 0
        out[np.flatnonzero(found), codes.fill_null(0).to_numpy()[found]] = 1

    def check(self) -> None:
        """Refuse settings that no fit gives."""
        super().check()
        check_number("number of levels", len(self.levels), low=1, high=MAX_LEVELS, integer=True)
        if not all(isinstance(v, str) and len(v) <= MAX_LEVEL_LENGTH for v in self.levels):
            raise invalid("levels", f"texts of at most {MAX_LEVEL_LENGTH:,} characters", "others")
        if any("\ud800" <= character <= "\udfff" for character in "".join(self.levels)):
            raise invalid("levels", "texts in Unicode", "half a character")
        if len(set(self.levels)) < len(self.levels):
            raise invalid("levels", "all different", shorten(self.levels))
        _check_bool("others", self.others)

    def to_dict(self) -> dict[str, Any]:
        """Give the settings as plain values."""
        return {**super().to_dict(), "levels": list(self.levels)}


@dataclass(frozen=True)
class Date(Encoder):
    """Days since 1970, standardised, and the sine and cosine of cycles of time.

    Times with a zone count in UTC. A zone shifts the phase of a cycle, which only mixes its sine
    and cosine, so nothing is lost.
    """

    mean: float
    scale: float
    cycles: tuple[str, ...]
    zoned: bool
    kind: ClassVar[str] = "date"

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return f"dates or times {'with' if self.zoned else 'without'} a time zone"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The days, then two names a cycle."""
        waves = [f"{self.column} {cycle} {f}" for cycle in self.cycles for f in ("sine", "cosine")]
        return (self.column, *waves)

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is a date, with a time zone only if there was one in training."""
        return is_date(dtype) and (getattr(dtype, "tz", None) is not None) == self.zoned

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write the days, then two features a cycle; 0 where missing."""
        days = as_days(array)
        _standardise(self.column, days, self.mean, self.scale, out[:, 0])
        for i, cycle in enumerate(self.cycles):
            angle = days * (2 * np.pi / CYCLES[cycle])
            for j, wave in enumerate((np.sin, np.cos)):
                out[:, 1 + 2 * i + j] = np.nan_to_num(wave(angle), copy=False)

    def check(self) -> None:
        """Refuse settings that no fit gives."""
        super().check()
        _check_moments(self.mean, self.scale)
        for cycle in self.cycles:
            check_choice("cycle", cycle, CYCLES)
        if len(set(self.cycles)) < len(self.cycles):
            raise invalid("cycles", "all different", shorten(self.cycles))
        _check_bool("zoned", self.zoned)

    def to_dict(self) -> dict[str, Any]:
        """Give the settings as plain values."""
        return {**super().to_dict(), "cycles": list(self.cycles)}


@dataclass(frozen=True)
class Missing(Encoder):
    """1 where the value is missing, else 0."""

    kind: ClassVar[str] = "missing"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name."""
        return (f"{self.column} is missing",)

    def accepts(self, dtype: pa.DataType) -> bool:  # noqa: ARG002 - the same for all types
        """Any type will do."""
        return True

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature."""
        out[:, 0] = is_missing(array)


_KINDS: dict[str, type[Encoder]] = {
    cls.kind: cls for cls in (Number, Boolean, Category, Date, Missing)
}


def encoder_from_dict(values: Any) -> Encoder:
    """Make an encoder of what its ``to_dict`` gave, refusing anything else."""
    if not isinstance(values, Mapping):
        raise invalid("encoder", "a mapping", type(values).__name__)
    kind = values.get("kind")
    check_choice("kind", kind, _KINDS)
    cls = _KINDS[str(kind)]
    names = {field.name for field in fields(cls)}
    if set(values) != {"kind", *names}:
        got = shorten(map(str, values), limit=10)
        raise invalid(f"{kind} encoder", f"of the fields {shorten(sorted(names))}", got)
    settings = {name: values[name] for name in names}
    for name in {"levels", "cycles"} & names:
        if not isinstance(settings[name], list):
            raise invalid(name, "a list", type(settings[name]).__name__)
        settings[name] = tuple(settings[name])
    for name in {"mean", "scale"} & names:
        settings[name] = _as_float(name, settings[name])
    encoder = cls(**settings)
    encoder.check()
    return encoder


def quantity_of(dtype: pa.DataType) -> str | None:
    """Say which of :data:`QUANTITIES` a type is of, or None."""
    if is_number(dtype):
        return "number"
    if pa.types.is_duration(dtype):
        return "duration"
    return "time of day" if pa.types.is_time(dtype) else None


def as_numbers(array: pa.Array) -> NDArray[np.float64]:
    """Give numbers as float64, durations and times in seconds, NaN where missing. Shape (n,)."""
    dtype = array.type
    if pa.types.is_duration(dtype) or pa.types.is_time(dtype):
        return _float64(array.view(f"int{dtype.bit_width}")) / _PER_SECOND[dtype.unit]
    return _float64(array)


def as_days(array: pa.Array) -> NDArray[np.float64]:
    """Give dates and times as days since 1970 (in UTC), NaN where missing. Shape (n,)."""
    dtype = array.type
    if pa.types.is_null(dtype):
        return _float64(array)
    values = _float64(array.view(f"int{dtype.bit_width}"))
    if pa.types.is_date32(dtype):
        return values
    return values / (_DAY * _PER_SECOND[getattr(dtype, "unit", "ms")])


def is_missing(array: pa.Array) -> NDArray[np.bool_]:
    """Tell which values are missing: null, or NaN among floats. Shape (n,)."""
    missing: NDArray[np.bool_] = array.is_null(
        nan_is_null=pa.types.is_floating(array.type)
    ).to_numpy(zero_copy_only=False)
    return missing


def _float64(array: pa.Array) -> NDArray[np.float64]:
    if array.type != pa.float64():
        array = array.cast(pa.float64(), safe=False)
    values: NDArray[np.float64] = array.to_numpy(zero_copy_only=False)
    return values


def _standardise(
    column: str, values: NDArray[np.float64], mean: float, scale: float, out: NDArray[np.float32]
) -> None:
    # In double precision, because a date or an amount may be large against its deviation.
    with np.errstate(over="ignore"):
        standardised = (values - mean) / scale
        out[:] = standardised
    if np.isfinite(out).all():
        return
    infinite = int(np.isinf(out).sum())
    if infinite:
        got = f"{infinite} values that are infinite or beyond the range of float32"
        remedy = "replace them, by missing values for example."
        raise invalid(f"column {column!r}", "of finite numbers", got, remedy)
    out[np.isnan(out)] = 0


def _as_float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        raise invalid(name, "a finite number", f"{value!r:.50}")
    return float(value)


def _check_moments(mean: float, scale: float) -> None:
    check_number("mean", mean)
    check_number("scale", scale, low=0, low_open=True)
    if not math.isfinite(1 / scale):
        raise invalid("scale", "a number whose inverse is finite", scale)


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise invalid(name, "true or false", repr(value))

"""Types of table columns, when two of them fit together, and their values as numbers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "ISO",
    "TEXT_DATES",
    "as_days",
    "as_numbers",
    "as_plain",
    "common_type",
    "empty_as_null",
    "is_date",
    "is_list_of_text",
    "is_missing",
    "is_text",
    "parse_dates",
    "plain_type",
    "quantity_of",
]

_UNITS = ("s", "ms", "us", "ns")  # of timestamps, from coarse to fine
_PER_SECOND = {unit: 1000**i for i, unit in enumerate(_UNITS)}
_DAY = 86_400
# How dates are written as text: the form, and what it looks like. Several forms are one kind.
ISO = "2024-01-31"
_ISO_DAY = r"\d{4}-\d{2}-(?P<day>\d{2})"
_FRACTION = r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2})(?:\.\d{1,9})?Z?$"  # as JSON has times
TEXT_DATES = {
    ISO: {
        rf"^{_ISO_DAY}$": "%Y-%m-%d",
        rf"^{_ISO_DAY}T\d{{2}}:\d{{2}}:\d{{2}}$": "%Y-%m-%dT%H:%M:%S",
        rf"^{_ISO_DAY} \d{{2}}:\d{{2}}:\d{{2}}$": "%Y-%m-%d %H:%M:%S",
        rf"^{_ISO_DAY} \d{{2}}:\d{{2}}$": "%Y-%m-%d %H:%M",
    },
    "31.01.2024": {r"^(?P<day>\d{1,2})\.\d{1,2}\.\d{4}$": "%d.%m.%Y"},
    "31/01/2024": {r"^(?P<day>\d{1,2})/\d{1,2}/\d{4}$": "%d/%m/%Y"},
    "01/31/2024": {r"^\d{1,2}/(?P<day>\d{1,2})/\d{4}$": "%m/%d/%Y"},
    "31-01-2024": {r"^(?P<day>\d{1,2})-\d{1,2}-\d{4}$": "%d-%m-%Y"},
    "2024/01/31": {r"^\d{4}/\d{1,2}/(?P<day>\d{1,2})$": "%Y/%m/%d"},
}


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Give the type of the values, however they are stored: dictionaries, large strings, views.

    Examples
    --------
    >>> plain_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    """
    if pa.types.is_dictionary(dtype):
        return plain_type(dtype.value_type)
    return pa.string() if is_text(dtype) else dtype


def as_plain(array: pa.Array) -> pa.Array:
    """Give values their plain type, however they are stored."""
    plain = plain_type(array.type)
    if pa.types.is_dictionary(array.type):
        values = as_plain(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values).cast(plain)
    return array.cast(plain)


def is_text(dtype: pa.DataType) -> bool:
    """Whether the values are strings."""
    return dtype in (pa.string(), pa.large_string(), pa.string_view())


def is_list_of_text(dtype: pa.DataType) -> bool:
    """Whether the values are lists of strings."""
    is_list = pa.types.is_list(dtype) or pa.types.is_large_list(dtype)
    return bool(is_list and is_text(dtype.value_type))


def is_date(dtype: pa.DataType) -> bool:
    """Whether the values are dates, with or without a time of day."""
    return bool(pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))


def quantity_of(dtype: pa.DataType) -> str | None:
    """Say what a type measures: "number", "duration", "time of day", or None for other types."""
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return "number"
    if pa.types.is_duration(dtype):
        return "duration"
    return "time of day" if pa.types.is_time(dtype) else None


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Find the type that holds the values of both, or None where there is none.

    Integers and floats meet as float64, dates and times as timestamps; a column without any value
    fits every type. Text fits only text.

    Examples
    --------
    >>> common_type(pa.int32(), pa.float32()), common_type(pa.int64(), pa.string())
    (DataType(double), None)
    """
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if quantity_of(a) == quantity_of(b) == "number":
        for same_kind in (pa.types.is_signed_integer, pa.types.is_unsigned_integer):
            if same_kind(a) and same_kind(b):
                return max(a, b, key=lambda dtype: dtype.bit_width)
        return pa.float64()
    if is_date(a) and is_date(b):
        zones = [getattr(dtype, "tz", None) for dtype in (a, b)]
        if (zones[0] is None) == (zones[1] is None):
            unit = max(_unit(a), _unit(b), key=_UNITS.index)
            return pa.timestamp(unit, zones[0] if zones[0] == zones[1] else "UTC")
    return None


def empty_as_null(array: pa.Array) -> pa.Array:
    """Make nulls of empty texts, which is all that a CSV file has for a missing text."""
    if not is_text(array.type):
        return array
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, array.type), array)


def is_missing(array: pa.Array) -> NDArray[np.bool_]:
    """Tell which values are missing: null, or NaN among floats. Shape (n,)."""
    missing = array.is_null(nan_is_null=pa.types.is_floating(array.type))
    flags: NDArray[np.bool_] = missing.to_numpy(zero_copy_only=False)
    return flags


def as_numbers(array: pa.Array) -> NDArray[np.float64]:
    """Give numbers as float64, durations and times in seconds, NaN where missing. Shape (n,)."""
    dtype = array.type
    if quantity_of(dtype) not in ("duration", "time of day"):
        return _float64(array)
    seconds: NDArray[np.float64] = (
        _float64(array.view(f"int{dtype.bit_width}")) / _PER_SECOND[dtype.unit]
    )
    return seconds


def as_days(array: pa.Array) -> NDArray[np.float64]:
    """Give dates and times as days since 1970 (in UTC), NaN where missing. Shape (n,)."""
    dtype = array.type
    if pa.types.is_null(dtype):
        return _float64(array)
    values = _float64(array.view(f"int{dtype.bit_width}"))
    per_day = 1 if pa.types.is_date32(dtype) else _DAY * _PER_SECOND[_unit(dtype)]
    days: NDArray[np.float64] = values / per_day
    return days


def parse_dates(array: pa.Array, form: str) -> pa.Array:
    """Read text as dates of one form of ``TEXT_DATES``; null where it is none.

    Examples
    --------
    >>> parse_dates(pa.array(["31.1.2024", "1.2.2024", "soon"]), "31.01.2024").to_pylist()[::2]
    [datetime.datetime(2024, 1, 31, 0, 0), None]
    """
    text = pc.replace_substring_regex(as_plain(array), _FRACTION, r"\1")
    dates = pa.nulls(len(text), pa.timestamp("s"))
    for look, how in TEXT_DATES[form].items():
        day = pc.struct_field(pc.extract_regex(text, look), "day").cast(pa.int64())
        matched = pc.if_else(pc.is_valid(day), text, pa.scalar(None, pa.string()))
        read = pc.strptime(matched, how, unit="s", error_is_null=True)
        # 30 February is read as 1 March.
        exists = pc.equal(pc.day(read), day)
        dates = pc.coalesce(dates, pc.if_else(exists, read, pa.scalar(None, read.type)))
    return dates


def _float64(array: pa.Array) -> NDArray[np.float64]:
    floats = array.cast(pa.float64(), safe=False)
    values: NDArray[np.float64] = floats.to_numpy(zero_copy_only=False)
    return values


def _unit(dtype: pa.DataType) -> str:
    if pa.types.is_timestamp(dtype):
        return str(dtype.unit)
    return "ms" if pa.types.is_date64(dtype) else "s"

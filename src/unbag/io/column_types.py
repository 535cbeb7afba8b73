"""Types of table columns: which ones unbag tells apart, and when two of them fit together."""

import pyarrow as pa

__all__ = ["common_type", "is_date", "is_number", "is_text", "plain_type"]

_UNITS = ("s", "ms", "us", "ns")  # of timestamps, from coarse to fine


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


def is_text(dtype: pa.DataType) -> bool:
    """Whether the values are strings."""
    return bool(
        pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or dtype == pa.string_view()
    )


def is_number(dtype: pa.DataType) -> bool:
    """Whether the values are integers, floats or decimals."""
    return bool(
        pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    )


def is_date(dtype: pa.DataType) -> bool:
    """Whether the values are dates, with or without a time of day."""
    return bool(pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))


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
    if is_number(a) and is_number(b):
        signed = pa.types.is_signed_integer(a), pa.types.is_signed_integer(b)
        if pa.types.is_integer(a) and pa.types.is_integer(b) and signed[0] == signed[1]:
            return a if a.bit_width >= b.bit_width else b
        return pa.float64()
    if is_date(a) and is_date(b):
        zones = [getattr(dtype, "tz", None) for dtype in (a, b)]
        if (zones[0] is None) == (zones[1] is None):
            unit = max(_unit(a), _unit(b), key=_UNITS.index)
            return pa.timestamp(unit, zones[0] if zones[0] == zones[1] else "UTC")
    return None


def _unit(dtype: pa.DataType) -> str:
    if pa.types.is_timestamp(dtype):
        return str(dtype.unit)
    return "ms" if pa.types.is_date64(dtype) else "s"

"""Values of all kinds as plain ones, fit for JSON."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["to_plain"]


def to_plain(value: Any) -> Any:
    """Make a value plain, fit for JSON.

    Arrays and tuples become lists, keys text and dates ISO text. Numbers that are not finite
    become None. An object that has ``to_plain`` says itself what it becomes. What is of no kind
    that JSON has becomes text.

    Examples
    --------
    >>> to_plain({1: np.array([1 / 4, np.nan]), "day": datetime.date(2024, 5, 1)})
    {'1': [0.25, None], 'day': '2024-05-01'}
    """
    if hasattr(value, "to_plain"):
        return to_plain(value.to_plain())
    if isinstance(value, np.ndarray | np.generic):
        # datetime64 of nanoseconds would become a number
        return to_plain(value.astype(str).tolist() if value.dtype.kind in "mM" else value.tolist())
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    return str(value)

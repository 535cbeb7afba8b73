"""Values of all kinds as plain ones, fit for JSON."""

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["p_text", "to_plain"]


def to_plain(value: Any, *, text: Callable[[Any], str] = str, digits: int | None = None) -> Any:
    """Make a value plain, fit for JSON.

    Arrays and tuples become lists, keys text and dates ISO text. Numbers that are not finite
    become None. An object that has ``to_plain`` says itself what it becomes. What is of no kind
    that JSON has becomes text.

    Parameters
    ----------
    value : object
    text : callable
        From keys, texts and all that has no other form to text.
    digits : int, optional
        Significant digits that numbers keep; all by default.

    Examples
    --------
    >>> to_plain({1: np.array([1 / 4, np.nan]), "day": datetime.date(2024, 5, 1)})
    {'1': [0.25, None], 'day': '2024-05-01'}
    >>> to_plain([2 / 3], digits=3)
    [0.667]
    """

    def convert(value: Any) -> Any:
        if hasattr(value, "to_plain"):
            return convert(value.to_plain())
        if isinstance(value, np.ndarray | np.generic):
            # datetime64 of nanoseconds would become a number
            return convert(
                value.astype(str).tolist() if value.dtype.kind in "mM" else value.tolist()
            )
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            if not math.isfinite(value):
                return None
            return float(value) if digits is None else float(f"{value:.{digits}g}")
        if isinstance(value, datetime.date):
            return value.isoformat()
        if isinstance(value, Mapping):
            return {text(key): convert(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [convert(item) for item in value]
        return text(value)

    return convert(value)


def p_text(p_value: float) -> str:
    """Write a p-value for a sentence; one that is too small for a float is not 0.

    Examples
    --------
    >>> p_text(0.0432), p_text(0.0)
    ('p = 0.043', 'p < 1e-300')
    """
    return f"p = {p_value:.2g}" if p_value > 0 else "p < 1e-300"

"""Plain values, fit for JSON and safe to show: numbers, lists, dicts and text."""

import datetime
import math
import re
import unicodedata
from typing import Any

import numpy as np

from unbag.evaluation import Estimate

__all__ = ["plain", "text"]

_DIGITS = 6  # of numbers: more would only make the file larger
# Marks that turn the direction of the text around them: letters of right-to-left scripts need none.
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")


def text(value: Any) -> str:
    """Write an id, class or any value as text.

    Control characters, marks that turn the direction of the text around them, and halves of
    characters are replaced by a visible sign.

    Examples
    --------
    >>> text(np.str_("north")), text(np.datetime64("2024-05-01")), text(3), text("a" + chr(0x202E))
    ('north', '2024-05-01', '3', 'a�')
    """
    if isinstance(value, datetime.date):
        value = value.isoformat()
    whole = str(value).encode("utf-8", "replace").decode("utf-8")
    visible = "".join(
        "\ufffd" if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in whole
    )
    return _TURNING.sub("\ufffd", visible)


def plain(value: Any) -> Any:
    """Make a value plain: arrays become lists, estimates dicts, keys text; NaN and inf become None.

    Numbers keep six significant digits.

    Examples
    --------
    >>> plain({1: np.array([1 / 3, np.nan]), "e": Estimate(0.5, 0.4, np.inf)})
    {'1': [0.333333, None], 'e': {'value': 0.5, 'low': 0.4, 'high': None}}
    """
    if isinstance(value, Estimate):
        return plain({"value": float(value), "low": value.low, "high": value.high})
    if isinstance(value, np.ndarray | np.number | np.bool_):
        return plain(value.tolist())
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {text(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return text(value)

"""How numbers, names and dates are written on the page."""

import datetime
from typing import Any

__all__ = [
    "inside",
    "isolated",
    "level_text",
    "moment",
    "number",
    "percent",
    "range_text",
    "share_text",
    "short",
]

_ISOLATE, _POP = "\u2068", "\u2069"


def inside(share: float) -> float:
    """Move a share that leaves [0, 1] to the nearer end."""
    return min(max(share, 0.0), 1.0)


def short(text: str, limit: int) -> str:
    """Cut a text that is longer than ``limit``.

    Examples
    --------
    >>> short("north", 5), short("northern", 5)
    ('north', 'nort…')
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def isolated(text: str, limit: int = 60) -> str:
    """Put a name into a line of text: its direction does not reach the rest of the line."""
    return f"{_ISOLATE}{short(text, limit)}{_POP}"


def percent(share: float | None, digits: int = 1) -> str:
    r"""Write a share in percent, never outside 0 to 100%.

    Examples
    --------
    >>> percent(0.9312), percent(1.02), percent(None)
    ('93.1%', '100.0%', '–')
    """
    return "–" if share is None else f"{100 * inside(share):.{digits}f}%"


def share_text(part: dict[str, Any]) -> str:
    r"""Write an estimated share; in words where it is not to be trusted, without the number.

    Examples
    --------
    >>> share_text({"value": 1.02, "trusted": True})
    '100.0%'
    >>> share_text({"value": 1.3, "trusted": False})
    'above 100%'
    >>> share_text({"value": 0.6, "trusted": False})
    'not shown'
    """
    if part["trusted"]:
        return percent(part["value"])
    if part["value"] is None or 0 <= part["value"] <= 1:
        return "not shown"
    return "above 100%" if part["value"] > 1 else "below 0%"


def range_text(part: dict[str, Any], *, share: bool = True) -> str:
    """Write the interval of an estimate."""
    if part["low"] is None or part["high"] is None:
        return "no interval"
    if not part.get("trusted", True):
        return "not to be trusted"
    write = percent if share else number
    return f"{write(part['low'])} to {write(part['high'])}"


def level_text(level: float) -> str:
    """Write the level of an interval in percent."""
    return f"{100 * level:g}%"


def number(value: float | None) -> str:
    """Write a number with four digits, or with thousands separators where it is whole.

    Examples
    --------
    >>> number(12345), number(-0.123456), number(None)
    ('12,345', '−0.1235', '–')
    """
    if value is None:
        return "–"
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return shown.replace("-", "−")


def moment(created: str) -> str:
    """Write a date and time to the minute, in UTC.

    Examples
    --------
    >>> moment("2026-05-01T14:03:59+02:00")
    '2026-05-01 12:03 UTC'
    """
    return f"{datetime.datetime.fromisoformat(created).astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC"

"""Bag ids from text, as CSV files have them."""

import contextlib
import datetime
import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["ids_from_text"]

# A number that starts with a needless zero, such as 007, is a code.
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?", re.ASCII)
_WHOLE_FLOAT = re.compile(r"-?(?:0|[1-9]\d{0,14})\.0", re.ASCII)  # pandas writes ids so
_TRUTH = {"true": True, "false": False}
_KINDS: list[tuple[Callable[[str], Any], Callable[[str], Any]]] = [
    (_WHOLE.fullmatch, int),
    (_TIME.fullmatch, datetime.datetime.fromisoformat),
    (lambda text: text.casefold() in _TRUTH, lambda text: _TRUTH[text.casefold()]),
    (_WHOLE_FLOAT.fullmatch, float),
]


def ids_from_text(texts: Sequence[str]) -> list[Any]:
    """Read ids as the first kind that all of them have: whole numbers, dates, bool, text.

    Examples
    --------
    >>> ids_from_text(["1", "20"]), ids_from_text(["01", "20"]), ids_from_text(["1", "a"])
    ([1, 20], ['01', '20'], ['1', 'a'])
    """
    for fits, read in _KINDS:
        if all(fits(text) for text in texts):
            with contextlib.suppress(ValueError):  # 2024-13-01 is no date
                return [read(text) for text in texts]
    return list(texts)

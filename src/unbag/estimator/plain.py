"""Ids and settings of a classifier as plain values of JSON, and back."""

import datetime
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.validation import invalid, shorten

__all__ = ["NotSaved", "ids_from_json", "ids_to_json", "plain_setting", "setting_problem"]

_MAX_CHARACTERS = 1 << 27  # of an array of ids, in which each takes the space of the longest


def _id_to_json(value: Any) -> tuple[str, Any]:
    """Pair the kind of an id with a plain value."""
    if isinstance(value, bool | np.bool_):
        return "bool", bool(value)
    if isinstance(value, int | np.integer):
        return "int", int(value)
    if isinstance(value, float | np.floating):
        return "float", float(value)
    if isinstance(value, str):
        return "str", str(value)
    if isinstance(value, np.datetime64):
        return "datetime64", str(value)
    if isinstance(value, datetime.datetime):
        return "datetime", value.isoformat()
    if isinstance(value, datetime.date):
        return "date", value.isoformat()
    remedy = "convert them to str before fitting."
    raise invalid("ids", "str, int, bool, float or dates to be saved", repr(value), remedy)


def _datetime64(text: str) -> np.datetime64:
    if re.fullmatch(r"-?\d+(-\d\d){0,2}(T[\d:.]+)?", text):  # not "now" or "2024-05-01Z"
        value = np.datetime64(text)
        if str(value) == text:
            return value
    raise ValueError(f"{shorten([text[:40]])} is no date")


# Kind to the types of JSON that it may have, and what makes an id of them.
_KINDS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "bool": (bool, bool),
    "int": (int, int),
    "float": (float, float),
    "str": (str, str),
    "datetime64": (str, _datetime64),
    "datetime": (str, datetime.datetime.fromisoformat),
    "date": (str, datetime.date.fromisoformat),
}


def ids_to_json(ids: NDArray[Any]) -> dict[str, Any]:
    """Describe an array of ids by their kind and plain values.

    Examples
    --------
    >>> ids_to_json(np.array(["a", "b"]))
    {'kind': 'str', 'values': ['a', 'b']}
    >>> ids_to_json(np.array([1, "a"], dtype=object))
    {'kind': 'mixed', 'values': [['int', 1], ['str', 'a']]}
    """
    pairs = [_id_to_json(value) for value in ids]
    kinds = {kind for kind, _ in pairs}
    if len(kinds) == 1:
        return {"kind": kinds.pop(), "values": [value for _, value in pairs]}
    return {"kind": "mixed", "values": [list(pair) for pair in pairs]}


def ids_from_json(name: str, described: Any) -> NDArray[Any]:
    """Read what :func:`ids_to_json` made; an array of objects, each of its own kind.

    Examples
    --------
    >>> ids_from_json("bags", {"kind": "date", "values": ["2024-05-01"]})
    array([datetime.date(2024, 5, 1)], dtype=object)
    """
    allowed = "ids with their kind"
    if not isinstance(described, dict) or described.keys() != {"kind", "values"}:
        raise invalid(name, allowed, type(described).__name__)
    kind, values = described["kind"], described["values"]
    if not isinstance(values, list) or not values:
        raise invalid(name, allowed, "no list of them, or an empty one")
    if kind == "mixed":
        if not all(isinstance(v, list) and len(v) == 2 for v in values):
            raise invalid(name, "pairs of kind and value", "something else")
        pairs = values
    else:
        pairs = [[kind, value] for value in values]
    ids = np.empty(len(pairs), dtype=object)
    for i, (own, value) in enumerate(pairs):
        if not isinstance(own, str) or own not in _KINDS or type(value) is not _KINDS[own][0]:
            raise invalid(name, f"of the kinds {shorten(_KINDS, limit=10)}", f"a wrong id {i}")
        try:
            ids[i] = _KINDS[own][1](value)
        except (ValueError, OverflowError) as error:
            raise invalid(name, f"ids of kind {own}", f"a wrong id {i} ({error})") from None
        if value in (math.inf, -math.inf):  # JSON's 1e999
            raise invalid(name, "finite", f"{value} as id {i}")
    longest = max((len(v) for v in ids if isinstance(v, str)), default=0)
    if longest * len(ids) > _MAX_CHARACTERS:
        got = f"{len(ids):,} ids, one of {longest:,} characters"
        raise invalid(name, f"an array of at most {_MAX_CHARACTERS:,} characters", got)
    return ids


class NotSaved:
    """Stands where a loss function was that is not part of a saved model; using it is an error."""

    def __call__(self, *_: Any) -> Any:
        """Refuse to be a loss."""
        message = (
            "loss was a function, which is not part of a saved model; give it again by "
            "clf.set_params(loss=...) before another fit."
        )
        raise InvalidInputError(message)

    def __repr__(self) -> str:
        return "NotSaved()"


_TEXTS = ("method", "loss", "model", "batching", "device", "precision")
_FLAGS = ("early_stopping", "standardize", "warm_start", "verbose")
_MAX_TEXT = 1000


def plain_setting(name: str, value: Any) -> Any:
    """Turn a constructor argument into a plain value; TypeError where it has none."""
    if isinstance(value, np.generic):
        value = value.item()
    if name in _FLAGS:
        value = bool(value)
    if name == "device":
        value = str(value)
    if setting_problem(name, value):
        raise TypeError(name)
    return value


def setting_problem(name: str, value: Any) -> str:
    """Say what is wrong with a constructor argument of JSON; empty where nothing is.

    Only its kind is checked; ``fit`` checks the value.
    """
    if name in _TEXTS:
        right = isinstance(value, str) and len(value) <= _MAX_TEXT
        return "" if right else f"{name} must be a short text"
    if name in _FLAGS:
        return "" if isinstance(value, bool) else f"{name} must be true or false"
    whole = isinstance(value, int) and not isinstance(value, bool)
    right = value is None or whole or (isinstance(value, float) and math.isfinite(value))
    return "" if right else f"{name} must be a finite number or null"

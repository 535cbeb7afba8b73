"""Bag ids and class names: matched strictly by kind and value, hinting where only kinds differ."""

import contextlib
import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.validation import detached, invalid, shorten

__all__ = [
    "IdComparison",
    "IdIndex",
    "check_length",
    "compare_ids",
    "id_array",
    "index_ids",
    "match_ids",
    "missing_ids",
    "natural_ids",
]

_PART = 1 << 20
_SMALL = 1 << 20  # characters of an array of ids
ID_KINDS = ("bool", "int", "float", "str", "date", "zoned date")
LONGEST_ID = 10_000  # characters
_SOURCE = "the rows have"  # how a message names what the ids are of
IdKey = tuple[str, Any]  # kind of an id and its plain value
IdIndex = dict[IdKey, int]  # position of every known id


@dataclass(frozen=True)
class IdComparison:
    """Ids of rows against known ones, both ways."""

    unknown: list[tuple[Any, int]]  # ids of rows that are not known, with their number of rows
    absent: list[Any]  # known ids without rows
    hint: str  # at ids that would match if written alike; may be empty
    n_rows: int


def id_array(name: str, values: Any) -> NDArray[Any]:
    """Convert ids to a 1-D array, without numpy's merging of kinds in lists such as [1, "a"]."""
    values = detached(name, values)
    if hasattr(values, "to_pylist"):  # Arrow's; whole numbers with nulls would become floats
        values = values.to_pylist() if values.null_count else values.to_numpy(zero_copy_only=False)
    elif hasattr(values, "to_list") and hasattr(values, "null_count"):  # of polars, the same
        values = values.to_list() if values.null_count() else values.to_numpy()
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    keeps_kind = hasattr(values, "__array__")
    if isinstance(values, str | bytes) or not (keeps_kind or isinstance(values, Iterable)):
        raise invalid(name, "a sequence of ids", repr(values))
    array = np.asarray(values) if keeps_kind else np.fromiter(values, dtype=object)
    if array.ndim != 1:
        raise invalid(name, "a 1-dimensional array", f"shape {array.shape}")
    return array


def natural_ids(ids: NDArray[Any]) -> NDArray[Any]:
    """Give ids of one kind that kind's dtype; dates without a time of day become whole days.

    Texts stay objects where a few of them are much longer than the others: in an array of texts,
    each takes the space of the longest.
    """
    keys = [_id_key(value) for value in ids]
    kinds = {key[0] if key else None for key in keys}
    if len(kinds) != 1 or not kinds <= {"bool", "int", "float", "str", "date"}:
        return ids
    if kinds == {"str"}:
        lengths = [len(key[1]) for key in keys if key]
        if max(lengths) * len(lengths) > max(_SMALL, 4 * sum(lengths)):
            return np.array([key[1] for key in keys if key], dtype=object)
    natural = np.array([key[1] for key in keys if key])
    if kinds == {"date"} and (natural == (days := natural.astype("datetime64[D]"))).all():
        return days
    return natural


def index_ids(name: str, ids: NDArray[Any]) -> IdIndex:
    """Map every id to its position, refusing missing, repeated and unsupported ones."""
    keys = [_id_key(value) for value in ids]
    bad = [v for v, key in zip(ids, keys, strict=True) if key is None or key[0] not in ID_KINDS]
    if bad:
        remedy = "convert them to str, for example."
        raise invalid(name, "str, int, bool or dates, none missing", shorten(bad), remedy)
    check_length(name, (key[1] for key in keys if key))
    index = {key: i for i, key in enumerate(keys) if key}
    if len(index) < len(keys):
        # The index keeps the last position of a repeated id, so the earlier ones stand out.
        repeated = [v for i, v in enumerate(ids) if index[keys[i] or ("", None)] != i]
        raise invalid(name, "all different", f"{shorten(repeated)} more than once")
    return index


def check_length(name: str, values: Iterable[Any]) -> None:
    """Refuse ids of which every copy and message would take much memory."""
    longest = max((len(value) for value in values if isinstance(value, str)), default=0)
    if longest > LONGEST_ID:
        got = f"one of {longest:,}"
        raise invalid(name, f"text of at most {LONGEST_ID:,} characters each", got)


def match_ids(
    name: str,
    values: Any,
    known: IdIndex,
    *,
    source: str = _SOURCE,
    remedy: str = "",
    what: str = "ids that the priors have",
) -> NDArray[np.int64]:
    """Find the position of every id among the known ones, strictly by kind and value.

    Parameters
    ----------
    name
        The argument that holds ``values``, for messages.
    values
        (n,) ids.
    known
        What :func:`index_ids` made of the known ids.
    source
        Where ``values`` come from, as the subject of a sentence, for the hint at "1" against 1.
    remedy
        What to do about unknown ids; by default the known ones are listed.
    what
        What ``values`` must be, for messages.

    Returns
    -------
    (n,) int64 positions.

    Examples
    --------
    >>> match_ids("bag_ids", ["b", "a", "b"], index_ids("ids", np.array(["a", "b"])))
    array([1, 0, 1])
    """
    keys, positions, inverse = _look_up(name, values, known)
    codes = positions[inverse]
    unknown = [key for key, position in zip(keys, positions, strict=True) if position < 0]
    if unknown:
        hint = _hint(unknown, known, source) or remedy
        hint = hint or f"the priors have {shorten(value for _, value in known)}."
        got = f"unknown {shorten(value for _, value in unknown)}"
        raise invalid(name, what, got, hint)
    return codes


def compare_ids(name: str, values: Any, known: IdIndex) -> IdComparison:
    """Compare (n,) ids of rows with the known ones, both ways; see :func:`match_ids`.

    Examples
    --------
    >>> compare_ids("bag_ids", ["a", "c", "c"], index_ids("ids", np.array(["a", "b"])))
    IdComparison(unknown=[('c', 2)], absent=['b'], hint='', n_rows=3)
    """
    keys, positions, inverse = _look_up(name, values, known)
    counts = np.bincount(inverse, minlength=len(keys)).tolist()
    listed = list(zip(keys, positions, counts, strict=True))
    unknown = [(key, count) for key, position, count in listed if position < 0]
    present = set(positions.tolist())
    absent = [value for (_, value), i in known.items() if i not in present]
    hint = _hint([key for key, _ in unknown], known, _SOURCE)
    return IdComparison([(key[1], n) for key, n in unknown], absent, hint, len(inverse))


def _look_up(
    name: str, values: Any, known: IdIndex
) -> tuple[list[IdKey], NDArray[np.int64], NDArray[np.int64]]:
    """List the distinct ids, their positions (-1 for unknown), and which of them each row has."""
    try:
        distinct, inverse = _factorize(id_array(name, values))
    except TypeError as error:
        raise invalid(name, "str, int, bool or dates", f"something else ({error})") from None
    keys = [_id_key(value) for value in distinct]
    missing = np.array([key is None for key in keys], dtype=bool)[inverse]
    if missing.any():
        got = f"{missing.sum()} of {len(missing)} rows without one (None, NaN or NaT)"
        raise invalid(name, "given for every row", got, "drop these rows or fill in their ids.")
    present = [key for key in keys if key]
    positions = np.array([known.get(key, -1) for key in present], dtype=np.int64)
    return present, positions, inverse


def missing_ids(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each id is missing: None, NaN, NaT or pandas' NA."""
    return np.array([_id_key(value) is None for value in ids], dtype=bool)


def _id_key(value: Any) -> IdKey | None:
    """Pair an id with its kind, because True == 1 == 1.0 in Python; None for a missing id."""
    if value is None or type(value).__name__ == "NAType":
        return None
    if isinstance(value, np.datetime64 | datetime.date):
        if value != value:  # NaT
            return None
        kind = "date"
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            kind, value = "zoned date", value.astimezone(datetime.UTC).replace(tzinfo=None)
        return kind, np.datetime64(value, "us")
    if isinstance(value, bool | np.bool_):
        return "bool", bool(value)
    if isinstance(value, int | np.integer):
        return "int", int(value)
    if isinstance(value, str):
        return "str", str(value)
    if isinstance(value, float | np.floating):
        return None if value != value else ("float", float(value))
    return type(value).__name__, value


def _factorize(ids: NDArray[Any]) -> tuple[Iterable[Any], NDArray[np.int64]]:
    """List the distinct ids and, for every row, which of them it has."""
    if ids.dtype.kind in "biufM":
        distinct, inverse = np.unique(ids, return_inverse=True)
        return distinct, inverse.astype(np.int64, copy=False)
    # A dictionary beats sorting for strings, and objects of mixed kinds have no order.
    seen: dict[tuple[type, Any], int] = {}
    codes = np.empty(len(ids), dtype=np.int64)
    for start in range(0, len(ids), _PART):  # a list of all would take much memory
        part = ids[start : start + _PART].tolist()
        codes[start : start + _PART] = [
            seen.setdefault((type(value), value), len(seen)) for value in part
        ]
    return [value for _, value in seen], codes


def _looks(kind: str, value: Any) -> set[str]:
    """List the ways in which an id may be written, to recognise one that differs only in kind."""
    text = str(value).strip().casefold()
    looks = {text, text.removesuffix("t00:00:00.000000")}
    if kind in ("bool", "int", "float", "str"):
        with contextlib.suppress(OverflowError, ValueError):
            looks.add(str(float(value)))
    return looks


def _hint(unknown: list[IdKey], known: IdIndex, source: str) -> str:
    """Point at the first unknown id that would match if only its kind were another."""
    written = {look: key for key in known for look in _looks(*key)}
    for kind, value in unknown:
        for look in _looks(kind, value) & written.keys():
            other_kind, other = written[look]
            return (
                f"the priors have {shorten([other])} ({other_kind}), "
                f"{source} {shorten([value])} ({kind}): convert one of the two."
            )
    return ""

"""One template for every message about a bad argument, and the checks that many modules share."""

import datetime
import importlib
import warnings
from collections import Counter
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError, MissingDependencyError

__all__ = [
    "arrow_table",
    "as_float_array",
    "as_generator",
    "check_choice",
    "check_dense",
    "check_flag",
    "check_number",
    "detached",
    "import_optional",
    "invalid",
    "is_frame",
    "is_table",
    "reads_tables",
    "repeated",
    "shorten",
    "warn_replaced",
]


_LONGEST_GOT, _LONGEST_ITEM = 4000, 300  # characters of what came that a message shows
_TOO_LARGE = 2**63  # for the whole numbers of torch, NumPy and TOML


def invalid(name: str, allowed: str, got: object, remedy: str = "") -> InvalidInputError:
    """Build the error for a bad argument: which one, what is allowed, what came, the remedy.

    Examples
    --------
    >>> raise invalid("alpha", "a number in [0, 1]", 2.0, "try 0.5.")
    Traceback (most recent call last):
    ...
    unbag.exceptions.InvalidInputError: alpha must be a number in [0, 1], got 2.0; try 0.5.
    """
    message = f"{name} must be {allowed}, got {_cut(str(got), _LONGEST_GOT)}"
    return InvalidInputError(f"{message}; {remedy}" if remedy else f"{message}.")


def shorten(values: Iterable[object], limit: int = 5) -> str:
    """List values for a message, at most ``limit`` of them and then a count.

    Examples
    --------
    >>> shorten(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    items = [
        _cut(str(v) if isinstance(v, datetime.date) else repr(v), _LONGEST_ITEM) for v in plain
    ]
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def repeated(names: Iterable[str]) -> list[str]:
    """List the names that occur more than once.

    Examples
    --------
    >>> repeated(["b", "a", "b"])
    ['b']
    """
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of the named choices."""
    allowed = list(choices)
    if not isinstance(value, str) or value not in allowed:
        raise invalid(name, f"one of {shorten(allowed, limit=20)}", repr(value))


def check_flag(name: str, value: object) -> None:
    """Refuse a value that is not True or False."""
    if not isinstance(value, bool | np.bool_):
        raise invalid(name, "True or False", repr(value))


def check_number(
    name: str,
    value: Any,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    low_open: bool = False,
    high_open: bool = False,
    integer: bool = False,
) -> None:
    """Refuse a value that is not a finite number (or whole number) in the given interval."""
    kind = "a whole number" if integer else "a number"
    types = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    ok = isinstance(value, types) and not isinstance(value, bool | np.bool_)
    too_large = ok and isinstance(value, int) and abs(value) >= _TOO_LARGE
    if ok and not too_large:
        above = value > low if low_open else value >= low
        below = value < high if high_open else value <= high
        ok = bool(above and below and np.isfinite(value))
    if ok and not too_large:
        return
    if np.isinf(low) and np.isinf(high):
        where = ""
    elif np.isinf(high):
        where = f" {'above' if low_open else 'of at least'} {_short(low)}"
    else:
        left, right = "(" if low_open else "[", ")" if high_open else "]"
        where = f" in {left}{_short(low)}, {_short(high)}{right}"
    raise invalid(name, kind + where, "2**63 or more" if too_large else repr(value))


def _short(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def as_float_array(name: str, value: Any, ndim: int) -> NDArray[np.float64]:
    """Convert to a float64 array of the given number of dimensions, refusing anything else."""
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c":  # else the imaginary parts would be left out
            raise TypeError("complex numbers")
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        kind = type(value).__name__
        raise invalid(name, "an array of numbers", f"{kind} ({error})") from None
    if array.ndim != ndim:
        raise invalid(name, f"a {ndim}-dimensional array", f"shape {array.shape}")
    return array


def as_generator(random_state: Any) -> np.random.Generator:
    """Turn None, a seed, a Generator or a RandomState into a Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is not None:
        check_number("random_state", random_state, low=0, integer=True)
    return np.random.default_rng(random_state)


def detached(name: str, value: Any) -> Any:
    """Bring a torch tensor to the CPU, outside the graph; anything else comes back as it is."""
    if not hasattr(value, "detach"):
        return value
    check_dense(name, value)
    return value.detach().cpu()


def check_dense(name: str, tensor: Any) -> None:
    """Refuse torch tensors whose values do not lie in memory one after another."""
    kinds = {
        "a nested one": tensor.is_nested,
        "a sparse one": str(tensor.layout) != "torch.strided",
        "a quantized one": tensor.is_quantized,
        "one on the meta device, which has no values": tensor.is_meta,
    }
    if got := next((kind for kind, is_so in kinds.items() if is_so), None):
        remedy = "use its to_dense()." if got == "a sparse one" else ""
        raise invalid(name, "a dense tensor of numbers", got, remedy)


def warn_replaced(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn the caller's caller that an argument is replaced by another way to say the same."""
    warnings.warn(f"{old} is replaced: use {new}.", FutureWarning, stacklevel=stacklevel)


def is_frame(value: object) -> bool:
    """Whether this looks like a pandas or polars DataFrame (neither package is imported)."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def is_table(value: object) -> bool:
    """Whether this is a table of named columns: of pandas, polars, Arrow, DuckDB and others."""
    if getattr(value, "ndim", 2) != 2:  # a Series
        return False
    return is_frame(value) or hasattr(value, "__arrow_c_stream__")


def reads_tables(encoding: object) -> bool:
    """Whether the encoding of a model is one of the columns of a table."""
    return hasattr(encoding, "encoders")


def arrow_table(name: str, value: Any) -> Any:
    """Make an Arrow table of a table of any package, without a copy where that is possible."""
    import pyarrow as pa  # for tables alone

    try:
        if hasattr(value, "index") and hasattr(value, "iloc"):  # an index of pandas is no column
            return pa.Table.from_pandas(value, preserve_index=False)
        return pa.table(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        got = " ".join(str(error.args[-1] if error.args else error).split())[:300]
        remedy = "convert columns of mixed kinds to one, such as text."
        raise invalid(name, "a table of which every column is of one kind", got, remedy) from None


def import_optional(module: str, extra: str) -> ModuleType:
    """Import an optional package; its absence is an error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError:
        message = f"{module} is needed here; install it with: pip install 'unbag[{extra}]'"
        raise MissingDependencyError(message) from None

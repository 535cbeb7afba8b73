"""Options of a run in a TOML file: read before it, written beside its result."""

import json
import math
import os
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from unbag.validation import invalid, shorten

__all__ = ["CONFIG", "load_toml", "read_config", "to_toml"]

CONFIG = "config.toml"  # in a model folder
_MAX_BYTES = 1 << 20
# Types of options, with those that TOML may give for them, and their names in messages.
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text in quotes"),
    Path: ((str,), "text in quotes"),
}


def to_toml(options: Mapping[str, Any]) -> str:
    r"""Write options as TOML; those that are None are left out.

    Examples
    --------
    >>> print(to_toml({"bag": "district", "epochs": None, "columns": ["age"], "seed": 0}), end="")
    bag = "district"
    columns = ["age"]
    seed = 0
    """
    lines = [f"{key} = {_value(value)}\n" for key, value in options.items() if value is not None]
    return "".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, int | float):
        return repr(value)
    # A JSON string is a TOML string, but for the sign of deletion and for halves of characters,
    # which names of files that are not UTF-8 have.
    whole = str(value).encode("utf-8", "replace").decode("utf-8")
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


def load_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file of bounded size."""
    file = Path(path)
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise invalid(f"config file {file}", "a file of at most 1 MB", "a larger one")
        return tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise invalid(f"config file {file}", "a readable file", error.strerror or error) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"config file {file}", "TOML", f"an error ({error})") from None


def read_config(
    path: str | os.PathLike[str], command: str, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Read the options of a command.

    They stand at the top of the file or, if the file serves several commands, in a table of the
    command's name. Dashes in names are read as underscores.

    Parameters
    ----------
    path : path
    command : str
        Such as "fit".
    known : dict
        The options that the command has, and the type of each, such as ``int | None``.
    """
    name = f"config file {path}"
    found = load_toml(path)
    tables = [key for key, value in found.items() if isinstance(value, dict)]
    if tables:
        allowed = f"plain options, or tables with one called [{command}]"
        if len(tables) < len(found):
            raise invalid(name, allowed, f"both options and the tables {shorten(tables)}")
        if command not in tables:
            raise invalid(name, allowed, f"the tables {shorten(tables)}")
        found = found[command]
    options = {key.replace("-", "_"): value for key, value in found.items()}
    unknown = [key for key in options if key not in known]
    if unknown:
        remedy = f"it has {shorten(sorted(known), limit=60)}."
        allowed = f"those of `unbag {command}`"
        raise invalid(f"options in {name}", allowed, f"unknown {shorten(unknown)}", remedy)
    for key, value in options.items():
        allowed = _wanted(known[key], value)
        if allowed:
            raise invalid(f"{key} in {name}", allowed, repr(value)[:80])
    return options


def _wanted(kind: Any, value: Any) -> str:
    """Say what an option of this type may be, where the value is not; empty where it is."""
    if isinstance(kind, types.UnionType):  # with None, for which TOML has no word
        kind = next(part for part in get_args(kind) if part is not types.NoneType)
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        fits = isinstance(value, list) and not any(_wanted(item, one) for one in value)
        return "" if fits else f"a list of {_KINDS[item][1]}"
    allowed, words = _KINDS[kind]
    return "" if type(value) in allowed else words

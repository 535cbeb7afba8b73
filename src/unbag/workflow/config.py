"""Options of a run in a TOML file: read before it, written beside its result."""

import json
import math
import os
import re
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from unbag.files import read_regular
from unbag.schema import SchemaError, convert, decode
from unbag.validation import invalid, shorten

__all__ = [
    "CONFIG",
    "MAX_BYTES",
    "METHOD_SETTINGS",
    "load_toml",
    "read_config",
    "text_option",
    "to_toml",
]

CONFIG = "config.toml"  # in a model folder
MAX_BYTES = 1 << 20
SET = "set"  # the settings of the method, in files and on the command line
METHOD_SETTINGS = "method_settings"  # the same in Python
_OF_METHODS = ("alpha", "ascent_scale", "flood_level")  # separate options in older files
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    Path: "text in quotes",
}


def to_toml(options: Mapping[str, Any]) -> str:
    r"""Write options as TOML; those that are None are left out.

    Examples
    --------
    >>> given = {"bag": "district", "epochs": None, "columns": ["age"], "set": {"rounds": 2}}
    >>> print(to_toml(given), end="")
    bag = "district"
    columns = ["age"]
    set = {"rounds" = 2}
    """
    lines = [f"{key} = {_value(value)}\n" for key, value in options.items() if value is not None]
    return "".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + "}"
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


def text_option(path: Path, name: str) -> str | None:
    r"""Read an option of text from a file that :func:`to_toml` wrote; None where there is none.

    The file may come from a stranger: it must be no link and no pipe, and only the line of the
    option is read. A parser of TOML needs gigabytes for a key of many dots.
    """
    try:
        lines = read_regular(path, MAX_BYTES)
        line = re.search(rb"^%s = (\".*\")$" % name.encode(), lines, re.MULTILINE)
        return None if line is None else decode(line[1], str)
    except (OSError, SchemaError):
        return None


def load_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file of bounded size."""
    file = Path(path)
    name = f"config file {file}"
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise invalid(name, "a file of at most 1 MB", "a larger one")
        return tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise invalid(name, "a readable file", error.strerror or error) from None
    except RecursionError:
        raise invalid(name, "TOML", "lists nested too deeply") from None
    except ValueError as error:  # of TOML, of UTF-8, and of numbers of thousands of digits
        if isinstance(error, tomllib.TOMLDecodeError | UnicodeDecodeError):
            raise invalid(name, "TOML", f"an error ({error})") from None
        if "digits" in str(error):
            raise invalid(name, "TOML", "a number of too many digits") from None
        raise


def read_config(
    path: str | os.PathLike[str], command: str, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Read the options of a command.

    They stand at the top of the file or, if the file serves several commands, in a table of the
    command's name. Dashes in names are read as underscores. Settings of the method are in the
    table ``set``.

    Parameters
    ----------
    path : path
    command : str
        Such as "fit".
    known : dict
        The options that the command has, and the type of each, such as ``int | None``.
    """
    name = f"config file {path}"
    content = load_toml(path)
    tables = [key for key, value in content.items() if isinstance(value, dict) and key != SET]
    if tables:
        allowed = f"plain options, or tables with one called [{command}]"
        if len(tables) < len(content):
            raise invalid(name, allowed, f"both options and the tables {shorten(tables)}")
        if command not in tables:
            raise invalid(name, allowed, f"the tables {shorten(tables)}")
        content = content[command]
    options = {key.replace("-", "_"): value for key, value in content.items()}
    if METHOD_SETTINGS in known:
        _gather_settings(options, name)
    unknown = [key for key in options if key not in known]
    if unknown:
        names = sorted(SET if key == METHOD_SETTINGS else key for key in known)
        remedy = f"it has {shorten(names, limit=60)}."
        allowed = f"those of `unbag {command}`"
        raise invalid(f"options in {name}", allowed, f"unknown {shorten(unknown)}", remedy)
    for key, value in options.items():
        if key != METHOD_SETTINGS:
            _check_kind(f"{key} in {name}", value, known[key])
    return options


def _gather_settings(options: dict[str, Any], name: str) -> None:
    """Collect the settings of the method from all places where they may be."""
    settings_table = options.pop(SET, {})
    if not isinstance(settings_table, dict):
        raise invalid(f"{SET} in {name}", "a table such as {rounds = 2}", repr(settings_table)[:80])
    moved = {key: options.pop(key) for key in _OF_METHODS if key in options}
    for key, value in moved.items():
        _check_kind(f"{key} in {name}", value, float)
    if settings := moved | settings_table:
        options[METHOD_SETTINGS] = settings


def _check_kind(name: str, value: Any, kind: Any) -> None:
    if isinstance(kind, types.UnionType):  # with None, for which TOML has no word
        kind = next(part for part in get_args(kind) if part is not types.NoneType)
    is_list = get_origin(kind) is list
    item = get_args(kind)[0] if is_list else kind
    plain = str if item is Path else item
    try:
        convert(value, list[plain] if is_list else plain)  # type: ignore[valid-type]
    except SchemaError:
        allowed = f"a list of {_WORDS[item]}" if is_list else _WORDS[item]
        raise invalid(name, allowed, repr(value)[:80]) from None

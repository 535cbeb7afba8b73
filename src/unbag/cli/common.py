"""What the commands share."""

import json
import re
import sys
import tomllib
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from unbag.exceptions import UnbagError, UnbagWarning
from unbag.validation import invalid, shorten

__all__ = [
    "GOES_ON",
    "exit_on_error",
    "for_workflow",
    "is_terminal",
    "parse_settings",
    "parse_shares",
    "print_error",
    "print_json",
    "print_notes",
    "say",
]

INTERRUPTED = 130
GOES_ON = "Stopped. What is done is kept: give the same command again to go on from there."
_SHOWN_NOTES = 20  # a wide table may have thousands
_SHARE = re.compile(r"\s*(.+?)\s*=\s*([^=,\s]+)\s*(?:,|$)")  # a name may have commas


def is_terminal() -> bool:
    """Whether somebody watches standard error, so that progress is worth showing."""
    return Console(stderr=True).is_terminal


def say(text: str = "") -> None:
    """Print text on standard output; signs that would steer the terminal are shown as codes."""
    encoding = sys.stdout.encoding or "utf-8"
    typer.echo(_harmless(text).encode(encoding, "backslashreplace").decode(encoding))


def _harmless(text: str) -> str:
    controls = {c for c in text if unicodedata.category(c) == "Cc" and c != "\n"}
    return text.translate({ord(c): repr(c)[1:-1] for c in controls})


def print_error(error: Exception | str) -> None:
    """Tell an error on standard error, without a traceback."""
    _tell("[red]error:[/red]", str(error))


def print_notes(notes: Sequence[str], warned: Sequence[str] = ()) -> None:
    """Tell on standard error what a user should know."""
    for text in warned:
        _tell("[yellow]warning:[/yellow]", text)
    for text in notes[:_SHOWN_NOTES]:
        _tell("note:", text)
    if len(notes) > _SHOWN_NOTES:
        _tell("note:", f"and {len(notes) - _SHOWN_NOTES:,} more; --json shows all of them.")


def _tell(sign: str, text: str) -> None:
    console = Console(stderr=True, emoji=False)
    console.print(f"{sign} {escape(_harmless(text))}", highlight=False, soft_wrap=True)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    say(json.dumps(content, indent=1, allow_nan=False))


def parse_shares(name: str, given: str | None) -> dict[str, float] | None:
    """Read shares of classes, such as ``yes=0.3,no=0.7``."""
    if given is None:
        return None
    shares: dict[str, float] = {}
    position = 0
    while position < len(given) or not shares:
        match = _SHARE.match(given, position)
        key = "" if match is None else match[1]
        try:
            share = float("" if match is None else match[2])
        except ValueError:
            key = ""
        if match is None or not key or key in shares:
            raise invalid(name, "a share for each class, such as yes=0.3,no=0.7", repr(given))
        shares[key] = share
        position = match.end()
    return shares


def for_workflow(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the options of a command into arguments of its function in ``unbag.workflow``.

    Both have the same names, but for those that only tell how the command shows its result.
    """
    arguments = {
        name: value for name, value in options.items() if name not in ("as_json", "config")
    }
    arguments["verbose"] = is_terminal() and not options["as_json"]
    if "method_settings" in arguments:  # pairs, as a list is what typer hands on
        arguments["method_settings"] = dict(arguments["method_settings"] or ())
    for name in {"prior", "test_prior"} & arguments.keys():
        arguments[name] = parse_shares(name, arguments[name])
    return arguments


def parse_settings(given: Sequence[str]) -> dict[str, Any]:
    """Read settings of a method, such as ``rounds=2``; a value is one of TOML, or else text.

    Examples
    --------
    >>> parse_settings(["rounds=2", "mixup=false", "start=prop"])
    {'rounds': 2, 'mixup': False, 'start': 'prop'}
    """
    settings: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name.isidentifier() or name in settings:
            allowed = "NAME=VALUE, each name once, such as --set rounds=2 --set mixup=false"
            raise invalid("set", allowed, shorten(given))
        settings[name] = _toml_value(value.strip())
    return settings


def _toml_value(text: str) -> Any:
    try:
        content = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return content["value"] if len(content) == 1 else text


@contextmanager
def exit_on_error(stopped: str = "Stopped.") -> Iterator[None]:
    """Tell an error that a user can meet and exit with code 1; with 130 where interrupted."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UnbagWarning)
            warnings.showwarning = _show_warning
            yield
    except UnbagError as error:
        print_error(error)
        raise typer.Exit(1) from None
    except UnicodeEncodeError as error:  # bytes of the command line that are no text
        print_error(f"Names must be text in UTF-8, got {error.object!r}; rename the file.")
        raise typer.Exit(1) from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):  # of torch
            raise
        cause = f" ({error})" if str(error) else ""
        print_error(f"There is too little memory; close other programs.{cause}")
        raise typer.Exit(1) from None
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}" if error.filename else error)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"\n{stopped}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_notes((), [str(message)])

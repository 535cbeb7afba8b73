"""What the commands share."""

import atexit
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import tomllib
import traceback
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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
    "parse_settings",
    "parse_shares",
    "print_error",
    "print_json",
    "print_notes",
    "running",
    "say",
]

INTERRUPTED = 130
GOES_ON = "Stopped. Finished work is kept: the same command goes on from there."
_OF_COMMANDS = ("as_json", "config", "log_file", "quiet")  # not of the functions behind them
_SHOWN_NOTES = 20  # a wide table may have thousands
_STEPS = logging.getLogger("unbag")  # what the library says of its steps
_PRINTED = logging.getLogger("unbag.printed")
_PRINTED.propagate = False
_SHARE = re.compile(r"\s*(.+?)\s*=\s*([^=,\s]+)\s*(?:,|$)")  # a name may have commas


@dataclass
class _Wanted:
    """What a user wants to be told."""

    quiet: bool = False
    verbose: bool = False
    silent: bool = False  # in all processes that were launched together but the first


_wanted = _Wanted()


@contextmanager
def running(
    options: Mapping[str, Any], stopped: str = "Stopped.", *, together: bool = False
) -> Iterator[None]:
    """Run a command: with its options for what is told, and errors told as :func:`exit_on_error`.

    Parameters
    ----------
    options
        Of the command, with ``quiet``, ``verbose`` and ``log_file``.
    stopped
        What to say where it is interrupted.
    together
        Whether torchrun may start the command in several processes, of which the first tells all.
    """
    handlers: list[tuple[logging.Logger, logging.Handler]] = []
    level = _STEPS.level
    _wanted.quiet, _wanted.verbose = options["quiet"], options["verbose"]
    with exit_on_error(stopped):
        try:
            _wanted.silent = bool(_launched_rank())
            if _launched_rank() is not None and not together:
                allowed = "given unbag fit, which several processes can run together"
                raise invalid("torchrun", allowed, "another command", "run it without torchrun.")
            if options["quiet"] and options["verbose"]:
                raise invalid("quiet", "left out with --verbose", "both")
            if options["log_file"] is not None and not _wanted.silent:
                file = logging.FileHandler(options["log_file"], encoding="utf-8")
                file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
                handlers += [(_STEPS, file), (_PRINTED, file)]
                _PRINTED.setLevel(logging.INFO)
            if options["verbose"] and not _wanted.silent:
                shown = logging.StreamHandler()
                shown.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
                handlers.append((_STEPS, shown))
            if handlers:
                _STEPS.setLevel(logging.INFO)
            for logger, handler in handlers:
                logger.addHandler(handler)
            _PRINTED.info("unbag %s", " ".join(sys.argv[1:]))
            yield
        except Exception:
            _PRINTED.info("", exc_info=True)
            if options["verbose"]:
                _tell("[red]where:[/red]", traceback.format_exc())
            raise
        finally:
            _wanted.quiet = _wanted.verbose = _wanted.silent = False
            _STEPS.setLevel(level)
            for logger, handler in handlers:
                logger.removeHandler(handler)
                handler.close()


def _launched_rank() -> int | None:
    if "WORLD_SIZE" not in os.environ:  # and torch need not be loaded
        return None
    from unbag.processes import launched_rank

    return launched_rank()


def _is_first_to_tell() -> bool:
    if _launched_rank() is None:
        return True
    from unbag.processes import is_first_to_tell

    return is_first_to_tell()


def say(text: str = "") -> None:
    """Print text on standard output; signs that would steer the terminal are shown as codes."""
    if _wanted.silent:
        return
    _PRINTED.info(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # none where it is closed
    typer.echo(_harmless(text).encode(encoding, "backslashreplace").decode(encoding))


def _harmless(text: str) -> str:
    controls = {c for c in text if unicodedata.category(c) == "Cc" and c != "\n"}
    return text.translate({ord(c): repr(c)[1:-1] for c in controls})


def print_error(error: Exception | str) -> None:
    """Tell an error on standard error, without a traceback; of several processes one tells it."""
    if not getattr(error, "is_told", False) and _is_first_to_tell():
        _tell("[red]error:[/red]", str(error))


def print_notes(notes: Sequence[str], warned: Sequence[str] = ()) -> None:
    """Tell on standard error what a user should know."""
    for text in warned:
        _tell("[yellow]warning:[/yellow]", text)
    if _wanted.quiet:
        return
    shown = len(notes) if _wanted.verbose else _SHOWN_NOTES
    for text in notes[:shown]:
        _tell("note:", text)
    if len(notes) > shown:
        _tell("note:", f"and {len(notes) - shown:,} more; --verbose and --json show all of them.")


def _tell(sign: str, text: str) -> None:
    if _wanted.silent:
        return
    _PRINTED.info("%s %s", re.sub(r"\[.*?\]", "", sign), text)
    console = Console(stderr=True, emoji=False)
    console.print(f"{sign} {escape(_harmless(text))}", highlight=False, soft_wrap=True)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    say(json.dumps(content, indent=1, allow_nan=False))


def parse_shares(name: str, given: str | None) -> dict[str, float] | None:
    """Read shares of classes, such as ``yes=0.3,no=0.7`` or ``yes=30%,no=70%``.

    Examples
    --------
    >>> parse_shares("prior", "yes=30%,no=70%")
    {'yes': 0.3, 'no': 0.7}
    """
    if given is None:
        return None
    shares: dict[str, float] = {}
    percent: list[bool] = []
    position = 0
    while position < len(given) or not shares:
        match = _SHARE.match(given, position)
        key = "" if match is None else match[1]
        try:
            text = "" if match is None else match[2]
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            key = ""
        if match is None or not key or key in shares:
            raise invalid(
                name,
                "a share for each class, such as yes=0.3,no=0.7 or yes=30%,no=70%",
                repr(given),
            )
        shares[key] = share
        position = match.end()
        percent.append(text.endswith("%"))
    if any(percent) and not all(percent):
        raise invalid(name, "written with percent signs everywhere or nowhere", repr(given))
    whole = abs(sum(shares.values()) - 100) < 1e-6 * 100 and not any(percent)
    return {key: share / 100 for key, share in shares.items()} if whole else shares


def for_workflow(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the options of a command into arguments of its function in ``unbag.workflow``.

    Both have the same names, but for those that only tell how the command shows its result.
    """
    arguments = {name: value for name, value in options.items() if name not in _OF_COMMANDS}
    arguments["verbose"] = not (options["as_json"] or options["quiet"])
    if "method_settings" in arguments:  # pairs, as a list is what typer hands on
        arguments["method_settings"] = dict(arguments["method_settings"] or ())
    if "rows" in arguments:
        arguments["rows"] = [_from_standard_input(path) for path in arguments["rows"]]
    for name in {"prior", "test_prior"} & arguments.keys():
        arguments[name] = parse_shares(name, arguments[name])
    return arguments


def _from_standard_input(path: str) -> str:
    """Keep what comes from standard input in a file until the command ends, where a path is -."""
    if path != "-":
        return path
    from unbag.processes import current_processes

    return current_processes().once(_keep_standard_input)


def _keep_standard_input() -> str:
    folder = tempfile.mkdtemp(prefix="unbag-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    start = sys.stdin.buffer.read(4)
    file = Path(folder, "stdin.parquet" if start == b"PAR1" else "stdin.csv")
    with file.open("wb") as copy:
        copy.write(start)
        shutil.copyfileobj(sys.stdin.buffer, copy)
    return str(file)


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
        if _is_first_to_tell():
            typer.echo(f"\n{stopped}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_notes((), [str(message)])

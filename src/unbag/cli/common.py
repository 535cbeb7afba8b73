"""What the commands share."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from unbag.exceptions import UnbagError

__all__ = ["exit_on_error", "print_error"]


def print_error(error: Exception) -> None:
    """Tell an error on standard error, without a traceback."""
    console = Console(stderr=True)
    console.print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Tell an error that a user can meet and exit with code 1."""
    try:
        yield
    except (UnbagError, OSError) as error:
        print_error(error)
        raise typer.Exit(1) from None

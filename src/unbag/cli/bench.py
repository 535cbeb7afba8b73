"""The command ``unbag bench``, which moved out of the package."""

import typer

from unbag.cli.common import print_error

__all__ = ["bench"]


def bench(context: typer.Context) -> None:
    """Say where the command is now; the study is no part of the installed package."""
    command = " ".join(["python -m study", *context.args])
    print_error(
        "`unbag bench` is now `python -m study`, which a clone of the project has and the installed "
        f"package has not; in the clone's folder, run: {command}"
    )
    raise typer.Exit(2)

"""The command ``unbag bench``, which moved out of the package."""

import typer

from unbag.cli.common import print_error

__all__ = ["app", "bench"]

app = typer.Typer(add_completion=False)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(context: typer.Context) -> None:
    """Name the command that took its place."""
    command = " ".join(["python -m study", *context.args])
    print_error(
        "`unbag bench` is now `python -m study`, which is part of the project's repository and not "
        f"of the installed package; in the folder of a clone, run: {command}"
    )
    raise typer.Exit(2)

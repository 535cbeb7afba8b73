"""The command line; every command calls one public function.

A command is imported when it is given, so that ``unbag --help`` need not wait for torch.
"""

import importlib
from typing import Annotated, Any

import typer
import typer.core
import typer.main

__all__ = ["HELP_NAMES", "app"]

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
# The module of every command, and its line in the help, in the order of the help.
_COMMANDS = {
    "demo": ("demo", "Compare methods on digits in ten bags without labels, and draw a plot."),
    "inspect": (
        "using",
        "Check whether rows and class shares can work at all, before anything is trained.",
    ),
    "fit": ("training", "Train a classifier from rows and the class shares of their bags."),
    "tune": (
        "training",
        "Search for the best method and settings without labels, and keep that model.",
    ),
    "evaluate": ("using", "Evaluate a model without labels, on rows it was not trained on."),
    "predict": ("using", "Predict the class of every row of a file of any size."),
    "show": (
        "using",
        "Show what a model is: its classes, its columns, how good it is, and whether to trust it.",
    ),
    "export": ("using", "Write a model as an ONNX file, and check it against the original."),
    "datasets": ("datasets", "Download the benchmark datasets, or list them."),
    "bench": ("bench", ""),
}
_HIDDEN = ("bench",)


class _Command(typer.core.TyperCommand):
    """Stands for a command until it is given."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Hand over to the command itself."""
        module = importlib.import_module(f"unbag.cli.{_COMMANDS[str(self.name)][0]}")
        command = typer.main.get_command(module.app)
        command = getattr(command, "commands", {}).get(self.name, command)
        return command.make_context(info_name, args, *rest, **extra)


class _Commands(typer.core.TyperGroup):
    """All commands by name."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - of typer
        """Names in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - of typer
        """Stand in for a command, or None for one that is not known."""
        if cmd_name not in _COMMANDS:
            return None
        text = _COMMANDS[cmd_name][1]
        return _Command(cmd_name, callback=lambda: None, help=text, hidden=cmd_name in _HIDDEN)


app = typer.Typer(
    cls=_Commands,
    help="Train classifiers from unlabeled bags of rows and the share of each class in every bag."
    "\n\nExample: unbag fit rows.parquet --bag district --priors shares.csv --output model",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # so that lines of a paragraph run on
    context_settings=HELP_NAMES,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from unbag.version import unbag_version

        typer.echo(f"unbag {unbag_version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Print the version and exit.",
            is_eager=True,
            callback=_tell_version,
        ),
    ] = False,
) -> None:
    pass

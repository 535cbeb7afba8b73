"""Options that several commands have, and options from a file."""

from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
import typer.core

from unbag.cli.common import exit_on_error, parse_settings
from unbag.workflow.config import METHOD_SETTINGS, read_config

_GONE = ("--alpha", "--ascent-scale", "--flood-level")
_SETTINGS = "unbag.method_settings"
_NOT_IN_FILES = ("config", "as_json", "overwrite", "return")


def _load(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file as defaults, so that the command line has the last word."""
    if path is not None and not ctx.resilient_parsing:
        hints = get_type_hints(ctx.command.callback)
        known = {name: hints[name] for name in hints if name not in _NOT_IN_FILES}
        with exit_on_error():
            options = read_config(path, str(ctx.command.name), known)
        ctx.meta[_SETTINGS] = options.pop(METHOD_SETTINGS, {})
        ctx.default_map = {**(ctx.default_map or {}), **options}
    return path


def _settings(ctx: typer.Context, given: list[str] | None) -> Any:
    """Join settings from a file and from the command line, which has the last word, as pairs."""
    with exit_on_error():
        return [*{**ctx.meta.get(_SETTINGS, {}), **parse_settings(given or [])}.items()]


class TrainingCommand(typer.core.TyperCommand):
    """A command with a method, whose settings were once options of their own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the new form of an option that is gone."""
        for arg in args:
            name = arg.partition("=")[0]
            if name in _GONE:
                setting = name.removeprefix("--").replace("-", "_")
                raise typer.BadParameter(f"{name} is now a setting: --set {setting}=VALUE")
        return super().parse_args(ctx, args)


Rows = Annotated[
    list[Path],
    typer.Argument(
        metavar="ROWS", help="Parquet or CSV files or folders of them, or an .npz file."
    ),
]
Bag = Annotated[str | None, typer.Option(help="Column of bag ids.", show_default=False)]
Priors = Annotated[
    Path,
    typer.Option(help="Parquet or CSV file with the class shares, percent or counts of bags."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(help="A column to learn from; may be repeated.", show_default="all"),
]
LeaveOut = Annotated[
    list[str] | None, typer.Option(help="A column not to use; may be repeated.", show_default=False)
]
Images = Annotated[
    Path | None,
    typer.Option(help="Folder of images; ROWS is then the table that names them (column file)."),
]
MethodSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the method, such as alpha=0.7; may be repeated.",
        callback=_settings,
        show_default="of the method",
    ),
]
Sampling = Annotated[
    str,
    typer.Option(help="iid: rows drawn freely; exact: class counts match the shares, as a census."),
]
Level = Annotated[float, typer.Option(help="Of the intervals.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all that is random.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Title = Annotated[str | None, typer.Option(help="Of the report.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Config = Annotated[
    Path | None,
    typer.Option(
        help="TOML file of options; those given here come first.",
        is_eager=True,
        callback=_load,
        show_default=False,
    ),
]

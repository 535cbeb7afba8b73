"""The options of the commands: each is declared once, and has the default of what it is for."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
import typer.core
from typer.models import ArgumentInfo

from unbag.cli.common import exit_on_error, parse_settings
from unbag.estimator import UnbagClassifier
from unbag.learners import LEARNERS
from unbag.methods import METHODS
from unbag.workflow.config import METHOD_SETTINGS, read_config

__all__ = [
    "AsJson",
    "Config",
    "ModelFolder",
    "Overwrite",
    "TrainingCommand",
    "option",
    "with_options_of",
]

_GONE = ("--alpha", "--ascent-scale", "--flood-level")
_SETTINGS = "unbag.method_settings"
_NOT_IN_FILES = ("config", "as_json", "overwrite")


def _load(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file as defaults, so that the command line has the last word."""
    if path is not None and not ctx.resilient_parsing:
        parameters = inspect.signature(ctx.command.callback or _load).parameters
        known = {
            name: get_args(parameter.annotation)[0]
            for name, parameter in parameters.items()
            if name not in _NOT_IN_FILES
        }
        with exit_on_error():
            options = read_config(path, str(ctx.command.name), known)
        ctx.meta[_SETTINGS] = options.pop(METHOD_SETTINGS, {})
        ctx.default_map = {**(ctx.default_map or {}), **options}
    return path


def _settings(ctx: typer.Context, texts: list[str] | None) -> Any:
    """Join settings from a file and from the command line, which has the last word, as pairs."""
    with exit_on_error():
        return [*{**ctx.meta.get(_SETTINGS, {}), **parse_settings(texts or [])}.items()]


class TrainingCommand(typer.core.TyperCommand):
    """A command with a method, whose settings were once options themselves."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the new form of an option that is gone."""
        for arg in args:
            name = arg.partition("=")[0]
            if name in _GONE:
                setting = name.removeprefix("--").replace("-", "_")
                raise typer.BadParameter(f"{name} is now a setting: --set {setting}=VALUE")
        return super().parse_args(ctx, args)


ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a saved model.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]
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


def option(kind: Any, text: str, shown: bool | str = True, *names: str, **settings: Any) -> Any:
    """Declare an option of a type, with its line of the help and what that says of its default."""
    return Annotated[kind, typer.Option(*names, help=text, show_default=shown, **settings)]


_ROWS = "Parquet or CSV files or folders of them, or an .npz file."
_DECLARED: dict[str, Any] = {  # by name of the parameter, in the order of the help
    "rows": Annotated[list[Path], typer.Argument(metavar="ROWS", help=_ROWS)],
    "priors": option(Path, "Parquet or CSV file with the class shares, percent or counts of bags."),
    "output": option(Path, "Folder of the model to make."),
    "bag": option(str | None, "Column of bag ids.", False),
    "columns": option(list[str] | None, "A column to learn from; may be repeated.", "all"),
    "leave_out": option(list[str], "A column not to use; may be repeated.", False),
    "key": option(list[str], "A column that names rows; may be repeated.", "row number"),
    "prior": option(str | None, "Class shares where the rows come from: yes=0.3,no=0.7.", False),
    "probabilities": option(bool, "Write probabilities too."),
    "images": option(
        Path | None, "Folder of images; ROWS is then the table that names them (column file)."
    ),
    "report": option(Path | None, "Page to write, such as evaluation.html.", "none"),
    "trials": option(int, "Models to try, pruned ones too.", min=1),
    "scoring": option(str, "What trials are ranked by: accuracy or likelihood."),
    "storage": option(str | None, "Address of an Optuna storage, for several machines.", False),
    "at_once": option(int, "Models trained as one stack.", min=1),
    "method": option(str, f"One of {', '.join(reversed(list(METHODS)))}."),
    "learner": option(
        str | None,
        f"What learns soft labels in the method tables: {', '.join(LEARNERS)}.",
        "several",
    ),
    "method_settings": option(
        list[str] | None,
        "A setting of the method, such as alpha=0.7; may be repeated.",
        "of the method",
        "--set",
        metavar="NAME=VALUE",
        callback=_settings,
    ),
    "test_prior": option(
        str | None, "Class shares where the model will be used: yes=0.3,no=0.7.", ""
    ),
    "model": option(str, "Network: linear, mlp or resnet20."),
    "depth": option(int, "Layers of the mlp."),
    "width": option(int, "Units of its hidden layers."),
    "dropout": option(float, "Share of hidden units dropped."),
    "epochs": option(int | None, "Passes over the rows.", "by rows"),
    "batch_size": option(int | None, "Rows per step.", "by rows"),
    "learning_rate": option(float | None, "Of Adam.", "by rows"),
    "weight_decay": option(float | None, "In Adam's L2 form.", "by method and rows"),
    "early_stopping": option(bool, "Keep the epoch of the smallest label-free error."),
    "n_iter_no_change": option(int, "Epochs without a smaller error that end early stopping."),
    "validation_share": option(float, "Share of the rows that watch training, or rank trials."),
    "evaluation_share": option(float, "Share of the rows kept apart to judge the model."),
    "calibrate": option(
        bool | None,
        "Correct probabilities by the validation rows.",
        "where there are 50 per class",
    ),
    "shares_of": option(
        str | None,
        "rows: shares of these very rows, as in a census; population: rows are a sample.",
        "as the priors say",
    ),
    "sampling": option(str | None, "Replaced by --shares-of.", False),
    "level": option(float, "Of the intervals."),
    "precision": option(str, "float32, tf32, bf16 or float64."),
    "title": option(str | None, "Of the report.", False),
    "seed": option(int, "Seed of all random numbers.", min=0),
    "device": option(str, "auto, cpu, cuda or cuda:N."),
    "overwrite": Overwrite,
    "as_json": AsJson,
    "config": Config,
}


def with_options_of(
    function: Callable[..., Any], of_classifier: tuple[str, ...] = (), **changed: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the parameters of a function in ``unbag.workflow`` as options.

    Parameters
    ----------
    function
        What the command calls; its defaults are those of the options.
    of_classifier
        Parameters of the classifier, and ``method_settings``, which the function hands on.
    **changed
        Options that mean something else to this command than to others.
    """
    parameters, of_init = (inspect.signature(f).parameters for f in (function, UnbagClassifier))
    defaults = {name: parameters[name].default for name in parameters if name in _DECLARED}
    defaults |= {name: getattr(of_init.get(name), "default", None) for name in of_classifier}
    defaults |= {"as_json": False, "config": None}
    declared = {name: changed.get(name, _DECLARED[name]) for name in defaults}
    arguments = [name for name in declared if isinstance(get_args(declared[name])[1], ArgumentInfo)]
    options = [name for name in _DECLARED if name in declared and name not in arguments]
    kind = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature(
        [
            inspect.Parameter(name, kind, default=defaults[name], annotation=declared[name])
            for name in arguments + options
        ]
    )

    def give(command: Callable[..., None]) -> Callable[..., None]:
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command

    return give

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
    "LogFile",
    "ModelFolder",
    "Overwrite",
    "Quiet",
    "TrainingCommand",
    "Verbose",
    "option",
    "with_options_of",
]

_GONE = ("--alpha", "--ascent-scale", "--flood-level")
_SETTINGS = "unbag.method_settings"
_NOT_IN_FILES = ("config", "as_json", "overwrite", "quiet", "verbose", "log_file")


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


# Groups in the help.
_DATA, _METHOD, _TRAINING, _OUTPUT = "Data", "Method", "Training", "Output"
_COMPUTING = "Computing"
_WORDS = {bool: "", str: "<text>", Path: "<path>", int: "<number>", float: "<number>"}


def _what_follows(kind: Any) -> str:
    """Say in a word what follows an option; nothing follows a flag.

    Examples
    --------
    >>> _what_follows(int | None), _what_follows(list[str]), _what_follows(bool)
    ('<number>', '<text>', '')
    """
    kinds = {kind, *get_args(kind)}
    return next((word for known, word in _WORDS.items() if known in kinds), "<text>")


def option(
    kind: Any,
    text: str,
    shown: bool | str = True,
    *names: str,
    group: str = _OUTPUT,
    **settings: Any,
) -> Any:
    """Declare an option of a type, with its text in the help and what that says of its default."""
    settings = {"metavar": _what_follows(kind), **settings}
    given = typer.Option(*names, help=text, show_default=shown, rich_help_panel=group, **settings)
    return Annotated[kind, given]


ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a saved model.")]
Overwrite = option(bool, "Replace the output if it exists.", True, "--overwrite")
AsJson = option(bool, "Print one JSON object instead of text.", True, "--json")
Config = option(
    Path | None,
    "Read options from a TOML file. Options on the command line come first.",
    False,
    is_eager=True,
    callback=_load,
)
Quiet = option(bool, "Print no notes and no progress.", True, "--quiet", "-q")
Verbose = option(
    bool,
    "Print all notes, the time of every step, and where an error arose.",
    True,
    "--verbose",
)
LogFile = option(
    Path | None, "Append everything that is printed to this file, with the time.", False
)

_ROWS = (
    "Files or folders of rows: Parquet, CSV, JSON lines, Feather or Excel; or one .npz file. "
    "A dash (-) reads CSV or Parquet from standard input. Addresses of stores, such as "
    "s3://bucket/folder, are read where they are."
)
_DECLARED: dict[str, Any] = {  # by name of the parameter, in the order of the help
    "rows": Annotated[list[str], typer.Argument(metavar="ROWS", help=_ROWS)],
    "priors": option(
        Path, "The file with the class shares, percent or counts of every bag.", group=_DATA
    ),
    "bag": option(str | None, "The column that names the bag of every row.", False, group=_DATA),
    "columns": option(
        list[str] | None, "Learn from this column; may be repeated.", "all", group=_DATA
    ),
    "by": option(
        str | None,
        "Estimate accuracy and shares also for each group in this column.",
        False,
        group=_DATA,
    ),
    "labels": option(
        str | None,
        "A column of classes, empty where they are not known.",
        False,
        group=_DATA,
    ),
    "where": option(
        str | None,
        'Use only rows that meet a condition, such as "year = 2024 and age >= 18".',
        "all rows",
        group=_DATA,
    ),
    "leave_out": option(list[str], "Do not use this column; may be repeated.", False, group=_DATA),
    "keep": option(
        list[str],
        "Use this column even if it tells which bag a row is in; may be repeated.",
        False,
        group=_DATA,
    ),
    "key": option(
        list[str], "Copy this column to the output; may be repeated.", "row number", group=_DATA
    ),
    "prior": option(
        str | None,
        "The class shares of these rows: yes=0.3,no=0.7 or yes=30%,no=70%.",
        False,
        group=_DATA,
    ),
    "images": option(
        Path | None,
        "The folder of the images. ROWS is then a table with their names in a column file.",
        False,
        group=_DATA,
    ),
    "method": option(
        str, f"The training method: {', '.join(reversed(list(METHODS)))}.", group=_METHOD
    ),
    "learner": option(
        str | None,
        f"The classifier that the method tables uses: {', '.join(LEARNERS)}.",
        "several",
        group=_METHOD,
    ),
    "method_settings": option(
        list[str] | None,
        "Change a setting of the method, such as alpha=0.7; may be repeated.",
        "of the method",
        "--set",
        metavar="NAME=VALUE",
        callback=_settings,
        group=_METHOD,
    ),
    "test_prior": option(
        str | None,
        "The class shares where the model will be used: yes=0.3,no=0.7 or yes=30%,no=70%.",
        "those of the rows",
        group=_METHOD,
    ),
    "model": option(
        str,
        "The network: linear, mlp; for images lenet5, resnet18, resnet20 or wrn28-2.",
        group=_METHOD,
    ),
    "depth": option(
        int | None, "The number of layers of the network mlp.", "by effort", group=_METHOD
    ),
    "width": option(int, "The number of units in each hidden layer of mlp.", group=_METHOD),
    "dropout": option(
        float, "The share of hidden units that are dropped in training.", group=_METHOD
    ),
    "trials": option(
        int,
        "The number of models to try, including those that are given up early.",
        group=_TRAINING,
        min=1,
    ),
    "scoring": option(str, "How models are ranked: by accuracy or likelihood.", group=_TRAINING),
    "storage": option(
        str | None,
        "A file such as /shared/trials.log, or a database, that several machines share.",
        False,
        group=_TRAINING,
    ),
    "at_once": option(
        int, "The number of models that are trained at the same time.", group=_TRAINING, min=1
    ),
    "effort": option(
        str, "How long networks are trained: fast, balanced or best.", group=_TRAINING
    ),
    "epochs": option(
        int | None, "The number of passes over the rows.", "by rows and effort", group=_TRAINING
    ),
    "batch_size": option(int | None, "The number of rows per step.", "by rows", group=_TRAINING),
    "learning_rate": option(float | None, "The learning rate of Adam.", "by rows", group=_TRAINING),
    "weight_decay": option(
        float | None, "The weight decay of Adam (L2).", "by method and rows", group=_TRAINING
    ),
    "early_stopping": option(
        bool, "Keep the model of the epoch with the smallest label-free error.", group=_TRAINING
    ),
    "n_iter_no_change": option(
        int,
        "With --early-stopping: stop after this many epochs without a smaller error.",
        group=_TRAINING,
    ),
    "time_limit": option(
        float | None, "The number of seconds that training may take.", "none", group=_TRAINING
    ),
    "validation_share": option(
        float,
        "The share of rows kept apart to watch training, or to rank models.",
        group=_TRAINING,
    ),
    "evaluation_share": option(
        float, "The share of rows kept apart to evaluate the model.", group=_TRAINING
    ),
    "calibrate": option(
        bool | None,
        "Calibrate the probabilities on the validation rows.",
        "if there are 50 per class",
        group=_TRAINING,
    ),
    "shares_of": option(
        str | None,
        "What the shares describe. rows: these very rows, counted in full; population: a "
        "population of which the rows are a sample.",
        "as the file says, else population",
        group=_DATA,
    ),
    "sampling": option(str | None, "Replaced by --shares-of.", False, group=_DATA, hidden=True),
    "precision": option(
        str, "The number format of training: float32, tf32, bf16 or float64.", group=_COMPUTING
    ),
    "seed": option(int, "The seed of all random numbers.", group=_COMPUTING, min=0),
    "device": option(str, "Where to compute: auto, cpu, cuda or cuda:N.", group=_COMPUTING),
    "output": option(Path, "The folder to write the model to."),
    "probabilities": option(bool, "Also write the probability of every class."),
    "partition_by": option(
        list[str],
        "A column of the key, or class, whose values become folders; may be repeated.",
        False,
    ),
    "processes": option(int, "How many processes predict, a million rows each at a time.", min=1),
    "report": option(
        Path | None, "Also write a page with the results, such as evaluation.html.", "none"
    ),
    "title": option(str | None, "The title of the report.", False),
    "level": option(float, "The confidence level of the intervals."),
    "overwrite": Overwrite,
    "as_json": AsJson,
    "quiet": Quiet,
    "verbose": Verbose,
    "log_file": LogFile,
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
    defaults |= {"as_json": False, "config": None, "log_file": None}
    defaults |= dict.fromkeys(("quiet", "verbose"), False)
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

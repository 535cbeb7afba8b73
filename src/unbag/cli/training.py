"""The commands ``unbag fit`` and ``unbag tune``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unbag.cli import options as given
from unbag.cli.common import GOES_ON, exit_on_error, for_workflow, print_json, print_notes, say
from unbag.workflow import TrainedModel, fit_files, tune_files

__all__ = ["fit", "tune"]

_Output = Annotated[Path, typer.Option(help="Folder of the model to make.")]
_TestPrior = Annotated[
    str | None,
    typer.Option(
        help="Class shares where the model will be used: yes=0.3,no=0.7.", show_default=""
    ),
]
_Model = Annotated[str, typer.Option(help="Network: linear, mlp or resnet20.")]
_Depth = Annotated[int, typer.Option(help="Layers of the mlp.")]
_Width = Annotated[int, typer.Option(help="Units of its hidden layers.")]
_Epochs = Annotated[int | None, typer.Option(help="Passes over the rows.", show_default="by rows")]
_BatchSize = Annotated[int | None, typer.Option(help="Rows of a step.", show_default="by rows")]
_Precision = Annotated[str, typer.Option(help="float32, tf32, bf16 or float64.")]
_EvaluationShare = Annotated[
    float, typer.Option(help="Share of the rows kept apart to judge the model.")
]


def fit(
    rows: given.Rows,
    priors: given.Priors,
    output: _Output,
    bag: given.Bag = None,
    columns: given.Columns = None,
    leave_out: given.LeaveOut = None,
    images: given.Images = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto, crossfit, consistency, matched-likelihood, bag-likelihood, u-prr, u-stop, "
            "u-flood, u-correct, unbiased, prop-cr, prop or biased."
        ),
    ] = "auto",
    test_prior: _TestPrior = None,
    alpha: Annotated[
        float | None, typer.Option(help="Of u-prr, weight of the risk.", show_default="0.7")
    ] = None,
    ascent_scale: Annotated[
        float | None, typer.Option(help="Of u-prr, strength of the ascent.", show_default="5")
    ] = None,
    flood_level: Annotated[
        float | None, typer.Option(help="Of u-flood.", show_default="0.05")
    ] = None,
    model: _Model = "mlp",
    depth: _Depth = 3,
    width: _Width = 300,
    dropout: Annotated[float, typer.Option(help="Share of hidden units dropped.")] = 0.0,
    epochs: _Epochs = None,
    batch_size: _BatchSize = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of Adam.", show_default="by rows")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="In Adam's L2 form.", show_default="by method and rows")
    ] = None,
    early_stopping: Annotated[
        bool, typer.Option(help="Keep the epoch of the smallest label-free error.")
    ] = False,
    n_iter_no_change: Annotated[
        int, typer.Option(help="Epochs without a smaller error that end early stopping.")
    ] = 20,
    validation_share: Annotated[
        float, typer.Option(help="Share of the rows that training is watched by.")
    ] = 0.1,
    evaluation_share: _EvaluationShare = 0.2,
    calibrate: Annotated[
        bool | None,
        typer.Option(
            help="Correct probabilities by the validation rows.",
            show_default="where these are 50 a class",
        ),
    ] = None,
    sampling: given.Sampling = "iid",
    level: given.Level = 0.95,
    precision: _Precision = "float32",
    title: given.Title = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    overwrite: given.Overwrite = False,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Train a classifier from rows and the class shares of their bags.

    The model folder gets the network, its label-free evaluation on rows kept apart, and a report
    to show (report.html). A run that was stopped goes on when the command is given again.

    Example: unbag fit rows.parquet --bag district --priors shares.csv --output model
    """
    with exit_on_error(GOES_ON):
        _show(fit_files(**for_workflow(locals())), as_json)


def tune(
    rows: given.Rows,
    priors: given.Priors,
    output: _Output,
    bag: given.Bag = None,
    columns: given.Columns = None,
    leave_out: given.LeaveOut = None,
    images: given.Images = None,
    trials: Annotated[int, typer.Option(min=1, help="Models to try, pruned ones too.")] = 32,
    scoring: Annotated[
        str, typer.Option(help="What trials are ranked by: accuracy or likelihood.")
    ] = "likelihood",
    storage: Annotated[
        str | None,
        typer.Option(
            help="Address of an Optuna storage, for several machines.", show_default=False
        ),
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Models trained as one stack.")] = 8,
    test_prior: _TestPrior = None,
    model: _Model = "mlp",
    depth: _Depth = 3,
    width: _Width = 300,
    epochs: _Epochs = None,
    batch_size: _BatchSize = None,
    validation_share: Annotated[
        float, typer.Option(help="Share of the rows that trials are ranked by.")
    ] = 0.2,
    evaluation_share: _EvaluationShare = 0.2,
    sampling: given.Sampling = "iid",
    level: given.Level = 0.95,
    precision: _Precision = "float32",
    title: given.Title = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    overwrite: given.Overwrite = False,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Search for the best method and its hyperparameters without labels, and keep that model.

    What chose the model does not judge it: the evaluation comes from rows kept apart.

    Example: unbag tune rows.parquet --bag district --priors shares.csv --output model --trials 16
    """
    with exit_on_error(GOES_ON):
        _show(tune_files(**for_workflow(locals())), as_json)


def _show(made: TrainedModel, as_json: bool) -> None:
    if as_json:
        print_json(made.to_dict())
        return
    print_notes(made.notes, made.warnings)
    say(f"{made.inspection}\n")
    if made.tuning is not None:
        shown = ", ".join(f"{k} {_short(v)}" for k, v in made.tuning.best_params.items())
        count = len(made.tuning.trials)
        trials = "1 trial" if count == 1 else f"{count} trials"
        say(f"best of {trials}: {shown or 'the settings as they were given'}")
    clf = made.classifier
    say(f"trained {clf.method_} for {clf.n_iter_} epochs: {clf.stop_reason_}")
    if made.evaluation is not None:
        say(str(made.evaluation))
    say(f"\nmodel   {made.folder}")
    say(f"report  {made.folder / 'report.html'}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

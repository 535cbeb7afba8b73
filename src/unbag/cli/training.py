"""The commands ``unbag fit`` and ``unbag tune``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unbag.cli import options as given
from unbag.cli.common import GOES_ON, exit_on_error, for_workflow, print_json, print_notes, say
from unbag.workflow import TrainedModel, fit_files, tune_files
from unbag.workflow.judging import REPORT

__all__ = ["fit", "tune"]

_Output = Annotated[Path, typer.Option(help="Folder of the model to make.")]
_Method = Annotated[
    str,
    typer.Option(
        help="auto, crossfit, consistency, matched-likelihood, bag-likelihood, u-prr, u-stop, "
        "u-flood, u-correct, unbiased, prop-cr, prop or biased."
    ),
]
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
_BatchSize = Annotated[int | None, typer.Option(help="Rows per step.", show_default="by rows")]
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
    method: _Method = "auto",
    method_settings: given.MethodSettings = None,
    test_prior: _TestPrior = None,
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
            show_default="where there are 50 per class",
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
    method: _Method = "auto",
    method_settings: given.MethodSettings = None,
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


def _show(trained: TrainedModel, as_json: bool) -> None:
    if as_json:
        print_json(trained.to_dict())
        return
    print_notes(trained.notes, trained.warnings)
    say(f"{trained.inspection}\n")
    if trained.tuning is not None:
        params = trained.tuning.best_params.items()
        settings = ", ".join(f"{name} {_short(value)}" for name, value in params)
        count = len(trained.tuning.trials)
        trials = "1 trial" if count == 1 else f"{count} trials"
        say(f"Best of {trials}: {settings or 'the settings as they were given'}.")
    clf = trained.classifier
    epochs = "1 epoch" if clf.n_iter_ == 1 else f"{clf.n_iter_} epochs"
    say(f"Trained with {clf.method_} for {epochs}.")
    say(f"Why training stopped: {clf.stop_reason_}.")
    if trained.evaluation is not None:
        say(f"\n{trained.evaluation}")
    say(f"\nModel:  {trained.folder}")
    say(f"Report: {trained.folder / REPORT}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

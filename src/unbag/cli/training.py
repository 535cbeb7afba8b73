"""The commands ``unbag fit`` and ``unbag tune``."""

from typing import Any

import typer

from unbag.cli.common import GOES_ON, for_workflow, print_json, print_notes, running, say
from unbag.cli.options import TrainingCommand, with_options_of
from unbag.processes import join_launched
from unbag.workflow import TrainedModel, fit_files, tune_files
from unbag.workflow.judging import REPORT

__all__ = ["app", "fit", "tune"]

app = typer.Typer(rich_markup_mode="markdown")

_OF_CLASSIFIER = (
    *("method", "learner", "method_settings", "test_prior", "model", "depth", "width"),
    *("effort", "epochs", "batch_size", "precision", "device"),
)
_NOT_SEARCHED = (
    "dropout",
    "learning_rate",
    "weight_decay",
    "early_stopping",
    "n_iter_no_change",
    "time_limit",
)


@app.command(cls=TrainingCommand)
@with_options_of(fit_files, (*_OF_CLASSIFIER, *_NOT_SEARCHED))
def fit(**options: Any) -> None:
    """Train a classifier from rows and the class shares of their bags.

    The model folder holds the model, its evaluation without labels on rows kept apart, and a page
    to show (report.html). If a run was stopped, the same command continues it.

    Several processes train together: torchrun --nproc-per-node 4 -m unbag fit ...

    Example: unbag fit rows.parquet --bag district --priors shares.csv --output model
    """
    with running(options, GOES_ON, together=True), join_launched(options["device"]):
        _show(fit_files(**for_workflow(options)), options["as_json"])


@app.command(cls=TrainingCommand)
@with_options_of(tune_files, _OF_CLASSIFIER)
def tune(**options: Any) -> None:
    """Search for the best method and settings without labels, and keep that model.

    Rows that choose the model do not judge it: the evaluation comes from other rows.

    Example: unbag tune rows.parquet --bag district --priors shares.csv --output model --trials 16
    """
    with running(options, GOES_ON):
        _show(tune_files(**for_workflow(options)), options["as_json"])


def _show(trained: TrainedModel, as_json: bool) -> None:
    if as_json:
        print_json(trained.to_dict())
        return
    told = () if trained.evaluation is None else trained.evaluation.warnings  # printed with it
    print_notes(trained.notes, [text for text in trained.warnings if text not in told])
    meaning = trained.inspection.meaning
    say(f"Check of bags and shares: {meaning} (`unbag inspect` tells more).")
    for reason in trained.inspection.reasons:
        say(f"  - {reason}")
    if trained.tuning is not None:
        params = trained.tuning.best_params.items()
        settings = ", ".join(f"{name} {_short(value)}" for name, value in params)
        count = len(trained.tuning.trials)
        trials = "1 trial" if count == 1 else f"{count} trials"
        say(f"Best of {trials}: {settings or 'the settings as they were given'}.")
    clf = trained.classifier
    say(f"Method: {clf.method_}. {clf.stop_reason_}")
    if trained.evaluation is not None:
        say(f"\n{trained.evaluation}")
    say(f"\n{trained.verdict}")
    say(f"\nModel:  {trained.folder}")
    say(f"Report: {trained.folder / REPORT}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

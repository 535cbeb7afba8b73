"""The commands ``unbag inspect``, ``evaluate``, ``predict`` and ``export``."""

from pathlib import Path
from typing import Annotated

import typer

from unbag.cli import options as given
from unbag.cli.common import GOES_ON, exit_on_error, for_workflow, print_json, print_notes, say
from unbag.estimator import export_onnx, load_model
from unbag.workflow import evaluate_files, inspect_files, predict_files
from unbag.workflow.outputs import check_free, hidden_folder, hold

__all__ = ["evaluate", "export", "inspect", "predict"]

_ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a saved model.")]


def inspect(
    rows: given.Rows,
    priors: given.Priors,
    bag: given.Bag = None,
    columns: given.Columns = None,
    leave_out: given.LeaveOut = None,
    images: given.Images = None,
    sampling: given.Sampling = "iid",
    level: given.Level = 0.95,
    seed: given.Seed = 0,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Tell whether rows and class shares can work at all, before anything is trained.

    Example: unbag inspect rows.parquet --bag district --priors shares.csv
    """
    with exit_on_error():
        result = inspect_files(**for_workflow(locals()))
        if as_json:
            print_json(result.to_dict())
            return
        print_notes(result.notes)
        say(str(result.inspection))


def evaluate(
    model: _ModelFolder,
    rows: given.Rows,
    bag: given.Bag = None,
    priors: Annotated[
        Path | None,
        typer.Option(help="Class shares of the bags.", show_default="those of training"),
    ] = None,
    images: given.Images = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Page to write, such as evaluation.html.", show_default="none"),
    ] = None,
    sampling: given.Sampling = "iid",
    level: given.Level = 0.95,
    title: given.Title = None,
    device: given.Device = "auto",
    overwrite: given.Overwrite = False,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Evaluate a model without labels, on rows it was not trained on.

    Example: unbag evaluate model other-rows.parquet --report evaluation.html
    """
    with exit_on_error():
        result = evaluate_files(**for_workflow(locals()))
        if as_json:
            print_json(result.to_dict())
            return
        print_notes(result.notes, result.warnings)
        say(str(result.evaluation))
        if result.report is not None:
            say(f"\nReport: {result.report}")


def predict(
    model: _ModelFolder,
    rows: given.Rows,
    output: Annotated[Path, typer.Option(help="A .parquet or .csv file to write.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="A column that names rows; may be repeated.", show_default="row number"),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Class shares where the rows come from: yes=0.3,no=0.7.", show_default=False
        ),
    ] = None,
    probabilities: Annotated[bool, typer.Option(help="Write probabilities too.")] = True,
    images: given.Images = None,
    device: given.Device = "auto",
    overwrite: given.Overwrite = False,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Predict the class of every row of a file, however large.

    The output has the key, the class and the probability of each. A run that was stopped goes on
    when the command is given again.

    Example: unbag predict model rows.parquet --key id --output predictions.parquet
    """
    with exit_on_error(GOES_ON):
        result = predict_files(**for_workflow(locals()))
        if as_json:
            print_json(result.to_dict())
            return
        before = f", {result.rows_before:,} of them by an earlier run" if result.rows_before else ""
        say(f"Predicted {result.rows:,} rows{before}. Rows predicted as each class:")
        for name, share in result.shares.items():
            say(f"  {name:<20} {share:7.2%}")
        say(f"Output: {result.output}")


def export(
    model: _ModelFolder,
    output: Annotated[Path, typer.Option(help="The .onnx file to write.")],
    overwrite: given.Overwrite = False,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Write a model as ONNX, checked against the original.

    The input is the encoded rows; the metadata of the file describe how columns are encoded.

    Example: unbag export model --output model.onnx
    """
    with exit_on_error():
        with hold(hidden_folder(output), output):
            check_free("output", output, overwrite=overwrite)
            result = export_onnx(load_model(model), output)
        if as_json:
            print_json({"output": str(result)})
        else:
            say(f"Output: {result}")

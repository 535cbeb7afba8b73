"""The commands ``unbag inspect``, ``evaluate``, ``predict``, ``show`` and ``export``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unbag.cli.common import (
    GOES_ON,
    exit_on_error,
    for_workflow,
    print_json,
    print_notes,
    running,
    say,
)
from unbag.cli.options import AsJson, Config, ModelFolder, Overwrite, option, with_options_of
from unbag.estimator import export_onnx, load_model
from unbag.workflow import evaluate_files, inspect_files, predict_files, show_model
from unbag.workflow.outputs import check_free, hidden_folder, hold

__all__ = ["app", "evaluate", "export", "inspect", "predict", "show"]

app = typer.Typer(rich_markup_mode="markdown")


@app.command()
@with_options_of(inspect_files)
def inspect(**options: Any) -> None:
    """Check whether rows and class shares can work at all, before anything is trained.

    Example: unbag inspect rows.parquet --bag district --priors shares.csv
    """
    with running(options):
        result = inspect_files(**for_workflow(options))
        if options["as_json"]:
            print_json(result.to_dict())
            return
        print_notes(result.notes)
        say(str(result.inspection))


@app.command()
@with_options_of(
    evaluate_files,
    model=ModelFolder,
    priors=option(Path | None, "Class shares of the bags.", "those of training"),
)
def evaluate(**options: Any) -> None:
    """Evaluate a model without labels, on rows it was not trained on.

    Example: unbag evaluate model other-rows.parquet --report evaluation.html
    """
    with running(options):
        result = evaluate_files(**for_workflow(options))
        if options["as_json"]:
            print_json(result.to_dict())
            return
        told = result.evaluation.warnings  # printed with it
        print_notes(result.notes, [text for text in result.warnings if text not in told])
        say(f"{result.evaluation}\n\n{result.verdict}")
        if result.report is not None:
            say(f"\nReport: {result.report}")


@app.command()
@with_options_of(
    predict_files,
    model=ModelFolder,
    output=option(Path, "A .parquet or .csv file to write, or a new folder of Parquet files."),
)
def predict(**options: Any) -> None:
    """Predict the class of every row of a file of any size.

    The output holds the key, the predicted class and the probability of every class. If a run was
    stopped, the same command continues it.

    Example: unbag predict model rows.parquet --key id --output predictions.parquet
    """
    with running(options, GOES_ON):
        result = predict_files(**for_workflow(options))
        if options["as_json"]:
            print_json(result.to_dict())
            return
        print_notes((), result.warnings)
        before = f", {result.rows_before:,} of them by an earlier run" if result.rows_before else ""
        say(f"Predicted {result.rows:,} rows{before}. Rows predicted as each class:")
        for name, share in result.shares.items():
            say(f"  {name:<20} {share:7.2%}")
        say(f"Output: {result.output}")


@app.command()
@with_options_of(show_model, model=ModelFolder)
def show(**options: Any) -> None:
    """Show what a model is: its classes, its columns, how good it is, and whether to trust it.

    Example: unbag show model
    """
    with running(options):
        result = show_model(options["model"])
        if options["as_json"]:
            print_json(result.to_dict())
        else:
            say(str(result))


@app.command()
def export(
    model: ModelFolder,
    output: Annotated[Path, typer.Option(metavar="<path>", help="The .onnx file to write.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Write a model as an ONNX file, and check it against the original.

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

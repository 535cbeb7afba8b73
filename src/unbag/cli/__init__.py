"""The command line; every command calls one public function."""

import typer

from unbag.cli import bench, datasets, demo, training, using
from unbag.cli.options import TrainingCommand

__all__ = ["app"]

app = typer.Typer(
    help="Train classifiers from unlabeled bags of rows and the share of each class in every bag."
    "\n\nExample: unbag fit rows.parquet --bag district --priors shares.csv --output model",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # so that lines of a paragraph run on
)
app.command()(demo.demo)
app.command()(using.inspect)
app.command(cls=TrainingCommand)(training.fit)
app.command(cls=TrainingCommand)(training.tune)
app.command()(using.evaluate)
app.command()(using.predict)
app.command()(using.export)
app.command(
    hidden=True,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(bench.bench)
app.add_typer(datasets.app, name="datasets")

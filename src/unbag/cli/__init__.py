"""The command line; every command calls one public function."""

import typer

from unbag.cli import bench, datasets, demo

__all__ = ["app"]

app = typer.Typer(
    help="Train classifiers from unlabeled bags of rows and the share of each class in every bag."
    "\n\nExample: unbag demo",
    no_args_is_help=True,
)
app.command()(demo.demo)
app.add_typer(datasets.app, name="datasets")
app.add_typer(bench.app, name="bench")

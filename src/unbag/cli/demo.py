"""The command ``unbag demo``."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from unbag.cli import options as given
from unbag.cli.common import exit_on_error, print_json
from unbag.demo import check_plot_path, plot_history, run_demo, write_files

__all__ = ["app", "demo"]

app = typer.Typer(rich_markup_mode="markdown", add_completion=False)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option(metavar="<path>", help="The file to save the plot to.")
    ] = Path("demo.png"),
    seed: Annotated[
        int, typer.Option(metavar="<number>", min=0, help="The seed of all random numbers.")
    ] = 0,
    files: Annotated[
        Path | None,
        typer.Option(
            metavar="<path>", help="Only write files to this folder, to try the other commands on."
        ),
    ] = None,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Compare methods on digits in ten bags without labels, and draw a plot.

    Example: unbag demo --output demo.png
    """
    console = Console()
    start = time.perf_counter()
    if files is not None:
        with exit_on_error():
            paths = [str(path) for path in write_files(files, seed=seed)]
        if as_json:
            print_json({"files": paths})
        else:
            typer.echo("\n".join(paths))
        return
    with exit_on_error():
        check_plot_path(output)
        rows = run_demo(seed=seed, verbose=not as_json)
        shown = ("unbiased", "u-prr", "prop")
        plot_history({row.method: row.history for row in rows if row.method in shown}, output)
    if as_json:
        shown_fields = ("method", "test_error", "label_free_error", "best_test_error", "epochs")
        results = [{name: getattr(row, name) for name in shown_fields} for row in rows]
        print_json({"methods": results, "plot": str(output)})
        return
    table = Table(title="Digits in ten bags with known class shares, no labels")
    table.add_column("method")
    for heading in ("true error, %", "label-free estimate, %", "best epoch, %", "epochs"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.method,
            f"{100 * row.test_error:.1f}",
            f"{100 * row.label_free_error:.1f}",
            "" if row.best_test_error is None else f"{100 * row.best_test_error:.1f}",
            "" if row.epochs is None else str(row.epochs),
        )
    console.print(table)
    console.print(
        "The first line is what `unbag fit` and UnbagClassifier do by default; the other lines "
        "are methods of the paper.",
        highlight=False,
    )
    console.print(
        "The label-free estimate uses only held-out rows of the bags and the class shares. "
        "The true error needs labels; it is shown as a check."
    )
    console.print(f"Plot saved to {output}; {time.perf_counter() - start:.0f} s.", highlight=False)

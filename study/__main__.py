"""The commands ``python -m study ...``."""

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from study.figures import plan_figures, save_figures
from study.page import fill_page
from study.plan import DATASET_NAMES, FIGURE_DATASET, METHODS, OURS, SETTINGS, STUDY, TRIALS
from study.results import Results
from study.tables import TABLE_FORMATS, write_tables
from study.training import QUICK_DATASETS, QUICK_RESULTS, RESULTS, run_study
from unbag.cli import options as given
from unbag.cli.common import exit_on_error, print_json
from unbag.validation import check_choice, invalid

app = typer.Typer(
    help="Run the paper's study and write its tables and figures.\n\n"
    "Example: python -m study run --quick",
    no_args_is_help=True,
)

_Results = Annotated[
    Path, typer.Option("--results", help="Folder of records and choices.", show_default=True)
]


def _split(given: str) -> list[str]:
    return [part.strip() for part in given.split(",") if part.strip()]


def _option(results: Path) -> str:
    """Spell the option that names a folder, where it is not the default."""
    return "" if results == Path(RESULTS) else f" --results {shlex.quote(str(results))}"


def _load(results: Path) -> Results:
    loaded = Results(results)
    if not len(loaded.records):
        remedy = (
            "make some with `python -m study run --quick`, or name another folder with --results."
        )
        raise invalid("results", "a folder with records", results, remedy)
    return loaded


@app.command("run")
def run_command(
    datasets: Annotated[
        str | None, typer.Option(help=f"Some of {', '.join(STUDY)}.", show_default="all")
    ] = None,
    settings: Annotated[
        str, typer.Option(help=f"Some of {', '.join(SETTINGS)}.", show_default="all")
    ] = ",".join(SETTINGS),
    methods: Annotated[
        str,
        typer.Option(
            help=f"Some of {', '.join(METHODS)}; beside the paper's, {', '.join(OURS)}.",
            show_default="the paper's eight",
        ),
    ] = ",".join(METHODS),
    trials: Annotated[
        int | None, typer.Option(min=1, help=f"{TRIALS} by default, 1 with --quick.")
    ] = None,
    figures: Annotated[
        bool, typer.Option(help=f"Also run what only the figures need ({FIGURE_DATASET}).")
    ] = False,
    ablations: Annotated[
        bool,
        typer.Option(help="Also run our methods with parts changed, and with noisy priors."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help=f"A first try: {', '.join(QUICK_DATASETS)}, 50 epochs."),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32, tf32 or bf16.")] = "auto",
    results: Annotated[
        Path | None,
        typer.Option(help=f"Folder of records ({RESULTS}, with --quick {QUICK_RESULTS})."),
    ] = None,
    as_json: given.AsJson = False,
    config: given.Config = None,
) -> None:
    """Run the paper's study, or what is missing of it.

    Lists are separated by commas. What has a record is not run again.

    Example: python -m study run --datasets pendigits,usps --methods prop,u-prr
    """
    for name, wanted in (("figures", figures), ("ablations", ablations)):
        if quick and wanted:
            raise typer.BadParameter(f"the {name} need the full study.", param_hint=f"--{name}")
    folder = results or Path(QUICK_RESULTS if quick else RESULTS)
    default = QUICK_DATASETS if quick else tuple(STUDY)
    start = time.perf_counter()
    with exit_on_error():
        try:
            study = run_study(
                folder,
                datasets=default if datasets is None else _split(datasets),
                settings=_split(settings),
                methods=_split(methods),
                trials=trials or (1 if quick else TRIALS),
                figures=figures,
                ablations=ablations,
                quick=quick,
                device=device,
                precision=precision,
                verbose=Console(stderr=True).is_terminal and not as_json,
            )
        except KeyboardInterrupt:
            typer.echo(
                f"\nStopped. Models that were done are in {folder}; the same command goes on with "
                "the rest.",
                err=True,
            )
            raise typer.Exit(130) from None
        seconds = time.perf_counter() - start
        if as_json:
            counts = {"trained": len(study.trained), "found": len(study.found)}
            print_json({**counts, "seconds": round(seconds, 1), "results": str(folder)})
            return
        if quick:
            _print_errors(Results(folder))
    typer.echo(
        f"Trained {len(study.trained):,} models in {seconds:.0f} s; {len(study.found):,} were "
        f"there already. Records: {folder}"
    )
    typer.echo(
        f"Next: python -m study table{' --quick' if quick and not results else _option(folder)}"
    )


def _print_errors(results: Results) -> None:
    """Print a table for the terminal: error of every method, the published one below it."""
    table = Table(
        title="Test error in percent, and that of the paper", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("", no_wrap=True)
    for method in METHODS:
        table.add_column(method, justify="right", no_wrap=True)
    columns = results.cells[["error_mean", "paper_error_mean"]]
    texts = columns.map("{:.1f}".format).replace("nan", "—")
    for dataset, rows in texts.groupby("dataset", sort=False):
        table.add_row(f"[bold]{DATASET_NAMES[dataset]}[/bold]")
        for setting, cells in rows.groupby("setting", sort=False):
            table.add_row(setting, *cells["error_mean"])
            table.add_row("  paper", *cells["paper_error_mean"], style="dim")
    Console().print(table)
    typer.echo("Few epochs and default hyperparameters; the paper has 500 epochs and chosen ones.")


@app.command("table")
def table_command(
    form: Annotated[
        str, typer.Option("--format", help=f"One of {', '.join(TABLE_FORMATS)}.")
    ] = "md",
    results: Annotated[
        Path | None, typer.Option(help=f"Folder of records ({RESULTS}).", show_default=False)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"Of the quick runs, in {QUICK_RESULTS}.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="File to write, instead of printing.")] = None,
) -> None:
    """Write the paper's three tables with our errors beside its own.

    Example: python -m study table --format html --output tables.html
    """
    with exit_on_error():
        check_choice("format", form, TABLE_FORMATS)
        loaded = _load(results or Path(QUICK_RESULTS if quick else RESULTS))
        text = write_tables(loaded, form)
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
            typer.echo(f"Tables written to {output}")


@app.command("figures")
def figures_command(
    results: _Results = Path(RESULTS),
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("study-figures"),
    form: Annotated[str, typer.Option("--format", help="png, svg or both.")] = "png,svg",
) -> None:
    """Draw the paper's figures, and some more, from the records.

    Example: python -m study figures --format svg --output figures
    """
    with exit_on_error():
        formats = _split(form)
        if not formats:
            raise invalid("format", "png, svg or both", repr(form))
        loaded = _load(results)
        for path in save_figures(loaded, output, formats):
            typer.echo(f"{path}")
    for name, command in plan_figures(loaded)[1].items():
        typer.echo(f"{name} skipped, its runs are missing: {command}{_option(results)}", err=True)


@app.command("page")
def page_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Markdown page.")],
    results: _Results = Path(RESULTS),
) -> None:
    """Refill the marked blocks of a page from the records, and draw its figures beside it.

    Example: python -m study page docs/records/reproduction.md
    """
    with exit_on_error():
        drawn = fill_page(file, _load(results))
        typer.echo(f"Refilled {file}; figures drawn: {len(drawn)}")


if __name__ == "__main__":
    app(prog_name="python -m study")

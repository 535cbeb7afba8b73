"""The commands ``unbag datasets ...``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from unbag.cli import options as given
from unbag.cli.common import exit_on_error, print_error, print_json
from unbag.datasets import SOURCES, data_folder, fetch
from unbag.exceptions import DownloadError
from unbag.validation import check_choice

__all__ = ["app"]

app = typer.Typer(
    help="Download the benchmark datasets, or list them.\n\nExample: unbag datasets fetch mnist",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
)

_Folder = Annotated[
    Path | None,
    typer.Option(
        help="Folder with one subfolder per dataset (default: UNBAG_DATA, else the cache)."
    ),
]


@app.command("fetch")
def fetch_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="One or more of the datasets.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", metavar="", help="Fetch all six, 240 MB.")
    ] = False,
    folder: _Folder = None,
    force: Annotated[
        bool,
        typer.Option("--force", metavar="", help="Download anew, also in place of a wrong file."),
    ] = False,
) -> None:
    """Download datasets from upstream; complete files are left alone.

    Names: pendigits, usps, mnist, fashion-mnist, kmnist, cifar10.

    Example: unbag datasets fetch mnist kmnist
    """
    if bool(names) == everything:
        raise typer.BadParameter("give the names of datasets, or --all.", param_hint="NAME")
    failed = False
    with exit_on_error():
        wanted = list(SOURCES) if everything else names or []
        for name in wanted:
            check_choice("name", name, SOURCES)
        for name in wanted:
            try:
                root = fetch(name, folder, force=force, progress=True)
                typer.echo(f"{name}: whole, in {root}")
            except DownloadError as error:  # another server may be better off
                print_error(error)
                failed = True
    if failed:
        raise typer.Exit(1)


@app.command("list")
def list_command(folder: _Folder = None, as_json: given.AsJson = False) -> None:
    """List the datasets, and which of them are there.

    Example: unbag datasets list
    """
    where = data_folder(folder)
    if as_json:
        with exit_on_error():
            listed = {
                name: {
                    "rows": list(source.rows),
                    "shape": list(source.shape),
                    "licence": source.licence,
                    "source": source.page,
                    "files": {file: (where / name / file).is_file() for file in source.files},
                }
                for name, source in SOURCES.items()
            }
        print_json({"folder": str(where), "datasets": listed})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("name", "rows", "features", "licence"):
        table.add_column(heading, no_wrap=True)
    table.add_column("source", overflow="ellipsis")  # the one that a narrow terminal shortens
    table.add_column("there", no_wrap=True)
    for name, source in SOURCES.items():
        with exit_on_error():
            present = [(where / name / file).is_file() for file in source.files]
        train, test = source.rows
        table.add_row(
            name,
            f"{train:,}+{test:,}",
            "×".join(map(str, source.shape)),
            source.licence,
            source.page,
            "yes" if all(present) else "partly" if any(present) else "no",
        )
    Console().print(table)
    typer.echo(f"\nRows of training and test part. Folder: {where}")

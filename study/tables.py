"""The paper's three tables with our errors beside its own, and what they come to."""

from typing import Any

import pandas as pd

from study.formats import (
    FORMATS,
    Block,
    Section,
    bold,
    number_of,
    signed,
    with_deviation,
    with_index,
)
from study.ours import ours
from study.plan import DATASET_NAMES, METHODS, SETTINGS, TRIALS
from study.results import KEY, SIGNIFICANCE, Results, differs, p_values, published
from unbag.validation import check_choice

TITLE = "The study of Tang et al. (2022)"
TABLE_FORMATS = (*FORMATS, "csv")
# Settings of each of the paper's tables, and the a of those that have one.
PAPER_TABLES: dict[str, dict[str, str]] = {
    "symmetric": {"symmetric-0.5": "0.5", "symmetric-0.1": "0.1"},
    "asymmetric": {"asymmetric": ""},
    "non-square": {"non-square": ""},
}
_CSV_COLUMNS = ["error_mean", "error_std", "drop_mean", "drop_std", "bold", "trials"]


def write_tables(results: Results, form: str) -> str:
    """Write the tables and what they come to as ``"md"``, ``"latex"``, ``"html"`` or ``"csv"``.

    The last has one line per cell, with the columns of the published cells and the trials.
    """
    check_choice("format", form, TABLE_FORMATS)
    if form == "csv":
        cells = results.cells[_CSV_COLUMNS].astype({"bold": int})
        return str(cells.to_csv(float_format="%.2f", lineterminator="\n"))
    sections = [
        Section("How to read the tables", [legend(results)]),
        *(
            Section(f"{name.capitalize()} class priors", [paper_table(results, name)])
            for name in PAPER_TABLES
        ),
        Section("What is missing", gaps(results)),
    ]
    if not results.quick:
        sections += [
            Section("Agreement with the paper", agreement(results)),
            Section("Rank of `u-prr`", ranking(results)),
            Section("Methods of our own", ours(results)),
        ]
    return FORMATS[form](TITLE, sections)


def legend(results: Results) -> str:
    """Say what stands in a cell."""
    text = (
        "First line: test error after the last epoch in percent, mean (sample deviation) over the "
        "trials. **Bold**: the smallest mean of its row, and those that a two-sided t-test at "
        "5 %, paired by trial, does not tell from it. Δ: the drop, how far that error lies above "
        "the smallest of all epochs. paper: the published mean, bold where it is bold there, and "
        "in brackets ours less it. A dash means that there is no run yet."
    )
    if results.quick:
        epochs = {choices.epochs for choices in results.choices.values()}
        return (
            f"{text} These are quick runs of {', '.join(map(str, sorted(filter(None, epochs))))} "
            "epochs with hyperparameters that were not chosen: they show that everything works, "
            "and are not to be compared with the paper."
        )
    return (
        f"{text} grid: mean error with the hyperparameters of the grid that are best by test "
        "error, which needs labels; the paper seems to report that."
    )


def paper_table(results: Results, name: str) -> pd.DataFrame:
    """One of the paper's tables, by its name in ``PAPER_TABLES``."""
    settings = PAPER_TABLES[name]
    cells = results.cells[results.cells.index.isin(settings, level="setting")]
    texts = cells.apply(_cell_text, axis=1, quick=results.quick)
    index = texts.index.droplevel("method").unique()
    table = texts.unstack("method").loc[index, list(METHODS)].reset_index()
    table = table.replace({"dataset": DATASET_NAMES, "setting": settings})
    table = table.rename(columns={"setting": "a"})
    return table if any(settings.values()) else table.drop(columns="a")


def _cell_text(cell: Any, quick: bool) -> str:
    paper = f"paper {bold(f'{cell.paper_error_mean:.2f}', cell.paper_bold)}"
    if not cell.trials:
        return f"—\n{paper}"
    lines = [
        bold(with_deviation(cell.error_mean, cell.error_std), cell.bold),
        f"Δ {cell.drop_mean:.2f}",
        f"{paper} ({signed(cell.difference)})",
    ]
    if cell.grid_trials:
        lines.append(f"grid {cell.grid_mean:.2f}")
    if cell.trials < TRIALS and not quick:
        lines.append(number_of(cell.trials, "trial"))
    return "\n".join(lines)


def gaps(results: Results) -> list[str]:
    """Say which cells are missing or rest on few trials, which failed, and where no test was made.

    One sentence each; where nothing is missing, one that says so.
    """
    sentences = []
    unchosen = [d for d in results.datasets if d not in results.choices]
    if unchosen:
        names = ", ".join(DATASET_NAMES[d] for d in unchosen)
        sentences.append(f"No hyperparameters chosen yet, so no cells: {names}.")
    cells = results.cells[~results.cells.index.isin(unchosen, level="dataset")]
    few = {f"{number_of(n, 'trial')} only": cells["trials"] == n for n in range(1, TRIALS)}
    for what, where in {
        "No trial": cells["trials"] == 0,
        **few,
        "Fewer trials with the best of the grid": cells["has_grid"]
        & (cells["grid_trials"] < cells["trials"]),
        "Training failed in some trial": cells["diverged"],
        "Fewer than two trials in common with the smallest mean, so no t-test and no bold": ~cells[
            "tested"
        ],
    }.items():
        if where.any():
            sentences.append(f"{what}: {_places(where)}.")
    return sentences or [f"Nothing: all {len(cells)} cells have at least {TRIALS} trials."]


def _places(where: pd.Series) -> str:
    """Name the cells that a mask holds, by dataset, briefly."""
    parts = []
    for dataset, mask in where.groupby("dataset", sort=False):
        if mask.all():
            parts.append(f"{DATASET_NAMES[dataset]} (all {len(mask)} cells)")
            continue
        by_methods: dict[tuple[str, ...], list[str]] = {}
        for setting, row in mask[mask].groupby("setting", sort=False):
            by_methods.setdefault(tuple(row.index.unique("method")), []).append(setting)
        names = [
            f"{'all methods' if len(methods) == len(METHODS) else ', '.join(methods)} "
            f"in {'all settings' if len(settings) == len(SETTINGS) else ', '.join(settings)}"
            for methods, settings in by_methods.items()
        ]
        if names:
            parts.append(f"{DATASET_NAMES[dataset]} ({'; '.join(names)})")
    return ", ".join(parts)


def agreement(results: Results) -> list[Block]:
    """Count, by method, cells near the published ones, and those that a test tells from them."""
    cells = results.cells[results.cells["trials"] > 0]
    if cells.empty:
        return ["No cell has a trial yet."]
    text = (
        "Cells whose mean error lies within 1.5 points of the published mean, or within two "
        "published deviations where that is more; and the mean over cells of ours less the "
        'published one, in points. Cells without a trial do not count. "Differs" are the cells '
        "that Welch's t-test at 5 % tells from the published error, above and below it; a cell "
        "with small deviations can be near and differ."
    )
    paper = cells["paper_error_mean"], cells["paper_error_std"]
    different = differs(cells["error_mean"], cells["error_std"], cells["trials"], *paper)
    sides = [different & (side * cells["difference"] > 0) for side in (1, -1)]
    above, below = (side.groupby("method").sum().reindex(METHODS, fill_value=0) for side in sides)
    with_grid = cells[cells["grid_trials"] > 0]
    grid = _share(with_grid["grid_near"], "method")
    table = pd.DataFrame(
        {
            "near": _share(cells["near"], "method"),
            "mean difference": cells["difference"].groupby("method").mean().map(signed),
            "differs: above, below": above.map(str) + ", " + below.map(str),
            "near, best of grid": grid,
        }
    ).reindex(METHODS)
    table = table.fillna({"near": "0 of 0", "mean difference": "—", "near, best of grid": ""})
    table.index = [f"`{method}`" for method in METHODS]
    table.loc["all"] = [
        f"{cells['near'].sum()} of {len(cells)}",
        "",
        f"{above.sum()}, {below.sum()}",
        "",
    ]
    return [text, with_index(table, "method"), _agreement_by_dataset(results, cells)]


def _agreement_by_dataset(results: Results, cells: pd.DataFrame) -> pd.DataFrame:
    near = _share(cells["near"], ["method", "dataset"]).unstack("dataset")
    table = near.reindex(index=METHODS, columns=list(results.choices)).fillna("0 of 0")
    table = table.replace(" of ", "/", regex=True)
    table.index = [f"`{method}`" for method in METHODS]
    return with_index(table.rename(columns=DATASET_NAMES), "near, by dataset")


def _share(flags: pd.Series, by: str | list[str]) -> pd.Series:
    """Say how many flags are set, such as "3 of 4", by levels of the index."""
    groups = flags.groupby(by)
    return _of(groups.sum(), groups.size())


def _of(count: pd.Series, total: pd.Series) -> pd.Series:
    return count.astype(str) + " of " + total.astype(str)


def ranking(results: Results) -> list[Block]:
    """Count the datasets in which ``u-prr`` is best, or not significantly worse, by setting."""
    whole = _whole(results.cells)
    smallest = whole["error_mean"].groupby(["dataset", "setting"]).transform("min")
    prr = whole.assign(best=whole["error_mean"] == smallest)
    prr = prr[prr.index.isin(["u-prr"], level="method")]
    paper = published().xs("u-prr", level="method").groupby("setting")["bold"]
    groups = prr.groupby("setting")
    counts = pd.DataFrame(
        {
            "smallest mean": groups["best"].sum(),
            "best or not worse": groups["bold"].sum(),
            "n": groups.size(),
            "the same in the paper": paper.sum(),
            "paper": paper.size(),
        }
    )
    counts = counts.reindex(SETTINGS).fillna(0).astype(int)
    counts.loc["all"] = counts.sum()
    shown = {"smallest mean": "n", "best or not worse": "n", "the same in the paper": "paper"}
    table = pd.DataFrame({name: _of(counts[name], counts[n]) for name, n in shown.items()})
    text = (
        "Datasets in which `u-prr` has the smallest mean error of the eight methods, and in which "
        "it is best or not significantly worse than the best. Only settings in which all eight "
        "methods have two trials or more count; the paper's number is that of its bold cells."
    )
    return [text, with_index(table, "setting")]


def _whole(cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the settings in which all methods have two trials or more."""
    return cells[cells["trials"].groupby(["dataset", "setting"]).transform("min") > 1]


def behind(results: Results) -> list[Block]:
    """List where ``u-prr`` is significantly worse than the best, and what ``prop-cr`` has in it."""
    rows, n_whole, without, with_published = [], 0, 0, 0
    errors = dict(list(results.errors.groupby(KEY[:2])))
    for (dataset, setting), cells in _whole(results.cells).groupby(KEY[:2], sort=False):
        cells = cells.droplevel(KEY[:2])
        prr, best = cells.loc["u-prr"], cells.loc[cells["error_mean"].idxmin()]
        n_whole += 1
        if not prr.bold:
            shown = [with_deviation(cell.error_mean, cell.error_std) for cell in (prr, best)]
            paper = f"{best.paper_error_mean:.2f}"
            rows.append(
                (DATASET_NAMES[dataset], setting, shown[0], f"`{best.name}`", shown[1], paper)
            )
        others = errors[dataset, setting].droplevel(KEY[:2]).drop("prop-cr")
        fair = p_values(others)["u-prr"] >= SIGNIFICANCE
        rival = cells.loc["prop-cr"].paper_error_mean, cells.loc["prop-cr"].paper_error_std
        different = differs(prr.error_mean, prr.error_std, prr.trials, *rival)
        without += fair
        with_published += fair and not (prr.error_mean > rival[0] and different)
    headings = ["dataset", "setting", "`u-prr`", "best", "its error", "the same in the paper"]
    text = (
        f"Settings in which `u-prr` is significantly worse than the best, {len(rows)} of {n_whole}:"
    )
    counts = (
        f"`u-prr` is best or not significantly worse in {n_whole - len(rows)} of {n_whole} "
        f"settings. Without `prop-cr` it is in {without}; with the published errors of `prop-cr` "
        f"in the place of ours in {with_published} (by Welch's t-test at 5 %, {TRIALS} trials of "
        "the paper)."
    )
    return [text, pd.DataFrame(rows, columns=headings), counts] if rows else [counts]


def claim() -> list[Block]:
    """List published cells with a smaller mean error than ``u-prr`` of the same setting."""
    prr = published().xs("u-prr", level="method").add_suffix("_prr")
    cells = published().join(prr).reset_index()
    cells = cells[cells["error_mean"] < cells["error_mean_prr"]]
    rows = [
        (
            DATASET_NAMES[cell.dataset],
            cell.setting,
            f"`{cell.method}`",
            bold(with_deviation(cell.error_mean, cell.error_std), cell.bold),
            bold(with_deviation(cell.error_mean_prr, cell.error_std_prr), cell.bold_prr),
        )
        for cell in cells.itertuples()
    ]
    text = (
        f"Published cells with a smaller mean error than `u-prr`, {len(rows)} in all; bold as in "
        "the paper:"
    )
    headings = ["dataset", "setting", "method", "its error", "error of `u-prr`"]
    return [text, pd.DataFrame(rows, columns=headings)]

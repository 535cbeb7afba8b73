"""The paper's three tables with our errors beside its own, and what they come to."""

import csv
import io
import math
from collections.abc import Iterable, Sequence

from unbag.bench.cells import Cell, Results, embolden, mean, published
from unbag.bench.formats import FORMATS, Section, Table
from unbag.bench.ours import ours
from unbag.bench.study import DATASET_NAMES, METHODS, SETTINGS, STUDY, TRIALS
from unbag.validation import check_choice

__all__ = [
    "PAPER_TABLES",
    "TABLE_FORMATS",
    "agreement",
    "behind",
    "claim",
    "gaps",
    "legend",
    "paper_table",
    "ranking",
    "write_tables",
]

TITLE = "The study of Tang et al. (2022)"
TABLE_FORMATS = (*FORMATS, "csv")
# Settings of each of the paper's tables, and the a of those that have one.
PAPER_TABLES: dict[str, dict[str, str]] = {
    "symmetric": {"symmetric-0.5": "0.5", "symmetric-0.1": "0.1"},
    "asymmetric": {"asymmetric": ""},
    "non-square": {"non-square": ""},
}
_COLUMNS = (
    "dataset",
    "setting",
    "method",
    "error_mean",
    "error_std",
    "drop_mean",
    "drop_std",
    "bold",
    "trials",
)


def write_tables(results: Results, form: str) -> str:
    """Write the tables and what they come to as ``"md"``, ``"latex"``, ``"html"`` or ``"csv"``.

    The last has one line a cell, with the columns of the published cells and the trials.
    """
    check_choice("format", form, TABLE_FORMATS)
    if form == "csv":
        return _to_csv(results.cells.values())
    sections = [
        Section("How to read the tables", (legend(results),)),
        *(
            Section(f"{name.capitalize()} class priors", (paper_table(results, name),))
            for name in PAPER_TABLES
        ),
        Section("What is missing", tuple(gaps(results))),
    ]
    if not results.quick:
        sections += [
            Section("Agreement with the paper", agreement(results)),
            Section("Rank of `u-prr`", ranking(results)),
            Section("Methods of our own", tuple(ours(results))),
        ]
    return FORMATS[form](TITLE, sections)


def _to_csv(cells: Iterable[Cell]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in cells:
        numbers = (cell.error_mean, cell.error_std, cell.drop_mean, cell.drop_std)
        rounded = ["" if math.isnan(x) else f"{x:.2f}" for x in numbers]
        writer.writerow(
            [cell.dataset, cell.setting, cell.method, *rounded, int(cell.bold), cell.trials]
        )
    return file.getvalue()


def legend(results: Results) -> str:
    """Say what stands in a cell."""
    text = (
        "First line: test error after the last epoch in percent, mean (sample deviation) over the "
        "trials. **Bold**: the smallest mean of its row, and those that a two-sided t-test at "
        "5 %, paired by trial, does not tell from it. Δ: the drop, how far that error lies above "
        "the smallest of all epochs. paper: the published mean, bold where it is bold there; diff: "
        "ours less it. A dash means that there is no run yet."
    )
    if results.quick:
        epochs = {made.epochs for made in results.choices.values()}
        return (
            f"{text} These are quick runs of {', '.join(map(str, sorted(filter(None, epochs))))} "
            "epochs with hyperparameters that were not chosen: they show that everything works, "
            "and are not to be compared with the paper."
        )
    return (
        f"{text} grid: mean error with the hyperparameters of the grid that are best by test "
        "error, which needs labels; the paper seems to report that."
    )


def paper_table(results: Results, name: str) -> Table:
    """One of the paper's tables, by its name in ``PAPER_TABLES``."""
    settings = PAPER_TABLES[name]
    with_a = any(settings.values())
    rows = []
    for dataset in results.datasets:
        for setting, a in settings.items():
            texts = [_cell_text(cell, results) for cell in results.setting_cells(dataset, setting)]
            rows.append((DATASET_NAMES[dataset], *([a] if with_a else []), *texts))
    return Table(("dataset", *(["a"] if with_a else []), *METHODS), tuple(rows))


def _cell_text(cell: Cell, results: Results) -> str:
    paper = _bold(f"{cell.published.error_mean:.2f}", cell.published.bold)
    if not cell.trials:
        return f"—\npaper {paper}"
    lines = [
        _bold(_with_deviation(cell.error_mean, cell.error_std), cell.bold),
        f"Δ {cell.drop_mean:.2f}",
        f"paper {paper}",
        f"diff {_signed(cell.difference)}",
    ]
    if cell.best_of_grid:
        lines.append(f"grid {cell.grid_mean:.2f}")
    if cell.trials < TRIALS and not results.quick:
        lines.append(_count(cell.trials, "trial"))
    return "\n".join(lines)


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def _with_deviation(value: float, spread: float) -> str:
    return f"{value:.2f}" if math.isnan(spread) else f"{value:.2f} ({spread:.2f})"


def _signed(value: float) -> str:
    return "—" if math.isnan(value) else f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def gaps(results: Results) -> list[str]:
    """Say which cells are missing or rest on few trials, which failed, and where no test was made.

    One sentence each; where nothing is missing, one that says so.
    """
    said = []
    unchosen = [d for d in results.datasets if d not in results.choices]
    if unchosen:
        names = ", ".join(DATASET_NAMES[d] for d in unchosen)
        said.append(f"No hyperparameters chosen yet, so no cells: {names}.")
    cells = [cell for cell in results.cells.values() if cell.dataset not in unchosen]
    few = [
        (f"{_count(n, 'trial')} only", [c for c in cells if c.trials == n])
        for n in range(1, TRIALS)
    ]
    gridless = [
        c
        for c in cells
        if c.method in results.choices[c.dataset].by_test_error[c.setting]
        and len(c.best_of_grid) < c.trials
    ]
    for what, found in [
        ("No trial", [c for c in cells if not c.trials]),
        *few,
        ("Fewer trials with the best of the grid", gridless),
        ("Training failed in some trial", [c for c in cells if c.diverged]),
        (
            "Fewer than two trials in common with the smallest mean, so no t-test and no bold",
            [c for c in cells if not c.tested],
        ),
    ]:
        if found:
            said.append(f"{what}: {_where(found, cells)}.")
    return said or [f"Nothing: all {len(cells)} cells have at least {TRIALS} trials."]


def _where(found: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Name cells, by dataset, briefly."""
    parts = []
    for dataset in dict.fromkeys(cell.dataset for cell in found):
        own = [cell for cell in found if cell.dataset == dataset]
        if len(own) == sum(cell.dataset == dataset for cell in cells):
            parts.append(f"{DATASET_NAMES[dataset]} (all {len(own)} cells)")
            continue
        by_methods: dict[tuple[str, ...], list[str]] = {}
        for setting in SETTINGS:
            methods = tuple(cell.method for cell in own if cell.setting == setting)
            if methods:
                by_methods.setdefault(methods, []).append(setting)
        names = [
            f"{'all methods' if len(methods) == len(METHODS) else ', '.join(methods)} "
            f"in {'all settings' if len(settings) == len(SETTINGS) else ', '.join(settings)}"
            for methods, settings in by_methods.items()
        ]
        parts.append(f"{DATASET_NAMES[dataset]} ({'; '.join(names)})")
    return ", ".join(parts)


def agreement(results: Results) -> tuple[str | Table, ...]:
    """Count, by method, the cells whose mean lies near the published one."""
    if not any(cell.trials for cell in results.cells.values()):
        return ("No cell has a trial yet.",)
    rows = []
    total = [0, 0]
    for method in METHODS:
        cells = [c for c in results.cells.values() if c.method == method and c.trials]
        grid = [c for c in cells if c.best_of_grid]
        near = sum(cell.agrees() for cell in cells)
        total[0] += near
        total[1] += len(cells)
        rows.append(
            (
                f"`{method}`",
                f"{near} of {len(cells)}",
                _signed(mean([cell.difference for cell in cells])),
                f"{sum(c.agrees(oracle=True) for c in grid)} of {len(grid)}" if grid else "",
            )
        )
    rows.append(("all", f"{total[0]} of {total[1]}", "", ""))
    text = (
        "Cells whose mean error lies within 1.5 points of the published mean, or within two "
        "published deviations where that is more; and the mean over cells of ours less the "
        "published one, in points. Cells without a trial do not count."
    )
    headings = ("method", "near", "mean difference", "near, best of grid")
    return text, Table(headings, tuple(rows)), _agreement_by_dataset(results)


def _agreement_by_dataset(results: Results) -> Table:
    def near(dataset: str, method: str) -> str:
        cells = [results.cells[dataset, setting, method] for setting in SETTINGS]
        present = [cell for cell in cells if cell.trials]
        return f"{sum(cell.agrees() for cell in present)} of {len(present)}"

    rows = tuple((f"`{m}`", *(near(d, m) for d in results.choices)) for m in METHODS)
    return Table(("near, by dataset", *(DATASET_NAMES[d] for d in results.choices)), rows)


def ranking(results: Results) -> tuple[str | Table, ...]:
    """Count the datasets in which ``u-prr`` is best, or not significantly worse, by setting."""
    counts: list[tuple[int, ...]] = []
    for setting in SETTINGS:
        rows = [results.setting_cells(dataset, setting) for dataset in results.datasets]
        whole = [row for row in rows if all(cell.trials > 1 for cell in row)]
        own = [cell for row in whole for cell in row if cell.method == "u-prr"]
        smallest = [min(cell.error_mean for cell in row) for row in whole]
        theirs = [published()[dataset, setting, "u-prr"].bold for dataset in STUDY]
        counts.append(
            (
                sum(cell.error_mean == least for cell, least in zip(own, smallest, strict=True)),
                sum(cell.bold for cell in own),
                len(whole),
                sum(theirs),
                len(theirs),
            )
        )
    counts.append(tuple(map(sum, zip(*counts, strict=True))))
    lines = [
        (name, f"{best} of {n}", f"{bold} of {n}", f"{theirs} of {every}")
        for name, (best, bold, n, theirs, every) in zip([*SETTINGS, "all"], counts, strict=True)
    ]
    text = (
        "Datasets in which `u-prr` has the smallest mean error of the eight methods, and in which "
        "it is best or not significantly worse than the best. Only settings in which all eight "
        "methods have two trials or more count; the paper's number is that of its bold cells."
    )
    headings = ("setting", "smallest mean", "best or not worse", "the same in the paper")
    return text, Table(headings, tuple(lines))


def behind(results: Results) -> tuple[str | Table, ...]:
    """List where ``u-prr`` is significantly worse than the best, and what ``prop-cr`` has in it."""
    rows, own_cells, without, with_published = [], [], 0, 0
    for dataset in results.datasets:
        for setting in SETTINGS:
            cells = {cell.method: cell for cell in results.setting_cells(dataset, setting)}
            if any(cell.trials < 2 for cell in cells.values()):
                continue
            own, best = cells["u-prr"], min(cells.values(), key=lambda cell: cell.error_mean)
            own_cells.append(own)
            if not own.bold:
                shown = [_with_deviation(cell.error_mean, cell.error_std) for cell in (own, best)]
                theirs = f"{best.published.error_mean:.2f}"
                name = DATASET_NAMES[dataset]
                rows.append((name, setting, shown[0], f"`{best.method}`", shown[1], theirs))
            consistent = cells.pop("prop-cr")
            fair = next(c.bold for c in embolden([*cells.values()]) if c.method == "u-prr")
            without += fair
            with_published += fair and not own.is_above(consistent.published)
    text = (
        f"Settings in which `u-prr` is significantly worse than the best, {len(rows)} of "
        f"{len(own_cells)}:"
    )
    counts = (
        f"`u-prr` is best or not significantly worse in {len(own_cells) - len(rows)} of "
        f"{len(own_cells)} settings. Without `prop-cr` it is in {without}; with the published "
        f"errors of `prop-cr` in the place of ours in {with_published} (by Welch's t-test at "
        f"5 %, {TRIALS} trials of the paper)."
    )
    headings = ("dataset", "setting", "`u-prr`", "best", "its error", "the same in the paper")
    return (text, Table(headings, tuple(rows)), counts) if rows else (counts,)


def claim() -> tuple[str | Table, ...]:
    """List published cells with a smaller mean error than ``u-prr`` of the same setting."""
    rows = []
    for (dataset, setting, method), cell in published().items():
        own = published()[dataset, setting, "u-prr"]
        if cell.error_mean < own.error_mean:
            rows.append(
                (
                    DATASET_NAMES[dataset],
                    setting,
                    f"`{method}`",
                    _bold(_with_deviation(cell.error_mean, cell.error_std), cell.bold),
                    _bold(_with_deviation(own.error_mean, own.error_std), own.bold),
                )
            )
    text = (
        f"Published cells with a smaller mean error than `u-prr`, {len(rows)} in all; bold as in "
        "the paper:"
    )
    headings = ("dataset", "setting", "method", "its error", "error of `u-prr`")
    return text, Table(headings, tuple(rows))

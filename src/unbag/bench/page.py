"""A Markdown page whose marked blocks are written from the records.

A block stands between a line ``<!-- bench: NAME -->`` and a line ``<!-- end -->``; the rest of the
page is left as it is.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbag.bench.cells import Results, mean
from unbag.bench.choices import setting_shares
from unbag.bench.drawing import Figure, grid_runs
from unbag.bench.figures import plan_figures, save_figures
from unbag.bench.formats import Table, markdown
from unbag.bench.ours import ablations, noise, ours
from unbag.bench.running import (
    FIGURE_DATASET,
    ablation_runs,
    cell_runs,
    figure_runs,
    noise_runs,
)
from unbag.bench.study import DATASET_NAMES, OURS, SETTINGS, STUDY, Run, our_run
from unbag.bench.tables import (
    PAPER_TABLES,
    agreement,
    behind,
    claim,
    gaps,
    legend,
    paper_table,
    ranking,
)
from unbag.exceptions import InvalidInputError
from unbag.files import write_whole
from unbag.validation import shorten

__all__ = ["BLOCKS", "fill", "fill_page"]

FIGURE_FOLDER = "figures"  # beside the page
_BEGIN = re.compile(r"<!-- bench: (\S+) -->")
_END = "<!-- end -->"
_SYMBOLS = {"alpha": "α", "ascent_scale": "s_GA", "flood_level": "level"}
_Blocks = Sequence[str | Table]


def fill_page(path: str | os.PathLike[str], results: Results) -> list[Path]:
    """Refill the blocks of a page in place, and draw the figures that it shows beside it.

    Returns
    -------
    list of paths
        Of the figures.
    """
    page = Path(path)
    text = page.read_text(encoding="utf-8")
    filled = fill(text, results, name=str(page))
    drawn = []
    if any(block.name == "figures" for block in _find(text, str(page))):
        drawn = save_figures(plan_figures(results)[0], page.parent / FIGURE_FOLDER, ["svg"])
    if filled != text:
        write_whole(page, filled)
    return drawn


def fill(text: str, results: Results, name: str = "page") -> str:
    """Return the text of a page with its blocks refilled; ``name`` is for messages."""
    lines = text.split("\n")
    for block in reversed(_find(text, name)):  # from the end, so that line numbers stay right
        parts = BLOCKS[block.name](results)
        content = "\n\n".join(map(markdown, parts)).splitlines()
        lines[block.begin + 1 : block.end] = ["", *content, ""]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Block:
    """A marked block: its name and the positions of its two marks."""

    name: str
    begin: int
    end: int


def _find(text: str, name: str) -> list[_Block]:
    """Find the blocks of a page; marks that do not belong together are an error."""

    def wrong(position: int, what: str) -> InvalidInputError:
        return InvalidInputError(f"{name}, line {position + 1}: {what}")

    blocks: list[_Block] = []
    opened: tuple[str, int] | None = None
    for position, line in enumerate(text.split("\n")):
        begin = _BEGIN.fullmatch(line.strip())
        if begin:
            if opened:
                said = f"a block begins inside {opened[0]!r}, which has no {_END} yet."
                raise wrong(position, said)
            if begin[1] not in BLOCKS:
                known = shorten(BLOCKS, limit=20)
                raise wrong(position, f"a block must be one of {known}, got {begin[1]!r}.")
            opened = begin[1], position
        elif line.strip() == _END:
            if not opened:
                raise wrong(position, f"{_END} without a block that begins.")
            blocks.append(_Block(*opened, position))
            opened = None
        elif line.lstrip().startswith(("<!-- bench", "<!--bench")):
            raise wrong(position, f"a mark must read <!-- bench: NAME -->, got {line.strip()!r}.")
    if opened:
        raise wrong(opened[1], f"the block {opened[0]!r} has no {_END}.")
    return blocks


def _weights(_: Results) -> _Blocks:
    row = tuple(f"{share:.3f}" for share in setting_shares())
    return [Table(tuple(SETTINGS), (row,))]


def _choices(results: Results) -> _Blocks:
    if results.quick or not results.choices:
        return ["None are made yet."]
    rows = []
    for dataset, made in results.choices.items():
        cells = []
        for setting in SETTINGS:
            free = _hyperparameters(made.label_free[setting])
            best = _hyperparameters(made.by_test_error[setting] or made.label_free[setting])
            cells.append(
                "\n".join(
                    text if text == other else f"{text} ({other})"
                    for text, other in zip(free, best, strict=True)
                )
            )
        batch = f"n/{made.batch_divisor}"
        rows.append((DATASET_NAMES[dataset], f"{made.learning_rate:g}", batch, *cells))
    text = "In brackets: what is best by test error, where that is another."
    return [Table(("dataset", "learning rate", "batch", *SETTINGS), tuple(rows)), text]


def _grid_choice(results: Results) -> _Blocks:
    """Compare the label-free choice of α and s_GA with the best and the worst of the grid."""
    rows, lost = [], []
    for dataset, made in results.choices.items():
        for setting, runs in grid_runs(made).items():
            grid = [results.trials(run).get(0) for row in runs for run in row]
            errors = {record.run: 100 * record.error for record in grid if record}
            if len(errors) < len(grid):
                continue
            chosen = errors[replace(made.run(setting, "u-prr", 0), held_out=True)]
            best, worst = min(errors.values()), max(errors.values())
            lost.append(chosen - best)
            numbers = (f"{value:.2f}" for value in (chosen, best, chosen - best, worst))
            rows.append((DATASET_NAMES[dataset], setting, *numbers))
    if not rows:
        return ["No grid is whole yet."]
    text = (
        "Test error of `u-prr` in percent, trial 0 with a fifth of the rows held out, with the α "
        f"and s_GA that the label-free error chose out of {len(grid)} cells, and in the best and "
        f"the worst cell. The choice costs {mean(lost):.2f} points in the mean, at most "
        f"{max(lost):.2f}; it is the best cell in {lost.count(0)} of {len(lost)} settings."
    )
    headings = ("dataset", "setting", "chosen", "best", "chosen less best", "worst")
    return [text, Table(headings, tuple(rows))]


def _rates(results: Results) -> _Blocks:
    """Show whole runs of datasets without a grid: with rows held out, and cells of other rates."""
    held_out, cells = [], []
    for dataset, made in results.choices.items():
        if STUDY[dataset].has_grid:
            continue
        served = _served(results, dataset)
        runs = {replace(r.run, trial=0) for r in results.records if r.run.dataset == dataset}
        for run in sorted(runs - set(served), key=_order):
            if run.epochs != STUDY[dataset].epochs:
                continue
            trials = results.trials(run)
            own = "".join(f", {_SYMBOLS[n]} {v:g}" for n, v in run.hyperparameters.items())
            name = (DATASET_NAMES[dataset], run.setting, run.method + own, f"{run.learning_rate:g}")
            if run.held_out:
                free = trials[0].label_free_error
                shown = "—" if free is None else _percent([free])
                held_out.append((*name, shown, _percent([trials[0].error])))
            elif run.learning_rate != made.learning_rate:
                chosen = results.trials(made.run(run.setting, run.method, 0))
                errors = [[r.error for r in found.values()] for found in (trials, chosen)]
                cells.append((*name, str(len(trials)), *map(_percent, errors)))
    if not held_out and not cells:
        return ["None are made yet."]
    first = ("dataset", "setting", "method", "learning rate")
    blocks: list[str | Table] = []
    if held_out:
        blocks.append(Table((*first, "label-free error", "test error"), tuple(held_out)))
    if cells:
        blocks.append("Cells with other learning rates than the chosen one, mean test error:")
        headings = (*first, "trials", "error", "with the chosen rate")
        blocks.append(Table(headings, tuple(cells)))
    return blocks


def _order(run: Run) -> tuple[object, ...]:
    own = tuple(run.hyperparameters.values())
    return list(SETTINGS).index(run.setting), run.method, own, run.learning_rate or 0.0, repr(run)


def _percent(errors: Sequence[float]) -> str:
    return f"{100 * mean(errors):.2f}" if errors else "—"


def _hyperparameters(own: dict[str, dict[str, float]]) -> list[str]:
    prr, flood = own["u-prr"], own["u-flood"]
    return [
        f"α {prr['alpha']:g}, s_GA {prr['ascent_scale']:g}",
        f"level {flood['flood_level']:g}",
    ]


def _runs(results: Results) -> _Blocks:
    """Count models by dataset and by what they serve."""
    kinds = ("choices", "tables", "figures", "nothing")
    rows = []
    for dataset in STUDY:
        served = _served(results, dataset)
        counts = Counter(
            "choices" if run.held_out else served.get(replace(run, trial=0), "nothing")
            for run in (record.run for record in results.records)
            if run.dataset == dataset
        )
        rows.append((DATASET_NAMES[dataset], *(f"{counts[kind]:,}" for kind in kinds)))
    headings = ("dataset", "to choose", "in the tables", "in figures only", "in neither")
    return [Table(headings, tuple(rows))]


def _served(results: Results, dataset: str) -> dict[Run, str]:
    """Say what runs serve, those of trial 0, since every trial serves what the first one does."""
    ours = [our_run(dataset, setting, method, 0) for setting in SETTINGS for method in OURS]
    ours += [*ablation_runs([dataset]), *(r for r in noise_runs(1) if r.dataset == dataset)]
    made = results.choices.get(dataset)
    if made is None:
        return dict.fromkeys(ours, "tables")
    figures = figure_runs(made, trials=1) if dataset == FIGURE_DATASET else []
    tables = [run for oracle in (False, True) for run in cell_runs(made, trials=1, oracle=oracle)]
    return dict.fromkeys(figures, "figures") | dict.fromkeys([*tables, *ours], "tables")


def _environment(results: Results) -> _Blocks:
    seconds: dict[str, list[float]] = {}
    for record in results.records:
        seconds.setdefault(record.environment, []).append(record.seconds)
    rows = []
    for key, own in seconds.items():
        where = results.records.environments[key]
        versions = ", ".join(f"{name} {version}" for name, version in where.versions)
        numbers = f"{len(own):,}", f"{sum(own):,.0f}"
        rows.append((where.hardware, where.precision, where.date, versions, *numbers))
    total = sum(map(sum, seconds.values()))
    text = (
        f"{len(results.records):,} models in {total:,.0f} s of device time "
        f"({total / 3600:.1f} hours), also those that only chose hyperparameters."
    )
    headings = ("hardware", "precision", "date", "versions", "models", "seconds")
    return [text, Table(headings, tuple(rows))]


def _figures(results: Results) -> _Blocks:
    made, skipped = plan_figures(results)

    def link(figure: Figure) -> str:
        return f"![{figure.name}]({FIGURE_FOLDER}/{figure.name}.svg)\n\n{figure.caption}"

    missing = "Not drawn yet, and the command that makes their runs:\n\n" + "\n".join(
        f"- {name}: `{command}`" for name, command in skipped.items()
    )
    return [*map(link, made), *([missing] if skipped else [])]


def _table_block(name: str) -> Callable[[Results], _Blocks]:
    return lambda results: [paper_table(results, name)]


BLOCKS: dict[str, Callable[[Results], _Blocks]] = {
    "legend": lambda results: [legend(results)],
    **{name: _table_block(name) for name in PAPER_TABLES},
    "missing": gaps,
    "agreement": agreement,
    "ranking": ranking,
    "behind": behind,
    "claim": lambda _: claim(),
    "weights": _weights,
    "choices": _choices,
    "grid-choice": _grid_choice,
    "rates": _rates,
    "runs": _runs,
    "ours": ours,
    "ablations": ablations,
    "noise": noise,
    "environment": _environment,
    "figures": _figures,
}

"""A Markdown page whose marked blocks are written from the records.

A block stands between a line ``<!-- study: NAME -->`` and a line ``<!-- end -->``; the rest of the
page is left as it is.
"""

import itertools
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from study import plan
from study.choices import setting_shares
from study.figures import plan_figures, save_figures
from study.formats import Block, markdown, with_index
from study.ours import ablations, noise, ours
from study.plan import DATASET_NAMES, SETTINGS, STUDY, Run
from study.results import Results
from study.tables import agreement, behind, claim, gaps, legend, paper_table, ranking
from unbag.exceptions import InvalidInputError
from unbag.files import write_whole
from unbag.validation import shorten

FIGURE_FOLDER = "figures"  # beside the page
_BEGIN, _END = re.compile(r"<!-- study: (\S+) -->"), "<!-- end -->"
_MARK = re.compile(r"^[ \t]*(<!-- ?(?:study|bench|end)\b.*?)[ \t]*$", re.MULTILINE)
_SYMBOLS = {"alpha": "α", "ascent_scale": "s_GA", "flood_level": "level"}


def fill_page(path: str | os.PathLike[str], results: Results) -> list[Path]:
    """Refill the blocks of a page in place, draw its figures beside it, and return their files."""
    page = Path(path)
    text = page.read_text(encoding="utf-8")
    filled = fill(text, results, name=str(page))
    shows_figures = "figures" in _BEGIN.findall(text)
    drawn = save_figures(results, page.parent / FIGURE_FOLDER, ["svg"]) if shows_figures else []
    if filled != text:
        write_whole(page, filled)
    return drawn


def fill(text: str, results: Results, name: str = "page") -> str:
    """Return the text of a page with its blocks refilled; ``name`` is for messages."""
    parts, position = [], 0
    marks = list(_MARK.finditer(text))
    for begin, end in itertools.zip_longest(marks[::2], marks[1::2]):
        block = _BEGIN.fullmatch(begin[1])
        if block is None or block[1] not in BLOCKS or end is None or end[1] != _END:
            line = text.count("\n", 0, begin.start()) + 1
            got = begin[1] if end is None else f"{begin[1]} and then {end[1]}"
            raise InvalidInputError(
                f"{name}, line {line}: a block must stand between <!-- study: NAME --> and {_END}, "
                f"where NAME is one of {shorten(BLOCKS, limit=20)}; got {got}."
            )
        content = "\n\n".join(map(markdown, BLOCKS[block[1]](results)))
        parts += [text[position : begin.end()], f"\n\n{content}\n\n"]
        position = end.start()
    return "".join([*parts, text[position:]])


def _weights(_: Results) -> list[Block]:
    shares = zip(SETTINGS, setting_shares(), strict=True)
    return [pd.DataFrame({name: [f"{share:.3f}"] for name, share in shares})]


def _choices(results: Results) -> list[Block]:
    if results.quick or not results.choices:
        return ["None are made yet."]
    rows = []
    for dataset, choices in results.choices.items():
        cells = []
        for setting in SETTINGS:
            free = _hyperparameters(choices.label_free[setting])
            best = _hyperparameters(choices.by_test_error[setting] or choices.label_free[setting])
            pairs = zip(free, best, strict=True)
            cells.append("\n".join(f if f == b else f"{f} ({b})" for f, b in pairs))
        batch = f"n/{choices.batch_divisor}"
        rows.append((DATASET_NAMES[dataset], f"{choices.learning_rate:g}", batch, *cells))
    text = "In brackets: what is best by test error, where that is another."
    headings = ["dataset", "learning rate", "batch", *SETTINGS]
    return [pd.DataFrame(rows, columns=headings), text]


def _hyperparameters(values: dict[str, dict[str, float]]) -> list[str]:
    prr, flood = values["u-prr"], values["u-flood"]
    return [
        f"α {prr['alpha']:g}, s_GA {prr['ascent_scale']:g}",
        f"level {flood['flood_level']:g}",
    ]


def _grid_choice(results: Results) -> list[Block]:
    """Compare the label-free choice of α and s_GA with the best and the worst of the grid."""
    rows = []
    for dataset, choices in results.choices.items():
        for setting, grid in plan.grid_runs(choices).items():
            chosen = replace(choices.run(setting, "u-prr", 0), held_out=True)
            errors = pd.Series([results.error(run) for run in grid])
            if errors.notna().all():
                best, worst = errors.min(), errors.max()
                rows.append((DATASET_NAMES[dataset], setting, results.error(chosen), best, worst))
    if not rows:
        return ["No grid is whole yet."]
    table = pd.DataFrame(rows, columns=["dataset", "setting", "chosen", "best", "worst"])
    cost = table["chosen"] - table["best"]
    text = (
        "Test error of `u-prr` in percent, trial 0 with a fifth of the rows held out, with the α "
        f"and s_GA that the label-free error chose out of {len(grid)} cells; in brackets the best "
        f"and the worst cell. The choice costs {cost.mean():.2f} points in the mean, at most "
        f"{cost.max():.2f}; it is the best cell in {(cost == 0).sum()} of {len(cost)} settings."
    )
    numbers = table[["chosen", "best", "worst"]].itertuples(index=False)
    table["cell"] = [f"{chosen:.2f} ({best:.2f}, {worst:.2f})" for chosen, best, worst in numbers]
    return [text, _by_setting(table, ["dataset"])]


def _by_setting(table: pd.DataFrame, index: list[str]) -> pd.DataFrame:
    """Put the cells of the settings side by side."""
    wide = table.pivot_table("cell", index, "setting", "first", fill_value="—", sort=False)
    return wide.reindex(columns=SETTINGS, fill_value="—").rename_axis(columns=None).reset_index()


def _rates(results: Results) -> list[Block]:
    """Show whole runs of datasets without a grid: with rows held out, and cells of other rates."""
    held_out, cells = [], []
    for dataset, choices in results.choices.items():
        if STUDY[dataset].has_grid:
            continue
        served = _served(results, dataset)
        frame = results.frame[results.frame["dataset"] == dataset]
        for run in sorted(set(frame["run"]) - set(served), key=_order):
            if run.epochs != STUDY[dataset].epochs:
                continue
            values = "".join(f", {_SYMBOLS[n]} {v:g}" for n, v in run.hyperparameters.items())
            rate = f"{run.learning_rate:g}"
            name = (DATASET_NAMES[dataset], run.setting, run.method + values, rate)
            trials = frame[frame["run"] == run]
            chosen = choices.run(run.setting, run.method, 0)
            if run.held_out:
                first = trials[trials["trial"] == 0]
                means = first["label_free_error"].mean(), first["error"].mean()
                held_out.append((*name, *map(_number, means)))
            elif run.learning_rate != choices.learning_rate:
                means = trials["error"].mean(), frame["error"][frame["run"] == chosen].mean()
                cell = " instead of ".join(map(_number, means))
                cells.append((name[0], run.method, rate, str(len(trials)), run.setting, cell))
    first = ["dataset", "setting", "method", "learning rate"]
    blocks: list[Block] = []
    if held_out:
        headings = [*first, "label-free error", "test error"]
        blocks.append(pd.DataFrame(held_out, columns=headings))
    if cells:
        blocks.append("Mean test error with another learning rate than the chosen one:")
        index = ["dataset", "method", "learning rate", "trials"]
        table = pd.DataFrame(cells, columns=[*index, "setting", "cell"])
        blocks.append(_by_setting(table, index))
    return blocks or ["None are made yet."]


def _order(run: Run) -> tuple[object, ...]:
    values = tuple(run.hyperparameters.values())
    return list(SETTINGS).index(run.setting), run.method, values, run.learning_rate or 0, repr(run)


def _number(value: float) -> str:
    return "—" if math.isnan(value) else f"{value:.2f}"


def _runs(results: Results) -> list[Block]:
    """Count models by dataset and by what they serve."""
    served = {run: kind for name in STUDY for run, kind in _served(results, name).items()}
    frame = results.frame
    kinds = frame["run"].map(lambda run: served.get(run, "in neither"))
    kinds = kinds.mask(frame["held_out"].astype(bool), "to choose")
    counts = pd.crosstab(frame["dataset"], kinds)
    columns = ["to choose", "in the tables", "in figures only", "in neither"]
    counts = counts.reindex(index=STUDY, columns=columns, fill_value=0).map("{:,}".format)
    return [with_index(counts.rename(index=DATASET_NAMES), "dataset")]


def _served(results: Results, dataset: str) -> dict[Run, str]:
    """Say what runs serve, those of trial 0, since every trial serves what the first one does."""
    runs = [plan.our_run(dataset, s, method, 0) for s in SETTINGS for method in plan.OURS]
    runs += plan.ablation_runs([dataset])
    runs += plan.noise_runs(1) if dataset == plan.FIGURE_DATASET else []
    choices = results.choices.get(dataset)
    if choices is None:
        return dict.fromkeys(runs, "in the tables")
    runs += plan.cell_runs(choices, trials=1)
    runs += plan.cell_runs(choices, trials=1, oracle=True)
    figures = plan.figure_runs(choices, 1) if dataset == plan.FIGURE_DATASET else []
    return dict.fromkeys(figures, "in figures only") | dict.fromkeys(runs, "in the tables")


def _environment(results: Results) -> list[Block]:
    seconds = results.frame.groupby("environment", sort=False)["seconds"].agg(["size", "sum"])
    headings = ["hardware", "precision", "date", "versions", "models", "seconds"]
    rows = []
    for key, n_models, spent in seconds.itertuples():
        where = results.records.environments[key]
        versions = ", ".join(map(" ".join, where["versions"].items()))
        numbers = f"{n_models:,}", f"{spent:,.0f}"
        about = (where[name] for name in headings[:3])
        rows.append((*about, versions, *numbers))
    total = seconds["sum"].sum()
    text = (
        f"{len(results.records):,} models in {total:,.0f} s of device time "
        f"({total / 3600:.1f} hours), also those that only chose hyperparameters."
    )
    return [text, pd.DataFrame(rows, columns=headings)]


def _figures(results: Results) -> list[Block]:
    figures, skipped = plan_figures(results)
    blocks: list[Block] = [
        f"![{name}]({FIGURE_FOLDER}/{name}.svg)\n\n{figure.caption}"
        for name, figure in figures.items()
    ]
    if skipped:
        commands = "\n".join(f"- {name}: `{command}`" for name, command in skipped.items())
        blocks.append(f"Not drawn yet, and the command that makes their runs:\n\n{commands}")
    return blocks


BLOCKS: dict[str, Callable[[Results], Sequence[Block]]] = {
    "legend": lambda results: [legend(results)],
    "symmetric": lambda results: [paper_table(results, "symmetric")],
    "asymmetric": lambda results: [paper_table(results, "asymmetric")],
    "non-square": lambda results: [paper_table(results, "non-square")],
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

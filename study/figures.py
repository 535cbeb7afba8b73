"""Figures of the study: what they show, which runs they need, and their files."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from study import plan
from study.choices import Choices
from study.plan import ALPHAS, ASCENT_SCALES, FIGURE_DATASET, SETTINGS, Run
from study.results import Results
from unbag.datasets import SOURCES
from unbag.validation import check_choice, import_optional, invalid

FIGURE_FORMATS = ("png", "svg")
_WIDTH, _CM = 16.0, 1 / 2.54  # centimetres, and one of them in inches
_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.4,
    "svg.hashsalt": "unbag",  # the same records give the same file
}
# Colours that colour-blind readers tell apart as well (Okabe and Ito), and lines for the printer.
_COLOURS = ("#D55E00", "#009E73", "#0072B2", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_OF_METHOD = {"unbiased": 0, "u-prr": 1}  # position of a method's colour and line
_CHOSEN = "#D55E00"

RunsByName = dict[str, list[Run]]  # by panel or line


@dataclass(frozen=True)
class Figure:
    """A figure of a dataset's records.

    Attributes
    ----------
    dataset : str
    runs : callable
        Runs of trial 0 that it needs, by panel or line.
    paint : callable
        Draws those on an empty figure of matplotlib.
    height : float
        In centimetres; the width is that of a page.
    caption : str
    option : str
        Of ``python -m study run``, to have the runs.
    """

    dataset: str
    runs: Callable[[Choices], RunsByName]
    paint: Callable[[Results, RunsByName, Any], None]
    height: float
    caption: str
    option: str = ""

    def is_ready(self, results: Results) -> bool:
        """Whether all of its runs have a record."""
        choices = results.choices.get(self.dataset)
        if choices is None:
            return False
        return all(run in results.records for row in self.runs(choices).values() for run in row)


def plan_figures(results: Results) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures that the records allow, and the commands that allow others, by name."""
    ready = {name: figure for name, figure in FIGURES.items() if figure.is_ready(results)}
    missing = {
        name: f"python -m study run --datasets {figure.dataset}{figure.option}"
        for name, figure in FIGURES.items()
        if name not in ready
    }
    return ready, missing


def save_figures(
    results: Results, folder: str | os.PathLike[str], formats: Sequence[str]
) -> list[Path]:
    """Draw the figures that the records allow into files of a folder."""
    for form in formats:
        check_choice("format", form, FIGURE_FORMATS)
    style: Any = import_optional("matplotlib.style", "plot")
    canvas: Any = import_optional("matplotlib.figure", "plot")
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise invalid("output", "a folder", f"{folder}, which is a file")
    paths = []
    for (name, figure), form in itertools.product(plan_figures(results)[0].items(), formats):
        with style.context(["default", _STYLE]):
            drawn = canvas.Figure(figsize=(_WIDTH * _CM, figure.height * _CM), layout="constrained")
            figure.paint(results, figure.runs(results.choices[figure.dataset]), drawn)
            target.mkdir(parents=True, exist_ok=True)
            paths.append(target / f"{name}.{form}")
            metadata = {"Date": None} if form == "svg" else {"Software": None}
            drawn.savefig(paths[-1], dpi=200, metadata=metadata)
    return paths


def _look(position: int) -> dict[str, Any]:
    return {"color": _COLOURS[position], "linestyle": _LINES[position]}


def _finish(axes: Any, **labels: Any) -> None:
    axes.set(**labels)
    axes.grid(visible=True)


def _error_curve(axes: Any, results: Results, run: Run, **look: Any) -> None:
    record = results.records[run]
    axes.plot(record.epochs, 100 * np.array(record.errors), **look)


def _error_bars(
    axes: Any, results: Results, x: Sequence[float], runs: Sequence[Run], **look: Any
) -> None:
    errors = results.summarise(runs, by=["run"]).fillna(0.0)
    look |= {"marker": "o", "markersize": 3.5, "capsize": 2.5}
    axes.errorbar(x, errors["mean"].tolist(), yerr=errors["std"].tolist(), **look)


def _curve_runs(choices: Choices) -> RunsByName:
    return {method: [choices.run("asymmetric", method, 0)] for method in _OF_METHOD}


def _draw_overfitting(results: Results, runs: RunsByName, figure: Any) -> None:
    risk, error = figure.subplots(1, 2)
    for method, (run,) in runs.items():
        record = results.records[run]
        look = {**_look(_OF_METHOD[method]), "label": method}
        risk.plot(record.epochs, np.array(record.risks, dtype=float), **look)
        _error_curve(error, results, run, **look)
    risk.axhline(0, color="black", linewidth=0.6)
    risk.set_yscale("symlog", linthresh=1)
    risk.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace("-", "−"))
    _finish(risk, xlabel="epoch", ylabel="risk", title="Empirical risk on the bags")
    _finish(error, xlabel="epoch", ylabel="error, %", title="Error on test rows")
    error.set_ylim(bottom=0)
    error.legend()


def _draw_regularisation(results: Results, runs: RunsByName, figure: Any) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    labels = (
        [f"{rate:g}" for rate in plan.DROPOUTS],
        [f"$10^{{{np.log10(decay):.0f}}}$" for decay in plan.WEIGHT_DECAYS],
    )
    for axes, (name, row), names in zip(panels, runs.items(), labels, strict=True):
        for position, (label, run) in enumerate(zip(names, row, strict=True)):
            _error_curve(axes, results, run, label=label, **_look(position))
        _finish(axes, xlabel="epoch", title=name.capitalize())
        _legend_below(axes, columns=4)
    panels[0].set(ylabel="error, %")
    panels[0].set_ylim(bottom=0)


def _legend_below(axes: Any, columns: int) -> None:
    """Put a legend below the axes that reads along its rows; matplotlib fills columns."""
    handles, labels = axes.get_legend_handles_labels()
    order = [i for column in range(columns) for i in range(column, len(labels), columns)]
    axes.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        ncols=columns,
        columnspacing=1,
    )


def _draw_prior_noise(results: Results, runs: RunsByName, figure: Any) -> None:
    panels = figure.subplots(1, len(SETTINGS))
    rates = [100 * rate for rate in plan.NOISE_RATES]
    for axes, (setting, row) in zip(panels, runs.items(), strict=True):
        _error_bars(axes, results, rates, row, **_look(_OF_METHOD["u-prr"]))
        _finish(axes, xlabel="noise, %", title=setting, xticks=rates)
        axes.set_ylim(bottom=0)
        axes.margins(y=0.15)
    panels[0].set(ylabel="error, %")


def _draw_rows(results: Results, runs: RunsByName, figure: Any) -> None:
    axes = figure.subplots()
    n_rows = SOURCES[FIGURE_DATASET].rows[0]
    sizes = [plan.rows_in_bags(n_rows, plan.N_CLASSES, share) for share in plan.SHARES]
    for method, row in runs.items():
        _error_bars(axes, results, sizes, row, label=method, **_look(_OF_METHOD[method]))
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    low, high = axes.get_ylim()
    ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    _finish(axes, xlabel="rows in the bags, n", ylabel="error, %")
    axes.legend()


def _draw_grid(results: Results, runs: RunsByName, figure: Any) -> None:
    panels = figure.subplots(len(SETTINGS), 2)
    for pair, (setting, grid) in zip(panels, runs.items(), strict=True):
        chosen = results.choices[grid[0].dataset].run(setting, "u-prr", 0)
        records = [results.records[run] for run in grid]
        shape = len(ALPHAS), len(ASCENT_SCALES)
        free = np.array([r.label_free_error for r in records], float).reshape(shape)
        true = np.array([r.error for r in records]).reshape(shape)
        low, high = np.nanmin([free, true]), np.nanmax([free, true])
        for axes, values, name in zip(pair, (free, true), ("label-free", "test"), strict=True):
            _heat_map(axes, 100 * values, (100 * low, 100 * high))
            _outline(axes, chosen)
            axes.set_title(f"{setting}: {name} error, %")
        pair[0].set_ylabel("α")
    for axes in panels[-1]:
        axes.set_xlabel("s_GA")


def _heat_map(axes: Any, values: Any, limits: tuple[float, float]) -> None:
    low, high = limits
    axes.imshow(values, cmap="cividis_r", vmin=low, vmax=high, aspect="auto")
    axes.set_xticks(range(len(ASCENT_SCALES)), [f"{scale:g}" for scale in ASCENT_SCALES])
    axes.set_yticks(range(len(ALPHAS)), [f"{alpha:g}" for alpha in ALPHAS])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(values):
        dark = value > (low + high) / 2
        text = "–" if np.isnan(value) else f"{value:.1f}".replace("-", "−")
        colour = "white" if dark else "black"
        axes.text(column, row, text, ha="center", va="center", color=colour)


def _outline(axes: Any, chosen: Run) -> None:
    patches: Any = import_optional("matplotlib.patches", "plot")
    column, row = ASCENT_SCALES.index(chosen.ascent_scale), ALPHAS.index(chosen.alpha)
    look = {"fill": False, "edgecolor": _CHOSEN, "linewidth": 2, "clip_on": False, "zorder": 3}
    axes.add_patch(patches.Rectangle((column - 0.5, row - 0.5), 1, 1, **look))


_MNIST = plan.DATASET_NAMES[FIGURE_DATASET]
FIGURES: dict[str, Figure] = {
    "overfitting": Figure(
        FIGURE_DATASET,
        _curve_runs,
        _draw_overfitting,
        6.0,
        f"Empirical risk and test error by epoch on {_MNIST}, asymmetric class priors, trial 0; "
        "the risk is drawn on a logarithmic scale beyond ±1 (the paper's figure 1a).",
    ),
    "regularisation": Figure(
        FIGURE_DATASET,
        plan.regularised_runs,
        _draw_regularisation,
        7.5,
        f"Test error of `unbiased` by epoch on {_MNIST}, asymmetric class priors, trial 0, for "
        "several rates of dropout and weight decay (figures 1b and 1c).",
        " --figures",
    ),
    "prior-noise": Figure(
        FIGURE_DATASET,
        plan.noisy_runs,
        _draw_prior_noise,
        5.0,
        f"Test error of `u-prr` against the noise of the class priors on {_MNIST}, mean and "
        "deviation over the trials; the panels have scales of their own (figure 2).",
        " --figures",
    ),
    "rows": Figure(
        FIGURE_DATASET,
        plan.share_runs,
        _draw_rows,
        7.0,
        f"Test error against the number of rows on {_MNIST}, symmetric class priors with a = 0.5, "
        "mean and deviation over the trials (not in the paper).",
        " --figures",
    ),
    **{
        f"grid-{dataset}": Figure(
            dataset,
            plan.grid_runs,
            _draw_grid,
            15.0,
            "Label-free and test error of `u-prr` by α and s_GA on "
            f"{plan.DATASET_NAMES[dataset]}, trial 0; framed: the label-free choice.",
        )
        for dataset, spec in plan.STUDY.items()
        if spec.has_grid
    },
}

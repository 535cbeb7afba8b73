"""What the figures of the study show, and how they are drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unbag.bench.cells import Results, deviation, mean
from unbag.bench.choices import Choices
from unbag.bench.running import (
    DROPOUTS,
    FIGURE_DATASET,
    NOISE_RATES,
    SHARE_METHODS,
    SHARES,
    WEIGHT_DECAYS,
)
from unbag.bench.study import (
    ALPHAS,
    ASCENT_SCALES,
    DATASET_NAMES,
    N_CLASSES,
    SETTINGS,
    STUDY,
    Run,
    rows_in_bags,
)
from unbag.datasets import SOURCES
from unbag.validation import import_optional

__all__ = ["MAKERS", "Figure", "Maker", "grid_runs"]

# Colours that colour-blind readers tell apart as well (Okabe and Ito), and lines for the printer.
_COLOURS = ("#D55E00", "#009E73", "#0072B2", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_OF_METHOD = {"unbiased": 0, "u-prr": 1}  # position of a method's colour and line
_CHOSEN = "#D55E00"


@dataclass(frozen=True)
class Figure:
    """A figure that can be drawn.

    Attributes
    ----------
    name : str
        Of the file, without an ending.
    caption : str
    height : float
        In centimetres; the width is that of a page.
    draw : callable
        Draws on an empty figure of matplotlib.
    """

    name: str
    caption: str
    height: float
    draw: Callable[[Any], None]


@dataclass(frozen=True)
class Maker:
    """Makes a figure of a dataset's records.

    Attributes
    ----------
    dataset : str
    runs : callable
        Runs of trial 0 that it cannot do without.
    make : callable
    option : str
        Of ``unbag bench run``, to have them.
    """

    dataset: str
    runs: Callable[[Choices], Sequence[Run]]
    make: Callable[[Results, Choices], Figure]
    option: str = ""


def _look(position: int) -> dict[str, Any]:
    return {"color": _COLOURS[position], "linestyle": _LINES[position]}


def _finish(axes: Any, **labels: Any) -> None:
    axes.set(**labels)
    axes.grid(visible=True)


# ------------------------------------------------------------------- risk and error by epoch


def _overfitting_runs(choices: Choices) -> list[Run]:
    return [choices.run("asymmetric", method, 0) for method in _OF_METHOD]


def _overfitting(results: Results, choices: Choices) -> Figure:
    def draw(figure: Any) -> None:
        risk, error = figure.subplots(1, 2)
        for run in _overfitting_runs(choices):
            record = results.trials(run)[0]
            look = {**_look(_OF_METHOD[run.method]), "label": run.method}
            values = [np.nan if value is None else value for value in record.risks]
            risk.plot(record.epochs, values, **look)
            error.plot(record.epochs, 100 * np.array(record.errors), **look)
        risk.axhline(0, color="black", linewidth=0.6)
        risk.set_yscale("symlog", linthresh=1)
        risk.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace("-", "−"))
        _finish(risk, xlabel="epoch", ylabel="risk", title="Empirical risk on the bags")
        _finish(error, xlabel="epoch", ylabel="error, %", title="Error on test rows")
        error.set_ylim(bottom=0)
        error.legend()

    caption = (
        f"Empirical risk and test error by epoch on {DATASET_NAMES[choices.dataset]}, asymmetric "
        "class priors, trial 0; the risk is drawn on a logarithmic scale beyond ±1 (the paper's "
        "figure 1a)."
    )
    return Figure("overfitting", caption, 6.0, draw)


# ----------------------------------------------------------------- dropout and weight decay


def _regularised(choices: Choices) -> dict[str, dict[str, Run]]:
    """Return the runs by panel and label."""
    plain = choices.run("asymmetric", "unbiased", 0)
    return {
        "dropout": {f"{rate:g}": replace(plain, dropout=rate) for rate in DROPOUTS},
        "weight decay": {
            f"$10^{{{np.log10(w):.0f}}}$": replace(plain, weight_decay=w) for w in WEIGHT_DECAYS
        },
    }


def _regularisation(results: Results, choices: Choices) -> Figure:
    def draw(figure: Any) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (name, runs) in zip(panels, _regularised(choices).items(), strict=True):
            for position, (label, run) in enumerate(runs.items()):
                record = results.trials(run)[0]
                errors = 100 * np.array(record.errors)
                axes.plot(record.epochs, errors, label=label, **_look(position))
            _finish(axes, xlabel="epoch", title=name.capitalize())
            _legend_below(axes, columns=4)
        panels[0].set(ylabel="error, %")
        panels[0].set_ylim(bottom=0)

    caption = (
        f"Test error of `unbiased` by epoch on {DATASET_NAMES[choices.dataset]}, asymmetric class "
        "priors, trial 0, for several rates of dropout and weight decay (figures 1b and 1c)."
    )
    return Figure("regularisation", caption, 7.5, draw)


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


# ---------------------------------------------------------------------- noise of the priors


def _noisy(choices: Choices) -> dict[str, list[Run]]:
    return {
        setting: [replace(choices.run(setting, "u-prr", 0), prior_noise=r) for r in NOISE_RATES]
        for setting in SETTINGS
    }


def _prior_noise(results: Results, choices: Choices) -> Figure:
    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(SETTINGS))
        rates = [100 * rate for rate in NOISE_RATES]
        for axes, (setting, runs) in zip(panels, _noisy(choices).items(), strict=True):
            _error_bars(axes, results, rates, runs, _OF_METHOD["u-prr"])
            _finish(axes, xlabel="noise, %", title=setting, xticks=rates)
            axes.set_ylim(bottom=0)
            axes.margins(y=0.15)
        panels[0].set(ylabel="error, %")

    caption = (
        f"Test error of `u-prr` against the noise of the class priors on "
        f"{DATASET_NAMES[choices.dataset]}, mean and deviation over the trials; the "
        "panels have scales of their own (figure 2)."
    )
    return Figure("prior-noise", caption, 5.0, draw)


def _error_bars(
    axes: Any, results: Results, x: Sequence[float], runs: Sequence[Run], position: int, **look: Any
) -> None:
    errors = [[100 * record.error for record in results.trials(run).values()] for run in runs]
    axes.errorbar(
        x,
        [mean(values) for values in errors],
        yerr=[deviation(values) if len(values) > 1 else 0.0 for values in errors],
        marker="o",
        markersize=3.5,
        capsize=2.5,
        **_look(position),
        **look,
    )


# --------------------------------------------------------------------------- number of rows


def _shared(choices: Choices) -> dict[str, list[Run]]:
    return {
        method: [replace(choices.run("symmetric-0.5", method, 0), share=s) for s in SHARES]
        for method in SHARE_METHODS
    }


def _rows(results: Results, choices: Choices) -> Figure:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        n_rows = SOURCES[choices.dataset].rows[0]
        sizes = [rows_in_bags(n_rows, N_CLASSES, share) for share in SHARES]
        for method, runs in _shared(choices).items():
            _error_bars(axes, results, sizes, runs, _OF_METHOD[method], label=method)
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        low, high = axes.get_ylim()
        ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        _finish(axes, xlabel="rows in the bags, n", ylabel="error, %")
        axes.legend()

    caption = (
        f"Test error against the number of rows on {DATASET_NAMES[choices.dataset]}, symmetric "
        "class priors with a = 0.5, mean and deviation over the trials (not in the paper)."
    )
    return Figure("rows", caption, 7.0, draw)


# ------------------------------------------------------------------------ α and s_GA of u-prr


def grid_runs(choices: Choices) -> dict[str, list[list[Run]]]:
    """List the runs that chose α and s_GA, by setting, one row an α."""
    return {
        setting: [
            [
                replace(
                    choices.run(setting, "u-prr", 0),
                    alpha=alpha,
                    ascent_scale=scale,
                    held_out=True,
                )
                for scale in ASCENT_SCALES
            ]
            for alpha in ALPHAS
        ]
        for setting in SETTINGS
    }


def _grid_figure(results: Results, choices: Choices) -> Figure:
    def draw(figure: Any) -> None:
        panels = figure.subplots(len(SETTINGS), 2)
        for pair, (setting, runs) in zip(panels, grid_runs(choices).items(), strict=True):
            records = [[results.trials(run)[0] for run in row] for row in runs]
            free = np.array([[r.label_free_error for r in row] for row in records], float)
            true = np.array([[r.error for r in row] for row in records])
            low, high = np.nanmin([free, true]), np.nanmax([free, true])
            chosen = choices.run(setting, "u-prr", 0)
            for axes, values, name in zip(pair, (free, true), ("label-free", "test"), strict=True):
                _heat_map(axes, 100 * values, (100 * low, 100 * high))
                _outline(axes, chosen)
                axes.set_title(f"{setting}: {name} error, %")
            pair[0].set_ylabel("α")
        for axes in panels[-1]:
            axes.set_xlabel("s_GA")

    caption = (
        f"Label-free error on rows held out, and test error, of `u-prr` by α and s_GA on "
        f"{DATASET_NAMES[choices.dataset]}, trial 0; framed: what the label-free error chose (not "
        "in the paper)."
    )
    return Figure(f"grid-{choices.dataset}", caption, 15.0, draw)


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
    corner = ASCENT_SCALES.index(chosen.ascent_scale), ALPHAS.index(chosen.alpha)
    box = patches.Rectangle(
        (corner[0] - 0.5, corner[1] - 0.5),
        1,
        1,
        fill=False,
        edgecolor=_CHOSEN,
        linewidth=2,
        clip_on=False,
        zorder=3,
    )
    axes.add_patch(box)


MAKERS: dict[str, Maker] = {
    "overfitting": Maker(FIGURE_DATASET, _overfitting_runs, _overfitting),
    "regularisation": Maker(
        FIGURE_DATASET,
        lambda choices: [run for runs in _regularised(choices).values() for run in runs.values()],
        _regularisation,
        " --figures",
    ),
    "prior-noise": Maker(
        FIGURE_DATASET,
        lambda choices: [run for runs in _noisy(choices).values() for run in runs],
        _prior_noise,
        " --figures",
    ),
    "rows": Maker(
        FIGURE_DATASET,
        lambda choices: [run for runs in _shared(choices).values() for run in runs],
        _rows,
        " --figures",
    ),
    **{
        f"grid-{dataset}": Maker(
            dataset,
            lambda choices: [
                run for rows in grid_runs(choices).values() for row in rows for run in row
            ],
            _grid_figure,
        )
        for dataset, spec in STUDY.items()
        if spec.has_grid
    },
}

"""Charts of results with matplotlib, which is loaded when the first is drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.validation import import_optional

__all__ = [
    "axes_for",
    "draw_curve",
    "draw_intervals",
    "draw_matrix",
    "draw_reliability",
    "draw_shares",
]

_Floats = NDArray[np.float64]
_MOST_NAMES = 40  # on an axis; of more, none is legible
_MOST_NUMBERS = 12  # classes up to which each cell of a matrix says its number
_LEGEND_ROWS = 12


def axes_for(ax: Any, size: tuple[float, float] = (6.0, 4.0)) -> Any:
    """Give the axes to draw on: those given, or those of a new figure."""
    if ax is not None:
        return ax
    pyplot = import_optional("matplotlib.pyplot", "plot")
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def draw_matrix(matrix: _Floats, classes: Sequence[Any], ax: Any = None) -> Any:
    """Draw a confusion matrix (K, K) of shares, one row per true class."""
    side = min(10.0, 2.5 + 0.5 * len(classes))
    ax = axes_for(ax, (side + 1, side))
    shares = np.clip(100 * matrix, 0, 100)
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    if len(classes) <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(shares):
            colour = "white" if value > 50 else "black"
            ax.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour)
    _name_ticks(ax.xaxis, classes, turn=90 if max(map(len, map(str, classes))) > 4 else 0)
    _name_ticks(ax.yaxis, classes)
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.figure.colorbar(image, ax=ax, label="% of the true class")
    return ax


def draw_shares(
    shares: _Floats, bags: Sequence[Any], classes: Sequence[Any], ax: Any = None
) -> Any:
    """Draw the shares (M, K) of classes in bags: one bar per bag, one colour per class."""
    ax = axes_for(ax, (7.0, min(12.0, 1.5 + 0.28 * len(bags))))
    colours = import_optional("matplotlib", "plot").colormaps["turbo"]
    left = np.zeros(len(bags))
    for k, name in enumerate(classes):
        colour = colours((k + 0.5) / len(classes))
        ax.barh(range(len(bags)), 100 * shares[:, k], left=left, color=colour, label=str(name))
        left += 100 * shares[:, k]
    _name_ticks(ax.yaxis, bags)
    ax.invert_yaxis()
    ax.set(xlabel="share of each class, %", ylabel="bag", xlim=(0, 100))
    columns = -(-len(classes) // _LEGEND_ROWS)
    ax.legend(frameon=False, bbox_to_anchor=(1, 1), loc="upper left", ncols=columns)
    return ax


def draw_intervals(
    names: Sequence[str], values: ArrayLike, low: ArrayLike, high: ArrayLike, ax: Any = None
) -> Any:
    """Draw estimated shares with their intervals, one line per name."""
    ax = axes_for(ax, (6.5, min(12.0, 1.2 + 0.3 * len(names))))
    value, start, end = (
        np.clip(100 * np.asarray(v, dtype=float), 0, 100) for v in (values, low, high)
    )
    ax.hlines(range(len(names)), start, end, linewidth=2)
    ax.plot(value, range(len(names)), "o", color="black", markersize=4)
    _name_ticks(ax.yaxis, names)
    ax.invert_yaxis()
    ax.set(xlabel="%", xlim=(0, 100))
    ax.grid(axis="x", alpha=0.25)
    return ax


def draw_reliability(predicted: _Floats, frequency: _Floats, error: _Floats, ax: Any = None) -> Any:
    """Draw how often predictions come true against their probability, bin by bin."""
    ax = axes_for(ax, (4.8, 4.5))
    known = np.isfinite(frequency)
    ax.plot([0, 100], [0, 100], color="grey", linewidth=1, label="probabilities as they should be")
    ax.errorbar(
        100 * predicted[known],
        np.clip(100 * frequency[known], 0, 100),
        yerr=196 * error[known],
        fmt="o-",
        capsize=2,
        label="estimated without labels, 95% interval",
    )
    ax.set(
        xlabel="predicted probability, %",
        ylabel="comes true, %",
        xlim=(0, 100),
        ylim=(0, 100),
    )
    ax.legend(frameon=False, fontsize="small")
    return ax


def draw_curve(
    x: ArrayLike, lines: Mapping[str, ArrayLike], xlabel: str, ylabel: str, ax: Any = None
) -> Any:
    """Draw lines by name over the same numbers."""
    ax = axes_for(ax)
    for name, values in lines.items():
        ax.plot(x, values, label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(alpha=0.25)
    if len(lines) > 1:
        ax.legend(frameon=False)
    return ax


def _name_ticks(axis: Any, names: Sequence[Any], turn: int = 0) -> None:
    if len(names) > _MOST_NAMES:
        return
    axis.set_ticks(range(len(names)), labels=[str(name) for name in names], rotation=turn)

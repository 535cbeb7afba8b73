"""Figures of the study, drawn from its records into files."""

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from unbag.bench.cells import Results
from unbag.bench.drawing import MAKERS, Figure
from unbag.validation import check_choice, import_optional, invalid

__all__ = ["FIGURE_FORMATS", "plan_figures", "save_figures"]

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


def plan_figures(results: Results) -> tuple[list[Figure], dict[str, str]]:
    """Return the figures that the records allow, and by name the command that allows another."""
    made, skipped = [], {}
    for name, maker in MAKERS.items():
        choices = results.choices.get(maker.dataset)
        if choices is not None and all(0 in results.trials(run) for run in maker.runs(choices)):
            made.append(maker.make(results, choices))
        else:
            skipped[name] = f"unbag bench run --datasets {maker.dataset}{maker.option}"
    return made, skipped


def save_figures(
    figures: Iterable[Figure], folder: str | os.PathLike[str], formats: Sequence[str]
) -> list[Path]:
    """Draw figures into files of a folder, which is made where it is missing."""
    for form in formats:
        check_choice("format", form, FIGURE_FORMATS)
    style: Any = import_optional("matplotlib.style", "plot")
    canvas: Any = import_optional("matplotlib.figure", "plot")
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise invalid("output", "a folder", f"{folder}, which is a file")
    paths = []
    for figure, form in itertools.product(figures, formats):
        with style.context(["default", _STYLE]):
            size = (_WIDTH * _CM, figure.height * _CM)
            drawn = canvas.Figure(figsize=size, layout="constrained")
            figure.draw(drawn)
            target.mkdir(parents=True, exist_ok=True)
            path = target / f"{figure.name}.{form}"
            metadata = {"Date": None} if form == "svg" else {"Software": None}
            drawn.savefig(path, dpi=200, metadata=metadata)
        paths.append(path)
    return paths

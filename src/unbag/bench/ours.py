"""Methods of our own beside the paper's best, and beside networks that are told the labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from unbag.bench.cells import Published, Results, deviation, differs, mean, published
from unbag.bench.formats import Table
from unbag.bench.running import ABLATIONS, FIGURE_DATASET, NOISE_RATES
from unbag.bench.study import DATASET_NAMES, OURS, SETTINGS, TRIALS, Run, our_run

__all__ = ["ablations", "noise", "ours"]

_BEST = "u-prr"  # the paper's method
_RECIPES = ("consistency", "crossfit-augmented", "crossfit")  # the first that was run is the best
_LABELS = ("supervised", "supervised-augmented")
_SHOWN = "crossfit"  # beside u-prr, with noise of the priors


@dataclass(frozen=True)
class _Row:
    """Errors of a dataset and setting in percent, by trial, of our methods and our u-prr."""

    dataset: str
    setting: str
    errors: Mapping[str, Sequence[float]]

    @property
    def published(self) -> Published:
        return published()[self.dataset, self.setting, _BEST]

    @property
    def best(self) -> Sequence[float]:
        """Of the best recipe: with augmentation where that was run."""
        return next((own for name in _RECIPES if (own := self.errors[name])), [])

    def is_below(self, errors: Sequence[float]) -> bool:
        """Whether errors lie significantly below the published ones."""
        return mean(errors) < self.published.error_mean and differs(errors, self.published)

    @property
    def supervised(self) -> float:
        """Mean error with labels: the smaller of the two."""
        found = [mean(self.errors[name]) for name in _LABELS if self.errors[name]]
        return min(found, default=math.nan)


def ours(results: Results) -> Sequence[str | Table]:
    """Table of all cells that have a run of ours, and what it comes to."""
    rows = [row for row in _rows(results) if row.best]
    if not rows:
        return ["None are made yet."]
    headings = ("dataset", "setting", "paper's `u-prr`", "our `u-prr`", *(f"`{m}`" for m in OURS))
    lines = []
    for row in rows:
        paper = f"{row.published.error_mean:.2f} ({row.published.error_std:.2f})"
        cells = [_text(row, method) for method in (_BEST, *OURS)]
        lines.append((DATASET_NAMES[row.dataset], row.setting, paper, *cells))
    below = [row for row in rows if mean(row.best) < row.published.error_mean]
    clearly = [row for row in rows if row.is_below(row.best)]
    text = (
        "Test error in percent, mean (sample deviation). **Bold**: significantly below the "
        "published error of `u-prr`, by Welch's t-test at 5 %. The best recipe, with augmentation "
        f"where that was run, is below it in {len(below)} of {len(rows)} cells, significantly in "
        f"{len(clearly)}."
    )
    return [text, Table(headings, tuple(lines)), *_distances(rows)]


def _rows(results: Results) -> list[_Row]:
    made = []
    for dataset in results.datasets:
        for setting in SETTINGS:
            runs = {method: our_run(dataset, setting, method, 0) for method in OURS}
            errors: dict[str, Sequence[float]] = {
                method: [100 * record.error for record in results.trials(run).values()]
                for method, run in runs.items()
            }
            errors[_BEST] = [*results.cells[dataset, setting, _BEST].errors.values()]
            made.append(_Row(dataset, setting, errors))
    return made


def _text(row: _Row, method: str) -> str:
    errors = row.errors[method]
    if not errors:
        return "—"
    text = f"{mean(errors):.2f}"
    if len(errors) > 1:
        text += f" ({deviation(errors):.2f})"
    if not method.startswith("supervised") and row.is_below(errors):
        text = f"**{text}**"
    if method != _BEST and len(errors) != TRIALS:
        text += f"\n{len(errors)} {'trial' if len(errors) == 1 else 'trials'}"
    return text


def _distances(rows: Sequence[_Row]) -> Sequence[str]:
    """Mean distance to the network with labels, over the cells that have all of them."""
    whole = [row for row in rows if row.errors[_BEST] and not math.isnan(row.supervised)]
    if not whole:
        return []
    columns = {
        "the paper's `u-prr`": [row.published.error_mean for row in whole],
        "our `u-prr`": [mean(row.errors[_BEST]) for row in whole],
        "the best recipe": [mean(row.best) for row in whole],
    }
    parts = [
        f"{name} {mean([e - row.supervised for e, row in zip(errors, whole, strict=True)]):.2f}"
        for name, errors in columns.items()
    ]
    return [
        f"Error above that of the network with labels, in points, as the mean over {len(whole)} "
        f"cells: {', '.join(parts)}."
    ]


def ablations(results: Results) -> Sequence[str | Table]:
    """Table of the ablations that have a run."""
    rows = []
    for where, changes in ABLATIONS.items():
        whole = _error(results, our_run(*where, 0))
        for name, options in changes:
            changed = _error(results, our_run(*where, 0, **options))
            if math.isnan(whole) or math.isnan(changed):
                continue
            numbers = f"{whole:.2f}", f"{changed:.2f}", f"{changed - whole:+.2f}"
            rows.append((DATASET_NAMES[where[0]], where[1], where[2], name, *numbers))
    if not rows:
        return ["None are made yet."]
    headings = ("dataset", "setting", "method", "change", "as it is", "changed", "difference")
    return [Table(headings, tuple(rows))]


def _error(results: Results, run: Run) -> float:
    record = results.trials(run).get(run.trial)
    return math.nan if record is None else 100 * record.error


def noise(results: Results) -> Sequence[str | Table]:
    """Table of errors with noise of the priors, of our method beside u-prr."""
    choices = results.choices.get(FIGURE_DATASET)
    rows = []
    for setting in SETTINGS:
        plain = {_SHOWN: our_run(FIGURE_DATASET, setting, _SHOWN, 0)}
        if choices is not None:
            plain = {"u-prr": choices.run(setting, "u-prr", 0), **plain}
        for name, run in plain.items():
            cells = [_mean(results, replace(run, prior_noise=rate)) for rate in NOISE_RATES]
            if any(cells):
                rows.append((setting, name, *(cell or "—" for cell in cells)))
    if not any(row[1] == _SHOWN for row in rows):
        return ["None are made yet."]
    headings = ("setting", "method", *(f"{100 * rate:g} %" for rate in NOISE_RATES))
    return [Table(headings, tuple(rows))]


def _mean(results: Results, run: Run) -> str:
    errors = [100 * record.error for record in results.trials(run).values()]
    if len(errors) < 2:
        return "".join(f"{error:.2f}" for error in errors)
    return f"{mean(errors):.2f} ({deviation(errors):.2f})"

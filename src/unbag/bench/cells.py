"""The cells of the paper's tables: our errors, the published ones, and how they compare."""

import csv
import functools
import importlib.resources
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import stats

from unbag.bench.choices import Choices
from unbag.bench.records import Record, Records
from unbag.bench.study import METHODS, SETTINGS, STUDY, TRIALS, Run

__all__ = [
    "Cell",
    "Key",
    "Published",
    "Results",
    "deviation",
    "differs",
    "embolden",
    "mean",
    "p_value",
    "published",
]

SIGNIFICANCE = 0.05
_POINTS, _DEVIATIONS = 1.5, 2.0  # how far from a published mean still agrees with it
Key = tuple[str, str, str]  # dataset, setting, method


@dataclass(frozen=True)
class Published:
    """A cell as the paper has it, in percent."""

    error_mean: float
    error_std: float
    drop_mean: float
    drop_std: float
    bold: bool

    @property
    def tolerance(self) -> float:
        """Distance within which a mean agrees: 1.5 points or two deviations, if that is more."""
        return max(_POINTS, _DEVIATIONS * self.error_std)


@functools.cache
def published() -> Mapping[Key, Published]:
    """Read the paper's 192 cells.

    Examples
    --------
    >>> published()["mnist", "asymmetric", "u-prr"].error_mean
    3.65
    """
    text = importlib.resources.files("unbag.bench").joinpath("published.csv").read_text("utf-8")
    return {
        (row["dataset"], row["setting"], row["method"]): Published(
            float(row["error_mean"]),
            float(row["error_std"]),
            float(row["drop_mean"]),
            float(row["drop_std"]),
            row["bold"] == "1",
        )
        for row in csv.DictReader(text.splitlines())
    }


def mean(values: Sequence[float]) -> float:
    """Mean, or not a number where there are no values."""
    return float(np.mean(values)) if len(values) else math.nan


def deviation(values: Sequence[float]) -> float:
    """Sample deviation, or not a number where there are fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def differs(errors: Sequence[float], other: Published) -> bool:
    """Whether errors of trials differ from a published cell, by Welch's two-sided t-test at 5 %.

    Examples
    --------
    >>> paper = Published(3.0, 0.1, 0.0, 0.0, True)
    >>> differs([2.1, 2.0, 2.2], paper), differs([2.9, 3.0], paper), differs([2.0], paper)
    (True, False, False)
    """
    p = stats.ttest_ind_from_stats(
        *(mean(errors), deviation(errors), len(errors)),
        *(other.error_mean, other.error_std, TRIALS),
        equal_var=False,
    ).pvalue
    return bool(p < SIGNIFICANCE)


def p_value(first: Mapping[int, float], second: Mapping[int, float]) -> float | None:
    """Two-sided p of a t-test paired by trial, or None with fewer than two common trials.

    Examples
    --------
    >>> round(p_value({0: 1.0, 1: 2.0, 2: 3.0}, {0: 2.0, 1: 2.0, 2: 5.0}), 4)
    0.2254
    >>> p_value({0: 1.0, 1: 2.0}, {0: 1.5, 1: 2.5})
    0.0
    >>> p_value({0: 1.0}, {0: 1.5, 1: 2.5}) is None
    True
    """
    common = sorted(first.keys() & second.keys())
    if len(common) < 2:
        return None
    # Records have six digits of a share; what differs after that is rounding.
    differences = np.round([first[trial] - second[trial] for trial in common], 6)
    if (differences == differences[0]).all():
        return 1.0 if differences[0] == 0 else 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


@dataclass(frozen=True)
class Cell:
    """A dataset, setting and method; errors and drops in percent, by trial.

    Attributes
    ----------
    dataset, setting, method : str
    errors, drops : dict of int to float
    best_of_grid : dict of int to float
        Errors with the hyperparameters of the grid that are best by test error; empty for methods
        without hyperparameters of their own.
    diverged : tuple of int
        Trials whose training failed; their errors count.
    published : Published
    bold : bool
        Smallest mean of its setting, or not significantly above it.
    tested : bool
        Whether a t-test against the smallest mean was possible, or this is the smallest.
    """

    dataset: str
    setting: str
    method: str
    errors: Mapping[int, float]
    drops: Mapping[int, float]
    best_of_grid: Mapping[int, float]
    diverged: tuple[int, ...]
    published: Published
    bold: bool = False
    tested: bool = True

    @property
    def trials(self) -> int:
        """How many there are."""
        return len(self.errors)

    @property
    def error_mean(self) -> float:
        """Mean error."""
        return mean([*self.errors.values()])

    @property
    def error_std(self) -> float:
        """Deviation of the error."""
        return deviation([*self.errors.values()])

    @property
    def drop_mean(self) -> float:
        """Mean drop Δ_E."""
        return mean([*self.drops.values()])

    @property
    def drop_std(self) -> float:
        """Deviation of the drop."""
        return deviation([*self.drops.values()])

    @property
    def grid_mean(self) -> float:
        """Mean error of the best of the grid."""
        return mean([*self.best_of_grid.values()])

    @property
    def difference(self) -> float:
        """Mean error less the published one."""
        return self.error_mean - self.published.error_mean

    def agrees(self, *, oracle: bool = False) -> bool:
        """Whether the mean error, or that of the best of the grid, lies near the published one."""
        own = self.grid_mean if oracle else self.error_mean
        return abs(own - self.published.error_mean) <= self.published.tolerance

    def is_above(self, other: Published) -> bool:
        """Whether the mean error lies significantly above a published one, by Welch's t-test."""
        return self.error_mean > other.error_mean and differs([*self.errors.values()], other)


class Results:
    """Records and choices of a folder, and what follows from them.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    records : Records
    choices : dict of str to Choices
        By dataset; one without choices has no cells.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.records = Records(folder)
        loaded = {name: Choices.load(self.records.folder, name) for name in STUDY}
        self.choices = {name: made for name, made in loaded.items() if made is not None}

    @property
    def quick(self) -> bool:
        """Whether these are quick runs."""
        return any(made.epochs is not None for made in self.choices.values())

    @property
    def datasets(self) -> list[str]:
        """Rows of the tables: all of the study, but of quick runs those that are there."""
        return list(self.choices) if self.quick else list(STUDY)

    @cached_property
    def _by_trial(self) -> dict[Run, dict[int, Record]]:
        groups: dict[Run, dict[int, Record]] = {}
        for record in self.records:
            groups.setdefault(replace(record.run, trial=0), {})[record.run.trial] = record
        return {run: dict(sorted(trials.items())) for run, trials in groups.items()}

    def trials(self, run: Run) -> dict[int, Record]:
        """Find the records of all trials of a run, by trial."""
        return self._by_trial.get(replace(run, trial=0), {})

    @cached_property
    def cells(self) -> dict[Key, Cell]:
        """All cells of the tables, also those that have no trial."""
        made: dict[Key, Cell] = {}
        for dataset in self.datasets:
            for setting in SETTINGS:
                row = [self._cell(dataset, setting, method) for method in METHODS]
                made |= {(dataset, setting, cell.method): cell for cell in embolden(row)}
        return made

    def _cell(self, dataset: str, setting: str, method: str) -> Cell:
        choices = self.choices.get(dataset)
        own: dict[int, Record] = {}
        grid: dict[int, Record] = {}
        if choices is not None:
            own = self.trials(choices.run(setting, method, 0))
            if method in choices.by_test_error[setting]:
                grid = self.trials(choices.run(setting, method, 0, oracle=True))
        return Cell(
            dataset,
            setting,
            method,
            errors={trial: 100 * record.error for trial, record in own.items()},
            drops={trial: 100 * record.drop for trial, record in own.items()},
            best_of_grid={trial: 100 * record.error for trial, record in grid.items()},
            diverged=tuple(trial for trial, record in own.items() if record.diverged),
            published=published()[dataset, setting, method],
        )

    def setting_cells(self, dataset: str, setting: str) -> list[Cell]:
        """List the cells of a dataset and setting in the order of the methods."""
        return [self.cells[dataset, setting, method] for method in METHODS]


def embolden(cells: Sequence[Cell]) -> list[Cell]:
    """Mark the smallest mean of a setting and those that a t-test does not tell from it."""
    present = [cell for cell in cells if cell.trials]
    if not present:
        return list(cells)
    best = min(present, key=lambda cell: cell.error_mean)
    marked = []
    for cell in cells:
        p = 1.0 if cell is best else p_value(cell.errors, best.errors)
        bold = p is not None and p >= SIGNIFICANCE
        marked.append(replace(cell, bold=bold, tested=p is not None or not cell.trials))
    return marked

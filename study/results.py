"""The records of a folder as DataFrames: our errors, the published ones, and how they compare."""

import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from study.choices import Choices
from study.plan import METHODS, SETTINGS, STUDY, TRIALS, Run, cell_runs
from study.records import Records

SIGNIFICANCE = 0.05
_POINTS, _DEVIATIONS = 1.5, 2.0  # how far from a published mean still agrees with it
KEY = ["dataset", "setting", "method"]


@functools.cache
def published() -> pd.DataFrame:
    """Read the paper's 192 cells, in percent.

    Examples
    --------
    >>> published().loc[("mnist", "asymmetric", "u-prr"), "error_mean"].item()
    3.65
    """
    path = Path(__file__).with_name("published.csv")
    frame = pd.read_csv(path).set_index(KEY)
    return frame.astype({"bold": bool})


def differs(mean: Any, deviation: Any, count: Any, paper_mean: Any, paper_deviation: Any) -> Any:
    """Whether means of trials differ from published ones, by Welch's two-sided t-test at 5 %.

    Numbers, or Series of one index; fewer than two trials never differ.

    Examples
    --------
    >>> differs([2.1, 2.95, 2.0], [0.1, 0.07, float("nan")], [3, 2, 1], 3.0, 0.1)
    array([ True, False, False])
    """
    numbers = map(np.asarray, (mean, deviation, count, paper_mean, paper_deviation, TRIALS))
    return stats.ttest_ind_from_stats(*numbers, equal_var=False).pvalue < SIGNIFICANCE


def p_value(first: pd.Series, second: pd.Series) -> float:
    """Two-sided p of a t-test paired by trial, or NaN with fewer than two common trials.

    Examples
    --------
    >>> round(p_value(pd.Series([1.0, 2.0, 3.0]), pd.Series([2.0, 2.0, 5.0])), 4)
    0.2254
    >>> p_value(pd.Series([1.0, 2.0]), pd.Series([1.5, 2.5]))
    0.0
    >>> p_value(pd.Series([1.0]), pd.Series([1.5, 2.5]))
    nan
    """
    # Records have six digits of a share; what differs after that is rounding.
    differences = (first - second).dropna().round(6)
    if len(differences) < 2:
        return math.nan
    if differences.nunique() == 1:
        return 1.0 if differences.iloc[0] == 0 else 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def p_values(errors: pd.DataFrame) -> pd.Series:
    """Test the methods of one dataset and setting against the one with the smallest mean.

    Parameters
    ----------
    errors : DataFrame
        One row per method, one column per trial.

    Returns
    -------
    Series
        The p-values; 1 for the smallest mean, NaN where no test is possible.
    """
    best = errors.mean(axis=1).idxmin()
    tests = {row: p_value(errors.loc[row], errors.loc[best]) for row in errors.index if row != best}
    return pd.Series({best: 1.0, **tests}, dtype=float)


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
        self.choices = {name: choices for name, choices in loaded.items() if choices is not None}

    @property
    def quick(self) -> bool:
        """Whether these are quick runs."""
        return any(choices.epochs is not None for choices in self.choices.values())

    @property
    def datasets(self) -> list[str]:
        """Rows of the tables: all of the study, but for quick runs those that are there."""
        return list(self.choices) if self.quick else list(STUDY)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per record; see :meth:`Records.frame`."""
        return self.records.frame()

    def find(self, runs: Iterable[Run]) -> pd.DataFrame:
        """Find the records of all trials of some runs.

        Returns
        -------
        DataFrame
            The fields of the runs, and the trial, errors, ``drop`` and ``diverged`` of their
            records: one row per record, and one with NaN for a run without records.
        """
        names = [field.name for field in fields(Run) if field.name != "trial"]
        wanted = [{**vars(run), "run": run.first} for run in runs]
        plan = pd.DataFrame(wanted, columns=["run", *names], dtype=object)
        outcome = ["run", "trial", "error", "drop", "label_free_error", "diverged"]
        return plan.merge(self.frame[outcome], on="run", how="left")

    def error(self, run: Run) -> float:
        """Test error of one run in percent, NaN where it has no record."""
        return 100 * self.records[run].error if run in self.records else math.nan

    def summarise(self, runs: Iterable[Run], by: Sequence[str] = KEY) -> pd.DataFrame:
        """Count, mean and deviation of the errors of runs, in the order of the runs."""
        groups = self.find(runs).groupby(list(by), sort=False)
        return groups["error"].agg(["count", "mean", "std"])

    @cached_property
    def errors(self) -> pd.DataFrame:
        """Errors of the cells that have a trial: one row per cell, one column per trial."""
        chosen = self._find_cells().dropna(subset=["trial"])
        return chosen.pivot_table(index=KEY, columns="trial", values="error", sort=False)

    def _find_cells(self, *, oracle: bool = False) -> pd.DataFrame:
        choices = self.choices.values()
        return self.find(run for c in choices for run in cell_runs(c, trials=1, oracle=oracle))

    @cached_property
    def cells(self) -> pd.DataFrame:
        """All cells of the tables, also those that have no trial.

        The index is the dataset, setting and method. Columns, errors in percent:

        - ``trials``, ``error_mean``, ``error_std``, ``drop_mean``, ``drop_std``;
        - ``diverged``: whether the training of some trial failed; its error counts;
        - ``has_grid``, ``grid_trials``, ``grid_mean``: the errors with the hyperparameters of the
          grid that are best by test error;
        - ``bold``: smallest mean of its setting, or not significantly above it;
        - ``tested``: whether that could be tested, or there was no trial to test;
        - ``paper_error_mean`` and so on: the published cell;
        - ``difference``: mean error less the published one; ``near`` and ``grid_near``: whether the
          mean, or that of the best of the grid, lies near the published one.
        """
        index = pd.MultiIndex.from_product([self.datasets, SETTINGS, METHODS], names=KEY)
        chosen = self._find_cells().groupby(KEY)
        best = self._find_cells(oracle=True).groupby(KEY)
        cells = pd.DataFrame(
            {
                "error_mean": chosen["error"].mean(),
                "error_std": chosen["error"].std(),
                "drop_mean": chosen["drop"].mean(),
                "drop_std": chosen["drop"].std(),
                "grid_mean": best["error"].mean(),
            }
        ).reindex(index)
        cells["trials"] = chosen["error"].count().reindex(index, fill_value=0)
        cells["diverged"] = chosen["diverged"].sum().gt(0).reindex(index, fill_value=False)
        cells["has_grid"] = index.isin(best.groups)
        cells["grid_trials"] = best["error"].count().reindex(index, fill_value=0)
        p = pd.Series(self._p_values(), dtype=float, index=index)
        cells["bold"] = p >= SIGNIFICANCE
        cells["tested"] = p.notna() | (cells["trials"] == 0)
        cells = cells.join(published().add_prefix("paper_"))
        cells["difference"] = cells["error_mean"] - cells["paper_error_mean"]
        tolerance = (_DEVIATIONS * cells["paper_error_std"]).clip(lower=_POINTS)
        cells["near"] = cells["difference"].abs() <= tolerance
        cells["grid_near"] = (cells["grid_mean"] - cells["paper_error_mean"]).abs() <= tolerance
        return cells

    def _p_values(self) -> Mapping[tuple[str, str, str], float]:
        groups = self.errors.groupby(KEY[:2], sort=False)
        return {key: p for _, errors in groups for key, p in p_values(errors).items()}

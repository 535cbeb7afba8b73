"""Labelled rows in an evaluation: what they say by themselves, and whether the bags agree."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.evaluation.core import Core
from unbag.evaluation.estimate import Estimate
from unbag.evaluation.metrics import OVERALL_METRICS
from unbag.evaluation.variances import BagSample
from unbag.exceptions import RankError
from unbag.plain import p_text
from unbag.priors import ClassPriors, with_labelled

__all__ = ["LabelledRows", "bags_of_labels", "gathering", "labelled_rows", "reweighted"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_ALARM = 0.05


@dataclass(frozen=True)
class LabelledRows:
    """What labelled rows say about the accuracy, beside the bags.

    Attributes
    ----------
    n_rows : int
        Labelled rows.
    accuracy : Estimate or None
        By these rows alone; None where a class has none of them.
    of_bags : Estimate or None
        By the other rows and the shares of their bags alone; None where these do not tell the
        classes apart.
    p_value : float or None
        Chance of two accuracies that differ as much where both are right.
    """

    n_rows: int
    accuracy: Estimate | None
    of_bags: Estimate | None
    p_value: float | None

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return vars(self)

    @property
    def warning(self) -> str | None:
        """Say that the labelled rows and the bags disagree, else None."""
        if self.p_value is None or self.p_value >= _ALARM:
            return None
        assert self.accuracy is not None
        assert self.of_bags is not None
        return (
            f"The labelled rows and the bags disagree ({p_text(self.p_value)}): by the "
            f"{self.n_rows:,} labelled rows alone the accuracy is {self.accuracy:.1%} "
            f"({self.accuracy.low:.1%} to {self.accuracy.high:.1%}), by the bags alone "
            f"{self.of_bags:.1%}. If the labelled rows were drawn at random, rely on theirs: rows "
            "of a class differ between bags, or the class shares are wrong."
        )


def bags_of_labels(
    table: ClassPriors, bag_index: _Ints, labels: _Ints, held_out: _Floats | None = None
) -> tuple[ClassPriors, _Ints, _Floats | None]:
    """Make bags of labelled rows; the share held out of a bag is then that of its other rows."""
    counts = np.bincount(bag_index, minlength=table.n_bags).astype(np.float64)
    whole = counts if held_out is None else counts / held_out
    moved, index = with_labelled(
        table, bag_index, labels, whole if table.shares_of == "rows" else None
    )
    if held_out is not None:
        taken = np.bincount(bag_index[labels >= 0], minlength=table.n_bags)
        left = np.where(counts > taken, (counts - taken) / np.maximum(whole - taken, 1), 1)
        held_out = np.concatenate([left, np.ones(table.n_classes)])
    return moved, index, held_out


def gathering(bag_index: _Ints, labels: _Ints, n_bags: int, n_classes: int) -> _Floats:
    r"""Variance of the drift of each bag over that of a bag from one place, (M + K,).

    For rows labelled as class k of which :math:`c_m` are from bag m it is
    :math:`\sum_m c_m^2 / (\sum_m c_m)^2`, and 1 for the bags.

    Examples
    --------
    >>> gathering(np.array([0, 0, 1, 1]), np.array([1, -1, 1, -1]), 2, 2)
    array([1. , 1. , 1. , 0.5])
    """
    counts, known = np.zeros((n_bags, n_classes)), labels >= 0
    np.add.at(counts, (bag_index[known], labels[known]), 1)
    sums = counts.sum(0)
    parts = np.divide((counts**2).sum(0), sums**2, out=np.ones(n_classes), where=sums > 0)
    return np.concatenate([np.ones(n_bags), parts])


def reweighted(core: Core, inverse: str) -> Core:
    """Estimate again with weights that know how much bags drift and labelled rows do not."""
    if core.misfit is None or core.misfit.drift == 0:
        return core
    sample = core.sample
    core.sample = replace(sample, drift=core.misfit.drift)
    again = Core(core.table, core.priors, sample, core.pi, inverse, core.rows, core.excess)
    again.misfit = core.misfit
    return again


def labelled_rows(
    table: NDArray[np.int64], core: Core, is_label: NDArray[np.bool_], level: float
) -> LabelledRows:
    """Estimate the accuracy by labelled rows alone and by bags alone, and compare them.

    Parameters
    ----------
    table : integer array of shape (M, K)
        Rows of every bag that are predicted as each class.
    core : Core
        Of all bags, those of labelled rows among them.
    is_label : bool array of shape (M,)
        Which bags are labelled rows of a class.
    level : float
    """
    alone = _accuracy_of(table, core, is_label, level)
    of_bags = _accuracy_of(table, core, ~is_label, level)
    p_value = None
    if alone is not None and of_bags is not None:
        z = float(stats.norm.ppf(0.5 + level / 2))
        below, above = sorted((alone, of_bags), key=float)
        # The ends that face each other tell how far apart chance may take them.
        half = math.hypot(max(below.high - below, 0), max(above - above.low, 0)) / z
        p_value = float(2 * stats.norm.sf((above - below) / half)) if half > 0 else None
    return LabelledRows(int(table[is_label].sum()), alone, of_bags, p_value)


def _accuracy_of(
    table: NDArray[np.int64], core: Core, chosen: NDArray[np.bool_], level: float
) -> Estimate | None:
    priors: ClassPriors = core.priors.subset(chosen)
    sample = core.sample
    part = BagSample(priors.values, sample.counts[chosen], sample.noise[chosen], priors.errors)
    try:
        chosen_core = Core(table[chosen], priors, part, core.pi)
    except RankError:
        return None
    chosen_core.allow_misfit(level)
    return chosen_core.overall(OVERALL_METRICS["accuracy"], float(stats.norm.ppf(0.5 + level / 2)))

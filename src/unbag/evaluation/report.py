"""What an evaluation without labels holds, and how it reads."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.drawing import draw_matrix
from unbag.evaluation.estimate import Estimate
from unbag.evaluation.groups import GroupNumbers
from unbag.evaluation.labelled import LabelledRows
from unbag.evaluation.misfit import Misfit
from unbag.evaluation.probabilities import ProbabilityMetrics
from unbag.evaluation.reliability import Reliability
from unbag.evaluation.row_drift import RowDrift
from unbag.plain import to_plain
from unbag.priors import SharesOf
from unbag.summary import Shown, Summary, data_frame
from unbag.validation import warn_replaced

__all__ = ["SHOWN_MOVE", "Evaluation"]

SHOWN_MOVE = 0.05  # for which the drift between bags is shown that would move a number as far

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evaluation(Shown):
    """What is known of predictions on rows without labels.

    The estimates are not clipped: by chance they may leave [0, 1]. Those linear in the confusion
    matrix are unbiased. Their intervals hold possible values only, unless no possible value
    explains the estimate. The interval of an estimate beyond 0 or 1 is that of an estimate of 0 or
    1, so that it is never narrow by being cut. ``projected`` has numbers of the likeliest valid
    confusion matrix, for display; they are biased.

    Attributes
    ----------
    classes : array of shape (K,)
    confusion : array of shape (K, K)
        Share of each true class (row) that is predicted as each class; unbiased.
    accuracy, error, balanced_accuracy, macro_f1 : Estimate
    recall, precision, f1, predicted_share : lists of Estimate
        One per class; the share is that of the predictions under the test prior.
    projected : dict
        ``confusion`` and the same numbers of a valid confusion matrix.
    cost : Estimate or None
        Mean cost of the predictions, where a table of costs was given.
    probabilities : ProbabilityMetrics or None
        Log-loss, Brier score and, for two classes, ROC; with probabilities only.
    reliability : Reliability or None
        How often predictions come true in each of ten bins of their probability; with
        probabilities only. It is what :func:`unbag.evaluation.reliability_diagram` gives.
    test_prior : array of shape (K,)
    n_rows, n_bags : int
        Rows evaluated, and the bags they are in.
    level : float
    shares_of : {"rows", "population"}
        What the shares were taken to be of.
    inverse : str
    held_out_share : array of shape (M,) or None
        The share of each bag that was evaluated, where one was given.
    design_effect : float
        Variance of the accuracy over that of distinct rows, at least 1: whether a row that is in
        several bags lowers it depends on how these were drawn, so intervals are never narrowed.
    groups : list of GroupNumbers or None
        The numbers of each group of rows, where ``by`` was given.
    labelled : LabelledRows or None
        What labelled rows say by themselves, and whether the bags agree, where there are some.
    misfit : Misfit or None
        How much the bags disagree about the model beyond chance; the intervals allow for it. None
        with as many bags as classes, where nothing can show it.
    row_drift : RowDrift or None
        How far rows of a class differ between bags; the intervals reach as far as that may take
        the numbers. None without rows, or where bags are too few to tell.
    tolerated_drift : dict
        By the name of each number (a list where it has one per class): how large a random
        difference between bags in the recall of every class, as a standard deviation, would
        move the number by 5 points.
    trustworthy : bool
        False where the accuracy is outside [0, 1] by more than its error; the intervals are then
        not printed.
    warnings : tuple of str
        What speaks against the numbers, and what to do about it.
    notes : tuple of str
        What the numbers rest on that these rows cannot show.
    """

    classes: NDArray[Any]
    confusion: _Floats
    accuracy: Estimate
    error: Estimate
    balanced_accuracy: Estimate
    macro_f1: Estimate
    recall: list[Estimate]
    precision: list[Estimate]
    f1: list[Estimate]
    predicted_share: list[Estimate]
    projected: dict[str, Any]
    cost: Estimate | None
    probabilities: ProbabilityMetrics | None
    test_prior: _Floats
    n_rows: int
    n_bags: int
    level: float
    shares_of: SharesOf
    inverse: str
    reliability: Reliability | None = None
    held_out_share: _Floats | None = None
    design_effect: float = 1.0
    groups: list[GroupNumbers] | None = None
    labelled: LabelledRows | None = None
    misfit: Misfit | None = None
    row_drift: RowDrift | None = None
    tolerated_drift: dict[str, Any] = field(default_factory=dict)
    trustworthy: bool = True
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sampling(self) -> str:
        """Old name of ``shares_of``: "exact" for "rows", "iid" for "population"."""
        warn_replaced("Evaluation.sampling", "Evaluation.shares_of")
        return "exact" if self.shares_of == "rows" else "iid"

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the accuracy."""
        return self.accuracy.interval

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON: an estimate becomes value, low and high, NaN becomes None."""
        return {name: to_plain(value) for name, value in vars(self).items()}

    def summary(self) -> Summary:
        """Give all numbers with their intervals, and what speaks for or against them."""
        rows = []
        for name, label, value in self._estimates():
            shown = _in_words(name) + ("" if label is None else f" of {label}")
            interval = (value.low, value.high) if self.trustworthy else (math.nan, math.nan)
            rows.append((shown, *map(_shown, (value, *interval))))
        title = f"Evaluation without labels: {self.n_rows:,} rows in {self.n_bags} bags"
        columns = ("", "estimate", f"{self.level:.0%} interval from", "to")
        sentences = [f"Warning: {warning}" for warning in self.warnings]
        return Summary(title, columns, rows, [*sentences, *self.notes])

    def to_frame(self) -> Any:
        """Give a DataFrame with one row per number: its name, class, value, low and high."""
        names, labels, values = zip(*self._estimates(), strict=True)
        return data_frame(
            {
                "number": names,
                "class": labels,
                "value": [float(value) for value in values],
                "low": [value.low for value in values],
                "high": [value.high for value in values],
            }
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the likeliest valid confusion matrix with matplotlib; return the axes."""
        return draw_matrix(np.asarray(self.projected["confusion"]), self.classes.tolist(), ax)

    def _estimates(self) -> Iterator[tuple[str, Any, Estimate]]:
        """Every number: its name, its class or None, and its estimate."""
        for name in ("accuracy", "balanced_accuracy", "macro_f1"):
            yield name, None, getattr(self, name)
        for name in ("recall", "precision", "f1", "predicted_share"):
            for label, value in zip(self.classes.tolist(), getattr(self, name), strict=True):
                yield name, label, value

    def __str__(self) -> str:
        recalls = [f"recall of {label}" for label in self.classes]
        width = min(40, max(18, *map(len, recalls)))

        def line(name: str, value: Estimate) -> str:
            shown = name if len(name) <= width else f"{name[: width - 1]}…"
            interval = f"{value.low:7.2%} to {value.high:7.2%}"
            interval = interval if self.trustworthy else withheld
            return f"{shown:<{width}} {_shown(value):>7}   {interval}"

        known = "no labels" if self.labelled is None else f"{self.labelled.n_rows:,} with a label"
        names = ("accuracy", "balanced_accuracy", "macro_f1")
        withheld = "not to be trusted"
        lines = [
            f"{self.n_rows:,} rows in {self.n_bags} bags, {known}; {self.level:.0%} intervals",
            *(line(_in_words(name), getattr(self, name)) for name in names),
            *(line(name, value) for name, value in zip(recalls, self.recall, strict=True)),
            *(line(f"accuracy of {g.group}", g.accuracy) for g in self.groups or ()),
            *(f"warning: {warning}" for warning in self.warnings),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def _in_words(name: str) -> str:
    return name.replace("_", " ").replace("f1", "F1")


def _shown(value: float) -> str:
    """Write a share in percent; one that cannot be is only said to be beyond the limit."""
    if math.isnan(value):
        return "–"
    return ">100%" if value > 1 else "<0%" if value < 0 else f"{value:.2%}"

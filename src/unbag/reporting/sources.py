"""What a report is made from, and how an estimated share enters it."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.estimator import UnbagClassifier
from unbag.evaluation import Estimate, Evaluation, Importances
from unbag.inspection import Inspection
from unbag.priors import ClassPriors
from unbag.reporting.text import text
from unbag.tabular import TabularModel
from unbag.validation import invalid, shorten

__all__ = ["DATA_KEYS", "Floats", "Ints", "Part", "Sources", "number_part", "share_part"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Part = dict[str, Any]

DATA_KEYS = ("files", "rows", "held_out_rows", "features", "left_out", "encoding", "notes")
# An estimate is not to be trusted if chance puts one of those shown as far outside [0, 1] in fewer
# than this share of reports. For a single estimate the limit is one standard error.
_FALSE_ALARMS = float(stats.norm.sf(1))


@dataclass(frozen=True, eq=False)
class Sources:
    """What every section is made from, checked once.

    Attributes
    ----------
    clf : UnbagClassifier
        Fitted.
    priors : ClassPriors
        M bags, K classes.
    bags, classes : lists of str
        Their names, safe to show.
    evaluation, inspection, watched, importances
        As given to :func:`~unbag.reporting.build_report`, or None.
    bag_index, predicted : integer arrays of shape (n,), or None
        Bag and predicted class of every held-out row.
    training_rows, held_out_rows : integer arrays of shape (M,), or None
    data : dict
    warnings : list of str
    date : datetime
    """

    clf: UnbagClassifier
    priors: ClassPriors
    bags: list[str]
    classes: list[str]
    evaluation: Evaluation | None
    inspection: Inspection | None
    watched: Evaluation | None
    importances: Importances | None
    bag_index: Ints | None
    predicted: Ints | None
    training_rows: Ints | None
    held_out_rows: Ints | None
    data: Part
    warnings: list[str]
    date: datetime.datetime

    @property
    def is_network(self) -> bool:
        """Whether the model is a network, which has epochs and settings of its training."""
        return not isinstance(self.clf.module_, TabularModel)

    @classmethod
    def check(
        cls,
        clf: UnbagClassifier,
        *,
        bag_ids: Any,
        predicted: Any,
        training_bag_ids: Any,
        data: Mapping[str, Any] | None,
        warnings: Sequence[str],
        **given: Any,
    ) -> "Sources":
        """Match ids and predictions to the bags and classes of the classifier."""
        priors = clf.known_priors_
        bag_index = None if bag_ids is None else priors.encode(bag_ids)
        known = None
        if predicted is not None and bag_index is not None:
            known = priors.encode_classes("predicted", predicted)
            if len(known) != len(bag_index):
                allowed = f"one class for each of the {len(bag_index)} bag_ids"
                raise invalid("predicted", allowed, f"{len(known)}")
        training = None if training_bag_ids is None else priors.encode(training_bag_ids)
        return cls(
            clf=clf,
            priors=priors,
            bags=[text(bag) for bag in priors.bag_ids],
            classes=[text(label) for label in priors.classes],
            bag_index=bag_index,
            predicted=known,
            training_rows=_count_rows(training, priors),
            held_out_rows=_count_rows(bag_index, priors),
            data=_check_data(data),
            warnings=list(warnings),
            **given,
        )


def _count_rows(bag_index: Ints | None, priors: ClassPriors) -> Ints | None:
    return None if bag_index is None else np.bincount(bag_index, minlength=priors.n_bags)


def _check_data(data: Mapping[str, Any] | None) -> Part:
    shown = dict(data or {})
    unknown = [key for key in shown if key not in DATA_KEYS]
    if unknown:
        raise invalid("data", f"a dict of {shorten(DATA_KEYS, limit=20)}", shorten(unknown))
    for key in ("files", "features", "encoding", "notes"):
        shown[key] = [text(item) for item in shown.get(key) or []]
    left_out = shown.get("left_out") or {}
    shown["left_out"] = {text(column): text(reason) for column, reason in left_out.items()}
    return {"rows": None, "held_out_rows": None, **shown}


def number_part(estimate: Estimate | None) -> Part | None:
    """Value and interval of an estimate that may have any size, such as a log-loss."""
    if estimate is None:
        return None
    return {"value": float(estimate), "low": estimate.low, "high": estimate.high}


def share_part(
    estimate: Estimate | None, level: float, among: int = 1, *, trusted: bool = True
) -> Part | None:
    """Value and interval of an estimated share, and whether it is to be trusted.

    A share lies in [0, 1], but its estimate may leave it by chance. It is not to be trusted where
    it leaves it by more than its error, the standard error at the far end of its interval. Where
    one of several estimates is likely to do that by chance, the limit is higher.

    Parameters
    ----------
    estimate : Estimate or None
    level : float
        Of its interval.
    among : int
        How many such estimates the report shows.
    trusted : bool
        False where something else speaks against it.

    Examples
    --------
    >>> share_part(Estimate(1.02, 0.9, 1.0), 0.95)["trusted"]
    True
    >>> share_part(Estimate(1.067, 0.9875, 1.0), 0.95)["trusted"]
    False
    """
    part = number_part(estimate)
    if part is None:
        return None
    value = part["value"]
    excess = max(value - 1, -value)
    half_width = value - part["low"] if value > 0.5 else part["high"] - value
    error = half_width / stats.norm.ppf(0.5 + level / 2)
    limit = error * stats.norm.isf(_FALSE_ALARMS / among)
    return {**part, "trusted": trusted and (not excess > 0 or bool(excess <= limit))}

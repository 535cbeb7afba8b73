"""Estimates without labels: overall, for every class, and of the probabilities."""

from dataclasses import replace
from functools import partial

import numpy as np
from scipy import stats

from unbag.evaluation import Evaluation, LeftInverse
from unbag.evaluation.misfit import drift_directions
from unbag.evaluation.report import SHOWN_MOVE
from unbag.evaluation.row_drift import mixing
from unbag.evaluation.variances import BagSample
from unbag.reporting.sources import Floats, Part, Sources, number_part, share_part
from unbag.reporting.text import text

__all__ = ["calibration", "confusion", "drift", "groups", "headline"]

_MOST_CLASSES = 30  # whose recall the table of drifts shows
_ALIKE = 0.0005  # drifts that differ by less are shown as one


def headline(sources: Sources) -> Part | None:
    """Collect the overall numbers."""
    evaluation = sources.evaluation
    if evaluation is None:
        return None
    most_common = int(np.argmax(evaluation.test_prior))
    metrics = evaluation.probabilities
    roc = None if metrics is None else metrics.roc
    share = partial(share_part, level=evaluation.level, trusted=evaluation.trustworthy)
    accuracy = share(evaluation.accuracy)
    if accuracy is not None:
        accuracy["trusted"] = evaluation.trustworthy
    return {
        "held_out_rows": evaluation.n_rows,
        "held_out_bags": evaluation.n_bags,
        "level": evaluation.level,
        "shares_of": evaluation.shares_of,
        "accuracy": accuracy,
        "balanced_accuracy": share(evaluation.balanced_accuracy),
        "macro_f1": share(evaluation.macro_f1),
        "auc": None if roc is None else share(roc.auc),
        "cost": number_part(evaluation.cost),
        "log_loss": None if metrics is None else number_part(metrics.log_loss),
        "brier": None if metrics is None else number_part(metrics.brier),
        "most_common_class": sources.classes[most_common],
        "most_common_share": float(evaluation.test_prior[most_common]),
    }


def confusion(sources: Sources) -> Part | None:
    """Give the confusion matrix and the numbers of every class.

    The diagonal of ``raw`` is the recall of every class: both are the same estimates.
    ``projected`` is the likeliest valid matrix; it is biased, and the page does not show it.
    """
    evaluation = sources.evaluation
    if evaluation is None:
        return None
    low, high = _cell_intervals(evaluation, sources)
    share = partial(share_part, level=evaluation.level, among=len(evaluation.classes))
    recalls = [share(e, trusted=evaluation.trustworthy) for e in evaluation.recall]
    by_class = {
        name: [
            share(e, trusted=recall is not None and recall["trusted"])
            for e, recall in zip(getattr(evaluation, name), recalls, strict=True)
        ]
        for name in ("precision", "f1", "predicted_share")
    }
    return {
        "classes": sources.classes,
        "level": evaluation.level,
        "trusted": evaluation.trustworthy,
        "recall": recalls,
        "raw": evaluation.confusion,
        "low": low,
        "high": high,
        "projected": evaluation.projected["confusion"],
        "test_prior": evaluation.test_prior,
        **by_class,
    }


def _cell_intervals(
    evaluation: Evaluation, sources: Sources
) -> tuple[Floats, Floats] | tuple[None, None]:
    """Make intervals of the raw confusion matrix: lower and upper ends, (K, K).

    Those of the diagonal are the score intervals of the recalls; the others are plain, with the
    variance at the projected confusion matrix: an entry is Σ_m L_ym V_mk. For the inverse of least
    variance there are none.
    """
    counts = sources.held_out_rows
    if counts is None or sources.predicted is None or evaluation.inverse == "least-variance":
        return None, None
    present = sources.priors.subset(counts > 0).with_errors(shares_of=evaluation.shares_of)
    n = counts[counts > 0].astype(np.float64)
    inverse = LeftInverse(present, n, evaluation.inverse).matrix  # (K, M)
    columns = evaluation.projected["confusion"].T  # (K, K): row k is column k of C
    share = evaluation.held_out_share
    share = None if share is None else share[counts > 0]
    sample = BagSample.of(present, n, share)
    spread = sample.share_variance(columns)  # (K, M)
    if evaluation.misfit is not None:
        drift = evaluation.misfit.allowance(evaluation.level)
        directions = drift_directions(evaluation.projected["confusion"])
        spread = spread + replace(sample, drift=drift, directions=directions).drift_in_shares().T
    variance = evaluation.design_effect * (inverse**2 @ spread.T)
    half = float(stats.norm.ppf(0.5 + evaluation.level / 2)) * np.sqrt(variance)
    shift = np.zeros_like(half)
    if evaluation.row_drift is not None:
        away = mixing(present.values, n) - np.eye(len(half))
        shift = evaluation.row_drift.part * (away @ evaluation.confusion)
    low = np.clip(evaluation.confusion - half + np.minimum(shift, 0), 0, 1)
    high = np.clip(evaluation.confusion + half + np.maximum(shift, 0), 0, 1)
    np.fill_diagonal(low, [recall.low for recall in evaluation.recall])
    np.fill_diagonal(high, [recall.high for recall in evaluation.recall])
    return low, high


def groups(sources: Sources) -> Part | None:
    """Give accuracy, recall and shares of every group."""
    evaluation = sources.evaluation
    if evaluation is None or evaluation.groups is None:
        return None

    share = partial(share_part, level=evaluation.level, trusted=evaluation.trustworthy)

    return {
        "classes": sources.classes,
        "level": evaluation.level,
        "rows": [
            {
                "group": text(group.group),
                "rows": group.n_rows,
                "accuracy": share(group.accuracy),
                "recall": list(map(share, group.recall)),
                "class_share": list(map(share, group.class_share)),
                "predicted_share": list(map(share, group.predicted_share)),
            }
            for group in evaluation.groups
        ],
    }


def drift(sources: Sources) -> Part | None:
    """Say how much bags disagree, and how large a drift between them would move each number."""
    evaluation = sources.evaluation
    if evaluation is None:
        return None
    misfit, tolerated = evaluation.misfit, evaluation.tolerated_drift
    rows = evaluation.row_drift
    names = ("accuracy", "balanced_accuracy", "macro_f1")
    numbers = [(name.replace("_", " ").replace("f1", "F1"), tolerated[name]) for name in names]
    recalls = list(zip(sources.classes, tolerated["recall"], strict=True))[:_MOST_CLASSES]
    known = [value for _, value in recalls if value is not None]
    if len(recalls) == len(known) > 2 and max(known) - min(known) < _ALIKE:
        numbers.append(("recall of every class", known[0]))
    else:
        numbers += [(f"recall of {label}", value) for label, value in recalls]
    return {
        "move": SHOWN_MOVE,
        "numbers": numbers,
        "measured": None if misfit is None else misfit.drift,
        "p_value": None if misfit is None else misfit.p_value,
        "bags": [] if misfit is None else [[text(bag), ratio] for bag, ratio in misfit.bags],
        "rows": None if rows is None else vars(rows),
    }


def calibration(sources: Sources) -> Part | None:
    """Give temperature and biases, and how often probabilities come true."""
    fitted, evaluation = sources.clf.calibration_, sources.evaluation
    reliability = None if evaluation is None else evaluation.reliability
    if fitted is None and reliability is None:
        return None
    return {
        "classes": sources.classes,
        "temperature": None if fitted is None else fitted.temperature,
        "biases": None if fitted is None else fitted.biases,
        "trusted": evaluation is None or evaluation.trustworthy,
        "reliability": None
        if reliability is None
        else {
            "edges": reliability.edges,
            "overall": vars(reliability.overall),
            "by_class": [vars(curve) for curve in reliability.by_class],
        },
    }

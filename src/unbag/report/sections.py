"""The parts of a report, each a dict; what is not known is ``{"missing": why}``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation, LeftInverse, Reliability
from unbag.evaluation.variances import BagSample
from unbag.inspection import Inspection
from unbag.methods import METHODS
from unbag.priors import ClassPriors
from unbag.report.plain import text

__all__ = [
    "bag_shares",
    "calibration",
    "confusion",
    "headline",
    "hyperparameters",
    "priors",
    "training",
    "verdict",
]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_HISTORY = {"epoch", "objective", "empirical_risk", "negative_share", "partial_risks"}
_NOT_EVALUATED = "The classifier was not evaluated on held-out rows."
_VERDICTS = {
    "go": "Nothing speaks against learning from these bags.",
    "care": "Learning from these bags can work; mind the points below.",
    "stop": "Not with these bags; the points below say what would help.",
}


def verdict(inspection: Inspection | None) -> dict[str, Any]:
    """Tell what the inspection said of bags and priors."""
    if inspection is None:
        return {"missing": "Bags and priors were not inspected."}
    return {
        "verdict": inspection.verdict,
        "summary": _VERDICTS[inspection.verdict],
        "reasons": inspection.reasons,
        "notes": inspection.notes,
        "findings": [list(pair) for pair in inspection.table()],
    }


def headline(
    clf: UnbagClassifier,
    evaluation: Evaluation | None,
    table: ClassPriors,
    training_counts: _Ints | None,
) -> dict[str, Any]:
    """Collect the numbers to read first."""
    size = {"bags": table.n_bags, "classes": table.n_classes}
    if training_counts is not None:
        size["training_rows"] = int(training_counts.sum())
    if evaluation is None:
        return {**size, "missing": _NOT_EVALUATED}
    most_common = int(np.argmax(evaluation.test_prior))
    more = evaluation.probabilities
    return {
        **size,
        "held_out_rows": evaluation.n_rows,
        "held_out_bags": evaluation.n_bags,
        "level": evaluation.level,
        "sampling": evaluation.sampling,
        "accuracy": evaluation.accuracy,
        "balanced_accuracy": evaluation.balanced_accuracy,
        "macro_f1": evaluation.macro_f1,
        "cost": evaluation.cost,
        "log_loss": None if more is None else more.log_loss,
        "brier": None if more is None else more.brier,
        "auc": None if more is None or more.roc is None else more.roc.auc,
        "most_common_class": text(clf.classes_[most_common]),
        "most_common_share": float(evaluation.test_prior[most_common]),
    }


def priors(
    table: ClassPriors, training_counts: _Ints | None, counts: _Ints | None
) -> dict[str, Any]:
    """Θ, and the rows of every bag."""
    return {
        "bags": [text(bag) for bag in table.bag_ids],
        "classes": [text(name) for name in table.classes],
        "shares": table.values,
        "training_rows": training_counts,
        "held_out_rows": counts,
    }


def training(
    clf: UnbagClassifier, evaluation: Evaluation | None, watched: Evaluation | None
) -> dict[str, Any]:
    """Take the history, partial risks summarised."""
    history: dict[str, _Floats] = getattr(clf, "history_", None) or {}
    if not history.keys() >= _HISTORY or len(history["epoch"]) == 0:
        return {"missing": "The history of the training is not known."}
    found: dict[str, Any] = {
        "epoch": history["epoch"].astype(np.int64),
        "objective": history["objective"],
        "empirical_risk": history["empirical_risk"],
        "negative_share": history["negative_share"],
        "partial_risks": _partial_risks(history["partial_risks"], clf.priors_.values),
        "stop_reason": clf.stop_reason_,
        "best_epoch": clf.best_epoch_,
        "epochs": int(clf.n_iter_),
    }
    for name in ("label_free_error", "test_error"):
        if name in history:
            found[name] = history[name]
    if watched is not None:
        found["label_free_half_width"] = (watched.error.high - watched.error.low) / 2
    if evaluation is not None:
        found["final_error"] = evaluation.error
    return found


def _partial_risks(risks: _Floats, theta: _Floats) -> dict[str, list[float]]:
    """Mean over bags of Σ_k θ_mk R_mk, smallest and largest R_mk, of risks (T, M, K)."""
    found: dict[str, list[float]] = {"mean": [], "smallest": [], "largest": []}
    for table in risks:  # one epoch at a time: the whole may be large
        seen = np.isfinite(table)  # a bag may be in no batch of an epoch
        known, weight = table[seen], theta[seen]
        mean = weight @ known / weight.sum() if weight.any() else np.nan
        found["mean"].append(float(mean))
        found["smallest"].append(float(known.min(initial=np.inf)))
        found["largest"].append(float(known.max(initial=-np.inf)))
    return found


def confusion(
    evaluation: Evaluation | None,
    table: ClassPriors,
    bag_index: _Ints | None,
    predicted: _Ints | None,
) -> dict[str, Any]:
    """Give the confusion matrix, raw and projected, and the numbers of every class."""
    if evaluation is None:
        return {"missing": _NOT_EVALUATED}
    low, high = _cell_intervals(evaluation, table, bag_index, predicted)
    return {
        "classes": [text(name) for name in evaluation.classes],
        "level": evaluation.level,
        "projected": evaluation.projected["confusion"],
        "raw": evaluation.confusion,
        "low": low,
        "high": high,
        "test_prior": evaluation.test_prior,
        "recall": evaluation.recall,
        "precision": evaluation.precision,
        "f1": evaluation.f1,
        "predicted_share": evaluation.predicted_share,
    }


def _cell_intervals(
    evaluation: Evaluation, table: ClassPriors, bag_index: _Ints | None, predicted: _Ints | None
) -> tuple[_Floats | None, _Floats | None]:
    """Make intervals of the raw confusion matrix: lower and upper ends, (K, K).

    Those of the diagonal are the score intervals of the recalls; the others are plain, with the
    variance at the projected confusion matrix: an entry is Σ_m L_ym V_mk. For the inverse of least
    variance there are none.
    """
    if bag_index is None or predicted is None or evaluation.inverse == "least-variance":
        return None, None
    counts = np.bincount(bag_index, minlength=table.n_bags)
    rest, n = table.subset(counts > 0), counts[counts > 0].astype(np.float64)
    inverse = LeftInverse(rest, n, evaluation.inverse).matrix  # (K, M)
    columns = evaluation.projected["confusion"].T  # (K, K): row k is column k of C
    sample = BagSample.of(rest, n, evaluation.sampling, evaluation.held_out_share)
    spread = sample.share_variance(columns)  # (K, M)
    variance = evaluation.design_effect * (inverse**2 @ spread.T)
    half = float(stats.norm.ppf(0.5 + evaluation.level / 2)) * np.sqrt(variance)
    low = np.clip(evaluation.confusion - half, 0, 1)
    high = np.clip(evaluation.confusion + half, 0, 1)
    np.fill_diagonal(low, [recall.low for recall in evaluation.recall])
    np.fill_diagonal(high, [recall.high for recall in evaluation.recall])
    return low, high


def bag_shares(
    table: ClassPriors, bag_index: _Ints | None, predicted: _Ints | None
) -> dict[str, Any]:
    """Predicted share of every class in every bag; None for a bag without held-out rows."""
    if bag_index is None or predicted is None:
        return {"missing": "There are no predictions of held-out rows."}
    m, k = table.values.shape
    counts = np.bincount(bag_index * k + predicted, minlength=m * k).reshape(m, k)
    rows = counts.sum(1, keepdims=True)
    shares = counts / np.where(rows > 0, rows, np.nan)
    middle = (shares + table.values) / 2  # never 0 or 1 where the two differ
    error = np.sqrt(middle * (1 - middle) / np.maximum(rows, 1))
    gap = shares - table.values
    scaled = np.abs(gap) / np.where(error > 0, error, np.inf)
    worst = np.argsort(-np.nan_to_num(scaled).ravel(), kind="stable")[:10]
    return {
        "predicted": shares,
        "mean_gap": float(np.nanmean(np.abs(gap))),
        "largest_gaps": [
            {
                "bag": text(table.bag_ids[i // k]),
                "class": text(table.classes[i % k]),
                "known": table.values[i // k, i % k],
                "predicted": shares[i // k, i % k],
                "rows": int(rows[i // k, 0]),
            }
            for i in worst
            if scaled.flat[i] > 0
        ],
    }


def calibration(clf: UnbagClassifier, reliability: Reliability | None) -> dict[str, Any]:
    """Temperature and biases, and how often probabilities come true."""
    found: dict[str, Any] = {
        "temperature": None,
        "biases": None,
        "classes": [text(name) for name in clf.classes_],
        "reliability": {"missing": "Probabilities of held-out rows were not given."},
    }
    if clf.calibration_ is not None:
        found["temperature"] = clf.calibration_.temperature
        found["biases"] = clf.calibration_.biases
    if reliability is not None:
        found["reliability"] = {
            "edges": reliability.edges,
            "overall": vars(reliability.overall),
            "by_class": [vars(curve) for curve in reliability.by_class],
        }
    return found


def hyperparameters(clf: UnbagClassifier) -> dict[str, Any]:
    """Parameters of the classifier that matter for its method, and what the method is."""
    left_out = {"priors", "verbose", "checkpoint", "method"}
    given = {n: v for n, v in clf.get_params(deep=False).items() if n not in left_out}
    given |= clf.settings_
    return {
        "method_summary": METHODS[clf.method_].summary,
        "values": {name: _describe(value) for name, value in given.items()},
    }


def _describe(value: Any) -> Any:
    """Keep plain values, and name objects by their kind: an address means nothing to a reader."""
    if value is None or isinstance(value, bool | int | float | str | np.number):
        return value
    if isinstance(value, dict | list | tuple | np.ndarray):
        return value
    return getattr(value, "__name__", type(value).__name__)

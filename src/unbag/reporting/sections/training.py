"""How the training went."""

from typing import Any

import numpy as np

from unbag.reporting.sources import Floats, Part, Sources, share_part

__all__ = ["training"]

_HISTORY = {"epoch", "objective", "empirical_risk", "negative_share", "partial_risks"}


def training(sources: Sources) -> Part | None:
    """Give the history, partial risks summarised; a curve without any number is None."""
    clf = sources.clf
    history: dict[str, Floats] = getattr(clf, "history_", None) or {}
    if not history.keys() >= _HISTORY or len(history["epoch"]) == 0:
        return None
    if not sources.is_network:  # its history is not that of an objective
        return {
            "stop_reason": clf.stop_reason_,
            "epoch": None,
            "final_error": _final_error(sources),
        }
    part: Part = {
        "epoch": history["epoch"].astype(np.int64),
        "partial_risks": _partial_risks(history["partial_risks"], clf.priors_.values),
        "stop_reason": clf.stop_reason_,
        "best_epoch": clf.best_epoch_,
        "epochs": int(clf.n_iter_),
        "label_free_half_width": None,
        "final_error": _final_error(sources),
    }
    for name in ("objective", "empirical_risk", "negative_share", "label_free_error", "test_error"):
        values = history.get(name)
        part[name] = values if values is not None and np.isfinite(values).any() else None
    if sources.watched is not None:
        low, high = sources.watched.error.interval
        part["label_free_half_width"] = (high - low) / 2
    return part


def _final_error(sources: Sources) -> Part | None:
    evaluation = sources.evaluation
    return None if evaluation is None else share_part(evaluation.error, evaluation.level)


def _partial_risks(risks: Floats, theta: Floats) -> dict[str, Any] | None:
    """Mean over bags of Σ_k θ_mk R_mk, smallest and largest R_mk, of risks (T, M, K)."""
    if not np.isfinite(risks).any():
        return None
    summary: dict[str, list[float]] = {"mean": [], "smallest": [], "largest": []}
    for table in risks:  # one epoch at a time: the whole may be large
        seen = np.isfinite(table)  # a bag may be in no batch of an epoch
        known, weight = table[seen], theta[seen]
        mean = weight @ known / weight.sum() if weight.any() else np.nan
        summary["mean"].append(float(mean))
        summary["smallest"].append(float(known.min(initial=np.inf)))
        summary["largest"].append(float(known.max(initial=-np.inf)))
    return summary

"""Bags and their known shares: the check before the start, and what predictions make of them."""

import numpy as np
from scipy import stats

from unbag.reporting.sources import Floats, Ints, Part, Sources

__all__ = ["bag_shares", "inspection", "priors"]

_FALSE_ALARMS = 0.05  # chance that any gap is listed where predictions match the known shares
_MOST_GAPS = 10


def inspection(sources: Sources) -> Part | None:
    """Give the verdict on bags and shares, with reasons, notes and numbers."""
    result = sources.inspection
    if result is None:
        return None
    return {
        "verdict": result.verdict,
        "summary": f"{result.meaning.capitalize()}{':' if result.reasons else '.'}",
        "reasons": result.reasons,
        "notes": result.notes,
        "findings": [list(pair) for pair in result.table()],
    }


def priors(sources: Sources) -> Part:
    """Give the known shares Θ and the rows of every bag."""
    return {
        "bags": sources.bags,
        "classes": sources.classes,
        "shares": sources.priors.values,
        "training_rows": sources.training_rows,
        "held_out_rows": sources.held_out_rows,
    }


def bag_shares(sources: Sources) -> Part | None:
    """Give the predicted share of every class in every bag, and the gaps that are no chance."""
    if sources.bag_index is None or sources.predicted is None:
        return None
    theta = sources.priors.values
    shares, rows = _predicted_shares(sources.bag_index, sources.predicted, theta.shape)
    gap = shares - theta  # (M, K)
    middle = (shares + theta) / 2  # never 0 or 1 where the two differ
    error = np.sqrt(middle * (1 - middle) / np.maximum(rows, 1))
    scaled = np.nan_to_num(np.abs(gap) / np.where(error > 0, error, np.inf))
    clear = scaled > stats.norm.isf(_FALSE_ALARMS / 2 / gap.size)
    order = np.argsort(-scaled, axis=None, kind="stable")[: min(_MOST_GAPS, clear.sum())]
    listed = zip(*np.unravel_index(order, gap.shape), strict=True)
    return {
        "predicted": shares,
        "mean_gap": float(np.nanmean(np.abs(gap))),
        "beyond_chance": clear,
        "largest_gaps": [
            {
                "bag": sources.bags[m],
                "class": sources.classes[k],
                "known": theta[m, k],
                "predicted": shares[m, k],
                "rows": int(rows[m, 0]),
            }
            for m, k in listed
        ],
    }


def _predicted_shares(
    bag_index: Ints, predicted: Ints, shape: tuple[int, ...]
) -> tuple[Floats, Ints]:
    """(M, K) predicted shares, NaN for a bag without held-out rows, and (M, 1) its rows."""
    m, k = shape
    counts = np.bincount(bag_index * k + predicted, minlength=m * k).reshape(m, k)
    rows = counts.sum(1, keepdims=True)
    return counts / np.where(rows > 0, rows, np.nan), rows

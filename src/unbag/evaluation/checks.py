"""Checks of what an evaluation is given."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.ids import id_array, index_ids, match_ids
from unbag.priors import ClassPriors, match_bags
from unbag.validation import as_float_array, invalid, shorten

__all__ = ["check_clusters", "check_cost", "check_held_out_share", "check_predictions"]

_Floats = NDArray[np.float64]


def check_predictions(
    given: Any, chances: _Floats | None, n: int, table: ClassPriors
) -> NDArray[np.int64]:
    """Give the position of the predicted class of every row, (n,)."""
    if given is None:
        if chances is None:
            raise invalid("y_pred", "predictions, or None with probabilities", "neither")
        return np.asarray(chances.argmax(1), dtype=np.int64)
    predicted = table.encode_classes("y_pred", given)
    if len(predicted) != n:
        raise invalid("y_pred", f"one class for each of {n} rows", f"{len(predicted)}")
    return predicted


def check_held_out_share(given: Any, table: ClassPriors) -> _Floats | None:
    """Give the share of each bag that is evaluated, (M,)."""
    if given is None:
        return None
    if table.shares_of != "rows":
        allowed = "left out unless shares_of is 'rows'"
        remedy = "rows that were drawn freely stay so in every part of them."
        raise invalid("held_out_share", allowed, f"shares_of={table.shares_of!r}", remedy)
    if hasattr(given, "keys"):
        given = np.array(list(given.values()))[match_bags("held_out_share", list(given), table)]
    shares = as_float_array("held_out_share", np.atleast_1d(np.asarray(given)), ndim=1)
    if len(shares) not in (1, table.n_bags):
        raise invalid("held_out_share", f"one number or {table.n_bags}, one per bag", len(shares))
    if not (np.isfinite(shares).all() and (shares > 0).all() and (shares <= 1).all()):
        raise invalid("held_out_share", "above 0 and at most 1", shorten(shares))
    return np.broadcast_to(shares, (table.n_bags,)).copy()


def check_cost(given: Any, table: ClassPriors) -> _Floats | None:
    """Give the table of costs, (K, K)."""
    if given is None:
        return None
    cost = as_float_array("cost", given, ndim=2)
    k = table.n_classes
    if cost.shape != (k, k):
        raise invalid("cost", f"an array of shape ({k}, {k})", f"shape {cost.shape}")
    if not np.isfinite(cost).all():
        raise invalid("cost", "finite", "NaN or infinite numbers")
    return cost


def check_clusters(row_ids: Any, n: int) -> NDArray[np.int64]:
    """Give the number of the record of every row, (n,)."""
    ids = id_array("row_ids", row_ids)
    if len(ids) != n:
        raise invalid("row_ids", f"one for each of {n} rows", len(ids))
    mixed = ids.dtype == object  # ids of several kinds have no order
    distinct = id_array("row_ids", dict.fromkeys(ids.tolist())) if mixed else np.unique(ids)
    return match_ids("row_ids", ids, index_ids("row_ids", distinct), what="ids of rows")

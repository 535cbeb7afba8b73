"""Rows whose class is known, beside bags: each class of them is a bag of its own."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.bags import Bags
from unbag.ids import id_array, missing_ids
from unbag.priors import ClassPriors, ShareErrors
from unbag.validation import invalid

__all__ = ["read_labels", "with_labels"]

_UNKNOWN = -1  # the label of rows whose class is not known
_Floats = NDArray[np.float64]


def read_labels(labels: Any, table: ClassPriors, n_rows: int) -> NDArray[np.int64] | None:
    """Find the position of the class of every row, -1 where it is missing; None if all are.

    Examples
    --------
    >>> table = ClassPriors([[0.5, 0.5]], classes=["no", "yes"])
    >>> read_labels([None, "yes", np.nan, "no"], table, 4)
    array([-1,  1, -1,  0])
    """
    given = id_array("labels", labels)
    if len(given) != n_rows:
        raise invalid("labels", f"of length {n_rows}, one for each row", f"length {len(given)}")
    known = ~missing_ids(given)
    if not known.any():
        return None
    values = given[known]
    # Whole numbers became floats where some are missing.
    if values.dtype.kind == "f" and table.classes.dtype.kind in "iu":
        whole = values.astype(np.int64)
        values = whole if (whole == values).all() else values
    codes = np.full(n_rows, _UNKNOWN)
    remedy = "rows without a label have None or NaN."
    codes[known] = table.encode_classes("labels", values, remedy=remedy)
    return codes


def with_labels(bags: Bags, labels: NDArray[np.int64]) -> Bags:
    r"""Move labelled rows to further bags, one per class, of which they are all.

    The shares of the rows that remain in a bag of n rows, l of them labelled, are
    :math:`(n \theta - l_k) / (n - l)`; those of a population stay as they are.

    Parameters
    ----------
    bags : Bags
    labels : integer array of shape (n,)
        Position of the class of every row, or -1.

    Examples
    --------
    >>> bags = Bags(np.zeros((4, 1)), ["a", "a", "a", "a"], {"a": [0.5, 0.5]})
    >>> known = with_labels(bags, np.array([-1, -1, 1, -1]))
    >>> known.bag_index, known.priors.values.round(2)
    (array([0, 0, 1, 0]), array([[0.67, 0.33],
           [0.  , 1.  ]]))
    """
    table, known = bags.priors, labels != _UNKNOWN
    theta, (m, k) = table.values, table.values.shape
    if table.shares_of != "population":
        counts = np.zeros((m, k))
        np.add.at(counts, (bags.bag_index[known], labels[known]), 1)
        left = np.maximum(bags.counts[:, None] * theta - counts, 0)
        theta = np.where(left.any(1, keepdims=True), left, theta)
    errors = table.errors
    if errors is not None:
        none = np.zeros((k, k))
        parts = np.vstack([errors.variances, none]), np.vstack([errors.weights, none])
        errors = ShareErrors(*parts)
    moved = bags.take(np.arange(bags.n_rows))
    moved.bag_index = np.where(known, m + labels, bags.bag_index)
    moved.priors = ClassPriors(
        np.vstack([theta, np.eye(k)]),
        classes=table.classes,
        normalize=True,
        errors=errors,
        shares_of=table.shares_of,
    )
    moved.whole_counts = moved.counts
    return moved.present()

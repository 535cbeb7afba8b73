"""Rows whose class is known, beside bags: each class of them is a bag of its own."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.ids import id_array, missing_ids
from unbag.priors.errors import ShareErrors
from unbag.priors.table import ClassPriors
from unbag.validation import invalid

__all__ = ["read_labels", "with_labelled"]

_UNKNOWN = -1  # the label of rows whose class is not known
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


def read_labels(labels: Any, table: ClassPriors, n_rows: int) -> _Ints | None:
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


def with_labelled(
    table: ClassPriors, bag_index: _Ints, labels: _Ints, whole: _Floats | None = None
) -> tuple[ClassPriors, _Ints]:
    r"""Move labelled rows to K further bags, one per class, of which they are all.

    Where shares are those of N rows, l of them labelled, those of the rest are
    :math:`(N \theta_k - l_k) / (N - l)`.

    Parameters
    ----------
    table : ClassPriors
    bag_index, labels : integer arrays of shape (n,)
        Bag of every row, and the position of its class or -1.
    whole : array of shape (M,), optional
        N of every bag; None where shares are those of a population, which stay as they are.

    Returns
    -------
    table : ClassPriors
        Of M + K bags.
    bag_index : integer array of shape (n,)

    Examples
    --------
    >>> table, labels = ClassPriors([[0.5, 0.5]], ["a"], ["no", "yes"]), np.array([-1, -1, 1, -1])
    >>> moved, index = with_labelled(table, np.zeros(4, int), labels, np.array([4.0]))
    >>> moved.values.round(2), str(moved.bag_ids[2]), index
    (array([[0.67, 0.33],
           [1.  , 0.  ],
           [0.  , 1.  ]]), "labelled 'yes'", array([0, 0, 2, 0]))
    """
    known = labels != _UNKNOWN
    theta, (m, k) = table.values, table.values.shape
    if whole is not None:
        counts = np.zeros((m, k))
        np.add.at(counts, (bag_index[known], labels[known]), 1)
        left = np.maximum(whole[:, None] * theta - counts, 0)
        theta = np.where(left.any(1, keepdims=True), left, theta)
    errors = table.errors
    if errors is not None:
        none = np.zeros((k, k))
        parts = np.vstack([errors.variances, none]), np.vstack([errors.weights, none])
        guessed = np.concatenate([errors.is_guess, np.zeros(k, bool)])
        errors = ShareErrors(*parts, guessed)
    taken = set(map(str, table.bag_ids.tolist()))
    names = [f"labelled {name!r}" for name in table.classes.tolist()]
    while taken & set(names):
        names = [f"rows {name}" for name in names]
    moved = ClassPriors(
        np.vstack([theta, np.eye(k)]),
        [*table.bag_ids.tolist(), *names],
        table.classes,
        normalize=True,
        errors=errors,
        shares_of=table.shares_of,
    )
    return moved, np.where(known, m + labels, bag_index)

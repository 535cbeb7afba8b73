"""Model selection without labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils.validation import indexable

from unbag.estimator import UnbagClassifier
from unbag.ids import id_array
from unbag.validation import arrow_table, check_choice, invalid, is_frame, is_table

__all__ = ["cross_val_predict"]


def cross_val_predict(
    estimator: UnbagClassifier,
    X: Any,
    y: Any,
    *,
    cv: Any = None,
    method: str = "predict_proba",
) -> NDArray[Any]:
    """Predict every row by a model that was fitted without it.

    scikit-learn's function of this name re-encodes ``y`` for probabilities, so bag ids would no
    longer match the priors; this one keeps them.

    Parameters
    ----------
    estimator : UnbagClassifier, or a Pipeline that ends in one
    X : array or table of shape (n, ...)
    y : array of shape (n,)
        Bag id of every row.
    cv : int or splitter, optional
        Folds, by default five, stratified by bag.
    method : {"predict_proba", "predict"}

    Returns
    -------
    array of shape (n, K) or (n,)
    """
    check_choice("method", method, ["predict_proba", "predict"])
    if is_table(X) and not is_frame(X):
        X = arrow_table("X", X)
    X, ids = indexable(np.asarray(X) if isinstance(X, list) else X, id_array("y", y))
    folds = list(check_cv(cv, ids, classifier=True).split(X, ids))
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=len(ids))
    if (times != 1).any():
        raise invalid("cv", "a splitter whose test folds hold every row once", repr(cv))
    take = X.take if is_table(X) and not is_frame(X) else X.__getitem__
    take = X.iloc.__getitem__ if hasattr(X, "iloc") else take
    result: NDArray[Any] | None = None
    for train, test in folds:
        fitted = clone(estimator).fit(take(train), ids[train])
        part = getattr(fitted, method)(take(test))
        if result is None:
            result = np.empty((len(ids), *part.shape[1:]), dtype=part.dtype)
        result[test] = part
    assert result is not None
    return result

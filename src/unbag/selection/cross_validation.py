"""Model selection without labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils.validation import indexable

from unbag.estimator import UnbagClassifier
from unbag.ids import id_array
from unbag.validation import check_choice, invalid

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
    X : array of shape (n, ...)
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
    X, ids = indexable(np.asarray(X) if isinstance(X, list) else X, id_array("y", y))
    folds = list(check_cv(cv, ids, classifier=True).split(X, ids))
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=len(ids))
    if (times != 1).any():
        raise invalid("cv", "a splitter whose test folds hold every row once", repr(cv))
    take = X.iloc.__getitem__ if hasattr(X, "iloc") else X.__getitem__
    result: NDArray[Any] | None = None
    for train, test in folds:
        fitted = clone(estimator).fit(take(train), ids[train])
        part = getattr(fitted, method)(take(test))
        if result is None:
            result = np.empty((len(ids), *part.shape[1:]), dtype=part.dtype)
        result[test] = part
    assert result is not None
    return result

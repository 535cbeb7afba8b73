"""Checks and scaling of what the classifier is given."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data
from torch import Tensor

from unbag.exceptions import InvalidInputError
from unbag.ids import id_array, index_ids, match_ids, natural_ids
from unbag.priors import ClassPriors
from unbag.training import TestSet
from unbag.validation import detached, invalid

__all__ = ["CheckedInputs", "pure"]


class CheckedInputs(BaseEstimator):  # type: ignore[misc]
    """Base of the classifier: rows, bag ids and priors from what a user gives."""

    priors: Any
    precision: str
    standardize: bool
    row_shape_: tuple[int, ...]
    bytes_: bool

    def _check_rows(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        if y is None:
            message = (
                f"{type(self).__name__} requires y to be passed, but the target y is None; y is "
                "the bag id of every row."
            )
            raise InvalidInputError(message)
        X = self._validate(X, reset=True)
        # scikit-learn's conversion would merge kinds of ids, such as 1 and "a".
        ids = column_or_1d(y, warn=True) if getattr(y, "ndim", 1) == 2 else id_array("y", y)
        check_consistent_length(X, ids)
        if self.priors is None:
            ids = natural_ids(ids) if ids.dtype == object else ids
            if ids.dtype.kind == "f":
                assert_all_finite(ids, input_name="y")
            check_classification_targets(ids)
        return X, ids

    def _validate(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """Rows as an array of numbers; images of bytes stay bytes."""
        if isinstance(X, Tensor):
            X = X.detach().cpu()
            X = (X.float() if X.dtype in (torch.bfloat16, torch.float16) else X).numpy()
        image = np.ndim(X) > 2 if isinstance(X, np.ndarray) else False
        bytes_ = image and X.dtype == np.uint8
        X = validate_data(
            self,
            X,
            reset=reset,
            dtype=np.uint8 if bytes_ else [np.float64, np.float32],
            ensure_2d=not image,
            allow_nd=True,
        )
        if not reset:
            if X.shape[1:] != self.row_shape_:
                raise invalid("X", f"of rows of shape {self.row_shape_}", f"shape {X.shape[1:]}")
            if bytes_ != self.bytes_:
                allowed = "of bytes (uint8), as in fit" if self.bytes_ else "of floats, as in fit"
                raise invalid("X", allowed, f"type {X.dtype}", "pixels would be scaled otherwise.")
        return np.asarray(X)

    def _check_priors(self, ids: NDArray[Any]) -> ClassPriors:
        if self.priors is not None:
            return ClassPriors.of(self.priors)
        classes = np.unique(ids)
        if len(classes) < 2:
            message = (
                f"UnbagClassifier needs at least 2 classes, got {len(classes)} class; give "
                "priors, or rows of another class."
            )
            raise InvalidInputError(message)
        return pure(classes)

    def _check_test_set(
        self,
        given: tuple[Any, Any] | None,
        table: ClassPriors,
        X: NDArray[Any],
        scaler: StandardScaler | None,
    ) -> TestSet | None:
        if given is None:
            return None
        if not isinstance(given, tuple) or len(given) != 2:
            raise invalid("test_set", "a pair (X, labels)", type(given).__name__)
        rows = np.asarray(detached(given[0]))
        if rows.shape[1:] != X.shape[1:]:
            raise invalid("test_set", f"of rows of shape {X.shape[1:]}", f"{rows.shape[1:]}")
        known = index_ids("classes", table.classes)
        what = "labelled with classes"
        labels = match_ids("test_set", given[1], known, source="its labels have", what=what)
        return TestSet(self._scale(rows, scaler), labels)

    def _fit_scaler(self, X: NDArray[Any]) -> StandardScaler | None:
        tabular = self.standardize and X.dtype != np.uint8
        return StandardScaler().fit(X.reshape(len(X), -1)) if tabular else None

    def _scale(self, X: NDArray[Any], scaler: StandardScaler | None) -> NDArray[Any]:
        if X.dtype == np.uint8:
            return X
        if scaler is not None:
            X = scaler.transform(X.reshape(len(X), -1)).reshape(X.shape)
        dtype = np.float64 if self.precision == "float64" else np.float32
        if len(X) and np.abs(X).max() > np.finfo(dtype).max:
            remedy = "scale the features, or use precision='float64'."
            raise invalid("X", f"within the range of {dtype.__name__}", "larger values", remedy)
        return np.asarray(X, dtype=dtype)


def pure(classes: NDArray[Any]) -> ClassPriors:
    """Bags of one class each, named by it."""
    return ClassPriors(np.eye(len(classes)), classes, classes)

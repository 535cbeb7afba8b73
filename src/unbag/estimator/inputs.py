"""Checks and scaling of what the classifier is given: its parameters and rows."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import assert_all_finite, check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor, nn

from unbag.bags import Bags
from unbag.exceptions import BagColumnWarning, InvalidInputError
from unbag.identity import select
from unbag.ids import id_array, natural_ids
from unbag.inspection.alike import columns_of_bags
from unbag.methods import Auto, Method, get_method
from unbag.models import ModuleFactory
from unbag.priors import ClassPriors
from unbag.rows import Rows
from unbag.training import TestSet
from unbag.validation import detached, invalid, is_table, reads_tables, shorten

__all__ = ["CheckedInputs", "pure", "without_columns_of_bags"]

_PART_ROWS = 8192


class CheckedInputs(BaseEstimator):  # type: ignore[misc]
    """Base of the classifier: method, network, rows, bag ids and priors as a user gives them."""

    priors: Any
    method: str | Method
    learner: Any
    model: str | nn.Module | ModuleFactory
    depth: int | None
    width: int
    dropout: float
    precision: str
    standardize: bool
    warm_start: bool
    classes_: NDArray[Any]
    module_: nn.Module
    row_shape_: tuple[int, ...]
    bytes_: bool
    encoding_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_rows(
        self, X: Any, y: Any, bag: str | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], Any]:
        """Rows as numbers, their bag ids, and how the columns of a table became these rows."""
        if y is None and bag is None:
            message = (
                f"{type(self).__name__} requires y to be passed, but the target y is None; y is "
                "the bag id of every row. For a table, bag= may name the column of bag ids instead."
            )
            raise InvalidInputError(message)
        if y is not None and bag is not None:
            raise invalid("y", "left out where bag names the column of bag ids", "both")
        y = detached("y", y)
        encoding = None
        if bag is not None or is_table(X):
            from unbag.io.frames import encode_frame, is_encoded  # pyarrow, for tables alone

            if bag is not None or is_encoded(X, y):
                read = encode_frame(X, y, bag=bag)
                X, encoding = read.X, read.encoding
                y = y if bag is None else read.bag_ids
                self._remember_columns(encoding)
        if encoding is None:
            X = self._validate(X, reset=True)
        # scikit-learn's conversion would merge kinds of ids, such as 1 and "a".
        ids = column_or_1d(y, warn=True) if getattr(y, "ndim", 1) == 2 else id_array("y", y)
        check_consistent_length(X, ids)
        if self.priors is None:
            ids = natural_ids(ids) if ids.dtype == object else ids
            if ids.dtype.kind == "f":
                assert_all_finite(ids, input_name="y")
            check_classification_targets(ids)
        return X, ids, encoding

    @staticmethod
    def _check_weight(
        given: Any, X: NDArray[Any]
    ) -> tuple[NDArray[np.float64] | None, NDArray[np.bool_]]:
        """Weights of the rows, and which are used: those of weight 0 are not."""
        if given is None:
            return None, np.ones(len(X), dtype=bool)
        weight = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
        if not (weight > 0).any():
            raise invalid("sample_weight", "positive for at least one row", "zero for all")
        return weight, weight > 0

    def _make_bags(
        self, X: NDArray[Any], ids: NDArray[Any], encoding: Any, keep: Sequence[str]
    ) -> Bags:
        bags = Bags(X, ids, self._check_priors(ids), encoding=encoding)
        bags = without_columns_of_bags(bags, keep)
        if encoding is not None:
            self._remember_columns(bags.encoding)
        return bags

    def _remember_columns(self, encoding: Any) -> None:
        """Remember the columns of a table that were learned from."""
        self.feature_names_in_ = np.array(encoding.columns, dtype=object)
        self.n_features_in_ = len(encoding.columns)

    def _encoded(self, X: Any) -> Any:
        """Rows of a table, encoded as in training; anything else as it is."""
        check_is_fitted(self, "module_")
        if not reads_tables(self.encoding_) or isinstance(X, Bags):
            return X
        if is_table(X):
            return self.encoding_.transform(X)
        kind = str(getattr(X, "dtype", type(X).__name__)).removeprefix("torch.")
        if kind != "float32":
            allowed = (
                f"a table with the columns {shorten(self.encoding_.columns)} as in training, or "
                "rows that clf.encoding_.transform gave (float32)"
            )
            raise invalid("X", allowed, f"type {kind}")
        return X

    def _validate(self, X: Any, *, reset: bool) -> NDArray[Any]:
        """Rows as an array of numbers, which fit those of the training."""
        X = _as_array(X)
        if not reset and reads_tables(self.encoding_):  # these are features, not columns
            rows = self._convert(X)
        else:
            rows = np.asarray(validate_data(self, X, reset=reset, **_form(X)))
        if not reset:
            self._check_form(rows)
        return rows

    def _convert(self, X: Any) -> NDArray[Any]:
        """Rows as an array of numbers, whose names were checked or do not matter."""
        X = _as_array(X)
        return np.asarray(check_array(X, input_name="X", estimator=self, **_form(X)))

    def _check_form(self, X: NDArray[Any]) -> None:
        """Refuse rows of another shape or kind than in training."""
        if X.shape[1:] != self.row_shape_:
            raise invalid("X", f"of rows of shape {self.row_shape_}", f"shape {X.shape[1:]}")
        if (X.dtype == np.uint8) != self.bytes_:
            allowed = "of bytes (uint8), as in fit" if self.bytes_ else "of floats, as in fit"
            raise invalid("X", allowed, f"type {X.dtype}", "pixels would be scaled otherwise.")

    def _parts(self, X: Any) -> Iterator[NDArray[Any]]:
        """Yield checked rows, not scaled, some thousand at a time; nothing large is copied."""
        if isinstance(X, Bags):
            self._check_feature_names(X)
            for start in range(0, X.n_rows, _PART_ROWS):
                place = slice(start, start + _PART_ROWS)
                part = self._convert(select(X.source, place if X.rows is None else X.rows[place]))
                self._check_form(part)
                yield part
            return
        whole = not isinstance(X, np.ndarray) or X.ndim < 2
        X = self._validate(X, reset=False) if whole else X
        for start in range(0, max(1, len(X)), _PART_ROWS):
            part = X[start : start + _PART_ROWS]
            if not whole:  # what concerns all rows alike is checked with the first
                part = self._convert(part) if start else self._validate(part, reset=False)
            yield part

    def _check_feature_names(self, bags: Bags) -> None:
        encoding = self.encoding_
        known = getattr(self, "feature_names_in_", None)
        if reads_tables(encoding):
            known = encoding.feature_names
        names = bags.feature_names
        if known is not None and names is not None and list(known) != list(names):
            allowed = f"Bags of the features {shorten(known)} as in training"
            raise invalid("X", allowed, shorten(names))

    def _check_bags(self, bags: Any, held_out: Any) -> None:
        """Check what ``fit_bags`` is given, and remember the features."""
        for name, given in (("bags", bags), ("held_out", held_out)):
            if not isinstance(given, Bags) and not (name == "held_out" and given is None):
                raise invalid(name, "of type Bags", type(given).__name__)
        if self.priors is not None:
            expected, table = ClassPriors.of(self.priors), bags.priors
            same = list(expected.classes) == list(table.classes)
            if not (
                same and (expected.values[expected.encode(table.bag_ids)] == table.values).all()
            ):
                remedy = "use priors=None: bags bring their own."
                raise invalid("priors", "None, or those of the bags", "another table", remedy)
        if reads_tables(bags.encoding):
            self._remember_columns(bags.encoding)
            return
        self._validate(bags.source[:1], reset=True)
        if bags.feature_names is not None:
            self.feature_names_in_ = np.array(bags.feature_names, dtype=object)

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
        row_shape: tuple[int, ...],
        scaler: StandardScaler | None,
        encoding: Any = None,
    ) -> TestSet | None:
        if given is None:
            return None
        if not isinstance(given, tuple) or len(given) != 2:
            raise invalid("test_set", "a pair (X, labels)", type(given).__name__)
        tables = reads_tables(encoding) and is_table(given[0])
        rows = encoding.transform(given[0]) if tables else detached("test_set", given[0])
        rows = np.asarray(rows)
        if rows.shape[1:] != row_shape:
            raise invalid("test_set", f"of rows of shape {row_shape}", f"{rows.shape[1:]}")
        what, source = "labelled with classes of the priors", "its labels have"
        labels = table.encode_classes("test_set", given[1], what=what, source=source)
        return TestSet(self._scale(rows, scaler), labels)

    def _fit_scaler(self, bags: Bags) -> StandardScaler | None:
        if not self.standardize or _type_name(bags.source) == "uint8":
            return None
        if reads_tables(bags.encoding):  # it has done so
            return None
        X = self._copy_rows(bags)
        return StandardScaler().fit(X.reshape(len(X), -1))

    def _for_network(self, bags: Bags, scaler: StandardScaler | None) -> Bags:
        """Bags whose rows the network takes: these, if nothing has to change, else a copy."""
        ready = "float64" if self.precision == "float64" else "float32"
        if scaler is None and _type_name(bags.source) in (ready, "uint8"):
            return bags
        return bags.with_rows(self._scale(self._copy_rows(bags), scaler))

    def _copy_rows(self, bags: Bags) -> NDArray[Any]:
        # Not bags.X, which would be kept as long as the bags are.
        return self._convert(bags.source if bags.rows is None else select(bags.source, bags.rows))

    def _scale(self, X: NDArray[Any], scaler: StandardScaler | None) -> NDArray[Any]:
        if X.dtype == np.uint8:
            return X
        if scaler is not None:
            X = scaler.transform(X.reshape(len(X), -1)).reshape(X.shape)
        dtype = np.float64 if self.precision == "float64" else np.float32
        if len(X) and max(X.max(), -X.min()) > np.finfo(dtype).max:
            remedy = "scale the features, or use precision='float64'."
            raise invalid("X", f"within the range of {dtype.__name__}", "larger values", remedy)
        return np.asarray(X, dtype=dtype)

    def _resolved_method(self) -> Method:
        """Return the method as an object; one training where it goes on from the last fit."""
        learner = {} if self.learner is None else {"learner": self.learner}
        method = get_method(self.method, **learner)
        if not self._goes_on():
            return method
        if not method.is_single:
            allowed = f"False with method={method.name!r}"
            remedy = "its folds must not start from a network that has seen their rows."
            raise invalid("warm_start", allowed, True, remedy)
        return replace(method, one_training=True) if isinstance(method, Auto) else method

    def _model_options(self) -> dict[str, Any]:
        options = {"depth": self.depth, "width": self.width, "dropout": self.dropout}
        if self.depth is None:  # the effort decides
            del options["depth"]
        return options if self.model == "mlp" else {}

    def _goes_on(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "module_")

    def _initial_model(self, classes: NDArray[Any]) -> str | nn.Module | ModuleFactory:
        if self._goes_on():
            if not np.array_equal(self.classes_, classes):
                allowed = f"of the classes of the last fit, {shorten(self.classes_)}"
                remedy = "fit a new estimator, or set warm_start=False."
                raise invalid("priors", allowed, shorten(classes), remedy)
            module: nn.Module = self.module_
            return module
        return self.model


def without_columns_of_bags(bags: Bags, keep: Sequence[str] = ()) -> Bags:
    """Leave out columns of a table that tell which bag a row is in, with a warning."""
    encoding = bags.encoding
    if not reads_tables(encoding):
        if keep:
            raise invalid("keep", "left out where rows are numbers alone", shorten(keep))
        return bags
    if unknown := sorted({*keep} - {*encoding.columns, *encoding.left_out}):
        raise invalid("keep", "columns of X", shorten(unknown))
    found = columns_of_bags(bags.X, bags.bag_index, bags.priors, encoding.feature_columns)
    reasons = {name: reason for name, reason in found.items() if name not in keep}
    if not reasons or len(reasons) == len(encoding.columns):
        return bags
    told = "; ".join(f"{name!r}: {reason}" for name, reason in reasons.items())
    warnings.warn(
        f"Columns are left out: {told}. To use them anyway, pass keep={[*reasons]} to fit, or give "
        "Bags of the rows.",
        BagColumnWarning,
        stacklevel=4,
    )
    rest, left = encoding.without(reasons)
    return Bags(bags.X[:, left], bags.bag_ids, bags.priors, encoding=rest)


def pure(classes: NDArray[Any]) -> ClassPriors:
    """Bags of one class each, named by it."""
    return ClassPriors(np.eye(len(classes)), classes, classes)


def _as_array(X: Any) -> Any:
    """Tensors and sparse matrices as arrays; anything else as it is."""
    if X is None:
        raise invalid("X", "rows of shape (n, d) or images", "None")
    if hasattr(X, "toarray"):  # a sparse matrix
        return X.toarray()
    if not isinstance(X, Tensor):
        return X
    X = detached("X", X)
    return (X.float() if X.dtype in (torch.bfloat16, torch.float16) else X).numpy()


def _form(X: Any) -> dict[str, Any]:
    """Options of scikit-learn's check: images of bytes stay bytes, all else becomes floats."""
    image = isinstance(X, np.ndarray) and X.ndim > 2
    bytes_ = image and X.dtype == np.uint8
    dtype = np.uint8 if bytes_ else [np.float64, np.float32]
    return {"dtype": dtype, "ensure_2d": not image, "allow_nd": True}


def _type_name(rows: Rows) -> str:
    """Name of the numbers' type; that of bytes in tables, which become floats, is not uint8."""
    name = str(rows.dtype).removeprefix("torch.")
    return "a table of bytes" if name == "uint8" and rows.ndim == 2 else name

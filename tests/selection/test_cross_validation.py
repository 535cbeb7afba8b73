"""Predictions of each row by a model that was fitted without it."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.model_selection import KFold, PredefinedSplit, ShuffleSplit
from sklearn.model_selection import cross_val_predict as sklearn_cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag import UnbagClassifier, cross_val_predict
from unbag.exceptions import InvalidInputError

K = 3
IDS = np.array(["north", "south", "east"])  # not in alphabetical order
CLASSES = ["yes", "no", "maybe"]
TABLE = pd.DataFrame(unbag.priors.asymmetric(K, 0), index=IDS, columns=CLASSES)


@pytest.fixture(scope="module")
def data():
    X, y = load_iris(return_X_y=True)
    bags = unbag.make_bags(X, y, TABLE.to_numpy(), sizes=[40, 45, 50], random_state=0)
    order = np.random.default_rng(0).permutation(bags.n_rows)
    return np.asarray(bags.X)[order], IDS[bags.bag_index][order]


def make():
    return UnbagClassifier(TABLE, "prop", model="linear", epochs=2, random_state=0)


@pytest.mark.parametrize("method", ["predict_proba", "predict"])
def test_it_is_the_loop_over_folds(data, method):
    X, ids = data
    folds = KFold(3, shuffle=True, random_state=0)
    result = cross_val_predict(make(), X, ids, cv=folds, method=method)
    for train, test in folds.split(X):
        expected = getattr(make().fit(X[train], ids[train]), method)(X[test])
        np.testing.assert_array_equal(result[test], expected)


@pytest.mark.parametrize(
    "kind",
    [
        pd.DataFrame,
        torch.tensor,
        np.ndarray.tolist,
        lambda X: pl.DataFrame(X, schema=list("abcd")),
        lambda X: pa.table(dict(zip("abcd", X.T, strict=True))),
    ],
    ids=["pandas", "torch", "list", "polars", "pyarrow"],
)
def test_any_rows_are_taken(data, kind):
    X, ids = data
    expected = cross_val_predict(make(), X, ids)
    assert expected.shape == (len(X), K)
    np.testing.assert_array_equal(cross_val_predict(make(), kind(X), ids), expected)


def test_a_pipeline(data):
    X, ids = data
    pipeline = make_pipeline(StandardScaler(), make())
    np.testing.assert_allclose(cross_val_predict(pipeline, X, ids).sum(1), 1)


@pytest.mark.parametrize(
    "cv",
    [
        ShuffleSplit(1, test_size=0.3, random_state=0),
        ShuffleSplit(5, test_size=0.3, random_state=0),
        PredefinedSplit([-1] * 35 + [0] * 50 + [1] * 50),
    ],
)
def test_every_row_is_needed_once(data, cv):
    X, ids = data
    with pytest.raises(InvalidInputError, match="test folds hold every row once"):
        cross_val_predict(make(), X, ids, cv=cv)


def test_probabilities_from_the_function_of_scikit_learn_are_refused(data):
    """It turns ids into numbers, which must not be matched with the priors by order."""
    X, ids = data
    with pytest.raises(InvalidInputError, match="unknown 0, 1, 2"):
        sklearn_cross_val_predict(make(), X, ids, method="predict_proba")
    assert set(sklearn_cross_val_predict(make(), X, ids)) <= set(CLASSES)

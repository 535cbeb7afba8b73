import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    RandomForestRegressor,
)

from unbag.trees import TreeEnsemble

N, D = 300, 5


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    X[:, 3] = np.round(X[:, 3])  # ties
    return X, rng.normal(size=(200, D)).astype(np.float32)


def scaled(chances):
    chances = np.clip(chances, 1e-4, 1)
    return chances / chances.sum(1, keepdims=True)


@pytest.mark.parametrize("kind", [RandomForestRegressor, ExtraTreesRegressor])
@pytest.mark.parametrize("k", [2, 4])
def test_a_forest_predicts_the_same_as_a_module(kind, k, table):
    X, new = table
    q = np.random.default_rng(k).dirichlet(np.full(k, 0.3), N)
    forest = kind(7, min_samples_leaf=2, random_state=0).fit(X, q)
    trees = TreeEnsemble.from_forest(forest)
    for rows in (X, new, new[:1], new[:0]):
        chances = trees(torch.as_tensor(rows)).exp().detach().numpy()
        expected = scaled(forest.predict(rows)) if len(rows) else np.empty((0, k))
        np.testing.assert_allclose(chances, expected, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_boosted_trees_predict_the_same_as_a_module(k, table):
    X, new = table
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.5, 1.5][: k - 1])
    model = HistGradientBoostingClassifier(max_iter=9, max_leaf_nodes=7, random_state=0)
    model.fit(X.astype(float), y)
    trees = TreeEnsemble.from_boosting(model, k)
    chances = trees(torch.as_tensor(new)).exp().detach().numpy()
    np.testing.assert_allclose(chances, scaled(model.predict_proba(new.astype(float))), atol=1e-9)


@pytest.mark.parametrize("small", [0, 1 << 31])
def test_rows_with_missing_numbers_go_where_the_tree_sends_them(small, table, monkeypatch):
    monkeypatch.setattr("unbag.trees._SMALL", small)  # with wide indices, and with narrow ones
    X, new = (rows.astype(float) for rows in table)
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.5, 1.5])
    rng = np.random.default_rng(0)
    for rows in (X, new):
        rows[rng.random(rows.shape) < 0.3] = np.nan
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(X, y)
    chances = TreeEnsemble.from_boosting(model, 3)(torch.as_tensor(new)).exp().detach().numpy()
    np.testing.assert_allclose(chances, scaled(model.predict_proba(new)), atol=1e-9)


def test_a_class_that_boosted_trees_have_not_seen_is_unlikely(table):
    X, new = table
    y = np.where(X[:, 0] > 0, 3, 1)
    model = HistGradientBoostingClassifier(max_iter=5, random_state=0).fit(X.astype(float), y)
    chances = TreeEnsemble.from_boosting(model, 5)(torch.as_tensor(new)).exp().detach().numpy()
    assert (chances[:, [0, 2, 4]] < 2e-4).all()
    np.testing.assert_allclose(chances.sum(1), 1)
    assert (chances.argmax(1) == model.predict(new.astype(float))).all()


def test_a_tree_of_one_leaf_predicts_its_value(table):
    X, new = table
    forest = RandomForestRegressor(2, random_state=0).fit(X, np.tile([0.3, 0.7], (N, 1)))
    chances = TreeEnsemble.from_forest(forest)(torch.as_tensor(new)).exp().detach().numpy()
    np.testing.assert_allclose(chances, np.tile([0.3, 0.7], (200, 1)), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "node", "value", "problem"),
    [
        ("left", 1, 0, "a child that does not come after it"),  # a loop would never end
        ("right", 0, 10**6, "a child that does not come after it"),
        ("feature", 0, D, "compares none of the 5 features"),
        ("feature", 0, -1, "compares none of the 5 features"),
    ],
)
def test_nodes_from_a_file_are_checked(name, node, value, problem, table):
    X, _ = table
    forest = RandomForestRegressor(2, random_state=0).fit(
        X, np.stack([X[:, 0] > 0, X[:, 0] <= 0], 1)
    )
    trees = TreeEnsemble.from_forest(forest)
    assert trees.find_problem(D) == ""
    getattr(trees, name)[0, node] = value
    assert problem in trees.find_problem(D)

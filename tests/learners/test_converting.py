import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from unbag.learners import LearnerModel, as_module, fit_learner

K = 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4)).astype(np.float32).astype(float)
X[:, 3] = np.round(X[:, 3])  # ties
NEW = np.concatenate([X[:50], RNG.normal(size=(200, 4)).astype(np.float32)])
THREE, TWO = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.0]) + 1, np.where(X[:, 0] > 0, 3, 0)

CONVERTED = [
    DecisionTreeClassifier(min_samples_leaf=5),
    RandomForestClassifier(7, max_depth=4),
    ExtraTreesClassifier(7),
    GradientBoostingClassifier(n_estimators=5),
    HistGradientBoostingClassifier(max_iter=5),
    LogisticRegression(),
    MLPClassifier((8, 5), activation="tanh", max_iter=400),
    make_pipeline(StandardScaler(), "passthrough", MinMaxScaler(), ExtraTreesClassifier(5)),
    make_pipeline(StandardScaler(), make_pipeline(LogisticRegression())),
]
NOT_CONVERTED = [
    GaussianNB(),
    make_pipeline(PolynomialFeatures(), LogisticRegression()),
    HistGradientBoostingClassifier(max_iter=5, categorical_features=[3]),
    GradientBoostingClassifier(n_estimators=2, init=LogisticRegression()),  # starts elsewhere
]


def compare(learner, y, rows=NEW):
    if isinstance(learner, HistGradientBoostingClassifier) and learner.categorical_features:
        rows = X
    fitted, classes = fit_learner(learner, np.abs(X), y, np.ones(len(X)), 0, 10)
    module = as_module(fitted, classes, K, np.abs(X))
    rows = torch.as_tensor(np.abs(rows), dtype=torch.float64)
    with torch.no_grad():
        got, expected = module(rows).exp(), LearnerModel(fitted, classes, K)(rows).exp()
        assert module(rows[:0]).shape == (0, K)
    return module, float((got - expected).abs().max())


@pytest.mark.parametrize("y", [THREE, TWO], ids=["three", "two"])
@pytest.mark.parametrize("learner", CONVERTED, ids=str)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_tensors_give_the_same_probabilities(learner, y):
    module, difference = compare(learner, y)
    assert not isinstance(module, LearnerModel)
    assert difference < 1e-12


@pytest.mark.parametrize("learner", NOT_CONVERTED, ids=str)
def test_what_tensors_cannot_express_stays_as_it_is(learner):
    module, _ = compare(learner, TWO)
    assert isinstance(module, LearnerModel)


@pytest.mark.parametrize("y", [THREE, TWO], ids=["three", "two"])
@pytest.mark.parametrize(
    ("library", "name", "options"),
    [
        ("lightgbm", "LGBM", {"verbosity": -1}),
        ("xgboost", "XGB", {"verbosity": 0}),
        ("catboost", "CatBoost", {"verbose": 0, "allow_writing_files": False}),
        (
            "catboost",
            "CatBoost",
            {"verbose": 0, "allow_writing_files": False, "loss_function": "MultiClass"},
        ),
    ],
)
def test_boosted_trees_of_other_libraries(library, name, options, y):
    kind = getattr(pytest.importorskip(library), f"{name}Classifier")
    module, difference = compare(kind(n_estimators=5, **options), y)
    assert not isinstance(module, LearnerModel)
    assert difference < 1e-6


def test_missing_values_go_where_the_trees_send_them():
    x = X.copy()
    x[RNG.random(X.shape) < 0.3] = np.nan
    for learner in ("trees", "boosting"):
        fitted, classes = fit_learner(learner, x, TWO, np.ones(len(x)), 0, 7)
        module = as_module(fitted, classes, K, x)
        assert not isinstance(module, LearnerModel)


def test_trees_of_catboost_that_are_not_symmetric_stay_as_they_are():
    options = {"verbose": 0, "allow_writing_files": False, "grow_policy": "Depthwise"}
    kind = pytest.importorskip("catboost").CatBoostClassifier
    module, _ = compare(kind(n_estimators=3, **options), THREE)
    assert isinstance(module, LearnerModel)

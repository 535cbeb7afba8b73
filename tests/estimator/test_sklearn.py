"""scikit-learn's own checks: with ``priors=None`` the classifier is an ordinary one."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

from unbag import UnbagClassifier

WEIGHTS = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "rows are drawn into mini-batches by position and batch normalisation counts rows, so a row "
    "of weight 2 and a row that occurs twice are different trainings",
)


def expected_failed_checks(estimator):
    # A linear model on full batches has neither, and passes.
    return {} if estimator.model == "linear" else WEIGHTS


# The checks compare to seven digits, which is more than sums of float32 in another order keep.
@parametrize_with_checks(
    [
        UnbagClassifier(
            epochs=12, width=30, learning_rate=0.01, precision="float64", random_state=0
        ),
        UnbagClassifier(
            method="unbiased",
            model="linear",
            epochs=100,
            batch_size=10_000,
            learning_rate=0.1,
            precision="float64",
            standardize=False,
            random_state=0,
        ),
    ],
    expected_failed_checks=expected_failed_checks,
)
def test_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [UnbagClassifier(precision="float64")], expected_failed_checks=expected_failed_checks
)
def test_check_at_defaults(estimator, check):
    check(estimator)


@pytest.mark.parametrize("part", ["batches", "normalisation"])
def test_each_stated_reason_breaks_the_equivalence_of_weights_by_itself(part):
    """Remove the one cause and the other still tells weights from repeated rows."""
    X, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    settings = {"epochs": 5, "random_state": 0, "standardize": False, "precision": "float64"}
    if part == "batches":
        clf = UnbagClassifier(model="linear", batch_size=20, **settings)
    else:
        clf = UnbagClassifier(width=20, batch_size=10_000, **settings)
    one = clf.fit(X, y, sample_weight=weight).predict_proba(X)
    other = clf.fit(X.repeat(weight, 0), y.repeat(weight)).predict_proba(X)
    assert not np.allclose(one, other, atol=1e-3)
    neither = UnbagClassifier(model="linear", batch_size=10_000, **settings)
    one = neither.fit(X, y, sample_weight=weight).predict_proba(X)
    other = neither.fit(X.repeat(weight, 0), y.repeat(weight)).predict_proba(X)
    np.testing.assert_allclose(one, other, atol=1e-6)

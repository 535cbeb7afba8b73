"""Labels of some rows, given to a classifier."""

import numpy as np
import pytest

import unbag
from unbag.methods import Tables

THETA = np.array([[0.7, 0.3], [0.3, 0.7]])


def fit(labels, weight=None):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = rng.normal(size=(200, 3)) + y[:, None]
    bags = unbag.make_bags(X, y, THETA, sizes=60, random_state=0)
    given = None if labels is None else labels(bags.labels)
    method = Tables(learner="linear", rounds=1)
    clf = unbag.UnbagClassifier(THETA, method, random_state=0)
    return clf.fit(bags.X, bags.bag_ids, weight, labels=given), bags


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_labels_join_training_and_the_priors_stay_those_of_the_bags():
    clf, bags = fit(lambda y: np.where(np.arange(len(y)) % 2, y, np.nan))
    plain, _ = fit(None)
    missing, _ = fit(lambda y: [None] * len(y))
    np.testing.assert_array_equal(clf.priors_.values, THETA)
    p, q, r = (c.predict_proba(bags.X) for c in (clf, plain, missing))
    assert np.abs(p - q).max() > 0.01
    np.testing.assert_array_equal(q, r)


def test_labels_of_rows_of_weight_zero_are_left_out_with_them():
    weight = np.ones(120)
    weight[:7] = 0
    clf, _ = fit(lambda y: np.where(np.arange(len(y)) > 50, y, np.nan), weight)
    assert clf.method_ == "tables"

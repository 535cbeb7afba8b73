"""``UnbagClassifier(learner=...)``: how it reaches the method, and what is saved of it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag.exceptions import InvalidInputError, NotSavedWarning
from unbag.methods import Tables

THETA = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
SCALED = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.fixture(scope="module")
def bags():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 240)
    X = rng.normal(size=(240, 3)) + 3 * y[:, None] * [1, 0, 0]
    return unbag.make_bags(X.astype(np.float32), y, THETA, random_state=0)


def fit(bags, **options):
    clf = unbag.UnbagClassifier(THETA, random_state=0, **options)
    return clf.set_params(method__rounds=1).fit(bags.X, bags.bag_ids)


def test_auto_takes_tables_where_a_learner_is_given(bags):
    clf = unbag.UnbagClassifier(THETA, learner=LogisticRegression(C=2.0), random_state=0)
    clf.fit(bags.X, bags.bag_ids)
    assert clf.method_ == "tables"
    assert clf.settings_["learner"].C == 2.0
    assert (clf.predict(bags.X) == bags.labels).mean() > 0.85


def test_scikit_learn_reaches_the_learner():
    clf = unbag.UnbagClassifier(learner=SCALED)
    other = clone(clf).set_params(learner__logisticregression__C=0.1)
    assert other.learner[-1].C == 0.1
    assert clf.learner[-1].C == 1.0


def test_other_methods_have_no_learner(bags):
    with pytest.raises(InvalidInputError, match="'u-prr' has no setting 'learner'"):
        unbag.UnbagClassifier(THETA, "u-prr", learner="trees").fit(bags.X, bags.bag_ids)


@pytest.mark.parametrize("learner", [SCALED, RandomForestClassifier(5, max_depth=3)], ids=str)
def test_the_learner_is_saved_as_numbers(learner, bags, tmp_path):
    clf = fit(bags, method="tables", learner=learner)
    with pytest.warns(NotSavedWarning, match="'learner' of this classifier cannot be saved"):
        again = unbag.load_model(clf.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(bags.X), clf.predict_proba(bags.X))
    with pytest.raises(InvalidInputError, match=r"learner must be .* got NotSaved"):
        again.fit(bags.X, bags.bag_ids)


def test_the_name_of_a_learner_is_kept(bags, tmp_path):
    clf = fit(bags, method="tables", learner="linear")
    again = unbag.load_model(clf.save(tmp_path / "model"))
    assert (again.learner, again.settings_) == ("linear", clf.settings_)
    again.fit(bags.X, bags.bag_ids)
    np.testing.assert_array_equal(again.predict_proba(bags.X), clf.predict_proba(bags.X))


def test_a_method_with_a_learner_is_saved_without_it(bags, tmp_path):
    clf = unbag.UnbagClassifier(THETA, Tables(rounds=1, learner=SCALED), random_state=0)
    clf.fit(bags.X, bags.bag_ids)
    with pytest.warns(NotSavedWarning, match="'learner'"):
        again = unbag.load_model(clf.save(tmp_path / "model"))
    assert (again.method.rounds, again.method.learner) == (1, None)
    with pytest.raises(InvalidInputError, match=r"learner must be .* got NotSaved"):
        again.fit(bags.X, bags.bag_ids)


def test_a_learner_without_tensors_is_refused_when_saved(bags, tmp_path):
    clf = fit(bags, method="tables", learner=GaussianNB())
    assert (clf.predict(bags.X) == bags.labels).mean() > 0.85
    message = r"learner must be one that can be saved without a pickle \(RandomForest.*, got Gauss"
    with pytest.raises(InvalidInputError, match=message):
        clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()

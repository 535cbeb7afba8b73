"""The search over methods and hyperparameters: on tiny models, but the whole way."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag.exceptions import InvalidInputError, TrainingDivergedError
from unbag.selection import accuracy_scorer, likelihood_scorer, tune
from unbag.selection.tuning import SCORERS

THETA = unbag.priors.symmetric(10, 0.6)
SEARCH = {
    "method": ["u-prr", "prop"],
    "learning_rate": (1e-3, 1e-2, "log"),
    "alpha": (0.3, 0.9),
    "width": [8, 16],
}


@pytest.fixture(scope="module")
def bags():
    X, y = load_digits(return_X_y=True)
    return unbag.make_bags(X / 16, y, THETA, random_state=0)


def make(**settings):
    return unbag.UnbagClassifier(THETA, **{"epochs": 8, "random_state": 3, **settings})


def run(bags, estimator=None, **settings):
    defaults = {"search": SEARCH, "n_trials": 6, "storage": None, "at_once": 3}
    return tune(bags.X, bags.bag_ids, estimator or make(method="prop"), **{**defaults, **settings})


def test_a_search(bags):
    result = run(bags)
    assert len(result.trials) == 6
    complete = [t for t in result.trials if t["state"] == "COMPLETE"]
    assert result.best_score == max(t["score"] for t in complete)
    assert all(t["score"] is None for t in result.trials if t["state"] != "COMPLETE")
    given, *drawn = result.trials
    assert given["params"] == {}
    for trial in drawn:
        assert ("alpha" in trial["params"]) == (trial["params"]["method"] == "u-prr")
        assert 1e-3 <= trial["params"]["learning_rate"] <= 1e-2
    clf = result.best_estimator
    assert {k: clf.get_params()[k] for k in result.best_params} == result.best_params
    # The evaluation is of rows that were in no other part.
    n = bags.n_rows
    assert result.evaluation.n_rows == pytest.approx(0.2 * n, abs=12)
    assert len(clf.row_hashes_) <= n - result.evaluation.n_rows
    truth = (clf.predict(load_digits().data / 16) == load_digits().target).mean()
    assert truth > 0.6
    low, high = result.evaluation.interval
    assert low - 0.1 < truth < high + 0.1


def test_the_estimator_as_it_is_given_is_tried_first_and_once(bags, tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    good = make(method="prop", learning_rate=1e-2, epochs=20)
    bad = {"learning_rate": (1e-6, 2e-6)}
    for n_trials in (1, 3):
        result = run(bags, good, search=bad, n_trials=n_trials, at_once=2, storage=storage)
        assert result.best_params == {}
    assert [trial["params"] == {} for trial in result.trials] == [True, False, False]
    assert result.best_estimator.learning_rate == 1e-2
    better = run(bags, make(method="prop", learning_rate=1e-6), search={"learning_rate": [1e-2]})
    assert better.best_params == {"learning_rate": 1e-2}


def test_the_default_search_begins_with_the_default_method(bags, monkeypatch):
    scored = []

    def watched(estimator, X, y):
        scored.append(estimator.method_)
        return likelihood_scorer(estimator, X, y)

    monkeypatch.setitem(SCORERS, "likelihood", watched)
    small = make(epochs=2, width=8, depth=2)
    result = run(bags, small, search=None, n_trials=8, at_once=8)
    assert scored[0] == "crossfit"  # what auto stands for here
    assert set(scored[1:8]) == {"matched-likelihood", "u-prr", "prop"}
    assert result.trials[0]["params"] == {}


def test_the_estimator_as_it_is_given_is_never_given_up(bags, monkeypatch):
    monkeypatch.setattr("optuna.trial.Trial.should_prune", lambda _: True)
    result = run(bags, n_trials=3)
    assert [trial["state"] for trial in result.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert result.best_params == {}


def test_the_same_seed_gives_the_same_search(bags):
    one, other = (run(bags, n_trials=4) for _ in range(2))
    assert one.trials == other.trials
    assert float(one.evaluation.accuracy) == float(other.evaluation.accuracy)


def test_a_killed_search_goes_on(bags, tmp_path, monkeypatch):
    storage = f"sqlite:///{tmp_path}/study.db"
    calls = []
    original = unbag.selection.tuning._Search.run

    def run_twice(self, count, verbose):
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(count)
        original(self, count, verbose)

    monkeypatch.setattr("unbag.selection.tuning._Search.run", run_twice)
    with pytest.raises(KeyboardInterrupt):
        run(bags, storage=storage)
    counts = []

    def count_trials(self, count, verbose):
        counts.append(count)
        original(self, count, verbose)

    monkeypatch.setattr("unbag.selection.tuning._Search.run", count_trials)
    result = run(bags, storage=storage)
    assert counts == [3]
    assert sum(t["state"] in ("COMPLETE", "PRUNED") for t in result.trials) == 6
    run(bags, storage=storage)
    assert counts == [3]  # nothing was left to do


def test_other_data_under_the_same_name_is_refused(bags, tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    run(bags, storage=storage, study_name="mine", n_trials=1)
    with pytest.raises(InvalidInputError, match="'mine' is of other data or another search"):
        run(bags, storage=storage, study_name="mine", n_trials=1, search={"width": [8]})


def test_bad_trials_are_given_up(bags):
    search = {"method": ["prop"], "learning_rate": (3e-4, 3e-2, "log"), "width": [16]}
    slow = make(method="prop", learning_rate=3e-4, width=16)
    result = run(bags, slow, search=search, n_trials=24, at_once=8)
    rates = {"COMPLETE": [], "PRUNED": []}
    for trial in result.trials[1:]:
        rates[trial["state"]].append(trial["params"]["learning_rate"])
    assert rates["PRUNED"]
    assert np.median(rates["PRUNED"]) < np.median(rates["COMPLETE"])
    assert result.best_params["learning_rate"] > 1e-3


def test_a_search_in_which_all_fails(bags):
    search = {"method": ["unbiased"], "learning_rate": [1e30]}
    with pytest.raises(TrainingDivergedError, match="Every trial failed"):
        run(bags, make(method="unbiased", learning_rate=1e30), search=search, n_trials=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search": {"priors": [1]}}, "search must be parameters of the estimator"),
        ({"search": {"colour": ["red"]}}, "search must be parameters of the estimator"),
        ({"search": {"alpha": (0.9, 0.1)}}, "search must be for 'alpha' a list"),
        ({"search": {"alpha": 0.5}}, "search must be for 'alpha' a list"),
        ({"search": {"method": ["magic"]}}, "method must be one of"),
        ({"search": {}}, "search must be at least one parameter"),
        ({"n_trials": 0}, "n_trials must be"),
        ({"scoring": "f1"}, "scoring must be one of"),
        ({"validation_size": 0.7, "evaluation_size": 0.5}, "validation_size must be below 1"),
    ],
)
def test_bad_input(bags, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        run(bags, **settings)


def test_an_estimator_without_priors(bags):
    with pytest.raises(InvalidInputError, match="estimator must be an UnbagClassifier with priors"):
        tune(bags.X, bags.bag_ids, unbag.UnbagClassifier(), storage=None)


@pytest.mark.parametrize("scorer", [accuracy_scorer, likelihood_scorer])
@pytest.mark.parametrize("search", [GridSearchCV, HalvingGridSearchCV])
def test_scikit_learns_searches(bags, scorer, search):
    grid = {"unbagclassifier__learning_rate": [1e-7, 5e-3]}
    model = make_pipeline(StandardScaler(), make(method="prop", width=16, epochs=15))
    found = search(model, grid, scoring=scorer, cv=StratifiedKFold(3), refit=False)
    found.fit(bags.X, bags.bag_ids)
    assert found.best_params_ == {"unbagclassifier__learning_rate": 5e-3}
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()

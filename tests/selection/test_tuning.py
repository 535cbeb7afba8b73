"""The search over methods and hyperparameters: on tiny models, but the whole way."""

import itertools

import numpy as np
import optuna
import pandas as pd
import pytest
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag.exceptions import InvalidInputError, TrainingDivergedError
from unbag.identity import hash_rows
from unbag.methods import UPRR, CrossFit
from unbag.selection import DEFAULT_SEARCH, accuracy_scorer, likelihood_scorer, tune
from unbag.selection.tuning import SCORERS

K, D = 3, 5
THETA = unbag.priors.symmetric(K, 0.6)
SEARCH = {
    "learning_rate": (1e-2, 1e-1, "log"),
    "method__alpha": (0.3, 0.9),
    "method": ["u-prr", "prop"],  # drawn first, wherever it stands
    "width": [4, 8],
}


@pytest.fixture(scope="session")
def bags():
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, 600)
    X = (rng.normal(size=(600, D)) + 2.5 * np.eye(K, D)[y]).astype(np.float32)
    return unbag.make_bags(X, y, THETA, random_state=0)


def make(**settings):
    defaults = {"method": "prop", "epochs": 8, "depth": 2, "width": 8, "learning_rate": 0.03}
    return unbag.UnbagClassifier(THETA, **{**defaults, "random_state": 3, **settings})


def run(bags, estimator=None, **settings):
    defaults = {"search": SEARCH, "n_trials": 6, "storage": None, "at_once": 3}
    return tune(bags.X, bags.bag_ids, estimator or make(), **{**defaults, **settings})


def test_a_search(bags):
    result = run(bags)
    assert len(result.trials) == 6
    complete = [t for t in result.trials if t["state"] == "COMPLETE"]
    assert result.best_score == max(t["score"] for t in complete)
    assert all(t["score"] is None for t in result.trials if t["state"] != "COMPLETE")
    trials, *drawn = result.trials
    assert trials["params"] == {}
    for trial in drawn:
        assert ("method__alpha" in trial["params"]) == (trial["params"]["method"] == "u-prr")
        assert 1e-2 <= trial["params"]["learning_rate"] <= 1e-1
        assert trial["params"]["width"] in (4, 8)
    clf = result.best_estimator
    for name, value in result.best_params.items():
        if name.startswith("method__"):
            assert clf.settings_[name.removeprefix("method__")] == value
        else:
            assert (clf.method_ if name == "method" else getattr(clf, name)) == value
    # The evaluation is of rows that were in no other part.
    n = bags.n_rows
    assert result.evaluation.n_rows == result.held_out.n_rows == pytest.approx(0.2 * n, abs=15)
    assert len(clf.row_hashes_) <= n - result.evaluation.n_rows
    accuracy = (clf.predict(bags.X) == bags.labels).mean()
    assert accuracy > 0.6
    low, high = result.evaluation.interval
    assert low - 0.1 < accuracy < high + 0.1


@pytest.fixture
def scored(monkeypatch):
    """Estimators and Bags, as they are scored."""
    calls = []

    def watched(estimator, part):
        calls.append((estimator, part))
        return likelihood_scorer(estimator, part)

    monkeypatch.setitem(SCORERS, "likelihood", watched)
    return calls


def hashes(rows):
    return set(hash_rows(np.asarray(rows)).tolist())


def test_trials_are_scored_on_rows_that_trained_none_of_them(bags, scored):
    result = run(bags, n_trials=3)
    untouched = hashes(result.held_out.X)
    (validation,) = {frozenset(hashes(part.X)) for _, part in scored}
    for estimator, part in scored:
        trained = set(estimator.row_hashes_.tolist())
        assert trained.isdisjoint(validation)
        assert trained.isdisjoint(untouched)
        assert part.n_rows == pytest.approx(0.2 * bags.n_rows, abs=15)
        # The winner is fitted again on both parts, and evaluated on the third.
        assert set(result.best_estimator.row_hashes_.tolist()) == trained | validation
        assert hashes(result.training.X) == trained | validation
    assert untouched.isdisjoint(validation)
    expected = unbag.evaluate(result.best_estimator, result.held_out)
    assert float(result.evaluation.accuracy) == float(expected.accuracy)


def test_trials_are_given_up_after_a_quarter_of_their_epochs(bags, scored, monkeypatch):
    monkeypatch.setattr("optuna.trial.Trial.should_prune", lambda trial: trial.number == 1)
    result = run(bags, n_trials=3)
    assert [trial["state"] for trial in result.trials] == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert [estimator.n_iter_ for estimator, _ in scored] == [2, 2, 2, 8, 8]
    first = [likelihood_scorer(*call) for call in scored[:3]]
    whole = [likelihood_scorer(*call) for call in scored[3:]]
    assert [trial["score"] for trial in result.trials] == [whole[0], None, whole[1]]
    assert set(first).isdisjoint(whole)


def test_trials_are_trained_in_the_precision_of_the_estimator(bags, scored):
    for precision in ("float32", "float64"):
        run(bags, make(precision=precision), n_trials=2)
        dtypes = {str(next(clf.module_.parameters()).dtype) for clf, _ in scored}
        assert dtypes == {f"torch.{precision}"}
        scored.clear()


def test_the_seed_splits_the_rows_and_is_that_of_every_model(bags, scored):
    one, again, other = (run(bags, n_trials=1, random_state=seed) for seed in (0, 0, 1))
    parts = [(hashes(r.held_out.X), hashes(r.training.X)) for r in (one, again, other)]
    assert parts[0] == parts[1]
    assert parts[0][0] != parts[2][0]
    assert parts[0][1] != parts[2][1]
    assert [estimator.random_state for estimator, _ in scored] == [0, 0, 0, 0, 1, 1]
    for result, first in ((one, 0), (other, 4)):
        seed = first // 4
        _, validation = result.training.train_test_split(0.25, random_state=seed)
        assert hashes(scored[first][1].X) == hashes(validation.X)
    # A source of random numbers in the estimator is not drawn from.
    same = run(bags, make(random_state=np.random.default_rng(5)), n_trials=1)
    assert same.trials == one.trials


def test_settings_of_the_method_of_the_estimator_are_searched(bags):
    search = {"method__rounds": [0, 1], "method__balanced": [True, False]}
    originals = make(method=CrossFit(folds=2, mixup=False), model="linear", epochs=1)
    result = run(bags, originals, search=search, n_trials=2, at_once=2)
    assert set(result.trials[1]["params"]) == set(search)
    settings = result.best_estimator.settings_
    assert (settings["folds"], settings["mixup"]) == (2, False)
    alpha = run(
        bags, make(method=UPRR(alpha=0.5)), search={"method__alpha": (0.1, 0.2)}, n_trials=2
    )
    assert 0.1 <= alpha.trials[1]["params"]["method__alpha"] <= 0.2


def test_a_search_with_corrected_shares_begins_anew(bags, tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    names = ["a", "b", "c"]
    corrected = THETA.copy()
    corrected[1] = [0.19, 0.62, 0.19]
    for number, theta in ((1, THETA), (2, THETA), (1, corrected)):
        priors = unbag.ClassPriors(theta, names, ["x", "y", "z"])
        ids = np.array(names)[bags.bag_index]
        estimator = make().set_params(priors=priors)
        search = {"learning_rate": (0.01, 0.02)}
        options = {"search": search, "storage": storage, "at_once": 1}
        result = tune(bags.X, ids, estimator, n_trials=number, **options)
        assert len(result.trials) == number
    assert len(optuna.get_all_study_names(storage)) == 2


def test_the_estimator_as_it_is_given_is_tried_first_and_once(bags, tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    good, bad = make(epochs=10), {"learning_rate": (1e-6, 2e-6)}
    for n_trials in (1, 3):
        result = run(bags, good, search=bad, n_trials=n_trials, at_once=2, storage=storage)
        assert result.best_params == {}
    assert [trial["params"] == {} for trial in result.trials] == [True, False, False]
    assert result.best_estimator.learning_rate == 0.03
    better = run(bags, make(learning_rate=1e-6), search={"learning_rate": [3e-2]}, n_trials=2)
    assert better.best_params == {"learning_rate": 3e-2}


def test_the_default_search_begins_with_the_estimator(bags, scored):
    result = run(bags, make(method="auto", epochs=1), search=None, n_trials=8, at_once=8)
    methods = [estimator.method_ for estimator, _ in scored]
    assert methods[0] == "crossfit"  # what auto stands for here
    assert set(methods[1:8]) == {"matched-likelihood", "u-prr", "prop"}
    assert result.trials[0]["params"] == {}
    for trial in result.trials[1:]:
        settings = {"method__alpha", "method__ascent_scale"} & set(trial["params"])
        assert len(settings) == (2 if trial["params"]["method"] == "u-prr" else 0)


def test_the_default_search_is_around_the_defaults():
    usual = {"learning_rate": 1e-3, "method__alpha": 0.7, "method__ascent_scale": 5.0}
    for name, value in usual.items():
        low, high = DEFAULT_SEARCH[name][:2]
        assert value / 20 <= low < value < high <= 20 * value
    assert DEFAULT_SEARCH["method__alpha"][1] < 1
    assert DEFAULT_SEARCH["weight_decay"] == (1e-6, 1e-2, "log")
    assert (min(DEFAULT_SEARCH["dropout"]), max(DEFAULT_SEARCH["dropout"])) == (0, 0.5)


def test_the_estimator_as_it_is_given_is_never_given_up(bags, monkeypatch):
    monkeypatch.setattr("optuna.trial.Trial.should_prune", lambda _: True)
    result = run(bags, n_trials=3)
    assert [trial["state"] for trial in result.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert result.best_params == {}


def test_the_same_seed_gives_the_same_search(bags):
    one, other = (run(bags, n_trials=4) for _ in range(2))
    assert one.trials == other.trials
    assert float(one.evaluation.accuracy) == float(other.evaluation.accuracy)


class Killed(BaseException):
    """Stands for SIGKILL."""


WRITES = (
    "create_new_trial",
    "set_trial_param",
    "set_trial_intermediate_value",
    "set_study_user_attr",
    "set_trial_state_values",
    "set_trial_system_attr",
)


@pytest.fixture
def killed_at(monkeypatch):
    """Run a search that is killed before its nth change of the storage; tell whether it ended."""

    def search(moment, *args, storage, **kwargs):
        left, kind = [moment], type(optuna.storages.get_storage(storage))

        def counted(inner):
            def write(self, *given, **named):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return inner(self, *given, **named)

            return write

        with monkeypatch.context() as patched:
            for name in WRITES:
                patched.setattr(kind, name, counted(getattr(kind, name)))
            try:
                run(*args, storage=storage, **kwargs)
            except Killed:
                return False
            return True

    return search


LONG = {"n_trials": 14, "at_once": 4}  # so that some are drawn by what came before


@pytest.fixture(scope="module")
def undisturbed(bags):
    return run(bags, make(epochs=4), **LONG)


def assert_same(one, other):
    assert one.trials == other.trials
    assert one.best_params == other.best_params
    assert one.best_score == other.best_score
    assert one.evaluation.to_dict() == other.evaluation.to_dict()


@pytest.mark.parametrize("moments", [(3,), (18, 7), (47, 0, 22), (93,)], ids=str)
def test_a_killed_search_ends_as_if_it_was_not_killed(
    bags, tmp_path, killed_at, undisturbed, moments
):
    storage = f"sqlite:///{tmp_path}/study.db"
    for moment in moments:
        assert not killed_at(moment, bags, make(epochs=4), storage=storage, **LONG)
    assert_same(run(bags, make(epochs=4), storage=storage, **LONG), undisturbed)


@pytest.mark.slow
def test_a_search_killed_at_any_moment_ends_as_if_it_was_not(
    bags, tmp_path, killed_at, undisturbed
):
    for moment in itertools.count(step=4):
        storage = f"sqlite:///{tmp_path}/{moment}.db"
        if killed_at(moment, bags, make(epochs=4), storage=storage, **LONG):
            break
        assert_same(run(bags, make(epochs=4), storage=storage, **LONG), undisturbed)
    assert moment > 80


def test_an_ended_search_is_not_done_again(bags, tmp_path, scored):
    storage = f"sqlite:///{tmp_path}/study.db"
    first = run(bags, storage=storage)
    before = len(scored)
    assert_same(run(bags, storage=storage), first)
    assert len(scored) == before


def test_other_data_under_the_same_name_is_refused(bags, tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    run(bags, storage=storage, study_name="mine", n_trials=1)
    with pytest.raises(InvalidInputError, match="'mine' is of other data or another search"):
        run(bags, storage=storage, study_name="mine", n_trials=1, search={"width": [8]})


def test_bad_trials_are_given_up(bags):
    search = {"learning_rate": (1e-4, 1e-1, "log")}
    result = run(bags, make(learning_rate=1e-4), search=search, n_trials=24, at_once=8)
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
        ({"search": {"priors": [1]}}, "search must be parameters that can be tuned here"),
        ({"search": {"random_state": [1, 2]}}, "search must be parameters that can be tuned"),
        ({"search": {"colour": ["red"]}}, "search must be parameters that can be tuned here"),
        ({"search": {"alpha": (0.1, 0.9)}}, "'alpha'; settings of methods are named as method__a"),
        ({"search": {"method__alpha": (0.1, 0.9)}}, "'method__alpha'; search for the method too"),
        ({"search": {"width": (9, 1)}}, "search must be for 'width' a list"),
        ({"search": {"width": 5}}, "search must be for 'width' a list"),
        ({"search": {"width": []}}, "search must be for 'width' a list"),
        ({"search": {"width": (1, 9, "linear")}}, "search must be for 'width' a list"),
        ({"search": {"method": ["magic"]}}, "method must be one of"),
        ({"search": [1]}, "search must be a dict of at least one parameter"),
        ({"search": {1: [1]}}, "search must be keyed by names of parameters, got 1"),
        ({"search": {"width": (1, "x")}}, "each end of 'width' in search must be a number"),
        ({"search": {"dropout": (0, float("inf"))}}, "each end of 'dropout' in search must be"),
        ({"search": {"width": (1, 2**70)}}, "each end of 'width' in search must be a number"),
        ({"search": {"learning_rate": (0, 1, "log")}}, "search must be .* for 'log', above 0"),
        ({"search": {}}, "search must be a dict of at least one parameter"),
        ({"n_trials": 0}, "n_trials must be a whole number of at least 1"),
        (
            {"storage": "nowhere://trials"},
            r"storage must be a storage of Optuna, got one that cannot be o",
        ),
        ({"n_trials": 1.5}, "n_trials must be a whole number"),
        ({"at_once": 0}, "at_once must be a whole number of at least 1"),
        ({"at_once": 1.5}, "at_once must be a whole number"),
        ({"evaluation_size": 0.0}, r"evaluation_size must be a number in \(0, 1\)"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0"),
        ({"validation_size": 0.5, "evaluation_size": 0.5}, "validation_size must be below 1"),
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
    grid = {"unbagclassifier__learning_rate": [1e-7, 3e-2]}
    model = make_pipeline(StandardScaler(), "passthrough", make())
    result = search(model, grid, scoring=scorer, cv=StratifiedKFold(3), refit=False)
    result.fit(bags.X, bags.bag_ids)
    assert result.best_params_ == {"unbagclassifier__learning_rate": 3e-2}
    assert np.isfinite(result.cv_results_["mean_test_score"]).all()


def test_progress_is_shown_only_to_who_asks(bags, monkeypatch, capsys):
    monkeypatch.setattr("unbag.progress._EVERY", 0.0)  # else a line per minute
    for verbose in ({}, {"verbose": True}):
        run(bags, n_trials=2, **verbose)
        assert ("so far" in capsys.readouterr().err) == bool(verbose)


def test_optuna_prints_warnings_alone(bags):
    optuna.logging.set_verbosity(optuna.logging.INFO)
    run(bags, n_trials=1)
    assert optuna.logging.get_verbosity() == optuna.logging.WARNING


def test_the_names_of_columns_are_not_lost(bags):
    """Scoring trials warned of rows without names."""
    X = pd.DataFrame(np.asarray(bags.X), columns=[f"f{i}" for i in range(bags.X.shape[1])])
    clf = unbag.UnbagClassifier(
        bags.priors, method="prop", model="linear", epochs=1, random_state=0
    )
    for scoring in ("accuracy", "likelihood"):
        found = tune(X, bags.bag_ids, clf, search=SEARCH, n_trials=1, storage=None, scoring=scoring)
        assert list(found.best_estimator.feature_names_in_) == list(X.columns)

"""A search that several processes share: each trial ends once, also where some are killed."""

import threading

import numpy as np
import optuna
import pytest
from test_tuning import SEARCH, THETA, D, K, run

import unbag
from unbag.exceptions import InvalidInputError
from unbag.selection import sharing, tuning
from unbag.selection.sharing import Workers, open_storage

STATES = optuna.trial.TrialState


@pytest.fixture(scope="module")
def bags():
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, 600)
    X = (rng.normal(size=(600, D)) + 2.5 * np.eye(K, D)[y]).astype(np.float32)
    return unbag.make_bags(X, y, THETA, random_state=0)


@pytest.fixture
def quick(monkeypatch):
    """Processes that are soon taken for dead, and looked at often."""
    monkeypatch.setattr(sharing, "EVERY", 0.05)
    monkeypatch.setattr(sharing, "GRACE", 1.0)
    monkeypatch.setattr(tuning, "POLL", 0.05)


def the_study(storage):
    storage, _ = open_storage(optuna, storage)
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage)


def check_whole(trials, count):
    assert [t.number for t in trials[:count]] == list(range(count))
    assert all(t.state in (STATES.COMPLETE, STATES.PRUNED) for t in trials[:count])
    assert all(t.state == STATES.WAITING for t in trials[count:])  # asked for by two at once


@pytest.mark.usefixtures("quick")
def test_two_at_one_search(bags, tmp_path):
    storage, found = tmp_path / "trials.log", []

    def search():
        found.append(run(bags, n_trials=7, at_once=2, storage=storage))

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    study = the_study(storage)
    check_whole(study.trials, 7)
    assert len({t.user_attrs["worker"] for t in study.trials[:7]}) == 2
    assert len(found[0].trials) == 7
    assert found[0].best_params == found[1].best_params
    assert found[0].trials == found[1].trials


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("said_so", [True, False])
def test_trials_of_a_killed_process_are_taken_over(bags, tmp_path, said_so):
    storage = tmp_path / "trials.log"
    run(bags, n_trials=2, at_once=2, storage=storage)
    study = the_study(storage)
    study.sampler = optuna.samplers.RandomSampler(seed=0)
    with Workers(optuna, study) as dead:
        trial = study.ask()
        if said_so:
            dead.begin(trial)
            trial.suggest_float("learning_rate", *SEARCH["learning_rate"][:2], log=True)
    given = study.trials[2].params
    result = run(bags, n_trials=4, at_once=2, storage=storage)
    check_whole(the_study(storage).trials, 4)
    assert given.items() <= the_study(storage).trials[2].params.items()
    assert len(result.trials) == 4


@pytest.mark.usefixtures("quick")
def test_a_process_that_was_only_slow_changes_nothing(bags, tmp_path, monkeypatch):
    """Its trials end elsewhere while it trains; what it tells later is left out."""
    storage = tmp_path / "trials.log"
    inner = tuning._Search._tell
    late = []

    def slow(self, outcomes):
        if outcomes and not late:
            late.append(dict(outcomes))
            for number in outcomes:
                self.study.tell(int(number), -9.0, state=STATES.COMPLETE)
        inner(self, outcomes)

    monkeypatch.setattr(tuning._Search, "_tell", slow)
    run(bags, n_trials=3, at_once=2, storage=storage)
    trials = the_study(storage).trials
    check_whole(trials, 3)
    assert [t.value for t in trials[:2]] == [-9.0, -9.0]


@pytest.mark.usefixtures("quick")
def test_a_process_that_ends_a_trial_while_it_waits_in_the_queue(bags, tmp_path, monkeypatch):
    """Others took it for dead: its outcome counts, and nobody trains the trial again."""
    storage = tmp_path / "trials.log"
    inner, queued = tuning._Search._tell, []

    def slow(self, outcomes):
        for number in () if queued else list(outcomes):
            queued.append(number)
            trial = self.study.trials[number]
            Workers(optuna, self.study)._queue(trial._trial_id, trial.user_attrs["worker"])
            assert self.study.trials[number].state == STATES.WAITING
        inner(self, outcomes)

    monkeypatch.setattr(tuning._Search, "_tell", slow)
    run(bags, n_trials=3, at_once=2, storage=storage)
    assert queued == [0, 1]
    trials = the_study(storage).trials
    check_whole(trials, 3)
    assert [t.user_attrs["worker"] for t in trials[:2]] == ["", ""]


def test_kinds_of_storages(tmp_path):
    assert open_storage(optuna, None) == (None, False)
    assert open_storage(optuna, "sqlite:///a.db") == ("sqlite:///a.db", False)
    assert open_storage(optuna, "postgresql://host/db")[1]
    file = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/a.db")
    assert open_storage(optuna, file) == (file, False)
    journal, is_shared = open_storage(optuna, str(tmp_path / "trials.log"))
    assert isinstance(journal, optuna.storages.JournalStorage)
    assert is_shared
    assert open_storage(optuna, journal) == (journal, True)
    with pytest.raises(InvalidInputError, match="storage must be a file that can be written, got"):
        open_storage(optuna, tmp_path / "no" / "trials.log")


def test_another_file_is_no_storage(bags, tmp_path):
    (tmp_path / "notes.txt").write_text("no journal\n")
    message = "storage must be a journal of Optuna, or a file to make, got .* holds something else"
    with pytest.raises(InvalidInputError, match=message):
        run(bags, storage=tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "no journal\n"


@pytest.mark.usefixtures("quick")
def test_a_trial_too_many_waits_for_a_longer_search(bags, tmp_path, monkeypatch):
    storage, inner, of_another = tmp_path / "trials.log", optuna.study.Study.ask, []

    def ask(self, *given, **named):
        if not of_another:  # which asks for one between a look at the trials and ours
            of_another.append(inner(self))
            self.tell(of_another[0], -9.0)
        return inner(self, *given, **named)

    monkeypatch.setattr(optuna.study.Study, "ask", ask)
    run(bags, n_trials=3, at_once=3, storage=storage)
    trials = the_study(storage).trials
    check_whole(trials, 3)
    assert [t.state for t in trials[3:]] == [STATES.WAITING]
    assert "worker" not in trials[3].user_attrs

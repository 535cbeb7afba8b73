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
    monkeypatch.setattr(sharing, "MISSED", 20)
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
    assert len({sharing._claims(t).owner for t in study.trials[:7]}) == 2
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
@pytest.mark.parametrize("moment", ["owns", "end"])
def test_a_process_that_was_only_slow_tells_nothing(bags, tmp_path, monkeypatch, moment):
    """Another takes its trials over at that moment; here they then come back from that one."""
    storage, lost = tmp_path / "trials.log", []
    inner = getattr(Workers, moment)

    def slow(self, trial, *given):
        if len(lost) < 2:
            other = Workers(optuna, the_study(storage))
            assert other._claim(trial._trial_id, self._name)
            assert not inner(self, trial, *given)
            lost.append(trial.number)
            return False
        return inner(self, trial, *given)

    monkeypatch.setattr(Workers, moment, slow)
    run(bags, n_trials=3, at_once=2, storage=storage)
    assert lost == [0, 1]
    trials = the_study(storage).trials
    check_whole(trials, 3)
    assert [sharing._claims(t).number for t in trials] == [4, 4, 2]  # begun, twice taken, ended


@pytest.mark.usefixtures("quick")
def test_a_trial_that_others_ended_stops_nobody(bags, tmp_path, monkeypatch):
    storage, inner, ended = tmp_path / "trials.log", Workers.begin, []

    def slow(self, trial):
        inner(self, trial)
        if not ended:
            ended.append(trial.number)
            the_study(storage).tell(trial.number, -9.0)
        return True

    monkeypatch.setattr(Workers, "begin", slow)
    run(bags, n_trials=3, at_once=2, storage=storage)
    trials = the_study(storage).trials
    check_whole(trials, 3)
    assert trials[0].value == -9.0


class Claims:
    """Three processes at one trial, which the first has begun."""

    def __init__(self, storage):
        first = optuna.create_study(storage=open_storage(optuna, storage)[0])
        studies = [first, the_study(storage), the_study(storage)]
        self.slow, self.one, self.other = (Workers(optuna, study) for study in studies)
        self.trial = first.ask()
        assert self.slow.begin(self.trial)

    def meanwhile(self, worker, act):
        """Let something happen between a look of a process at the trial and its claim."""
        storage = worker._study._storage
        write = storage.set_trial_user_attr

        def interrupted(*given):
            storage.set_trial_user_attr = write
            act()
            write(*given)

        storage.set_trial_user_attr = interrupted

    def take(self, worker):
        return worker._claim(self.trial._trial_id, self.slow._name)


def test_of_two_that_take_a_trial_over_one_gets_it(tmp_path):
    claims, won = Claims(tmp_path / "trials.log"), []
    claims.meanwhile(claims.other, lambda: won.append(claims.take(claims.one)))
    assert not claims.take(claims.other)
    assert won == [True]
    assert claims.one.owns(claims.trial)
    assert not claims.other.owns(claims.trial)
    assert not claims.slow.owns(claims.trial)
    assert not claims.slow.end(claims.trial, ("COMPLETE", 1.0))
    assert claims.one.end(claims.trial, ("COMPLETE", 2.0))


def test_of_an_end_and_of_one_that_takes_over_the_first_counts(tmp_path):
    claims, won = Claims(tmp_path / "a.log"), []
    claims.meanwhile(claims.slow, lambda: won.append(claims.take(claims.one)))
    assert not claims.slow.end(claims.trial, ("COMPLETE", 1.0))
    claims.meanwhile(
        claims.other, lambda: won.append(claims.one.end(claims.trial, ("COMPLETE", 2.0)))
    )
    assert not claims.other._claim(claims.trial._trial_id, claims.one._name)
    assert won == [True, True]
    trial = claims.other._study.trials[0]
    assert tuple(sharing._claims(trial).outcome) == ("COMPLETE", 2.0)


@pytest.mark.usefixtures("quick")
def test_an_end_that_a_killed_process_had_claimed_counts(bags, tmp_path, monkeypatch):
    storage, inner, killed = tmp_path / "trials.log", Workers.end, []

    def end(self, trial, outcome):
        assert inner(self, trial, outcome)
        killed.append(trial.number)
        if len(killed) == 1:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(Workers, "end", end)
    with pytest.raises(KeyboardInterrupt):
        run(bags, n_trials=3, at_once=2, storage=storage)
    outcome = sharing._claims(the_study(storage).trials[0]).outcome
    assert the_study(storage).trials[0].state == STATES.RUNNING
    run(bags, n_trials=3, at_once=2, storage=storage)
    trials = the_study(storage).trials
    check_whole(trials, 3)
    assert sorted(killed) == [0, 1, 2]  # the first was not trained again
    assert [trials[0].state.name, trials[0].value] == outcome


def test_a_process_is_silent_where_others_have_spoken(tmp_path):
    """While nobody can write, nobody is taken for dead, however long that lasts."""
    claims = Claims(tmp_path / "trials.log")
    claims.slow._sign()

    def taken():
        return [t.number for t in claims.one.take_over(1, 1, lambda _: None)]

    for _ in range(2 * sharing.MISSED):
        assert taken() == []
    for _ in range(sharing.MISSED):
        claims.one._sign()
        assert taken() == []
    claims.slow._sign()
    for _ in range(sharing.MISSED + 1):
        assert taken() == []
        claims.one._sign()
    assert taken() == [0]


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
    assert sharing._claims(trials[3]).owner == "nobody"

"""Time limits: what is left out, and where trainings end. No clock of the machine is read."""

import numpy as np
import pytest

import unbag
from unbag.deadline import Deadline
from unbag.exceptions import InvalidInputError
from unbag.methods import Job, Tables, fit_many
from unbag.methods.fitting import StageProgress
from unbag.training.engine import Stack

THETA = np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5], [0.6, 0.4]])


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Every task takes ten seconds, and every epoch of a stack one."""
    clock = Clock()
    leave, run_epoch = StageProgress.__exit__, Stack.run_epoch

    def end_task(progress, *error):
        clock.now += 10
        leave(progress, *error)

    def end_epoch(stack, epoch):
        clock.now += 1
        run_epoch(stack, epoch)

    monkeypatch.setattr(StageProgress, "__exit__", end_task)
    monkeypatch.setattr(Stack, "run_epoch", end_epoch)
    return clock


@pytest.fixture(scope="module")
def bags():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = rng.normal(size=(200, 3)) + 3 * y[:, None] * [1, 0, 0]
    return unbag.make_bags(X.astype(np.float32), y, THETA, random_state=0)


def fit(bags, clock, seconds, method, **settings):
    (fit,) = fit_many(
        [Job(bags, method, **settings)], device="cpu", time_limit=Deadline(seconds, clock)
    )
    return fit


def test_one_training_ends_at_the_last_epoch_that_fits(bags, clock):
    fit_ = fit(bags, clock, 7.5, "prop", epochs=50)
    assert (fit_.n_epochs, len(fit_.history["objective"]), clock.now) == (7, 7, 7.0)
    assert fit_.stop_reason == "Stopped after 7 epochs: the time was up."
    assert fit(bags, clock, 50, "prop", epochs=5).stop_reason == "All 5 epochs were run."


def test_there_is_at_least_one_epoch(bags, clock):
    assert fit(bags, clock, 0.01, "prop", epochs=50).n_epochs == 1


def test_stacks_have_equal_parts_of_the_time(bags, clock):
    jobs = [Job(bags, "prop", epochs=50, seed=i, batch_size=20 + i) for i in range(3)]
    fits = fit_many(jobs, device="cpu", time_limit=Deadline(30, clock))
    assert [fit.n_epochs for fit in fits] == [10, 10, 10]


def test_tables_leave_out_what_has_no_time(bags, clock):
    small = Tables(rounds=3, trees=5)
    needed = {}
    for seconds in (5, 35, 55, 10_000):
        clock.now = 0.0
        model = fit(bags, clock, seconds, small)
        needed[seconds] = (list(model.module.parts), model.n_epochs, model.stop_reason)
        # Taking over the forest of the last round is a task too, though it takes no time.
        assert seconds == 10_000 or clock.now <= max(20, seconds) + 10
        assert np.isfinite(model.history["objective"]).all()
    assert {"forest"} <= set(needed[5][0]) <= {"forest", "shares"}
    assert needed[5][1] == 1
    assert "Trained in 1 round; it predicts by forest" in needed[5][2]
    assert "Trained in 3 rounds; it predicts by " in needed[10_000][2]
    assert needed[35][1] == 2
    assert needed[55][1] == 3
    assert needed[10_000][1] == 3


def test_crossfit_leaves_out_rounds_and_trains_a_last_network(bags, clock):
    model = fit(bags, clock, 20, "crossfit", epochs=30)
    assert clock.now <= 20
    assert "without rounds" in model.stop_reason
    assert 2 <= model.n_epochs <= 10
    clock.now = 0.0
    whole = fit(bags, clock, 10_000, "crossfit", epochs=30)
    assert whole.n_epochs == 30


@pytest.mark.parametrize("limit", [0, -1, "soon", np.inf])
def test_bad_limits(limit, bags):
    with pytest.raises(InvalidInputError, match="time_limit must be a number above 0"):
        unbag.UnbagClassifier(THETA, "prop", time_limit=limit).fit(bags.X, bags.bag_ids)


def test_the_classifier_hands_its_limit_on(bags):
    clf = unbag.UnbagClassifier(THETA, "prop", epochs=10_000_000, time_limit=0.2, random_state=0)
    assert 1 <= clf.fit(bags.X, bags.bag_ids).n_iter_ < 10_000_000

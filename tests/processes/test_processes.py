import os
import pickle
import time

import numpy as np
import pytest
import torch
from together import run_together

from unbag import UnbagClassifier
from unbag.bags import Bags
from unbag.exceptions import InvalidInputError, LostProcessError
from unbag.methods import Job, fit_many, get_method
from unbag.processes import alone, current_processes, is_first_to_tell, launched_rank
from unbag.training.engine import Stack
from unbag.training.part import ALL_ROWS, deal_rows, part_of

THETA = [[0.8, 0.2], [0.3, 0.7]]


def rows(seed=0, n=40):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), np.arange(n) % 2


def job(seed=0, **options):
    return Job(Bags(*rows(seed), THETA), "prop", batch_size=16, **{"epochs": 2} | options)


@pytest.mark.parametrize("n", [1, 2, 5, 16, 33])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_every_row_is_dealt_once_and_with_its_partner(n, size):
    parts = deal_rows(n, size)
    assert torch.cat(parts).sort().values.tolist() == list(range(n))
    for part in parts:
        assert part.flip(0).tolist() == (n - 1 - part).tolist()


def test_a_process_without_group_is_alone():
    processes = current_processes()
    assert (processes.rank, processes.size, processes.is_first) == (0, 1, True)
    assert processes.once(lambda: 7) == 7
    assert part_of(processes, 5, torch.device("cpu")) is ALL_ROWS


@pytest.mark.parametrize(
    ("told", "rank"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, None),
        ({"RANK": "3", "WORLD_SIZE": "4"}, None),
        ({"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, 3),
    ],
)
def test_what_torchrun_tells(told, rank, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert launched_rank() == rank
    assert is_first_to_tell() == (not rank)


# ------------------------------------------------------------------- in a group of two processes


def in_a_group(folder):
    """Do in each of two processes what the test below looks at."""
    rank = current_processes().rank
    found = {"rank": rank}
    with alone():
        found["alone"] = weights(fit_many([job()], device="cpu")[0])
    # Both are given what the first process has.
    found["once"] = current_processes().once(lambda: rank)
    X, ids = rows()
    clf = UnbagClassifier(THETA, "prop", epochs=1, random_state=None).fit(X, ids)
    found["unseeded"] = weights(clf)
    written = folder / "written"
    with current_processes().first():
        found["found"] = written.exists()
        written.touch()
    # Work that is no network's is done once.
    clf = UnbagClassifier(THETA, get_method("tables", trees=3, rounds=1), random_state=0)
    found["tables"] = weights(clf.fit(X, ids))
    clf.set_params(time_limit=1e-9, method=get_method("tables", trees=3, rounds=2))
    found["limited tables"] = weights(clf.fit(X, ids))
    reported = []
    checkpoint = folder / "checkpoint"
    fit_many([job()], device="cpu", checkpoint=checkpoint, on_finish=reported.append)
    found["reported"] = len(reported)
    found["left"] = current_processes().agree(len([*checkpoint.iterdir()]))
    found["limited"] = fit_many([job(epochs=9)], device="cpu", time_limit=1e-9)[0].stop_reason
    # Errors end the work of both processes, and the next work begins anew.
    found["different rows"] = error_of(lambda: fit_many([job(seed=rank)], device="cpu"))
    found["different settings"] = error_of(lambda: fit_many([job(epochs=2 + rank)], device="cpu"))
    found["in the first"] = error_of(lambda: current_processes().once(lambda: 1 / rank))
    found["in one"] = error_of(fit_with_an_error_in_one)
    found["after"] = weights(fit_many([job()], device="cpu", precision="float64")[0])
    return found


def weights(trained):
    module = getattr(trained, "module", None) or trained.module_
    return torch.cat([v.double().flatten() for v in module.state_dict().values()]).numpy()


def error_of(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error
    return None


def fit_with_an_error_in_one():
    run_epoch = Stack.run_epoch

    def failing(stack, epoch):
        if stack.processes.rank == 1:
            raise ZeroDivisionError
        run_epoch(stack, epoch)

    Stack.run_epoch = failing
    try:
        fit_many([job()], device="cpu")
    finally:
        Stack.run_epoch = run_epoch


def test_two_processes(tmp_path):
    expected = weights(fit_many([job()], device="cpu")[0])
    in_float64 = weights(fit_many([job()], device="cpu", precision="float64")[0])
    checkpoint = tmp_path / "checkpoint"
    fit_many([job()], device="cpu", checkpoint=checkpoint)
    assert len([*checkpoint.iterdir()]) == 1
    first, second = run_together(in_a_group, tmp_path)
    assert not isinstance(first, Exception), first
    assert not isinstance(second, Exception), second
    assert (first["rank"], second["rank"]) == (0, 1)
    for found in (first, second):
        np.testing.assert_array_equal(found["alone"], expected)
        np.testing.assert_allclose(found["after"], in_float64, rtol=0, atol=1e-10)
        assert found["once"] == 0
        assert found["left"] == 0
        assert found["limited"] == "Stopped after 1 epoch: the time was up."
        for name in ("different rows", "different settings"):
            message = "rows and settings must be the same in each of the 2 processes"
            assert isinstance(found[name], InvalidInputError), found[name]
            assert message in str(found[name])
            assert "unbag.processes.alone()" in str(found[name])
    for name in ("unseeded", "tables", "limited tables"):
        np.testing.assert_array_equal(first[name], second[name])
    assert (first["found"], second["found"]) == (False, True)
    assert (first["reported"], second["reported"]) == (1, 0)
    assert isinstance(first["in the first"], ZeroDivisionError)
    assert isinstance(second["in the first"], LostProcessError)
    assert isinstance(first["in one"], LostProcessError)
    assert "one of them ended, or did not answer (" in str(first["in one"])
    assert "Connection" in str(first["in one"])
    assert isinstance(second["in one"], ZeroDivisionError)


def fit_and_die(folder):
    """Train with a checkpoint after every epoch; the second process dies in the third one."""
    run_epoch = Stack.run_epoch

    def dying(stack, epoch):
        if epoch == 2 and stack.processes.rank == 1:
            os._exit(9)
        run_epoch(stack, epoch)

    Stack.run_epoch = dying
    started = time.monotonic()
    options = {"device": "cpu", "checkpoint": folder, "checkpoint_seconds": 0}
    error = error_of(lambda: fit_many([job(epochs=5)], **options))
    return error, time.monotonic() - started


def test_a_process_that_dies_ends_all_and_another_number_goes_on(tmp_path):
    error, nothing = run_together(fit_and_die, tmp_path)
    assert nothing is None
    error, seconds = error
    assert isinstance(error, LostProcessError)
    assert "The processes of this fit have to end" in str(error)
    assert "start again to go on from there" in str(error)
    assert seconds < 60  # far below the time limits of groups
    epochs = []
    run_epoch = Stack.run_epoch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stack, "run_epoch", lambda s, e: (epochs.append(e), run_epoch(s, e))[1])
        resumed = fit_many([job(epochs=5)], device="cpu", checkpoint=tmp_path)[0]
    assert epochs == [2, 3, 4]
    whole = fit_many([job(epochs=5)], device="cpu")[0]
    np.testing.assert_allclose(weights(resumed), weights(whole), rtol=0, atol=1e-5)


def test_lost_processes_can_be_told_to_other_processes():
    error = pickle.loads(pickle.dumps(LostProcessError("one ended")))
    assert error.cause == "one ended"

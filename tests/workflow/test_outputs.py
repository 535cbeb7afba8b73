"""An output is made by one run at a time."""

import os
import subprocess
import sys

import pytest

from small_files import train
from unbag.exceptions import InvalidInputError
from unbag.workflow import predict_files, work
from unbag.workflow.outputs import hold
from unbag.workflow.parts import parts_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders are not locked there")

# Runs unbag, and waits at the end of its training until it is killed.
WAITING = """
import sys, time
from unbag.cli import app
from unbag.workflow import training

def wait(*_, **__):
    print("trained", flush=True)
    time.sleep(600)

training.judge = wait
app()
"""
FIT = "fit rows.parquet --bag district --priors shares.csv --epochs 2 --width 8 --output new"
REFUSED = "output must be written by one run at a time, got .*new, which another run is writing"


def test_a_second_run_is_refused_until_the_first_is_killed(folder):
    command = [sys.executable, "-c", WAITING, *FIT.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout.readline() == "trained\n"
            with pytest.raises(InvalidInputError, match=REFUSED):
                train(folder, "new")
            with pytest.raises(InvalidInputError, match=REFUSED):
                train(folder, "new", overwrite=True)
            assert (folder / ".new.work" / "rows").is_dir()  # of the first, as it was
            train(folder, "other")
        finally:
            first.kill()
    assert train(folder, "new").is_dir()
    assert not (folder / ".new.work").exists()


def test_predictions_are_made_by_one_run_at_a_time(folder):
    target = folder / "out.csv"
    with (
        hold(parts_folder(target), target),
        pytest.raises(InvalidInputError, match=r"out\.csv, which another run is writing"),
    ):
        predict_files("model", "other.parquet", output=target)
    assert predict_files("model", "other.parquet", output=target).rows > 0
    assert not parts_folder(target).exists()


def test_a_refused_run_leaves_the_folder_of_the_other(tmp_path):
    folder = tmp_path / ".new.work"
    with hold(folder, tmp_path / "new"):
        for _ in range(2):
            with (
                pytest.raises(InvalidInputError, match=REFUSED),
                hold(folder, tmp_path / "new"),
            ):
                raise AssertionError("held twice")
        assert folder.is_dir()
    assert not folder.exists()


def test_only_empty_folders_that_were_made_are_removed(tmp_path):
    folder = tmp_path / "a" / "b" / ".new.work"
    (tmp_path / "a").mkdir()
    with hold(folder, folder):
        assert folder.is_dir()
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]
    with hold(folder, folder):
        (folder / "kept").touch()
    assert (folder / "kept").exists()


def test_a_folder_that_was_removed_meanwhile_is_made_again(tmp_path, monkeypatch):
    """The run that held it removes it between the opening and the locking of the second."""
    folder = tmp_path / ".new.work"
    opened = []

    def open_removed(path, flags, inner=os.open):
        descriptor = inner(path, flags)
        opened.append(descriptor)
        if len(opened) == 1:
            folder.rmdir()
        return descriptor

    monkeypatch.setattr("unbag.workflow.outputs.os.open", open_removed)
    with hold(folder, tmp_path / "new"):
        assert len(opened) == 2
        monkeypatch.undo()
        with pytest.raises(InvalidInputError, match=REFUSED), hold(folder, tmp_path / "new"):
            pass


def test_a_file_system_without_locks_has_no_guard(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", no_locks)
    folder = tmp_path / ".new.work"
    with hold(folder, tmp_path / "new"):
        assert folder.is_dir()


def test_a_model_that_came_while_waiting_is_not_replaced(folder, monkeypatch):
    """What is there is looked at only once the output is held."""
    inner = work.hold

    def finished_first(*given):
        monkeypatch.setattr(work, "hold", inner)
        train(folder, "new")
        return inner(*given)

    monkeypatch.setattr(work, "hold", finished_first)
    with pytest.raises(InvalidInputError, match="new, a model"):
        train(folder, "new", seed=3)

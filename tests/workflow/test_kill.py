"""Commands that were killed and run again: the same result as without.

What they keep is made by renaming and removing files, so a kill right before one of these leaves
the states that there are. Random moments are in ``benchmarks/kill.py``.
"""

import itertools
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import commands
from unbag.methods import fitting
from unbag.workflow import predicting

# Runs unbag, and kills it before its n-th renaming or removing of a file of ours.
KILLED = """
import os, signal, sys
from unbag.methods import fitting
from unbag.workflow import predicting
from unbag.cli import app

fitting.fit_many.__kwdefaults__["checkpoint_seconds"] = 0.0
predicting._BATCH_ROWS = predicting._PART_ROWS = 128
left = int(sys.argv.pop(1))

def count(event, arguments):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
app()
"""
FIT = (
    "fit rows.parquet --bag district --priors shares.csv --method prop --epochs 2 --width 8 "
    "--output made"
)
PREDICT = "predict model other.parquet --key id --output made.parquet"
NEVER = 1_000_000


def run(command: str, killed_before: int) -> bool:
    """Run a command; tell whether it came to its end."""
    arguments = [sys.executable, "-c", KILLED, str(killed_before), *command.split()]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode == 0


def result(folder: Path) -> dict[str, bytes]:
    """All files that a command made, hidden ones too, without the date of the report."""
    files = {}
    for path in folder.glob("*made*"):
        for file in (path, *path.rglob("*")):
            if file.is_file():
                files[str(file.relative_to(folder))] = file.read_bytes()
    if "made/report.json" in files:
        created = json.loads(files["made/report.json"])["created"]
        for name in ("made/report.json", "made/report.html"):
            for date in (created, f"{created[:10]} {created[11:16]} UTC"):
                files[name] = files[name].replace(date.encode(), b"")
    return files


def remove(folder: Path) -> None:
    for path in folder.glob("*made*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def run_here(monkeypatch):
    """Run a command to its end in this process, which spares the start of another."""
    monkeypatch.setitem(fitting.fit_many.__kwdefaults__, "checkpoint_seconds", 0.0)
    monkeypatch.setattr(predicting, "_BATCH_ROWS", 128)
    monkeypatch.setattr(predicting, "_PART_ROWS", 128)

    def end(command: str) -> None:
        assert commands.run(command).exit_code == 0

    return end


@pytest.mark.parametrize(
    ("command", "moments"), [(FIT, (4, 14)), (PREDICT, (3, 5))], ids=["fit", "predict"]
)
def test_two_kills_change_nothing(folder, run_here, command, moments):
    run_here(command)
    expected = result(folder)
    remove(folder)
    for moment in moments:
        assert not run(command, moment)
        assert result(folder) != expected
    run_here(command)
    assert result(folder) == expected


@pytest.mark.slow
@pytest.mark.parametrize("command", [FIT, PREDICT], ids=["fit", "predict"])
def test_a_kill_anywhere_changes_nothing(folder, command):
    assert run(command, NEVER)
    expected = result(folder)
    for moment in itertools.count():
        remove(folder)
        if run(command, moment):
            break
        if result(folder) != expected:  # else it was killed with all done
            assert run(command, NEVER)
        assert result(folder) == expected, moment
    assert moment > 10

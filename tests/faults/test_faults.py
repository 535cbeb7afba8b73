"""Disks that are full or broken and memory that is short, at chosen calls of every command.

``sweep.py`` makes the n-th write, sync, rename, map or large allocation fail. Afterwards the whole
result is there or none, the message names the cause, and the same command then works.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sweep import COMMANDS

HERE = Path(__file__).parent
POINTS = int(os.environ.get("FAULT_POINTS", "0"))  # per kind of fault; 0 for a coarse sweep
COARSE = {"predict Parquet": 2, "fit CSV": 1}

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("cc"),
    reason="needs Linux and a C compiler",
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, HERE / "shim.c", "-ldl"], check=True)
    return path


def sweep(shim: Path, folder: Path, command: str, points: int) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, str(HERE / "sweep.py"), str(folder), f"{command}={points}"]
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    print(found["command"], found["points"])  # noqa: T201 — shown by pytest -s
    assert not found["wrong"], "\n".join(map(str, found["wrong"]))


@pytest.mark.parametrize("command", COARSE)
def test_faults(shim, folder, command):
    sweep(shim, folder, command, COARSE[command])


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_faults_everywhere(shim, folder, command):
    sweep(shim, folder, command, POINTS or 30)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_kills_at_random_moments(folder, command):
    arguments = [sys.executable, str(HERE / "kills.py"), str(folder), f"{command}=40"]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert not found["wrong"], found

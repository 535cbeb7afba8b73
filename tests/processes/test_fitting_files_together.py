"""``unbag fit`` in several processes: files are read and written once, and one process speaks."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import small_files
from unbag.cli import common

OPTIONS = "--bag district --priors shares.csv --method prop --epochs 2 --width 8"
OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launch(command, folder, size=2):
    """Run a command as torchrun does: in several processes that are told of each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(size):
        told = (rank, size, rank, size, "127.0.0.1", port)
        environment = os.environ | dict(zip(OF_TORCHRUN, map(str, told), strict=True))
        arguments = [sys.executable, "-m", "unbag", *command.split()]
        environment |= {"OMP_NUM_THREADS": "1"}
        running.append(
            subprocess.Popen(
                arguments,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        ended = [(*process.communicate(timeout=120), process.returncode) for process in running]
    finally:
        for process in running:
            process.kill()
    return ended


def test_a_model_of_two_processes_is_that_of_one(tmp_path):
    small_files.write_files(tmp_path)
    command = f"fit rows.csv {OPTIONS}"
    (first, notes, code), second = launch(f"{command} --output two --log-file log", tmp_path)
    assert (code, second) == (0, ("", "", 0)), notes
    assert first.endswith("Model:  two\nReport: two/report.html\n")
    assert (tmp_path / "log").read_text().count("unbag fit") == 1
    assert not (tmp_path / ".two.work").exists()
    small_files.train(tmp_path, "one", rows=tmp_path / "rows.csv")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=1e-5)
    # An error is told once, and what is there stays.
    before = (tmp_path / "two/model.safetensors").read_bytes()
    ended = launch(f"{command} --output two", tmp_path)
    told = [stderr for _, stderr, _ in ended if stderr]
    assert len(told) == 1
    assert "error: output must be a path that does not exist yet" in told[0]
    assert [code for *_, code in ended] == [1, 1]
    assert (tmp_path / "two/model.safetensors").read_bytes() == before


@pytest.mark.parametrize("rank", [0, 1])
def test_other_commands_are_refused(rank, monkeypatch, capsys):
    told = (rank, 2, rank, 2, "127.0.0.1", 1)
    for name, value in zip(OF_TORCHRUN, told, strict=True):
        monkeypatch.setenv(name, str(value))
    options = {"quiet": False, "verbose": False, "log_file": None}
    with pytest.raises(Exception, match="1"), common.running(options):
        pytest.fail("it ran")
    message = "torchrun must be given unbag fit, which several processes can run together"
    assert (message in capsys.readouterr().err) == (rank == 0)

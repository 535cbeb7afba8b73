"""Fixtures that several test files share."""

import functools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from unbag.datasets import Dataset, load

# The suite runs one process a core, and threads of small operations mostly wait for each other.
torch.set_num_threads(1)

_load = functools.cache(load)


@pytest.fixture(scope="session")
def dataset() -> Callable[[str], Dataset]:
    """Load a real dataset by name; where it is absent skip the test, or fail it in CI."""

    def get(name: str) -> Dataset:
        folder = os.environ.get("UNBAG_DATA")
        if not folder or not (Path(folder) / name).is_dir():
            reason = f"{name} is not in the folder that UNBAG_DATA names ({folder})"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
        return _load(name, folder)

    return get


@pytest.fixture(scope="session")
def small_files(tmp_path_factory) -> Path:
    """Files and a model, made once and never changed."""
    from small_files import train, write_files

    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    train(folder)
    return folder


@pytest.fixture
def folder(small_files, tmp_path, monkeypatch) -> Path:
    """A copy of the files and the model, as the current folder."""
    copy = tmp_path / "files"
    shutil.copytree(small_files, copy)
    monkeypatch.chdir(copy)
    return copy


class KilledError(BaseException):
    """Stands for SIGKILL: what cleans up after an error meets it as well."""


_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
_left = [-1]  # changes of the disk until the kill; below 0 for none


def _count(event: str, _: object) -> None:
    if _left[0] >= 0 and event in _CHANGES:
        if _left[0] == 0:
            raise KilledError
        _left[0] -= 1


sys.addaudithook(_count)


@pytest.fixture
def killed() -> Callable[[Callable[[], object], int], bool]:
    """Run a function and stop it before its nth change of the disk; tell whether it ended."""

    def run(function: Callable[[], object], moment: int) -> bool:
        _left[0] = moment
        try:
            function()
        except KilledError:
            return False
        finally:
            _left[0] = -1
        return True

    return run

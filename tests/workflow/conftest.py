import shutil
from pathlib import Path

import pytest
from small_files import train, write_files


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Files and a model, made once and never changed."""
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    train(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch) -> Path:
    """A copy of the files and the model, as the current folder."""
    copy = tmp_path / "files"
    shutil.copytree(made, copy)
    monkeypatch.chdir(copy)
    return copy

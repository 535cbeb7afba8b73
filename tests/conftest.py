"""Fixtures that several test files share."""

import functools
import os
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

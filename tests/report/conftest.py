"""Runs that the tests of reports share."""

import pytest
from small_run import HOSTILE_BAGS, HOSTILE_CLASSES, fit


@pytest.fixture(scope="session")
def run():
    """A run with plain names."""
    return fit(["north", "south", "east", "west", "centre"], ["setosa", "versicolor", "virginica"])


@pytest.fixture(scope="session")
def hostile_run():
    """A run whose names attack the page."""
    return fit(HOSTILE_BAGS, HOSTILE_CLASSES)


@pytest.fixture(scope="session")
def many_run():
    """A run of more bags than a table can show, without a history of the label-free error."""
    names = [f"bag {i}" for i in range(700)]
    return fit(names, ["a", "b", "c"], rows_a_bag=10, early_stopping=False, repeat=1)

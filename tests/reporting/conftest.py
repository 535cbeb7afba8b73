"""Runs that the tests of reports share: one is fitted, the others are made from it."""

import pytest
from small_run import HOSTILE_BAGS, HOSTILE_CLASSES, draw, fit, rename


@pytest.fixture(scope="session")
def run():
    """A run with plain names."""
    return fit()


@pytest.fixture(scope="session")
def hostile_run(run):
    """A run whose names attack the page."""
    return rename(run, HOSTILE_BAGS, HOSTILE_CLASSES)


@pytest.fixture(scope="session")
def many_run(run):
    """A run of more bags than a table can show, without a history."""
    return draw(run, 700, 3)

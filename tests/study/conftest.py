"""The study in small, for tests that train."""

import pytest
import tiny_study


@pytest.fixture
def small(monkeypatch):
    """Replace data, networks, epochs and grids of the study by tiny ones."""
    tiny_study.install(monkeypatch.setattr, monkeypatch.setitem)

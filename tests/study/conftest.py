"""The study in small, for tests that train, and without what costs time."""

from dataclasses import replace

import pytest
import tiny_study

from study import figures


@pytest.fixture
def small(monkeypatch):
    """Replace data, networks, epochs and grids of the study by tiny ones."""
    tiny_study.install(monkeypatch.setattr, monkeypatch.setitem)


@pytest.fixture
def canned(monkeypatch):
    """Let every job end at once, without training; lists the calls of ``fit_many``."""
    calls = []
    monkeypatch.setattr("study.training.fit_many", tiny_study.canned_fits(calls))
    return calls


@pytest.fixture
def empty_figures(monkeypatch):
    """Write figures with nothing on them, which is quick."""
    empty = {n: replace(f, paint=lambda *_: None) for n, f in figures.FIGURES.items()}
    monkeypatch.setattr(figures, "FIGURES", empty)

"""Pages show what was measured: the tables of the stored records."""

import importlib
from pathlib import Path

import pytest

from study.checks.__main__ import read

ROOT = Path(__file__).parents[1]
PAGES = [  # script, record and page
    ("stack", "results/stack-nvidia-h200.json", "docs/records/performance.md"),
    ("precision", "results/precision-nvidia-h200.json", "docs/records/performance.md"),
    ("coverage", "results/coverage.json", "docs/guide/evaluation.md"),
    ("tuning", "results/tuning.json", "docs/guide/tuning.md"),
    ("causes", "results/causes.json", "docs/records/reproduction.md"),
    ("causes", "results/causes-mixed.json", "docs/records/reproduction.md"),
    ("causes", "results/causes-draws.json", "docs/records/reproduction.md"),
    ("predict", "results/predict.json", "docs/records/large-files.md"),
    ("large_fit", "results/large-fit.json", "docs/records/large-files.md"),
    ("kill", "results/kill.json", "docs/records/large-files.md"),
    ("tables", "results/tables.json", "docs/records/research.md"),
    ("small_bags", "results/small-bags.json", "docs/records/research.md"),
    ("real_tables", "results/real-tables.jsonl", "docs/records/research.md"),
]


def load(name):
    """Import a check of the study, or a benchmark, which is a script beside its neighbours."""
    folder = "study.checks" if (ROOT / f"study/checks/{name}.py").exists() else "benchmarks"
    return importlib.import_module(f"{folder}.{name}" if folder == "study.checks" else name)


@pytest.mark.parametrize(("script", "record", "page"), PAGES)
def test_the_tables_are_those_of_the_records(script, record, page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # where a script finds its neighbours
    shown = (ROOT / page).read_text(encoding="utf-8")
    table = load(script).table(read(ROOT / record))
    for line in table.splitlines():  # first by line, so that a failure names the one that differs
        assert line in shown
    assert table in shown

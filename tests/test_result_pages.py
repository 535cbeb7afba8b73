"""Pages show what was measured: the tables of the stored records."""

import importlib
from pathlib import Path

import pytest

from script import read

ROOT = Path(__file__).parents[1]
PAGES = [  # module of a check or a benchmark, record and page
    ("stack", "results/stack-nvidia-h200.json", "docs/records/performance.md"),
    ("study.checks.precision", "results/precision-nvidia-h200.json", "docs/records/performance.md"),
    ("study.checks.coverage", "results/coverage.json", "docs/guide/evaluation.md"),
    ("study.checks.tuning", "results/tuning.json", "docs/guide/tuning.md"),
    ("study.checks.causes", "results/causes.json", "docs/records/reproduction.md"),
    ("study.checks.causes", "results/causes-mixed.json", "docs/records/reproduction.md"),
    ("study.checks.causes", "results/causes-draws.json", "docs/records/reproduction.md"),
    ("predict", "results/predict.json", "docs/records/large-files.md"),
    ("large_fit", "results/large-fit.json", "docs/records/large-files.md"),
    ("kill", "results/kill.json", "docs/records/large-files.md"),
    ("study.checks.tables", "results/tables.json", "docs/records/research.md"),
    ("study.checks.small_bags", "results/small-bags.json", "docs/records/research.md"),
    ("tables", "results/real-tables.jsonl", "docs/records/research.md"),
]


@pytest.mark.parametrize(("script", "record", "page"), PAGES)
def test_the_tables_are_those_of_the_records(script, record, page):
    shown = (ROOT / page).read_text(encoding="utf-8")
    table = importlib.import_module(script).table(read(ROOT / record))
    for line in table.splitlines():  # first by line, so that a failure names the one that differs
        assert line in shown
    assert table in shown

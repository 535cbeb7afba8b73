"""The page on performance shows what was measured: the tables of the stored records."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load_script(name):
    spec = importlib.util.spec_from_file_location(
        f"benchmark_{name}", ROOT / f"benchmarks/{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["stack", "precision"])
def test_the_tables_are_those_of_the_records(name):
    record = json.loads((ROOT / f"results/{name}-nvidia-h200.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    table = load_script(name).table(record)
    for line in table.splitlines():  # first by line, so that a failure names the one that differs
        assert line in page
    assert table in page

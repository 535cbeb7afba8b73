"""Pages show what was measured: their directives find the records."""

import importlib
import re
from pathlib import Path

import pytest

from script import read

ROOT = Path(__file__).parents[1]
DIRECTIVE = re.compile(r"^```\{measured\} (\S+) (\S+)\n```$", re.MULTILINE)
SHOWN = sorted(
    found for page in (ROOT / "docs").rglob("*.md") for found in DIRECTIVE.findall(page.read_text())
)


@pytest.mark.parametrize(("module", "record"), SHOWN)
def test_a_record_becomes_a_table(module, record):
    table = importlib.import_module(module).table(read(ROOT / record))
    assert re.search(r"^\|( ?:?---+:? ?\|)+$", table, re.MULTILINE)


def test_the_records_are_where_pages_look():
    assert len(SHOWN) > 10

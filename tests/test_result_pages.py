"""Pages show what was measured: their directives find the records, and every record is shown."""

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


def test_every_record_is_shown():
    records = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results").glob("*.json*")}
    assert {record for _, record in SHOWN} == records

import re
from pathlib import Path

from study.checks.inspection import case_table
from unbag.inspection import rules

PAGE = Path(__file__).parents[2] / "docs/records/inspection.md"


def test_the_cases_have_every_verdict():
    rows = [line.split(" | ") for line in case_table().splitlines()[2:]]
    verdicts = [row[1] for row in rows]
    assert len(rows) == 10
    assert set(verdicts) == {"go", "care", "stop"}


def test_the_page_lists_every_limit():
    page = PAGE.read_text(encoding="utf-8")
    source = Path(rules.__file__).read_text(encoding="utf-8")
    names = re.findall(r"^([A-Z_]+) = ", source, flags=re.MULTILINE)
    assert len(names) > 10
    for name in names:
        assert f"| `{name}` | {getattr(rules, name):g} |" in page

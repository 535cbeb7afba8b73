"""Every bad input gets a message, no traceback, and changes nothing."""

import pytest
from bad_inputs import BAD_INPUTS
from errors_page import PAGE, page

from run_command import content, message, run

IDS = [f"{case.topic}: {case.wrong}" for case in BAD_INPUTS]
# Messages of torch, sqlite, pyarrow and the like may differ between versions of them.
FOREIGN = (
    "(",
    "Invalid value",
    "Missing",
    "No such",
    "got Parquet magic",
    "got CSV parse",
    "got Un",
)


@pytest.mark.parametrize("case", BAD_INPUTS, ids=IDS)
def test_bad_inputs_are_refused(folder, case):
    case.make(folder)
    before = content(folder)
    result = run(case.command)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in (1, 2), result.output
    text = message(result.stderr)
    assert text, result.stderr
    assert result.stdout == ""
    assert str(folder) not in text
    assert content(folder) == before
    listed = PAGE.read_text(encoding="utf-8")
    if not any(sign in text for sign in FOREIGN):
        assert page({case: text}).splitlines()[-1] in listed, "run errors_page.py again"


def test_the_table_is_large_and_the_page_has_its_topics():
    assert len(BAD_INPUTS) >= 60
    assert len(set(IDS)) == len(IDS)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = sum(line.startswith("- ") for line in lines)
    assert 0.8 * len(BAD_INPUTS) < listed <= len(BAD_INPUTS)  # some cases share a message
    for case in BAD_INPUTS:
        assert f"## {case.topic.capitalize()}" in lines

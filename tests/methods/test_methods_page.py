"""The examples of the pages about methods and about parts of one's own run as they are written."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "examples"),
    [("guide/methods.md", 8), ("extend/method.md", 9), ("extend/index.md", 12)],
)
def test_the_examples_of_the_page_run(page, examples):
    result = doctest.testfile(str(DOCS / page), module_relative=False)
    assert result.attempted >= examples
    assert not result.failed

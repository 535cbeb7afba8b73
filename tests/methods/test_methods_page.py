"""The examples of docs/guide/methods.md run as they are written."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/guide/methods.md"


def test_the_examples_of_the_page_run():
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 20
    assert not result.failed

"""The code on the documentation's page runs as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/guide/evaluation.md").read_text(encoding="utf-8")


def test_the_example_of_a_scikit_learn_model(capsys):
    code = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    names = {}
    exec(compile(code, "docs/guide/evaluation.md", "exec"), names)
    report, bags, model = names["report"], names["bags"], names["model"]
    truth = (model.predict(bags.X) == bags.labels).mean()
    assert report.accuracy == pytest.approx(truth, abs=0.05)
    assert report.accuracy.low < truth < report.accuracy.high
    printed = capsys.readouterr().out
    assert printed.startswith("400 rows in 10 bags, no labels; 95% intervals\n")
    assert "recall of 9" in printed

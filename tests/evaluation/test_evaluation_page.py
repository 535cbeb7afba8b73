"""The code on the documentation's page runs as it stands there."""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import unbag

mpl.use("Agg")
from matplotlib import pyplot

PAGE = (Path(__file__).parents[2] / "docs/guide/evaluation.md").read_text(encoding="utf-8")

BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def block(start):
    (found,) = [code for code in BLOCKS if code.startswith(start)]
    return found


def test_what_a_notebook_shows():
    rng = np.random.default_rng(0)
    shares = {"a": {"no": 0.2, "yes": 0.8}, "b": {"no": 0.7, "yes": 0.3}}
    truth = np.concatenate([rng.random(200) < 0.8, rng.random(200) < 0.3])
    X = pd.DataFrame({"size": rng.normal(3 * truth, 1.0), "age": rng.normal(size=400)})
    ids = np.repeat(["a", "b"], 200)
    clf = unbag.UnbagClassifier(shares, "prop", model="linear", epochs=20).fit(X[::2], ids[::2])
    names = {"unbag": unbag, "clf": clf, "held_out": X[1::2], "bag_ids": ids[1::2]}
    exec(compile(block("from unbag.displays"), "docs/guide/evaluation.md", "exec"), names)
    axes = [pyplot.figure(number).axes[0] for number in pyplot.get_fignums()]
    pyplot.close("all")
    assert [a.get_xlabel() for a in axes] == [
        "predicted class",
        "predicted probability, %",
        "increase of the bag log-loss when shuffled, nats per row",
    ]
    for shown in (
        names["evaluation"],
        unbag.inspect(shares),
        clf.priors_,
        unbag.Bags(X, ids, shares),
    ):
        assert str(shown.summary())
        assert len(shown.to_frame())
        assert shown._repr_html_()
    pyplot.close("all")


def test_the_example_of_a_scikit_learn_model(capsys):
    code = block("import unbag")
    names = {}
    exec(compile(code, "docs/guide/evaluation.md", "exec"), names)
    report, bags, model = names["report"], names["bags"], names["model"]
    truth = (model.predict(bags.X) == bags.labels).mean()
    assert report.accuracy == pytest.approx(truth, abs=0.05)
    assert report.accuracy.low < truth < report.accuracy.high
    printed = capsys.readouterr().out
    assert printed.startswith("400 rows in 10 bags, no labels; 95% intervals\n")
    assert "recall of 9" in printed

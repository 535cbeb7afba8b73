"""``unbag.report``: the page of a classifier in a notebook and in a file."""

import html
import json

import numpy as np
import pandas as pd
import pytest

import unbag
from unbag.exceptions import InvalidInputError

SHARES = {"a": {"no": 0.9, "yes": 0.1}, "b": {"no": 0.4, "yes": 0.6}, "c": {"no": 0.1, "yes": 0.9}}
IDS = np.repeat(["a", "b", "c"], 200)


def table(seed):
    generator = np.random.default_rng(seed)
    chance = np.select([IDS == "a", IDS == "b"], [0.1, 0.6], 0.9)
    truth = generator.random(600) < chance
    size = generator.normal(2.5 * truth)
    return pd.DataFrame({"colour": np.where(truth, "red", "blue"), "size": size})


@pytest.fixture(scope="module")
def clf():
    clf = unbag.UnbagClassifier(SHARES, "prop", model="linear", epochs=40, learning_rate=0.05)
    return clf.fit(table(0), IDS)


@pytest.fixture(scope="module")
def report(clf):
    return unbag.report(clf, table(1), IDS, title="Red & blue")


def test_it_holds_what_evaluate_gives(clf, report):
    evaluation = unbag.evaluate(clf, table(1), IDS)
    assert report.evaluation.accuracy == evaluation.accuracy
    assert report.content["headline"]["accuracy"]["value"] == pytest.approx(
        evaluation.accuracy, rel=1e-5
    )
    assert {line["column"] for line in report.content["columns"]["largest"]} == {"colour", "size"}
    assert report.content["inspection"] is not None
    assert str(report.evaluation) in str(report)
    assert str(report.verdict) in str(report)


def test_rows_are_predicted_once(clf, report, monkeypatch):
    sizes, predict_proba = [], unbag.UnbagClassifier.predict_proba

    def counted(self, X, *given):
        chances = predict_proba(self, X, *given)
        sizes.append(len(chances))
        return chances

    monkeypatch.setattr(unbag.UnbagClassifier, "predict_proba", counted)
    monkeypatch.setattr(unbag.UnbagClassifier, "predict", None)
    monkeypatch.setattr("unbag.estimator.predicting.Predicting.predict", None)
    again = unbag.report(clf, table(1), IDS)
    assert sizes.count(600) == 1  # columns are shuffled in a part of the rows
    assert again.evaluation.accuracy == report.evaluation.accuracy


def test_a_notebook_shows_the_page_in_a_frame(report):
    shown = report._repr_html_()
    assert shown.startswith("<iframe ")
    assert shown.count("<") == 2  # all of the page is in an attribute
    page = shown[shown.index('srcdoc="') + 8 : shown.index('" title=')]
    assert html.unescape(page) == report.to_html()
    assert "Red &amp; blue" in report.to_html()


def test_save_writes_page_and_content(report, tmp_path):
    page = tmp_path / "page.html"
    report.save(page)
    assert page.read_text(encoding="utf-8") == report.to_html()
    assert json.loads((tmp_path / "page.json").read_text(encoding="utf-8")) == report.to_dict()
    with pytest.raises(InvalidInputError, match=r"does not exist yet.*overwrite=True"):
        report.save(page)
    report.save(page, overwrite=True)
    with pytest.raises(InvalidInputError, match=r"ends in \.html"):
        report.save(tmp_path / "page.txt")


def test_groups_have_a_section(clf):
    groups = np.tile(["x", "y"], 300)
    assert unbag.report(clf, table(1), IDS, by=groups).content["groups"] is not None


def test_bags_hold_their_ids(clf, report):
    rows = clf.encoding_.transform(table(1))
    bags = unbag.Bags(rows, IDS, SHARES, feature_names=clf.encoding_.feature_names)
    assert unbag.report(clf, bags).evaluation.accuracy == report.evaluation.accuracy
    with pytest.raises(InvalidInputError, match="left out where X is Bags"):
        unbag.report(clf, bags, IDS)


def test_without_rows_it_says_that_nothing_was_evaluated(clf):
    bare = unbag.report(clf)
    assert bare.evaluation is None
    assert "No rows were kept" in bare.warnings[0]
    assert bare.verdict.status != "go"

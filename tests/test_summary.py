"""Results as text, HTML and DataFrames."""

import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import unbag
from unbag.evaluation import Estimate, PriorEstimate
from unbag.selection import TuningResult
from unbag.summary import Summary

mpl.use("Agg")
SHARES = pd.DataFrame({"yes": [0.7, 0.2], "no": [0.3, 0.8]}, index=["north", "<b>south</b>"])


@pytest.fixture
def bags():
    ids = np.repeat(SHARES.index.to_numpy(), [30, 20])
    return unbag.Bags(np.arange(50.0)[:, None], ids, SHARES)


@pytest.fixture
def evaluation(bags):
    predicted = np.array(["yes"] * 24 + ["no"] * 6 + ["yes"] * 5 + ["no"] * 15)
    return unbag.evaluate_predictions(predicted, bags.bag_ids, priors=SHARES)


@pytest.fixture
def result(bags, evaluation):
    trials = [
        {"number": 0, "params": {}, "score": -0.5, "state": "COMPLETE"},
        {"number": 1, "params": {"dropout": 0.2}, "score": None, "state": "PRUNED"},
        {"number": 2, "params": {"dropout": 0.50001}, "score": -0.4, "state": "COMPLETE"},
    ]
    estimator = unbag.UnbagClassifier()
    return TuningResult({"dropout": 0.5}, -0.4, estimator, evaluation, trials, bags, bags)


def test_html_aligns_numbers_to_the_right_and_long_texts_to_the_left():
    rows = [
        ["a", "1 of 2", "a text of several words"],
        ["b", "3", "of which one is longer still"],
    ]
    shown = Summary("t", ["name", "number", "text"], rows)._repr_html_()
    sides = re.findall(r"text-align: (\w+)", shown)
    assert sides == 3 * ["left", "right", "left"]
    assert "<tbody></tbody>" in Summary("t", ["name", "number"], [])._repr_html_()


def test_html_escapes_what_users_named():
    shown = Summary("<i>", ["<u>", "b"], [["<s>", "<q>"]], ["<p>"])._repr_html_()
    assert shown == (
        "<div><strong>&lt;i&gt;</strong><table><thead><tr>"
        '<th style="text-align: left; padding: 0.2em 0.6em">&lt;u&gt;</th>'
        '<th style="text-align: right; padding: 0.2em 0.6em">b</th></tr></thead>'
        '<tbody><tr><th style="text-align: left; padding: 0.2em 0.6em">&lt;s&gt;</th>'
        '<td style="text-align: right; padding: 0.2em 0.6em">&lt;q&gt;</td></tr></tbody>'
        "</table><p>&lt;p&gt;</p></div>"
    )


def test_long_tables_say_what_is_left_out():
    summary = Summary("many", ["n"], [[i] for i in range(100)])
    assert "40 more rows are not shown" in str(summary)
    assert ">60<" not in summary._repr_html_()


def test_shares_of_bags(bags):
    pd.testing.assert_frame_equal(bags.priors.to_frame().rename_axis(None), SHARES)
    frame = bags.to_frame()
    assert frame["rows"].tolist() == [30, 20]
    assert frame.loc["north", "yes"] == 0.7
    assert "&lt;b&gt;south&lt;/b&gt;" in bags._repr_html_()
    assert "<b>" not in bags._repr_html_()
    assert "north" in str(bags.summary())
    assert "70.0" in str(bags.priors.summary())
    assert unbag.ClassPriors.of(bags.priors.to_frame()).values.tolist() == SHARES.values.tolist()


def test_shares_that_cannot_tell_classes_apart_say_so():
    priors = unbag.ClassPriors([[0.5, 0.5], [0.5, 0.5]])
    assert "cannot tell all classes apart" in str(priors.summary())


def test_evaluation_has_every_number_with_its_interval(evaluation):
    frame = evaluation.to_frame()
    accuracy = frame[frame["number"] == "accuracy"].iloc[0]
    assert (accuracy["value"], accuracy["low"]) == (evaluation.accuracy, evaluation.accuracy.low)
    recalls = frame[frame["number"] == "recall"]
    assert dict(zip(recalls["class"], recalls["value"], strict=True)) == {
        "yes": float(evaluation.recall[0]),
        "no": float(evaluation.recall[1]),
    }
    assert f"{evaluation.recall[1]:.2%}" in str(evaluation.summary())
    assert "recall of no" in evaluation._repr_html_()


def test_untrustworthy_evaluation_shows_no_interval():
    predicted = np.repeat(["yes", "no"], [100, 100])
    shares = SHARES.set_axis(["north", "south"])
    ids = np.repeat(["north", "south"], 100)
    evaluation = unbag.evaluate_predictions(predicted, ids, priors=shares)
    assert not evaluation.trustworthy
    assert evaluation.accuracy > 1
    assert evaluation.summary().rows[0] == ("accuracy", ">100%", "–", "–")
    assert "Warning: " in str(evaluation.summary())
    assert f"{evaluation.accuracy:.2%}" not in str(evaluation)


def test_trials_best_first(result):
    assert [row[0] for row in result.summary().rows] == [2, 0]
    assert [row[2] for row in result.summary().rows] == ["dropout=0.5", "as given"]
    frame = result.to_frame()
    assert frame.loc[2, "dropout"] == 0.50001
    assert frame.index.tolist() == [0, 1, 2]


def test_inspection_ends_in_its_verdict(bags):
    inspection = unbag.inspect(bags.priors, bags.counts)
    assert inspection.summary().title.endswith(inspection.verdict)
    assert inspection.to_frame()["number"].tolist() == [name for name, _ in inspection.table()]


def test_estimated_shares():
    shares = [Estimate(0.6, 0.5, 0.7), Estimate(0.4, 0.3, 0.5)]
    estimate = PriorEstimate(np.array(["a", "b"]), shares, "em")
    assert estimate.to_frame().loc["b"].tolist() == [0.4, 0.3, 0.5]
    assert "60.00%" in str(estimate.summary())


def test_every_result_draws_itself_on_given_axes(bags, evaluation, result):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    estimate = PriorEstimate(np.array(["a", "b"]), [Estimate(0.6, 0.5, 0.7)] * 2, "em")
    inspection = unbag.inspect(bags.priors, bags.counts)
    for shown in (bags, bags.priors, evaluation, result, inspection, estimate):
        figure, axes = pyplot.subplots()
        assert shown.plot(ax=axes) is axes
        assert axes.has_data()
        pyplot.close(figure)
    _, points = (line.get_xydata().tolist() for line in result.plot().lines)
    assert points == [[0, -0.5], [2, -0.4]]
    axes = bags.plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "north (30 rows)",
        "<b>south</b> (20 rows)",
    ]
    pyplot.close(axes.figure)

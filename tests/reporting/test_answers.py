"""The three answers: for a good, a doubtful and a hopeless model."""

import re

import numpy as np
import pytest
from small_run import without_history

import unbag
from unbag.reporting import build_report

THETA = np.array([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5]])


def answers(run, *, right=0.95, rows=4000, shift=0.0, evaluated=True, inspection=None, **content):
    """Answers for predictions of known accuracy, the first bag's share of a being off by shift."""
    priors = unbag.ClassPriors(THETA, ["x", "y", "z"], ["a", "b"])
    clf = without_history(run.clf, priors)
    predicted, ids = [], []
    for bag, share in zip("xyz", THETA[:, 0], strict=True):
        share = share + (shift if bag == "x" else 0.0)
        n = round(rows * (share * right + (1 - share) * (1 - right)))
        predicted += ["a"] * n + ["b"] * (rows - n)
        ids += [bag] * rows
    evaluation = unbag.evaluate_predictions(predicted, ids, priors=priors) if evaluated else None
    report = build_report(clf, evaluation, inspection, **content)
    good, trust, following = report["answers"]["questions"]
    assert [q["question"] for q in report["answers"]["questions"]] == [
        "How good is it?",
        "Can I trust it?",
        "What should I do next?",
    ]
    return report["answers"]["status"], good, trust, following


def test_a_good_model(run):
    status, good, trust, following = answers(run)
    assert status == "go"
    assert good["answer"] == "It is right for about 95.0% of new rows."
    assert "12,000 held-out rows (95% interval: 93.4% to 96.5%)" in good["points"][0]
    assert "most common class, “a”, would be right for 50.0%" in good["points"][1]
    assert trust == {
        "question": "Can I trust it?",
        "answer": "Yes, as far as it can be tested without labels.",
        "points": [],
        "in_full": [],
    }
    assert following["answer"] == "Use it."
    assert len(following["points"]) == 1
    assert "unbag predict" in following["points"][0]


def test_few_rows_ask_for_care_and_for_more_rows(run):
    status, _, trust, following = answers(run, rows=100)
    assert status == "care"
    assert "interval of the accuracy is wide: 8" in trust["points"][0]
    assert "evaluate it on about 2.4 times as many rows" in following["points"][0]


def test_of_an_estimate_a_little_above_100_percent_the_interval_is_told(run):
    _, good, _, _ = answers(run, right=1.0, shift=0.01, rows=300)
    assert re.fullmatch(r"It is right for 9\d\.\d% to 100\.0% of new rows\.", good["answer"])


def test_an_estimate_above_100_percent_stops(run):
    """Shares that are too close to one another promise more than any classifier can have."""
    status, good, trust, following = answers(run, right=1.0, shift=0.15, rows=2000)
    assert status == "stop"
    assert "cannot be said" in good["answer"]
    assert good["points"] == []
    assert "standard errors above 100%" in trust["points"][0]
    assert following["answer"] == "Do not use it."
    assert "columns that depend on the bag" in following["points"][0]
    assert not any("unbag predict" in step for step in following["points"])


@pytest.mark.parametrize(
    ("right", "answer", "reason"),
    [
        (0.4, "new rows, no better than", "no better than always answering “a”"),
        (0.52, "It seems right for about 52", "Nothing shows that it"),
    ],
)
def test_a_model_no_better_than_one_class(run, right, answer, reason):
    status, good, trust, following = answers(run, right=right, rows=300)
    assert status == "stop"
    assert answer in good["answer"]
    assert reason in trust["points"][0]
    assert not any("unbag predict" in step for step in following["points"])


@pytest.mark.parametrize("right", [0.3, 0.55, 0.8])
def test_rows_that_cannot_tell_say_so(run, right):
    _, good, _, _ = answers(run, right=right, rows=10)
    assert re.fullmatch(
        r"These rows cannot tell: it may be right for anything from \d+\.\d% to \d+\.\d% of new "
        r"rows\.",
        good["answer"],
    )


def test_warnings_and_no_evaluation_ask_for_care(run):
    status, good, trust, following = answers(run, evaluated=False, warnings=["Rows repeat."])
    assert status == "care"
    assert good["answer"] == "Unknown: it was not evaluated on held-out rows."
    assert trust["points"][0] == "Rows repeat."
    assert "unbag evaluate" in following["points"][0]


def test_the_check_of_bags_and_shares_counts(run):
    close = {"x": [0.5, 0.5], "y": [0.5, 0.5]}
    inspection = unbag.inspect(close, sizes=100)
    status, _, trust, following = answers(run, inspection=inspection)
    assert status == inspection.verdict == "stop"
    assert inspection.reasons[0].startswith(trust["points"][0].rstrip("."))
    assert inspection.reasons[0] in trust["in_full"]
    assert "then fit again" in following["points"][0]


def test_what_cannot_be_tested_is_said(run):
    inspection = unbag.inspect({"x": [0.9, 0.1], "y": [0.1, 0.9]}, sizes=5000)
    status, _, trust, following = answers(run, inspection=inspection)
    assert status == "go"
    assert "needs more than 2 bags with rows, and there are 2" in trust["points"][0]
    assert "by hand" in following["points"][0]


def test_classes_that_are_not_to_be_trusted_are_named(run):
    evaluation = run.evaluation
    evaluation.recall[1] = unbag.evaluation.Estimate(1.5, 0.98, 1.0)
    points = build_report(**run.content(evaluation=evaluation))["answers"]["questions"][1]["points"]
    assert any("recall of 'versicolor' is outside 0 to 100%" in point for point in points)

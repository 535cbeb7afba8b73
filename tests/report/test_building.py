"""The content of a report, as a dict."""

import datetime
import json
import math

import numpy as np
import pytest
from small_run import HOSTILE_BAGS, fit

import unbag
from unbag.evaluation import Estimate
from unbag.report import FORMAT, VERSION, build_report
from unbag.report.plain import plain, text


def test_content_of_a_real_run(run):
    report = build_report(**run.content(title="Iris"))
    assert (report["format"], report["version"]) == (FORMAT, VERSION) == ("unbag-report", 1)
    assert report["created"] == "2026-01-02T03:04:00+00:00"
    headline = report["headline"]
    assert headline["accuracy"]["value"] == pytest.approx(run.evaluation.accuracy, rel=1e-5)
    assert headline["accuracy"]["low"] == pytest.approx(run.evaluation.accuracy.low, rel=1e-5)
    assert headline["held_out_rows"] == len(run.predicted)
    assert headline["training_rows"] == len(run.train.bag_ids)
    assert report["inspection"]["verdict"] == run.inspection.verdict
    assert report["priors"]["bags"] == ["north", "south", "east", "west", "centre"]
    np.testing.assert_allclose(report["priors"]["shares"], run.priors.values, rtol=1e-5)
    assert sum(report["priors"]["held_out_rows"]) == len(run.predicted)
    assert report["confusion"]["recall"][1]["value"] == report["confusion"]["raw"][1][1]
    assert report["calibration"]["temperature"] == pytest.approx(
        run.clf.calibration_.temperature, rel=1e-5
    )
    assert report["hyperparameters"]["values"]["width"] == 20
    assert "flood_level" not in report["hyperparameters"]["values"]
    assert "Tang" in report["citation"]["paper_bibtex"]


def test_content_is_valid_json(run):
    report = build_report(**run.content())
    written = json.dumps(report, allow_nan=False)
    assert json.loads(written) == report


def test_training_curves(run):
    training = build_report(**run.content())["training"]
    history = run.clf.history_
    assert training["epoch"] == list(range(1, run.clf.n_iter_ + 1))
    np.testing.assert_allclose(training["objective"], history["objective"], rtol=1e-5)
    risks = history["partial_risks"]
    expected = (run.clf.priors_.values * risks).sum((1, 2)) / len(run.clf.priors_.values)
    np.testing.assert_allclose(training["partial_risks"]["mean"], expected, rtol=1e-5)
    np.testing.assert_allclose(training["partial_risks"]["smallest"], risks.min((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(training["partial_risks"]["largest"], risks.max((1, 2)), rtol=1e-5)


def test_the_band_is_that_of_the_rows_of_the_curve(run):
    training = build_report(**run.content())["training"]
    low, high = run.watched.error.interval
    assert training["label_free_half_width"] == pytest.approx((high - low) / 2, rel=1e-5)
    low, high = run.evaluation.error.interval
    assert training["label_free_half_width"] > 1.1 * (high - low) / 2  # of more rows
    unknown = build_report(**run.content(watched=None))["training"]
    assert "label_free_half_width" not in unknown


def test_a_bag_in_no_batch_of_an_epoch_is_left_out(run):
    theta = run.clf.priors_.values
    risks = np.ones((1, *theta.shape))
    risks[0, 0] = np.nan
    whole = run.clf.history_
    run.clf.history_ = {k: v[:1] for k, v in whole.items()} | {"partial_risks": risks}
    try:
        partial = build_report(**run.content())["training"]["partial_risks"]
    finally:
        run.clf.history_ = whole
    assert partial == {"mean": [1.0], "smallest": [1.0], "largest": [1.0]}


def test_predicted_shares_of_every_bag(run):
    content = build_report(**run.content())
    shares = np.array(content["bag_shares"]["predicted"])
    bag = np.array(run.held_out.bag_ids)
    for i, name in enumerate(content["priors"]["bags"]):
        for j, label in enumerate(content["priors"]["classes"]):
            expected = np.mean(run.predicted[bag == name] == label)
            assert shares[i, j] == pytest.approx(expected, abs=1e-6)
    gaps = content["bag_shares"]["largest_gaps"]
    assert 0 < len(gaps) <= 10
    assert all(gap["known"] != gap["predicted"] for gap in gaps)


def test_intervals_of_confusion_cells(run):
    part = build_report(**run.content())["confusion"]
    low, high, raw = (np.array(part[key]) for key in ("low", "high", "raw"))
    inside = np.clip(raw, 0, 1)
    assert (low <= inside + 1e-6).all()
    assert (high >= inside - 1e-6).all()
    for k, recall in enumerate(part["recall"]):
        assert (low[k, k], high[k, k]) == (recall["low"], recall["high"])
    least = unbag.evaluate_predictions(
        run.predicted, run.held_out.bag_ids, priors=run.priors, inverse="least-variance"
    )
    assert build_report(**run.content(evaluation=least))["confusion"]["low"] is None


def test_intervals_of_confusion_cells_cover():
    theta = np.array([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6], [0.3, 0.3, 0.4]])
    true = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    rng = np.random.default_rng(0)
    clf = fit(["a", "b", "c", "d"], ["x", "y", "z"]).clf
    clf.set_params(priors=unbag.ClassPriors(theta, classes=["x", "y", "z"]))
    bag = np.repeat(np.arange(4), 300)
    covered = []
    for _ in range(100):
        label = (rng.random(1200)[:, None] > theta[bag].cumsum(1)).sum(1)
        guess = (rng.random(1200)[:, None] > true[label].cumsum(1)).sum(1)
        predicted = np.array(["x", "y", "z"])[guess]
        evaluation = unbag.evaluate_predictions(predicted, bag, priors=clf.priors)
        part = build_report(clf, evaluation, None, bag_ids=bag, predicted=predicted)["confusion"]
        covered.append((np.array(part["low"]) <= true) & (true <= np.array(part["high"])))
    rate = np.mean(covered, axis=0)
    assert rate.min() > 0.86  # of 100 repeats
    assert 0.93 < rate.mean() < 0.975


def test_missing_parts_say_why(run):
    bare = build_report(run.clf, None, None)
    for key in ("inspection", "headline", "confusion", "bag_shares"):
        assert bare[key]["missing"].endswith(".")
    assert bare["headline"]["bags"] == 5
    assert "missing" in bare["calibration"]["reliability"]
    assert bare["priors"]["held_out_rows"] is None


def test_bags_without_held_out_rows(run):
    keep = np.array(run.held_out.bag_ids) != "north"
    ids, predicted = np.array(run.held_out.bag_ids)[keep], run.predicted[keep]
    evaluation = unbag.evaluate_predictions(predicted, ids, priors=run.priors)
    content = run.content(evaluation=evaluation, bag_ids=ids, predicted=predicted)
    report = build_report(**content)
    assert report["bag_shares"]["predicted"][0] == [None] * 3
    assert report["priors"]["held_out_rows"][0] == 0


def test_pure_bags_without_priors():
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    y = np.repeat([3, 5], 30)
    X[y == 5] += 2
    clf = unbag.UnbagClassifier(epochs=3, width=5, random_state=0).fit(X, y)
    report = build_report(clf, None, None, bag_ids=y, predicted=clf.predict(X))
    assert report["priors"]["bags"] == report["priors"]["classes"] == ["3", "5"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"fils": []}}, "data must be a dict of 'files'.*'fils'"),
        ({"predicted": ["setosa"]}, "predicted must be one class for each of the"),
        ({"predicted": ["rose"] * 80}, "predicted must be classes of the priors.*'rose'"),
        ({"bag_ids": ["nowhere"] * 80}, "bag_ids must be ids that the priors have"),
    ],
)
def test_bad_arguments(run, change, message):
    with pytest.raises(unbag.exceptions.InvalidInputError, match=message):
        build_report(**run.content(**change))


def test_plain_values():
    made = plain(
        {
            1: np.array([1 / 3, np.nan, -np.inf]),
            "e": Estimate(0.5, math.nan, 1),
            "when": [np.datetime64("2024-05-01T10:00", "ns"), datetime.date(2024, 5, 1)],
            "b": (np.bool_(True), np.int64(3), None),
        }
    )
    assert made["1"] == [0.333333, None, None]
    assert made["e"] == {"value": 0.5, "low": None, "high": 1.0}
    assert made["when"] == ["2024-05-01T10:00:00.000000000", "2024-05-01"]
    assert made["b"] == [True, 3, None]
    json.dumps(made, allow_nan=False)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x00b\x1b[0m", "a\ufffdb\ufffd[0m"),
        ("\ud800", "?"),
        ("x\u202egpj.exe\u2066", "x\ufffdgpj.exe\ufffd"),
        (HOSTILE_BAGS[4], HOSTILE_BAGS[4]),
        (HOSTILE_BAGS[5], HOSTILE_BAGS[5]),
        (True, "True"),
    ],
)
def test_text_is_safe_to_show(given, shown):
    assert text(given) == shown
    text(given).encode("utf-8")

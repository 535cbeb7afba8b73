"""The parts of the content, section by section."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from small_run import DATE, importances, rename, without_history

import unbag
from unbag.reporting import build_report, render_html
from unbag.reporting.sections.results import confusion
from unbag.reporting.sources import Sources


def test_headline(run):
    headline = build_report(**run.content())["headline"]
    assert headline["accuracy"]["value"] == pytest.approx(run.evaluation.accuracy, rel=1e-5)
    assert headline["accuracy"]["low"] == pytest.approx(run.evaluation.accuracy.low, rel=1e-5)
    assert headline["log_loss"]["value"] == pytest.approx(
        run.evaluation.probabilities.log_loss, rel=1e-5
    )
    assert headline["held_out_rows"] == len(run.predicted)
    largest = int(np.argmax(run.evaluation.test_prior))
    assert headline["most_common_class"] == run.priors.classes[largest]
    assert headline["auc"] is None


def test_priors(run):
    priors = build_report(**run.content())["priors"]
    np.testing.assert_allclose(priors["shares"], run.priors.values, rtol=1e-5)
    assert priors["bags"] == list(run.priors.bag_ids)
    for key, ids in (("held_out_rows", run.held_out_ids), ("training_rows", run.train_ids)):
        assert priors[key] == [np.sum(ids == bag) for bag in run.priors.bag_ids]


def test_inspection(run):
    part = build_report(**run.content())["inspection"]
    assert part["verdict"] == run.inspection.verdict
    assert part["reasons"] == run.inspection.reasons
    assert ["classes the shares tell apart", "3 of 3"] in part["findings"]


def test_training_curves(run):
    training = build_report(**run.content())["training"]
    history = run.clf.history_
    assert training["epoch"] == list(range(1, run.clf.n_iter_ + 1))
    for name in ("objective", "empirical_risk", "label_free_error"):
        np.testing.assert_allclose(training[name], history[name], rtol=1e-5)
    assert training["test_error"] is None
    risks = history["partial_risks"]
    expected = (run.clf.priors_.values * risks).sum((1, 2)) / len(run.clf.priors_.values)
    np.testing.assert_allclose(training["partial_risks"]["mean"], expected, rtol=1e-5)
    np.testing.assert_allclose(training["partial_risks"]["smallest"], risks.min((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(training["partial_risks"]["largest"], risks.max((1, 2)), rtol=1e-5)
    assert training["final_error"]["value"] == pytest.approx(run.evaluation.error, rel=1e-5)


def test_the_band_is_that_of_the_rows_of_the_curve(run):
    training = build_report(**run.content())["training"]
    low, high = run.watched.error.interval
    assert training["label_free_half_width"] == pytest.approx((high - low) / 2, rel=1e-5)
    low, high = run.evaluation.error.interval
    assert training["label_free_half_width"] > 1.1 * (high - low) / 2  # of more rows
    unknown = build_report(**run.content(watched=None))["training"]
    assert unknown["label_free_half_width"] is None


@pytest.fixture
def copied(run):
    """The same run with a classifier that may be changed."""
    return rename(run, list(run.priors.bag_ids), list(run.priors.classes))


def test_a_bag_in_no_batch_of_an_epoch_is_left_out(copied):
    risks = np.ones((1, 7, 3))
    risks[0, 0] = np.nan
    history = {k: v[:1] for k, v in copied.clf.history_.items()}
    copied.clf.history_ = history | {"partial_risks": risks}
    partial = build_report(**copied.content())["training"]["partial_risks"]
    assert partial == {"mean": [1.0], "smallest": [1.0], "largest": [1.0]}


def test_curves_without_a_number_are_none(copied):
    """Methods that learn soft labels have no risks."""
    history = dict(copied.clf.history_)
    for name in ("empirical_risk", "negative_share", "partial_risks"):
        history[name] = np.full_like(history[name], np.nan)
    copied.clf.history_ = history
    training = build_report(**copied.content())["training"]
    assert training["empirical_risk"] is None
    assert training["negative_share"] is None
    assert training["partial_risks"] is None
    copied.clf.history_ = {}
    assert build_report(**copied.content())["training"] is None


def test_predicted_shares_of_every_bag(run):
    content = build_report(**run.content())
    shares = np.array(content["bag_shares"]["predicted"])
    bag = np.array(run.held_out_ids)
    for i, name in enumerate(content["priors"]["bags"]):
        for j, label in enumerate(content["priors"]["classes"]):
            expected = np.mean(run.predicted[bag == name] == label)
            assert shares[i, j] == pytest.approx(expected, abs=1e-6)


def test_only_gaps_beyond_chance_are_listed(run):
    """In bags of 100 rows a gap of 5 points is chance, one of 40 points is not."""
    priors = unbag.ClassPriors([[0.5, 0.5], [0.9, 0.1]], ["near", "far"], ["a", "b"])
    clf = without_history(run.clf, priors)
    ids = ["near"] * 100 + ["far"] * 100
    near = ["a"] * 55 + ["b"] * 45
    part = build_report(clf, None, None, bag_ids=ids, predicted=near + ["a"] * 90 + ["b"] * 10)
    assert part["bag_shares"]["largest_gaps"] == []
    assert not np.any(part["bag_shares"]["beyond_chance"])
    part = build_report(clf, None, None, bag_ids=ids, predicted=near + ["a"] * 50 + ["b"] * 50)
    gaps = part["bag_shares"]["largest_gaps"]
    assert {"bag": "far", "class": "a", "known": 0.9, "predicted": 0.5, "rows": 100} in gaps
    assert [gap["bag"] for gap in gaps] == ["far", "far"]
    assert part["bag_shares"]["beyond_chance"] == [[False, False], [True, True]]


def test_bags_without_held_out_rows(run):
    keep = np.array(run.held_out_ids) != "north"
    ids, predicted = run.held_out_ids[keep], run.predicted[keep]
    evaluation = unbag.evaluate_predictions(predicted, ids, priors=run.priors)
    content = run.content(evaluation=evaluation, bag_ids=ids, predicted=predicted)
    report = build_report(**content)
    assert report["bag_shares"]["predicted"][0] == [None] * 3
    assert report["bag_shares"]["beyond_chance"][0] == [False] * 3
    assert report["priors"]["held_out_rows"][0] == 0


def test_the_diagonal_of_the_confusion_matrix_is_the_recall(run):
    part = build_report(**run.content())["confusion"]
    assert np.diag(part["raw"]).tolist() == [recall["value"] for recall in part["recall"]]
    np.testing.assert_allclose(np.sum(part["projected"], axis=1), 1, atol=1e-4)


def test_intervals_of_confusion_cells(run):
    part = build_report(**run.content())["confusion"]
    low, high, raw = (np.array(part[key]) for key in ("low", "high", "raw"))
    inside = np.clip(raw, 0, 1)
    assert (low <= inside + 1e-6).all()
    assert (high >= inside - 1e-6).all()
    for k, recall in enumerate(part["recall"]):
        assert (low[k, k], high[k, k]) == (recall["low"], recall["high"])
    least = unbag.evaluate_predictions(
        run.predicted, run.held_out_ids, priors=run.priors, inverse="least-variance"
    )
    assert build_report(**run.content(evaluation=least))["confusion"]["low"] is None


def test_intervals_of_confusion_cells_cover(run):
    theta = np.array([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6], [0.3, 0.3, 0.4]])
    true = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    rng = np.random.default_rng(0)
    clf = without_history(run.clf, unbag.ClassPriors(theta, classes=["x", "y", "z"]))
    bag = np.repeat(np.arange(4), 300)
    covered = []
    for _ in range(100):
        label = (rng.random(1200)[:, None] > theta[bag].cumsum(1)).sum(1)
        guess = (rng.random(1200)[:, None] > true[label].cumsum(1)).sum(1)
        predicted = np.array(["x", "y", "z"])[guess]
        evaluation = unbag.evaluate_predictions(predicted, bag, priors=clf.priors)
        sources = Sources.check(
            clf,
            evaluation=evaluation,
            inspection=None,
            bag_ids=bag,
            predicted=predicted,
            training_bag_ids=None,
            watched=None,
            importances=None,
            data=None,
            warnings=[],
            date=DATE,
        )
        part = confusion(sources)
        covered.append((np.array(part["low"]) <= true) & (true <= np.array(part["high"])))
    rate = np.mean(covered, axis=0)
    assert rate.min() > 0.86  # of 100 repeats
    assert 0.93 < rate[~np.eye(3, dtype=bool)].mean() < 0.975


def test_calibration(copied):
    content = copied.content()
    part = build_report(**content)["calibration"]
    assert part["temperature"] == pytest.approx(copied.clf.calibration_.temperature, rel=1e-5)
    assert len(part["reliability"]["by_class"]) == 3
    copied.clf.calibration_ = None
    without = replace(content["evaluation"], reliability=None)
    assert build_report(**content | {"evaluation": without})["calibration"] is None


def test_settings_are_the_values_used(run):
    settings = build_report(**run.content())["hyperparameters"]
    values = settings["values"]
    assert (values["width"], values["epochs"]) == (20, run.clf.n_iter_)
    assert (values["alpha"], values["ascent_scale"]) == (0.7, 5.0)  # of u-prr, left to the method
    np.testing.assert_allclose(values["test_prior"], run.clf.test_prior_, rtol=1e-5)
    assert "flood_level" not in values
    assert None not in values.values()
    used = {"batch_size", "batching", "device", "learning_rate", "weight_decay"}
    assert used <= set(values)
    assert not {"auto", None} & {values[name] for name in used}
    assert settings["chosen_automatically"] == []
    loaded = copy.copy(run.clf)
    loaded.training_settings_ = {}
    settings = build_report(**{**run.content(), "clf": loaded})["hyperparameters"]
    assert set(settings["chosen_automatically"]) == used


def test_citation(run):
    citation = build_report(**run.content())["citation"]
    assert "Tang" in citation["paper_bibtex"]
    assert "year    = {2026}" in citation["software_bibtex"]


def test_columns_are_shares_of_what_all_tell_together(run):
    part = build_report(**run.content())["columns"]
    assert [line["column"] for line in part["largest"]] == ["a", "b", "c", "d"]
    assert [line["share"] for line in part["largest"]] == pytest.approx([0.8, 0.4, 0.2, 0.1])
    page = render_html(build_report(**run.content()))
    assert "80%" in page[page.index('id="columns"') :]


def test_columns_of_a_model_that_tells_nothing(run):
    useless = replace(importances(["a"]), gain=-0.1)
    page = render_html(build_report(**run.content(importances=useless)))
    assert "it cannot be said which columns matter" in page

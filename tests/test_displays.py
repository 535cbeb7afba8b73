"""Displays show the numbers of evaluations."""

import matplotlib as mpl
import numpy as np
import pytest

import unbag
from unbag.displays import (
    ConfusionMatrixDisplay,
    CurveDisplay,
    ReliabilityDisplay,
    SharesDisplay,
)
from unbag.exceptions import InvalidInputError

mpl.use("Agg")
from matplotlib import pyplot

SHARES = {"a": {"no": 0.2, "yes": 0.8}, "b": {"no": 0.7, "yes": 0.3}}


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    truth = np.concatenate([generator.random(400) < 0.8, generator.random(400) < 0.3])
    return generator.normal(3 * truth, 1.0)[:, None], np.repeat(["a", "b"], 400)


@pytest.fixture(scope="module")
def clf(rows):
    X, ids = rows
    return unbag.UnbagClassifier(SHARES, "prop", model="linear", epochs=20).fit(X[::2], ids[::2])


@pytest.fixture(scope="module")
def held_out(rows):
    X, ids = rows
    return X[1::2], ids[1::2]


def test_confusion_matrix_is_that_of_the_evaluation(clf, held_out):
    evaluation = unbag.evaluate(clf, *held_out)
    display = ConfusionMatrixDisplay.from_estimator(clf, *held_out)
    assert np.array_equal(display.confusion_matrix, evaluation.projected["confusion"])
    image = display.ax_.images[0].get_array()
    assert np.allclose(image, 100 * display.confusion_matrix)
    assert display.plot().ax_ is not image


def test_shares_are_the_mean_probabilities_of_each_bag(clf, held_out):
    X, ids = held_out
    display = SharesDisplay.from_estimator(clf, X, ids)
    chances = clf.predict_proba(X)
    assert np.allclose(display.shares, [chances[ids == bag].mean(0) for bag in ("a", "b")])
    assert display.names.tolist() == ["a", "b"]


def test_shares_of_a_part_of_the_bags(clf, held_out):
    X, ids = held_out
    display = SharesDisplay.from_estimator(clf, X[ids == "b"], ids[ids == "b"])
    assert display.names.tolist() == ["b"]


def test_shares_of_an_evaluation_stand_beside_the_known_ones(clf, held_out):
    evaluation = unbag.evaluate(clf, *held_out)
    display = SharesDisplay.from_evaluation(evaluation)
    assert np.allclose(display.shares[1], evaluation.test_prior)
    assert np.allclose(display.shares[0], np.clip(evaluation.predicted_share, 0, 1))


def test_reliability_draws_bins_with_rows(clf, held_out):
    display = ReliabilityDisplay.from_estimator(clf, *held_out)
    overall = display.reliability.overall
    drawn = display.ax_.lines[1].get_xdata()
    assert np.allclose(drawn, 100 * overall.predicted[np.isfinite(overall.frequency)])


def test_reliability_of_an_evaluation_is_that_of_its_probabilities(clf, held_out):
    evaluation = unbag.evaluate(clf, *held_out)
    display = ReliabilityDisplay.from_evaluation(evaluation)
    from_rows = ReliabilityDisplay.from_estimator(clf, *held_out).reliability
    for field in ("rows", "share", "predicted", "frequency", "error"):
        shown, expected = (getattr(r.overall, field) for r in (display.reliability, from_rows))
        np.testing.assert_allclose(shown, expected, atol=1e-9)
    known = np.isfinite(from_rows.overall.frequency)
    assert np.allclose(display.ax_.lines[1].get_xdata(), 100 * from_rows.overall.predicted[known])


def test_reliability_needs_an_evaluation_of_probabilities(held_out):
    X, ids = held_out
    evaluation = unbag.evaluate_predictions(np.repeat("yes", len(X)), ids, priors=SHARES)
    with pytest.raises(InvalidInputError, match="of probabilities, got one without probab"):
        ReliabilityDisplay.from_evaluation(evaluation)


def test_curve_of_two_classes(clf, held_out):
    display = CurveDisplay.from_estimator(clf, *held_out)
    roc = unbag.evaluate(clf, *held_out).probabilities.roc
    assert np.allclose(display.true_positive_rate, np.clip(roc.true_positive_rate, 0, 1))
    assert display.positive_class == "yes"


def test_curve_needs_probabilities_of_two_classes(held_out):
    X, ids = held_out
    evaluation = unbag.evaluate_predictions(np.repeat("yes", len(X)), ids, priors=SHARES)
    with pytest.raises(InvalidInputError, match=r"probabilities for two classes.*without"):
        CurveDisplay.from_evaluation(evaluation)

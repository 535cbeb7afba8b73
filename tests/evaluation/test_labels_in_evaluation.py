"""Labels of some rows: their own say in evaluation and calibration."""

import numpy as np
import pytest

from unbag.evaluation import calibrate, evaluate_predictions
from unbag.exceptions import InvalidInputError
from unbag.priors import ClassPriors

THETA = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.5, 0.5], [0.45, 0.55]])
N = 200


def draw(seed, accuracy=0.85, lean=0.0):
    """Bags of rows, predictions (right more often where a bag has more of class 0), and labels."""
    rng = np.random.default_rng(seed)
    bag = np.repeat(np.arange(len(THETA)), N)
    y = (rng.random(len(bag)) < THETA[bag, 1]).astype(int)
    right = accuracy + lean * np.where(y == 1, THETA[bag, 1] - 0.5, 0.5 - THETA[bag, 1])
    predicted = np.where(rng.random(len(bag)) < right, y, 1 - y)
    labels = np.full(len(bag), np.nan)
    known = rng.choice(len(bag), 100, replace=False)
    labels[known] = y[known]
    return bag, predicted, labels, float((predicted == y).mean())


def width(estimate):
    return estimate.high - estimate.low


def test_labels_narrow_the_intervals_and_are_told_of():
    bag, predicted, labels, _ = draw(0)
    plain = evaluate_predictions(predicted, bag, priors=THETA)
    known = evaluate_predictions(predicted, bag, priors=THETA, labels=labels)
    assert width(known.accuracy) < 0.9 * width(plain.accuracy)
    assert (known.labelled.n_rows, known.n_bags, plain.labelled) == (100, 5, None)
    assert width(known.labelled.accuracy) > width(known.accuracy)
    assert "1,000 rows in 5 bags, 100 with a label" in str(known)
    assert known.to_dict()["labelled"]["n_rows"] == 100


def test_labelled_rows_alone_are_plain_recalls_under_the_test_prior():
    bag, predicted, labels, _ = draw(1)
    pi = [0.3, 0.7]
    report = evaluate_predictions(predicted, bag, priors=THETA, labels=labels, test_prior=pi)
    recalls = [(predicted[labels == k] == k).mean() for k in (0, 1)]
    assert float(report.labelled.accuracy) == pytest.approx(np.dot(pi, recalls))


def test_the_bags_alone_are_those_of_rows_without_a_label():
    bag, predicted, labels, _ = draw(2)
    rest = np.isnan(labels)
    pi = [0.5, 0.5]
    report = evaluate_predictions(predicted, bag, priors=THETA, labels=labels, test_prior=pi)
    alone = evaluate_predictions(predicted[rest], bag[rest], priors=THETA, test_prior=pi)
    assert float(report.labelled.of_bags) == pytest.approx(float(alone.accuracy))


def test_exact_shares_become_those_of_the_rest():
    theta = [[0.75, 0.25], [0.25, 0.75]]
    bag, y = np.repeat([0, 1], 40), np.tile(np.repeat([0, 1], [30, 10]), 2)
    y[40:] = 1 - y[40:]
    labels = np.where(np.arange(80) % 10 == 0, y, np.nan)  # 3 and 1 of each bag
    priors = ClassPriors(theta, shares_of="rows")
    report = evaluate_predictions(y, bag, priors=priors, labels=labels)
    assert float(report.accuracy) == pytest.approx(1)
    half = evaluate_predictions(y, bag, priors=priors, labels=labels, held_out_share=0.5)
    assert half.accuracy.low < report.accuracy.low


def test_bags_whose_rows_differ_along_with_the_shares_disagree_with_labels():
    bag, predicted, labels, truth = draw(3, accuracy=0.6, lean=0.7)
    plain = evaluate_predictions(predicted, bag, priors=THETA)
    assert plain.accuracy.low > truth
    assert not plain.warnings
    known = evaluate_predictions(predicted, bag, priors=THETA, labels=labels)
    assert known.labelled.p_value < 0.01
    assert known.labelled.accuracy.low < truth < known.labelled.accuracy.high
    assert "disagree" in known.labelled.warning
    assert known.labelled.warning in known.warnings


def test_labels_alone_are_enough_where_bags_tell_nothing_apart():
    bag, predicted, labels, truth = draw(4)
    known = evaluate_predictions(predicted, bag, priors=np.full((5, 2), 0.5), labels=labels)
    assert known.labelled.of_bags is None
    assert known.labelled.p_value is None
    assert known.accuracy.low < truth < known.accuracy.high


def test_a_class_without_a_label_leaves_nothing_to_compare():
    bag, predicted, labels, _ = draw(5)
    known = evaluate_predictions(
        predicted, bag, priors=THETA, labels=np.where(labels == 1, np.nan, labels)
    )
    assert known.labelled.accuracy is None
    assert known.labelled.warning is None


def test_labelled_rows_count_for_more_where_bags_drift():
    bag, predicted, labels, _ = draw(6)
    rng = np.random.default_rng(7)
    flip = rng.random(len(bag)) < np.array([0.0, 0.45, 0.0, 0.4, 0.1])[bag]
    moved = np.where(flip, 0, predicted)
    known = evaluate_predictions(moved, bag, priors=THETA, labels=labels)
    assert known.misfit.drift > 0.05
    plain = evaluate_predictions(moved, bag, priors=THETA)
    assert width(known.accuracy) < 0.6 * width(plain.accuracy)
    from_labels = float(known.labelled.accuracy) - float(known.labelled.of_bags)
    part = (float(known.accuracy) - float(known.labelled.of_bags)) / from_labels
    assert part > 0.5


def test_no_labels_at_all_change_nothing():
    bag, predicted, labels, _ = draw(8)
    plain = evaluate_predictions(predicted, bag, priors=THETA)
    none = evaluate_predictions(predicted, bag, priors=THETA, labels=np.full(len(labels), np.nan))
    assert none.to_dict() == plain.to_dict()
    with pytest.raises(InvalidInputError, match="labels"):
        evaluate_predictions(predicted, bag, priors=THETA, labels=labels[:5])


def test_calibration_learns_from_labels():
    rng = np.random.default_rng(9)
    bag, y = np.repeat([0, 1], 500), rng.integers(0, 2, 1000)
    score = rng.normal(size=1000) + np.where(y == 1, 1, -1)
    right = 1 / (1 + np.exp(-2 * score))
    sharp = 1 / (1 + np.exp(-8 * score))  # four times too sure
    chances = np.column_stack([1 - sharp, sharp])
    weak = [[0.52, 0.48], [0.48, 0.52]]
    labels = np.where(rng.random(1000) < 0.4, y, -1).astype(object)
    labels[labels == -1] = None
    found = calibrate(chances, bag, priors=weak, labels=labels)
    assert 3 < found.temperature < 5.5
    assert np.abs(np.exp(found.apply(np.log(chances)))[:, 1] - right).mean() < 0.05
    assert abs(calibrate(chances, bag, priors=weak).temperature - 4) > 1.5

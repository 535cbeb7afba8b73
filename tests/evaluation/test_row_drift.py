"""Rows that differ between bags: how far intervals reach for it."""

import numpy as np
import pytest

from unbag import Bags
from unbag.evaluation import evaluate_predictions, residuals, row_sample
from unbag.evaluation.row_drift import mixing, part_of_bags
from unbag.exceptions import InvalidInputError
from unbag.priors import ClassPriors

M, N = 12, 400
THETA = np.column_stack([np.linspace(0.3, 0.7, M), np.linspace(0.7, 0.3, M)])


def draw(seed, old=0.0, bend=0.0, classes=1.0):
    """Rows of bags: the second column moves with the shares, the third beside them."""
    rng = np.random.default_rng(seed)
    bag = np.repeat(np.arange(M), N)
    y = (rng.random(M * N) < THETA[bag, 1]).astype(int)
    along = (THETA[bag, 1] - 0.5) / 0.12
    X = rng.normal(size=(M * N, 3))
    X[:, 0] += classes * (2 * y - 1)
    X[:, 1] += old * along
    X[:, 2] += bend * (along**2 - 1)
    predicted = (X[:, 0] + X[:, 1] > 0).astype(int)
    return X, bag, predicted, y


def intervals(report):
    return [e.interval for _, _, e in report._estimates()]


def test_rows_that_are_alike_change_nothing():
    X, bag, predicted, _ = draw(0)
    with_rows = evaluate_predictions(predicted, bag, priors=THETA, X=X)
    without = evaluate_predictions(predicted, bag, priors=THETA)
    assert with_rows.row_drift.p_value > 0.05
    assert with_rows.row_drift.part == 0
    assert intervals(with_rows) == intervals(without)
    assert without.row_drift is None
    assert with_rows.warnings == ()


def test_drift_along_the_shares_is_missed_without_rows_and_reached_with_them():
    X, bag, predicted, y = draw(1, old=0.4, bend=0.3)
    truth = (predicted == y).mean()
    without = evaluate_predictions(predicted, bag, priors=THETA)
    assert without.accuracy.low > truth + 0.05
    found = evaluate_predictions(predicted, bag, priors=THETA, X=X)
    assert float(found.accuracy) == float(without.accuracy)
    assert found.accuracy.low < truth < found.accuracy.high
    assert found.accuracy.high == without.accuracy.high
    assert 0 < found.row_drift.part <= 1
    assert found.row_drift.accuracy < truth
    for k in (0, 1):
        recall = (predicted[y == k] == k).mean()
        assert found.recall[k].low < recall < found.recall[k].high
    (warning,) = (w for w in found.warnings if "Rows of a class differ" in w)
    assert "label about 100 rows" in warning
    assert found.to_dict()["row_drift"]["part"] == found.row_drift.part


def test_the_farthest_end_is_that_of_predictions_that_tell_nothing_within_bags():
    X, bag, predicted, _ = draw(2, old=0.4, bend=3.0)
    report = evaluate_predictions(predicted, bag, priors=THETA, X=X)
    assert report.row_drift.part == 1
    fitted = THETA @ np.asarray(report.confusion)
    blind = (THETA * fitted).sum(1).mean()  # bags of one size
    assert report.row_drift.accuracy == pytest.approx(blind)
    plain = evaluate_predictions(predicted, bag, priors=THETA)
    moved = plain.accuracy.low - report.accuracy.low
    assert moved == pytest.approx(float(plain.accuracy) - blind)


def test_costs_and_groups_reach_as_far():
    X, bag, predicted, _ = draw(3, old=0.4, bend=0.3)
    options = {"priors": THETA, "cost": 10 * (1 - np.eye(2)), "by": bag % 2}
    plain = evaluate_predictions(predicted, bag, **options)
    report = evaluate_predictions(predicted, bag, **options, X=X)
    moved = plain.accuracy.low - report.accuracy.low
    assert moved > 0.02
    assert report.cost.high - plain.cost.high == pytest.approx(10 * moved)
    for one, other in zip(report.groups, plain.groups, strict=True):
        assert other.accuracy.low - one.accuracy.low == pytest.approx(moved, rel=0.2)


def test_labels_that_weigh_more_leave_less_to_reach():
    X, bag, predicted, y = draw(4, old=0.4, bend=0.3)
    rng = np.random.default_rng(0)
    reached = []
    for n in (50, 1500):
        labels = np.full(len(y), np.nan)
        known = rng.choice(len(y), n, replace=False)
        labels[known] = y[known]
        options = {"priors": THETA, "labels": labels}
        plain = evaluate_predictions(predicted, bag, **options)
        report = evaluate_predictions(predicted, bag, **options, X=X)
        reached.append(plain.accuracy.low - report.accuracy.low)
    assert 0 <= reached[1] < 0.5 * reached[0]


def test_bags_and_arrays_are_the_same_and_wrong_lengths_are_refused():
    X, bag, predicted, _ = draw(5, bend=0.3)
    order = np.random.default_rng(0).permutation(len(bag))
    bags = Bags(X[order], bag[order], ClassPriors(THETA)).take(np.argsort(order))
    one = evaluate_predictions(predicted, bag, priors=THETA, X=X)
    other = evaluate_predictions(predicted, bag, priors=THETA, X=bags)
    assert one.row_drift == other.row_drift
    assert one.interval == other.interval
    with pytest.raises(InvalidInputError, match="X must be of 4800 rows"):
        evaluate_predictions(predicted, bag, priors=THETA, X=X[:-1])


def test_with_as_many_bags_as_classes_nothing_can_be_seen():
    X, bag, predicted, _ = draw(6, bend=0.3)
    few = (bag == 0) | (bag == M - 1)
    report = evaluate_predictions(predicted[few], bag[few], priors=THETA, X=X[few])
    assert report.row_drift is None


def test_a_class_that_no_bag_has_does_no_harm():
    theta = np.array([[0.8, 0.2, 0.0], [0.3, 0.7, 0.0]])
    mixed = mixing(theta, np.array([10.0, 10.0]))
    np.testing.assert_allclose(mixed.sum(1), 1)
    assert mixed[2, 2] == 1


def test_predictions_that_are_the_same_in_all_bags_may_be_due_to_bags():
    shares = np.full((2, 2), 0.5)
    theta, counts = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([5.0, 5.0])
    assert part_of_bags(0.1, 1.96, shares, theta, counts, np.full((2, 2), 0.5)) == 1
    assert part_of_bags(0.0, 1.96, shares, theta, counts, np.eye(2)) == 0


def test_many_columns_are_mixed_each_on_its_own_scale():
    rows = np.random.default_rng(0).normal(size=(40, 300))
    mixed = row_sample._columns(rows, 8, np.random.default_rng(1))
    assert mixed.shape == (40, 8)
    scaled = rows * np.geomspace(1e-3, 1e3, 300) + 5
    scaled[:, 7] = 3  # tells nothing
    other = row_sample._columns(scaled, 8, np.random.default_rng(1))
    rows[:, 7] = 0
    mixed = row_sample._columns(rows, 8, np.random.default_rng(1))
    np.testing.assert_allclose(other, mixed, rtol=0, atol=1e-9)


def test_covariances_within_classes_are_told_apart_from_those_between():
    rng = np.random.default_rng(0)
    theta = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    sizes, class_means = np.array([2000, 3000, 4000]), np.array([[0.0, 0.0], [3.0, -2.0]])
    within = np.array([[1.0, 0.3], [0.3, 0.5]])
    means, covariances = [], []
    for shares, size in zip(theta, sizes, strict=True):
        y = np.repeat([0, 1], np.rint(shares * size).astype(int))
        x = class_means[y] + rng.multivariate_normal([0, 0], within, size)
        means.append(x.mean(0))
        covariances.append(np.cov(x.T))
    inverse = np.linalg.pinv(theta)
    fitted = inverse @ np.array(means)
    found = residuals._within_class_covariances(
        np.array(covariances), sizes, ClassPriors(theta), fitted, inverse
    )
    np.testing.assert_allclose(found, np.broadcast_to(within, (3, 2, 2)), atol=0.12)


def test_covariances_within_classes_solve_the_equation_of_the_docstring():
    rng = np.random.default_rng(1)
    theta = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    sizes, class_means = np.array([9, 12, 20]), np.array([[0.0, 0.0], [0.3, -0.2]])
    inverse = np.linalg.pinv(theta)
    root = rng.normal(size=(3, 2, 2))
    within = root @ root.transpose(0, 2, 1) + np.eye(2)  # E
    share = (sizes - 1) / sizes
    noise = (theta @ inverse**2 - (theta @ inverse) ** 2) / sizes  # c
    between = [class_means.T @ (np.diag(t) - np.outer(t, t)) @ class_means for t in theta]  # D
    right = share[:, None, None] * within - np.einsum("ml,lij->mij", noise, within)
    observed = (right + np.array(between)) / share[:, None, None]  # S
    found = residuals._within_class_covariances(
        observed, sizes, ClassPriors(theta), class_means, inverse
    )
    np.testing.assert_allclose(found, within)


def test_a_bag_of_the_fewest_rows_with_a_covariance_has_its_own(monkeypatch):
    rows, sizes = np.random.default_rng(0).normal(size=(80, 3)), np.full(4, 20)
    table = ClassPriors(np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.4, 0.6]]))
    found = []
    for fewest in (19, 20, 21):
        monkeypatch.setattr(residuals, "MIN_OWN_ROWS", fewest)
        found.append(residuals.residual_test(rows, sizes, table).degrees)
    assert found[0] == found[1] != found[2]

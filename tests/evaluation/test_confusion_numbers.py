"""Numbers of the confusion matrix against scikit-learn's, which have the labels."""

import json
import warnings

import numpy as np
import pytest
from populations import PURE, SQUARE, THREE, TWO, exact_population
from sklearn import metrics as sk

from unbag.evaluation import INVERSES, evaluate_predictions
from unbag.evaluation.metrics import CLASS_METRICS, OVERALL_METRICS, cost_metric
from unbag.priors import SHARES_OF, ClassPriors

POPULATIONS = {"three": THREE, "square": SQUARE, "two": TWO, "pure": PURE}
CONFUSION = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]])


def sklearn_numbers(rows, weight=None):
    k = len(rows.confusion)
    args = {"sample_weight": weight, "labels": np.arange(k)}
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        rows.label, rows.predicted, zero_division=np.nan, **args
    )
    return {
        "accuracy": sk.accuracy_score(rows.label, rows.predicted, sample_weight=weight),
        "balanced_accuracy": recall.mean(),
        "macro_f1": sk.f1_score(rows.label, rows.predicted, average="macro", **args),
        "recall": recall,
        "precision": precision,
        "f1": f1,
        "predicted_share": np.bincount(rows.predicted, weight, k) / len(rows.label),
        "confusion": sk.confusion_matrix(rows.label, rows.predicted, normalize="true", **args),
    }


@pytest.mark.parametrize("inverse", INVERSES)
@pytest.mark.parametrize("prior", [None, "other", "one class absent"])
@pytest.mark.parametrize("name", POPULATIONS)
def test_numbers_of_exact_bags_equal_those_with_labels(name, prior, inverse):
    rows = POPULATIONS[name]
    k = len(rows.confusion)
    pi = {None: None, "other": np.arange(k, 0, -1.0), "one class absent": np.r_[0, np.ones(k - 1)]}
    test_prior = pi[prior]
    weight = None
    if test_prior is not None:
        test_prior = test_prior / test_prior.sum()
        weight = rows.importance(test_prior)
    cost = np.arange(k * k).reshape(k, k) % 5 - 1.0  # an error may be a gain
    report = evaluate_predictions(
        rows.predicted,
        rows.bag,
        priors=rows.priors,
        test_prior=test_prior,
        cost=cost,
        inverse=inverse,
        shares_of="rows",
    )
    expected = sklearn_numbers(rows, weight)
    if prior == "one class absent":  # scikit-learn has no recall of a class of weight zero
        for number in ("balanced_accuracy", "recall", "confusion"):
            expected[number] = sklearn_numbers(rows)[number]
        expected["f1"][0] = 0
        expected["macro_f1"] = expected["f1"].mean()
    for number, value in expected.items():
        np.testing.assert_allclose(getattr(report, number), value, atol=1e-9, err_msg=number)
    assert report.error == pytest.approx(1 - expected["accuracy"], abs=1e-9)
    assert report.error.interval == pytest.approx(
        (1 - report.accuracy.high, 1 - report.accuracy.low)
    )
    mean_cost = np.average(cost[rows.label, rows.predicted], weights=weight)
    assert report.cost == pytest.approx(mean_cost, abs=1e-9)
    assert report.cost.low + 1e-4 < mean_cost < report.cost.high - 1e-4
    for number, value in expected.items():  # a valid confusion matrix needs no projection
        projected = report.projected[number]
        np.testing.assert_allclose(projected, value, atol=2e-3, err_msg=number)
    assert (report.n_rows, report.n_bags) == (len(rows.bag), rows.priors.n_bags)


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_any_predictions_in_pure_bags_give_the_supervised_numbers(shares_of):
    rng = np.random.default_rng(0)
    label, predicted = rng.choice(4, 300, p=[0.1, 0.2, 0.3, 0.4]), rng.integers(0, 4, 300)
    report = evaluate_predictions(predicted, label, priors=np.eye(4), shares_of=shares_of)
    assert report.accuracy == pytest.approx(sk.accuracy_score(label, predicted), abs=1e-12)
    assert report.macro_f1 == pytest.approx(sk.f1_score(label, predicted, average="macro"))
    expected = sk.confusion_matrix(label, predicted, normalize="true")
    np.testing.assert_allclose(report.confusion, expected, atol=1e-12)
    np.testing.assert_allclose(report.projected["confusion"], expected, atol=1e-6)


def test_the_cost_of_errors_is_the_error_with_its_interval():
    """And a gain for right answers is the accuracy."""
    for rows in (THREE, TWO):
        k = len(rows.confusion)
        args = {"priors": rows.priors, "shares_of": "rows"}
        report = evaluate_predictions(rows.predicted, rows.bag, cost=1 - np.eye(k), **args)
        assert report.cost == pytest.approx(report.error, abs=1e-9)
        assert report.cost.interval == pytest.approx(report.error.interval, abs=1e-3)
        report = evaluate_predictions(rows.predicted, rows.bag, cost=10 * np.eye(k), **args)
        assert report.cost == pytest.approx(10 * report.accuracy, abs=1e-9)
        assert report.cost.interval == pytest.approx(np.multiply(report.interval, 10), abs=1e-2)


def test_a_perfect_model_has_no_cost_below_that_of_no_errors():
    rows = exact_population([[30, 10], [10, 30]], [[20, 0], [0, 20]])
    args = {"priors": rows.priors, "shares_of": "rows", "cost": [[0, 1], [7, 0]]}
    report = evaluate_predictions(rows.predicted, rows.bag, **args)
    assert report.cost.low == pytest.approx(0, abs=1e-9)
    assert 1 / len(rows.bag) < report.cost.high < 0.2


def test_projected_numbers_are_those_of_a_valid_matrix():
    theta = [[0.6, 0.4], [0.4, 0.6]]
    bag = np.repeat([0, 1], 50)
    report = evaluate_predictions(bag, bag, priors=theta)
    assert report.accuracy == pytest.approx(3.0)
    assert (report.confusion < 0).any()
    projected = report.projected["confusion"]
    assert (projected >= 0).all()
    np.testing.assert_allclose(projected.sum(1), 1)
    assert report.projected["accuracy"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "macro_f1", "cost"])
def test_gradients_of_overall_numbers(name):
    pi = np.array([0.2, 0.5, 0.3])
    metric = cost_metric(np.array([[0, 1, 2], [5, -1, 1], [0.5, 3, 0]]))
    metric = OVERALL_METRICS.get(name, metric)
    expected = np.zeros((3, 3))
    for y, k in np.ndindex(3, 3):
        step = np.zeros((3, 3))
        step[y, k] = 1e-6
        up, down = metric.value(CONFUSION + step, pi), metric.value(CONFUSION - step, pi)
        expected[y, k] = (up - down) / 2e-6
    np.testing.assert_allclose(metric.gradient(CONFUSION, pi), expected, atol=1e-8)


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_gradients_of_numbers_a_class(name):
    pi = np.array([0.2, 0.5, 0.3])
    metric = CLASS_METRICS[name]
    gradient = metric.gradient(CONFUSION, pi)
    for y, column in np.ndindex(3, 3):
        step = np.zeros((3, 3))
        step[y, column] = 1e-6
        change = metric.value(CONFUSION + step, pi) - metric.value(CONFUSION - step, pi)
        expected = np.where(np.arange(3) == column, gradient[y], 0)
        np.testing.assert_allclose(change / 2e-6, expected, atol=1e-8)


ESTIMATED = np.array([[0.8, 0.15, 0.05], [-0.02, 1.03, -0.01], [0.3, 0.1, 0.6]])
RARE = np.array([0.02, 0.5, 0.48])


@pytest.mark.parametrize("name", OVERALL_METRICS)
def test_slopes_of_overall_numbers_say_exactly_how_far_an_estimate_is_off(name):
    metric = OVERALL_METRICS[name]
    slope = metric.slope(CONFUSION, RARE, ESTIMATED)
    off = metric.value(ESTIMATED, RARE) - metric.value(CONFUSION, RARE)
    assert (slope * (ESTIMATED - CONFUSION)).sum() == pytest.approx(off, abs=1e-12)
    gradient = metric.gradient(CONFUSION, RARE)
    linear = (gradient * (ESTIMATED - CONFUSION)).sum() == pytest.approx(off, abs=1e-12)
    assert linear == (name != "macro_f1")


@pytest.mark.parametrize("name", CLASS_METRICS)
def test_slopes_of_numbers_a_class_say_exactly_how_far_an_estimate_is_off(name):
    metric = CLASS_METRICS[name]
    pairs = [(np.diag(C), RARE @ C) for C in (CONFUSION, ESTIMATED)]
    (r, s), (estimated_r, estimated_s) = pairs
    by_recall, by_share = metric.slopes(r, s, RARE, estimated_s)
    off = metric.value(ESTIMATED, RARE) - metric.value(CONFUSION, RARE)
    moved = by_recall * (estimated_r - r) + by_share * (estimated_s - s)
    assert moved == pytest.approx(off, abs=1e-12)


def test_a_predicted_share_that_chance_takes_below_zero_counts_as_hardly_any():
    """0.02 and -0.0199 would add up to a denominator of 0.0001."""
    C = np.array([[0.5, 0.5], [-0.0303, 1.0303]])
    pi = np.array([0.02, 0.98])
    assert pi @ C[:, 0] == pytest.approx(-0.0197, abs=1e-4)
    assert CLASS_METRICS["f1"].value(C, pi)[0] == pytest.approx(2 * 0.5)
    assert CLASS_METRICS["precision"].value(C, pi)[0] > 1
    assert 0 < OVERALL_METRICS["macro_f1"].value(C, pi) < 1.01


def test_a_class_that_the_test_prior_lacks_has_an_f1_of_zero_whatever_is_estimated():
    C = np.array([[0.9, 0.1], [-0.05, 1.05]])
    pi = np.array([0.0, 1.0])
    for name in ("f1", "precision"):
        assert CLASS_METRICS[name].value(C, pi)[0] == 0
    assert OVERALL_METRICS["macro_f1"].value(C, pi) == pytest.approx(1.05 / (1 + 1.05))
    true = np.array([[0.9, 0.1], [0.05, 0.95]])
    assert np.isfinite(OVERALL_METRICS["macro_f1"].slope(true, pi, C)).all()


def test_a_stack_of_matrices_gives_a_stack_of_numbers():
    pi = np.array([0.2, 0.5, 0.3])
    stack = np.stack([CONFUSION, np.eye(3)])
    for metric in (OVERALL_METRICS | CLASS_METRICS).values():
        np.testing.assert_allclose(metric.value(stack, pi)[0], metric.value(CONFUSION, pi))
        np.testing.assert_allclose(metric.gradient(stack, pi)[1], metric.gradient(np.eye(3), pi))


@pytest.mark.parametrize("inverse", INVERSES)
@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_a_class_that_is_never_predicted_has_no_precision(shares_of, inverse):
    rows = exact_population(
        [[50, 10, 20], [10, 60, 10], [5, 15, 60], [1, 1, 1]], [[20, 0, 0], [3, 17, 0], [0, 20, 0]]
    )
    report = evaluate_predictions(
        rows.predicted, rows.bag, priors=rows.priors, shares_of=shares_of, inverse=inverse
    )
    assert np.isnan(report.precision[2])
    assert np.isnan(report.precision[2].low)
    assert report.f1[2] == pytest.approx(0, abs=1e-9)
    assert np.isfinite([*report.f1[2].interval, *report.recall[2].interval]).all()
    assert np.isfinite(report.macro_f1.interval).all()


@pytest.mark.parametrize("inverse", INVERSES)
def test_noise_gives_no_precision_to_a_class_that_is_never_predicted(inverse):
    rng = np.random.default_rng(0)
    theta, bag = rng.dirichlet(np.ones(3), 8), rng.integers(0, 8, 400)
    report = evaluate_predictions(rng.integers(0, 2, 400), bag, priors=theta, inverse=inverse)
    assert np.isnan(report.precision[2])


def test_a_report_is_plain_text_and_strict_json():
    classes = np.array(["no", "yes"])
    bags = exact_population([[3, 1], [1, 4]], [[20, 0], [20, 0]])
    table = {
        "a": dict(zip(classes, [0.75, 0.25], strict=True)),
        "b": dict(zip(classes, [0.2, 0.8], strict=True)),
    }
    ids = np.array(["a", "b"])[bags.bag]
    report = evaluate_predictions(classes[bags.predicted], ids, priors=table, level=0.9)
    text = str(report)
    assert "180 rows in 2 bags, no labels; 90% intervals" in text
    assert "recall of yes" in text
    read = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert read["precision"][1] == {"value": None, "low": None, "high": None}
    assert read["accuracy"]["value"] == report.accuracy
    assert read["accuracy"]["low"] == report.interval[0]
    assert read["classes"] == ["no", "yes"]


def test_dates_as_classes_are_written_as_text():
    days = np.array(["2024-01-01", "2024-02-01"], dtype="datetime64[D]")
    priors = ClassPriors(np.eye(2), classes=days)
    report = evaluate_predictions(days[[0, 1, 1]], [0, 1, 1], priors=priors)
    assert json.loads(json.dumps(report.to_dict()))["classes"] == ["2024-01-01", "2024-02-01"]


def test_no_warnings_whatever_is_predicted():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            k = rng.integers(2, 5)
            m = k + rng.integers(0, 4)
            theta = rng.dirichlet(np.ones(k), m)
            bag = np.concatenate([np.arange(m), rng.integers(0, m, rng.integers(0, 30))])
            predicted = rng.integers(0, rng.integers(1, k + 1), len(bag))
            shares_of, inverse = rng.choice(SHARES_OF), rng.choice(INVERSES)
            chances = rng.dirichlet(np.ones(k), len(bag))
            report = evaluate_predictions(
                predicted,
                bag,
                priors=theta,
                shares_of=str(shares_of),
                inverse=str(inverse),
                probabilities=chances,
            )
            for number in (report.accuracy, report.balanced_accuracy, report.macro_f1):
                assert number.low <= number.high
                assert number.high > number.low

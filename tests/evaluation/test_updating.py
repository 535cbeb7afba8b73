"""Shares that have errors: estimates that are not drawn to no contrast, and intervals that hold."""

import numpy as np
import pytest

from unbag.evaluation import evaluate_predictions, label_free_accuracy
from unbag.evaluation.core import Core
from unbag.evaluation.metrics import OVERALL_METRICS
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors, ShareErrors

CONFUSION = np.array([[0.9, 0.07, 0.03], [0.1, 0.8, 0.1], [0.05, 0.05, 0.9]])
M, SIZE, COUNTED = 40, 300, 50
THETA = 0.5 / 3 + 0.5 * np.random.default_rng(0).dirichlet(np.full(3, 0.5), M)


def simulate(repeats, told, seed=1):
    """Estimates of the accuracy, their intervals and the truth, over samples and surveys."""
    rng = np.random.default_rng(seed)
    errors = ShareErrors.from_rows(COUNTED) if told else None
    for _ in range(repeats):
        table = rng.multinomial(SIZE, THETA @ CONFUSION)
        priors = ClassPriors(rng.multinomial(COUNTED, THETA) / COUNTED, errors=errors)
        core = Core(table, priors, BagSample.of(priors, table.sum(1)))
        yield core.overall(OVERALL_METRICS["accuracy"], 1.96), core.pi @ np.diag(CONFUSION)


def test_the_estimate_is_corrected_and_the_interval_holds():
    naive = np.array([estimate - truth for estimate, truth in simulate(60, told=False)])
    assert np.median(naive) < -0.04
    told = list(simulate(150, told=True))
    assert abs(np.median([estimate - truth for estimate, truth in told])) < 0.015
    covered = np.mean([estimate.low <= truth <= estimate.high for estimate, truth in told])
    assert 0.9 <= covered <= 0.995


def test_errors_of_nearly_nothing_change_nearly_nothing():
    rng = np.random.default_rng(2)
    table = rng.multinomial(SIZE, THETA @ CONFUSION)
    exact = ClassPriors(THETA)
    tiny = exact.with_errors(ShareErrors.from_rows(1e9))
    one, other = (
        Core(table, priors, BagSample.of(priors, table.sum(1))) for priors in (exact, tiny)
    )
    np.testing.assert_allclose(one.raw, other.raw, atol=1e-5)
    first, second = (core.overall(OVERALL_METRICS["accuracy"], 1.96) for core in (one, other))
    assert first.interval == pytest.approx(second.interval, abs=1e-4)


def test_the_updated_inverse_is_a_left_inverse():
    rng = np.random.default_rng(3)
    table = rng.multinomial(SIZE, THETA @ CONFUSION)
    priors = ClassPriors(THETA, errors=ShareErrors.laplace(0.02))
    core = Core(table, priors, BagSample.of(priors, table.sum(1)))
    np.testing.assert_allclose(core.inverse.matrix @ THETA, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(core.raw.sum(1), 1)


def test_bags_with_poor_shares_weigh_less():
    rows = np.where(np.arange(M) < M // 2, 20, np.inf)
    priors = ClassPriors(THETA, errors=ShareErrors.from_rows(rows))
    table = np.random.default_rng(4).multinomial(SIZE, THETA @ CONFUSION)
    weights = np.abs(Core(table, priors, BagSample.of(priors, table.sum(1))).inverse.matrix).sum(0)
    assert weights[: M // 2].sum() < 0.3 * weights[M // 2 :].sum()


@pytest.mark.parametrize("errors", [None, ShareErrors.from_rows(60)])
def test_score_and_evaluate_agree(errors):
    rng = np.random.default_rng(5)
    table = rng.multinomial(SIZE, THETA @ CONFUSION)
    bag, predicted = (np.repeat(i.ravel(), table.ravel()) for i in np.indices(table.shape))
    priors = ClassPriors(THETA, errors=errors)
    report = evaluate_predictions(predicted, bag, priors=priors)
    assert label_free_accuracy(predicted, bag, priors) == pytest.approx(float(report.accuracy))

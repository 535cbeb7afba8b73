"""Bags that disagree about a model beyond chance."""

from types import SimpleNamespace

import numpy as np
import pytest

from unbag.evaluation import INVERSES, evaluate_predictions
from unbag.evaluation.core import Core, _with_column
from unbag.evaluation.metrics import OVERALL_METRICS
from unbag.evaluation.misfit import _fourth_moment
from unbag.evaluation.variances import BagSample
from unbag.priors import SHARES_OF, ClassPriors, ShareErrors

CONFUSION = np.array([[0.8, 0.15, 0.05], [0.1, 0.75, 0.15], [0.2, 0.1, 0.7]])
ROWS = 2000


def bags(n_bags, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(3, 0.7), n_bags)


def draw(theta, drift, rng, rows=ROWS):
    """Counts of predictions where the recalls of every bag differ by chance: (M, K)."""
    directions = np.eye(3) - np.array([[0, 0.75, 0.25], [0.4, 0, 0.6], [2 / 3, 1 / 3, 0]])
    moved = CONFUSION + (drift * rng.normal(size=(*theta.shape, 1))) * directions
    shares = np.einsum("my,myk->mk", theta, np.clip(moved, 0, None))
    return np.array([rng.multinomial(rows, v / v.sum()) for v in shares])


def evaluate(theta, table, **options):
    predicted = np.concatenate([np.repeat([0, 1, 2], row) for row in table])
    return evaluate_predictions(
        predicted, np.repeat(np.arange(len(theta)), table.sum(1)), priors=theta, **options
    )


def test_drift_is_measured_and_widens_every_interval():
    theta, rng = bags(20), np.random.default_rng(1)
    calm, uneven = (evaluate(theta, draw(theta, drift, rng)) for drift in (0.0, 0.08))
    assert calm.misfit.drift < 0.02
    assert not calm.warnings
    assert 0.05 < uneven.misfit.drift < 0.12
    assert uneven.trustworthy  # the intervals allow for it
    (warning,) = uneven.warnings
    assert "disagree about this model" in warning
    plain = evaluate(theta, np.rint(ROWS * theta @ CONFUSION).astype(int))
    for name in ("accuracy", "macro_f1", "balanced_accuracy"):
        wide, narrow = (np.diff(getattr(report, name).interval) for report in (uneven, plain))
        assert wide > 1.5 * narrow
    for name in ("recall", "precision", "f1", "predicted_share"):
        for wide, narrow in zip(getattr(uneven, name), getattr(plain, name), strict=True):
            assert np.diff(wide.interval) > 1.5 * np.diff(narrow.interval)


def test_losses_of_probabilities_are_wider_too():
    theta, rng = bags(20), np.random.default_rng(1)
    table = draw(theta, 0.08, rng, rows=300)
    predicted = np.concatenate([np.repeat([0, 1, 2], row) for row in table])
    chances = 0.7 * np.eye(3)[predicted] + 0.1
    ids = np.repeat(np.arange(20), 300)
    wide = evaluate_predictions(predicted, ids, priors=theta, probabilities=chances)
    even = np.concatenate([np.repeat([0, 1, 2], row) for row in draw(theta, 0, rng, rows=300)])
    chances = 0.7 * np.eye(3)[even] + 0.1
    narrow = evaluate_predictions(even, ids, priors=theta, probabilities=chances)
    for name in ("log_loss", "brier"):
        ends = [getattr(r.probabilities, name).interval for r in (wide, narrow)]
        assert np.diff(ends[0]) > 1.25 * np.diff(ends[1])


def test_the_bag_that_stands_out_is_named():
    theta = bags(12)
    table = draw(theta, 0.0, np.random.default_rng(2))
    table[7] = table[7].sum() * np.array([0.1, 0.1, 0.8])
    report = evaluate(theta, table)
    assert report.misfit.bags[0][0] == 7
    assert report.misfit.bags[0][1] > 10
    assert "stand out: 7" in report.warnings[0]
    assert report.to_dict()["misfit"]["bags"][0][0] == 7


def test_as_many_bags_as_classes_cannot_disagree():
    theta = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
    report = evaluate(theta, draw(theta, 0.1, np.random.default_rng(3)))
    assert report.misfit is None
    assert len(report.notes) == 1


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_false_alarms(shares_of):
    theta, rng = np.rint(200 * bags(8, seed=4)) / 200, np.random.default_rng(5)
    theta[:, 0] = 1 - theta[:, 1:].sum(1)
    priors = ClassPriors(theta, shares_of=shares_of)
    alarms = []
    for _ in range(300):
        if shares_of == "population":
            table = np.array([rng.multinomial(200, v) for v in theta @ CONFUSION])
        else:
            counts = np.rint(200 * theta).astype(int)
            table = np.array([sum(map(rng.multinomial, row, CONFUSION)) for row in counts])
        core = Core(table, priors, BagSample.of(priors, table.sum(1)))
        alarms.append(core.misfit.is_significant)
    assert 0.01 < np.mean(alarms) < 0.09


def test_drift_moves_a_number_as_far_as_it_says():
    theta, rng = bags(10), np.random.default_rng(6)
    plain = np.rint(1e7 * theta @ CONFUSION).astype(int)
    core = Core(plain, ClassPriors(theta), BagSample.of(ClassPriors(theta), plain.sum(1)))
    drift = core.tolerated_drift(0.01)["accuracy"]
    accuracy = OVERALL_METRICS["accuracy"]
    values = []
    for _ in range(300):
        table = draw(theta, drift, rng, rows=10_000_000)
        moved = Core(table, core.priors, core.sample)
        values.append(float(accuracy.value(moved.raw, core.pi)))
    assert np.std(values) == pytest.approx(0.01, rel=0.12)


def test_few_bags_need_a_larger_allowance():
    rng = np.random.default_rng(8)
    few, many = (evaluate(bags(m), draw(bags(m), 0.15, rng)) for m in (5, 30))
    ratios = [r.misfit.allowance(0.95) / r.misfit.drift for r in (few, many)]
    assert ratios[0] > 1.2 > ratios[1] > 1


def test_rare_predictions_raise_no_false_alarm():
    """A model that names one class nearly always has counts of 0 and 1 in small bags."""
    rng = np.random.default_rng(9)
    theta = rng.dirichlet(np.ones(3), 200)
    rare = np.array([[0.99, 0.01, 0.0], [0.99, 0.01, 0.0], [0.995, 0.005, 0.0]])
    alarms = named = 0
    for _ in range(100):
        table = np.array([rng.multinomial(10, v) for v in theta @ rare])
        priors = ClassPriors(theta)
        misfit = Core(table, priors, BagSample.of(priors, table.sum(1))).misfit
        alarms += misfit.is_significant
        named += len(misfit.bags)
    assert alarms < 12
    assert named < 12


def test_both_inverses_have_intervals_of_like_width():
    theta = bags(12)
    table = np.rint(400 * theta @ CONFUSION).astype(int)
    one, other = (evaluate(theta, table, inverse=kind) for kind in ("size-weighted", INVERSES[-1]))
    for name in ("recall", "precision", "f1", "predicted_share"):
        for plain, best in zip(getattr(one, name), getattr(other, name), strict=True):
            assert best == pytest.approx(plain, abs=0.02)
            assert 0.75 < np.diff(best.interval) / np.diff(plain.interval) < 1.1


@pytest.mark.parametrize("noise", [0.0, 0.4, 1.0])
def test_the_fourth_moment_is_that_of_drawn_predictions(noise):
    theta = bags(4)
    sample = SimpleNamespace(theta=theta, noise=np.full(4, noise))

    def of(shares):  # predictions are the corners of a simplex
        return sum(shares[k] * ((np.eye(3)[k] - shares) ** 2).sum() ** 2 for k in range(3))

    expected = []
    for t in theta:
        of_class = sum(t[k] * of(CONFUSION[k]) for k in range(3))
        expected.append(noise * of(t @ CONFUSION) + (1 - noise) * of_class)
    np.testing.assert_allclose(_fourth_moment(sample, CONFUSION), expected)


def test_matrices_of_a_path_are_those_of_chances():
    columns = np.array([[0.2, 0.3, 0.1], [1.0, 0.0, 0.5]])
    for k in range(3):
        matrices = _with_column(CONFUSION, k, columns)
        np.testing.assert_allclose(matrices.sum(-1), 1)
        np.testing.assert_allclose(matrices[:, :, k], columns)
        others = [j for j in range(3) if j != k]
        ratio = matrices[0][:, others] / CONFUSION[:, others]
        np.testing.assert_allclose(ratio[:, 0], ratio[:, 1])


def test_errors_of_shares_that_are_told_raise_no_alarm():
    true, rng = bags(8, seed=4), np.random.default_rng(5)
    rows = np.array([100, 400, 200, 100, 800, 100, 300, 200])
    alarms = []
    for _ in range(300):
        told = np.array([rng.multinomial(150, t) for t in true]) / 150
        priors = ClassPriors(told, errors=ShareErrors.from_rows(150))
        table = np.array(
            [rng.multinomial(n, v) for n, v in zip(rows, true @ CONFUSION, strict=True)]
        )
        misfit = Core(table, priors, BagSample.of(priors, table.sum(1))).misfit
        alarms.append(misfit.is_significant)
    assert 0.01 < np.mean(alarms) < 0.09

import numpy as np
import pytest
from hypothesis import assume, given
from small_bags import TABLE, THETA, quick, tables

from unbag.evaluation import LeftInverse
from unbag.inspection import inspect
from unbag.inspection.precision import relative_sensitivity
from unbag.priors import ClassPriors, ShareErrors

Z = 1.959964


@quick
@given(tables())
def test_weights_turn_priors_into_the_test_prior(case):
    theta, sizes = case
    assume(ClassPriors(theta).condition_number < 1e4)
    pi = np.full(theta.shape[1], 1 / theta.shape[1])
    weights = LeftInverse(ClassPriors(theta), sizes).weights(np.diag(pi))
    np.testing.assert_allclose(weights.T @ theta, np.diag(pi), atol=1e-8)


@quick
@given(tables())
def test_four_times_the_rows_halve_the_interval(case):
    theta, sizes = case
    assume(ClassPriors(theta).condition_number < 1e4)
    one, four = inspect(theta, sizes), inspect(theta, 4 * sizes)
    assert four.half_width == pytest.approx(one.half_width / 2)
    assert four.half_width_exact == pytest.approx(one.half_width_exact / 2)
    assert one.half_width_exact <= one.half_width * (1 + 1e-9)
    assert four.rows_needed == pytest.approx(one.rows_needed, abs=2)


@pytest.mark.parametrize("exact", [False, True])
def test_the_foreseen_interval_is_that_of_simulated_models(exact):
    rng = np.random.default_rng(0)
    sizes, pi = np.array([100, 200, 300, 400]), np.array([0.2, 0.3, 0.5])
    weights = LeftInverse(ClassPriors(THETA), sizes).weights(np.diag(pi))
    confusion = np.full((3, 3), 0.05) + 0.85 * np.eye(3)
    repeats = 20_000
    estimates = np.zeros(repeats)
    for m, n in enumerate(sizes):
        if exact:
            counts = [
                rng.multinomial(round(n * t), c, repeats)
                for t, c in zip(THETA[m], confusion, strict=True)
            ]
            predicted = np.sum(counts, axis=0)
        else:
            predicted = rng.multinomial(n, THETA[m] @ confusion, repeats)
        estimates += predicted / n @ weights[m]
    assert estimates.mean() == pytest.approx(0.9, abs=0.01)
    inspection = inspect(TABLE, sizes, test_prior=pi)
    width = inspection.half_width_exact if exact else inspection.half_width
    assert width == pytest.approx(Z * estimates.std(), rel=0.03)
    assert inspect(TABLE, inspection.rows_needed, test_prior=pi).half_width == pytest.approx(
        0.01, rel=0.01
    )


def test_with_labels_it_is_the_interval_of_a_share():
    inspection = inspect(np.eye(4), 250)
    assert inspection.inflation == pytest.approx(1)
    assert inspection.half_width == inspection.half_width_exact
    assert inspection.half_width == pytest.approx(Z * np.sqrt(0.9 * 0.1 / 1000), rel=1e-6)
    assert inspection.relative_error_half_width == 0


def moved_accuracy(weights_of, theta, wrong):
    """Label-free accuracy of a perfect model where the priors are wrong."""
    return float((weights_of(wrong) * theta).sum())


@pytest.mark.parametrize("survey", [False, True])
def test_the_foreseen_effect_of_wrong_priors_is_the_simulated_one(survey):
    rng, pi = np.random.default_rng(1), np.array([0.3, 0.3, 0.4])

    def weights_of(theta):
        return LeftInverse(ClassPriors(theta), np.full(len(theta), 100.0)).weights(np.diag(pi))

    moves = []
    for _ in range(4000):
        if survey:
            wrong = rng.multinomial(2500, THETA) / 2500
        else:
            wrong = THETA * (1 + 0.01 * rng.standard_normal(THETA.shape))
            wrong /= wrong.sum(1, keepdims=True)
        moves.append(moved_accuracy(weights_of, THETA, wrong))
    if survey:
        errors = ShareErrors.of(np.sqrt(THETA * (1 - THETA) / 2500))
        foreseen = errors.added_variance(weights_of(THETA)) ** 0.5
        assert foreseen == pytest.approx(np.std(moves), rel=0.2)
    else:
        foreseen = relative_sensitivity(weights_of(THETA), THETA, 0.01)
        assert foreseen == pytest.approx(np.std(moves), rel=0.05)


def test_two_classes_make_the_effect_of_prior_errors_exact():
    weights, errors = np.array([[0.9, -0.4], [-0.4, 0.9]]), np.array([[0.02, 0.02], [0.0, 0.0]])
    assert ShareErrors.of(errors).added_variance(weights) ** 0.5 == pytest.approx(0.02 * 1.3)
    assert ShareErrors.of(np.zeros((2, 2))).added_variance(weights) == 0

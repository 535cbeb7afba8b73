import numpy as np
import pytest
from scipy.special import log_softmax

from unbag.methods.evidence import Slope, evidence_weights, stacking_weights


def test_the_model_with_more_gain_on_every_part_gets_nearly_all():
    gains = np.array([np.full(20, 1.0), np.full(20, 0.5), np.zeros(20)])
    weights = evidence_weights(gains)
    assert weights[0] > 0.95
    assert weights[0] > weights[1] > weights[2]
    np.testing.assert_allclose(weights.sum(), 1)


def test_a_gain_of_few_parts_is_not_believed():
    one_part = np.zeros((2, 20))
    one_part[0, 0] = 6.0  # the same total as 0.3 on each of 20 parts
    everywhere = np.zeros((2, 20))
    everywhere[0] = 0.3
    assert evidence_weights(one_part)[0] < evidence_weights(everywhere)[0] - 0.05


def test_equal_models_share_the_weight_and_losses_count():
    np.testing.assert_allclose(evidence_weights(np.zeros((4, 7))), 0.25)
    assert evidence_weights(np.array([np.full(10, -1.0), np.zeros(10)]))[0] < 0.01


def test_the_seed_decides():
    gains = np.random.default_rng(0).normal(size=(3, 8))
    np.testing.assert_array_equal(evidence_weights(gains, 1), evidence_weights(gains, 1))
    assert not np.array_equal(evidence_weights(gains, 1), evidence_weights(gains, 2))


def test_a_slope_and_its_error_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    variance = rng.uniform(0.5, 2, 200)
    values = []
    for _ in range(200):
        y = 0.6 * x + rng.normal(size=x.shape) * np.sqrt(variance)[:, None]
        values.append(Slope.of(y, x, variance).value)
    assert np.mean(values) == pytest.approx(0.6, abs=0.02)
    # Two numbers per part of which one is free: the error is that of half as many.
    last = Slope.of(y, x, variance).error
    assert last == pytest.approx(np.sqrt(2) * np.std(values), rel=0.2)


def test_parts_count_by_the_inverse_of_their_variance():
    x = np.array([[0.1, -0.1], [0.1, -0.1]])
    y = np.array([[0.5], [0.9]]) * x
    assert Slope.of(y, x, np.array([1.0, 3.0])).value == pytest.approx(0.6)


def test_few_parts_leave_trust_and_many_that_contradict_take_it():
    assert Slope(-3.0, 20.0).trust > 0.98
    assert Slope(0.0, 0.1).trust < 0.02
    assert Slope(1.0, 0.5).trust == 1
    assert Slope(3.0, 0.1).trust == 1
    assert Slope.of(np.ones((5, 2)), np.zeros((5, 2)), np.ones(5)).trust == 1


def stacked(n=2000, seed=0):
    """Rows of three classes, and models of which one knows two classes and one the third."""
    rng = np.random.default_rng(seed)
    theta = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    shares = theta.mean(0)
    bag = rng.integers(3, size=n)
    classes = (rng.random(n)[:, None] > theta[bag].cumsum(1)).sum(1)
    says = np.log(0.1 + 0.7 * np.eye(3)[classes])
    half = (rng.random(n) < 0.5)[:, None]
    blind = np.tile(np.log(shares), (n, 1))
    return theta[bag] / shares, shares, says, blind, half


def test_models_that_err_elsewhere_are_mixed_and_one_that_is_always_worse_is_not():
    ratios, shares, says, blind, half = stacked()
    rest = np.where(half, blind, says)
    wrong = np.roll(says, 1, axis=1)
    weights = stacking_weights(np.stack([np.where(half, says, blind), rest, wrong]), ratios, shares)
    np.testing.assert_allclose(weights, [0.5, 0.5, 0], atol=0.05)


def test_sharpness_alone_earns_no_weight():
    ratios, shares, says, blind, half = stacked()
    parts = [np.where(half, says, blind), np.where(half, blind, says)]
    flat = [log_softmax(0.5 * part + 0.5 * np.log(shares), axis=1) for part in parts]
    even, pale = (
        stacking_weights(np.stack([parts[0], other]), ratios, shares)
        for other in (parts[1], flat[1])
    )
    # A model at half its sharpness has the weight that makes up for it, and not less.
    assert pale[1] > even[1] + 0.1


def test_few_rows_leave_weights_nearly_even():
    ratios, shares, says, blind, _ = stacked(4)
    weights = stacking_weights(np.stack([says, blind]), ratios, shares)
    np.testing.assert_allclose(weights, 0.5, atol=0.1)
    ratios, shares, says, blind, _ = stacked(3000)
    assert stacking_weights(np.stack([says, blind]), ratios, shares)[0] > 0.7


def test_the_weights_are_those_of_the_largest_likelihood():
    ratios, shares, says, blind, half = stacked()
    models = np.stack([np.where(half, says, blind), 0.3 * says + 0.7 * np.log(shares)])
    models = log_softmax(models, axis=2)

    def loss(a):
        log_q = log_softmax(np.tensordot(a, models - np.log(shares), 1) + np.log(shares), axis=1)
        prior = ((a - 0.5) ** 2).sum() / (2 * 0.3**2)
        return prior - np.log((ratios * np.exp(log_q)).sum(1)).sum()

    grid = np.linspace(0, 4, 81)
    best = min(((a, b) for a in grid for b in grid), key=lambda pair: loss(np.array(pair)))
    expected = best[0] / sum(best)
    assert stacking_weights(models, ratios, shares)[0] == pytest.approx(expected, abs=0.02)


def test_models_that_contradict_the_bags_are_left_even():
    ratios, shares, says, *_ = stacked()
    wrong = np.roll(says, 1, axis=1)
    weights = stacking_weights(np.stack([wrong, wrong]), ratios, shares)
    np.testing.assert_allclose(weights, 0.5)


def test_without_predictions_the_slope_is_0_and_nothing_is_known_of_it():
    observed = np.array([[0.1, -0.1], [0.2, -0.2], [-0.3, 0.3]])
    for few in (
        Slope.of(observed, 0 * observed, np.ones(3)),
        Slope.of(*2 * [observed[:1]], np.ones(1)),
    ):
        assert (few.value, few.error, few.is_positive) == (0, np.inf, False)

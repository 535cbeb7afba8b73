"""The bag likelihood as a score of probabilities."""

import numpy as np
import pytest
from gaussian_bags import simulate, softmax
from sklearn.metrics import log_loss

from unbag.evaluation import bag_log_loss, calibrate
from unbag.exceptions import InvalidInputError
from unbag.priors import ClassPriors, asymmetric, non_square, symmetric


def by_loop(chances, bags, theta, output=None):
    n, k = chances.shape
    sizes = np.bincount(bags, minlength=len(theta))
    pooled = sum(sizes[m] / n * theta[m] for m in range(len(theta)))
    output = pooled if output is None else output
    total = 0.0
    for eta, m in zip(chances, bags, strict=True):
        expected_share = sum(theta[m, j] * eta[j] / output[j] for j in range(k))
        every = sum(pooled[j] * eta[j] / output[j] for j in range(k))
        total -= np.log(sizes[m] / n * expected_share / every)
    return total / n


@pytest.mark.parametrize("output", [None, [0.2, 0.5, 0.3]])
def test_against_a_loop(output):
    rng = np.random.default_rng(0)
    theta = non_square(3, 0)
    bag = rng.choice(6, 60, p=[0.3, 0.1, 0.0, 0.2, 0.2, 0.2])  # bag 2 has no rows
    chances = rng.dirichlet(np.ones(3), 60)
    expected = by_loop(chances, bag, theta, output)
    result = bag_log_loss(chances, bag, priors=theta, output_prior=output)
    assert result == pytest.approx(expected, rel=1e-10)
    assert result > 0


def test_pure_bags_give_cross_entropy():
    rng = np.random.default_rng(0)
    label, chances = rng.integers(0, 3, 100), rng.dirichlet(np.ones(3), 100)
    expected = log_loss(label, chances)
    assert bag_log_loss(chances, label, priors=np.eye(3)) == pytest.approx(expected)


def test_ids_are_matched_by_name():
    rng = np.random.default_rng(0)
    theta, chances = asymmetric(3, 0), rng.dirichlet(np.ones(3), 30)
    bag = np.arange(30) % 3
    names = np.array(["b", "a", "c"])
    priors = ClassPriors(theta, names, ["x", "y", "z"])
    expected = bag_log_loss(chances, bag, priors=theta, output_prior=[0.2, 0.5, 0.3])
    keyed = {"z": 0.3, "x": 0.2, "y": 0.5}
    result = bag_log_loss(chances, names[bag], priors=priors, output_prior=keyed)
    assert result == pytest.approx(expected)


def test_probabilities_of_zero_and_classes_without_rows():
    chances = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    theta = [[0.5, 0.5, 0.0], [0.1, 0.9, 0.0]]  # nobody is of the third class
    result = bag_log_loss(chances, [0, 1, 1], priors=theta)
    assert np.isfinite(result)
    fitted = calibrate(chances, [0, 1, 1], priors=theta)
    assert np.isfinite([fitted.temperature, *fitted.biases]).all()


@pytest.mark.parametrize("theta", [symmetric(3, a=0.5), non_square(3, 1)], ids=["a=0.5", "M=2K"])
def test_the_true_posterior_scores_best(theta):
    rng = np.random.default_rng(0)
    bag, _, truth = simulate(theta, 30_000, rng)
    best = bag_log_loss(truth, bag, priors=theta)
    log = np.log(truth)
    distorted = {
        "sharper": softmax(1.5 * log),
        "flatter": softmax(0.6 * log),
        "biased": softmax(log + np.array([0.5, 0, -0.5])),
        "mixed": 0.8 * truth + 0.2 / 3,
        "noisy": softmax(log + 0.7 * rng.normal(size=log.shape)),
        "swapped": truth[:, [1, 0, 2]],
    }
    for name, chances in distorted.items():
        assert bag_log_loss(chances, bag, priors=theta) > best + 1e-4, name


def test_another_output_prior_is_the_same_model():
    """Probabilities under o, said to be under o, have the same bags' likelihood."""
    rng = np.random.default_rng(0)
    theta = symmetric(3, a=0.5)
    bag, _, chances = simulate(theta, 3000, rng)
    output = np.array([0.2, 0.5, 0.3])
    moved = chances * output / theta.mean(0)
    moved /= moved.sum(1, keepdims=True)
    expected = bag_log_loss(chances, bag, priors=theta)
    result = bag_log_loss(moved, bag, priors=theta, output_prior=output)
    assert result == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("function", [bag_log_loss, calibrate])
@pytest.mark.parametrize(
    ("chances", "bags", "message"),
    [
        (np.ones((2, 3)) / 3, [0, 1], r"probabilities must be an array of shape \(2, 2\), got sha"),
        ([[0.5, 0.5]], [0, 1], r"probabilities must be an array of shape \(2, 2\), got shape \(1"),
        (
            [[0.5, 0.5], [-0.1, 1.1]],
            [0, 1],
            "probabilities must be probabilities from 0 to 1, got neg",
        ),
        (
            [[0.5, 0.5], [3.0, 4.0]],
            [0, 1],
            "probabilities must be probabilities that sum to 1, got the sum 7 in r",
        ),
        (np.empty((0, 2)), [], "bag_ids must be ids of at least one row, got none"),
        ([[0.5, 0.5]], [7], "bag_ids must be ids that the priors have, got unknown 7"),
    ],
)
def test_bad_input(function, chances, bags, message):
    with pytest.raises(InvalidInputError, match=message):
        function(chances, bags, priors=[[0.9, 0.1], [0.2, 0.8]])


def test_bad_output_prior():
    with pytest.raises(InvalidInputError, match="output_prior must be shares that sum to 1"):
        bag_log_loss([[0.5, 0.5]], [0], priors=[[0.9, 0.1], [0.2, 0.8]], output_prior=[1, 1])


def test_a_class_that_the_output_prior_excludes_is_impossible():
    """What a model says of a class of which it has seen nothing counts for nothing."""
    theta = np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2]])
    eta = np.array([[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    bag, output = np.array([0, 1, 1]), np.array([0.6, 0.4, 0.0])
    ratio = eta[:, :2] / output[:2]
    pooled = np.array([1 / 3, 2 / 3]) @ theta[:, :2]
    chance = (theta[bag, :2] * ratio).sum(1) / (ratio @ pooled) * np.array([1, 2, 2]) / 3
    result = bag_log_loss(eta, bag, priors=theta, output_prior=output)
    assert result == pytest.approx(-np.log(chance).mean())

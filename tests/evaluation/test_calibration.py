"""Temperatures and class biases found without labels."""

import numpy as np
import pytest
import torch
from gaussian_bags import simulate, softmax
from sklearn.metrics import log_loss

from unbag.evaluation import (
    Calibration,
    bag_log_loss,
    calibrate,
    calibration,
    likeliest_temperature,
    likeliest_temperature_by_counts,
)
from unbag.priors import non_square, symmetric


@pytest.mark.parametrize("theta", [symmetric(3, a=0.5), non_square(3, 1)], ids=["a=0.5", "M=2K"])
@pytest.mark.parametrize("temperature", [0.4, 2.5])
def test_calibration_undoes_a_known_distortion(theta, temperature):
    rng = np.random.default_rng(0)
    bag, label, truth = simulate(theta, 20_000, rng)
    biases = np.array([0.8, -0.5, -0.3])
    distorted = softmax((np.log(truth) - biases) * temperature)
    fitted = calibrate(distorted, bag, priors=theta)
    assert fitted.temperature == pytest.approx(temperature, rel=0.12)
    np.testing.assert_allclose(fitted.biases, biases, atol=0.15)
    assert fitted.biases.sum() == pytest.approx(0, abs=1e-9)
    after = np.exp(fitted.apply(np.log(distorted)))
    np.testing.assert_allclose(after.sum(1), 1)
    assert log_loss(label, after) < log_loss(label, distorted) - 0.01
    assert log_loss(label, after) < log_loss(label, truth) + 0.003


@pytest.mark.parametrize("factor", [0.6, 1.0, 3.0])
def test_counts_of_small_bags_tell_the_temperature(factor):
    rng = np.random.default_rng(0)
    eta = rng.dirichlet(np.ones(3), 4000)
    label = (eta.cumsum(1) < rng.random((4000, 1))).sum(1)
    bag = np.arange(4000) // 8
    theta = np.zeros((501, 3))  # the last bag has no rows
    np.add.at(theta, (bag, label), 1 / 8)
    bag = np.r_[bag, [-1, -1]]
    logits = torch.from_numpy(np.r_[factor * np.log(eta), [[50, 0, 0], [0, 0, 50]]])
    found = likeliest_temperature_by_counts(
        logits, torch.from_numpy(bag), torch.from_numpy(theta)
    ).item()
    assert abs(np.log(found / factor)) < 0.15


def test_calibration_does_not_depend_on_the_rows_taken_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    bag, chances = rng.integers(0, 3, 100), rng.dirichlet([1, 1, 1], 100)
    theta = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]
    whole = calibrate(chances, bag, priors=theta)
    monkeypatch.setattr(calibration, "_PART", 16)
    parts = calibrate(chances, bag, priors=theta)
    np.testing.assert_allclose(parts.temperature, whole.temperature, rtol=1e-6)
    np.testing.assert_allclose(parts.biases, whole.biases, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_calibration_is_never_worse_on_its_own_rows(seed):
    rng = np.random.default_rng(seed)
    k = rng.integers(2, 5)
    theta = rng.dirichlet(np.ones(k), k + rng.integers(0, 3))
    bag, chances = rng.integers(0, len(theta), 80), rng.dirichlet(np.full(k, 0.2), 80)
    fitted = calibrate(chances, bag, priors=theta)
    after = np.exp(fitted.apply(np.log(np.maximum(chances, 1e-12))))
    before = bag_log_loss(chances, bag, priors=theta)
    assert bag_log_loss(after, bag, priors=theta) <= before + 1e-9


def test_what_needs_no_calibration_is_left_alone():
    rng = np.random.default_rng(0)
    theta = symmetric(3, a=0.5)
    bag, _, truth = simulate(theta, 40_000, rng)
    fitted = calibrate(truth, bag, priors=theta)
    assert fitted.temperature == pytest.approx(1, abs=0.06)
    np.testing.assert_allclose(fitted.biases, 0, atol=0.08)


def test_applying_the_identity():
    chances = np.array([[0.2, 0.8], [0.5, 0.5]])
    same = Calibration(1.0, np.zeros(2)).apply(np.log(chances))
    np.testing.assert_allclose(np.exp(same), chances)


def test_few_rows_move_little():
    """The fit is the minimum of the loss and of what is believed without rows."""
    rng = np.random.default_rng(1)
    theta, n = symmetric(3, a=0.5), 9
    bag, chances = np.arange(n) % 3, rng.dirichlet(np.ones(3), n)
    fitted = calibrate(chances, bag, priors=theta)

    def value(log_temperature, biases):
        biases = biases - biases.mean()
        after = np.exp(Calibration(np.exp(log_temperature), biases).apply(np.log(chances)))
        widths = calibration._LOG_TEMPERATURE, calibration._BIAS
        belief = (log_temperature / widths[0]) ** 2 + ((biases / widths[1]) ** 2).sum()
        return bag_log_loss(after, bag, priors=theta) + belief / (2 * n)

    least = value(np.log(fitted.temperature), fitted.biases)
    for step in 0.05 * np.r_[np.eye(4), -np.eye(4)]:
        assert value(np.log(fitted.temperature) + step[0], fitted.biases + step[1:]) > least


@pytest.mark.parametrize("seed", range(10))
def test_the_temperature_of_few_rows_is_near_one(seed):
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(3 * rng.normal(size=(6, 2)))
    ratios = torch.from_numpy(rng.uniform(0, 2, (6, 2)))
    losses = []
    for temperature in calibration._GRID:
        gain = (ratios * torch.softmax(logits / temperature, -1)).sum(-1).log().mean()
        losses.append(float(-gain + (np.log(temperature) / 0.7) ** 2 / 12))
    assert likeliest_temperature(logits, ratios) == calibration._GRID[np.argmin(losses)]


def test_without_bags_to_tell_it_the_temperature_is_one():
    logits = torch.from_numpy(3 * np.random.default_rng(0).normal(size=(6, 2)))
    alike = torch.ones(6, 2, dtype=torch.float64)
    assert abs(np.log(likeliest_temperature(logits, alike).item())) < 0.05
    no_bag, theta = torch.full((6,), -1), torch.tensor([[0.5, 0.5]])
    by_counts = likeliest_temperature_by_counts(logits, no_bag, theta)
    assert abs(np.log(by_counts.item())) < 0.05

"""Posteriors of rows given their bags."""

import numpy as np
import pytest
from scipy.stats import norm
from small_jobs import THETA, K

import unbag
from unbag.methods.posterior import balanced_posterior, describe_gains, log_gains, row_ratios


def test_balanced_posteriors_of_a_large_bag_have_its_shares():
    rng = np.random.default_rng(0)
    eta = rng.dirichlet([0.3, 0.5, 0.2], size=30_000)
    bag_index = np.repeat(np.arange(3), 10_000)
    q = balanced_posterior(np.log(eta), bag_index, THETA, THETA.mean(0))
    np.testing.assert_allclose(q.sum(1), 1, atol=1e-5)
    for m in range(3):
        np.testing.assert_allclose(q[bag_index == m].mean(0), THETA[m], atol=3e-3)
    pooled = np.array([0.2, 0.3, 0.5])  # not the same for all classes
    plain = balanced_posterior(np.log(eta), bag_index, THETA, pooled, balanced=False)
    expected = eta * (THETA / pooled)[bag_index]
    np.testing.assert_allclose(plain, expected / expected.sum(1, keepdims=True), rtol=1e-5)
    assert np.abs(plain[bag_index == 0].mean(0) - THETA[0]).max() > 0.05


def test_rows_are_balanced_with_those_of_their_bag_in_any_order():
    rng = np.random.default_rng(2)
    theta = np.vstack([THETA, [[0.2, 0.5, 0.3]]])
    bag_index = rng.choice(4, size=3000, p=[0.6, 0.3, 0.1, 0.0])  # the last has no rows
    log_eta = np.log(rng.dirichlet([0.3, 0.5, 0.2], size=3000))
    weight = rng.uniform(0.5, 2, size=3000)
    q = balanced_posterior(log_eta, bag_index, theta, THETA.mean(0), weight)
    for m in range(3):
        own = bag_index == m
        alone = balanced_posterior(
            log_eta[own], np.zeros(own.sum(), int), theta[[m]], THETA.mean(0), weight[own]
        )
        np.testing.assert_allclose(q[own], alone, atol=2e-3)  # weights are relative to others
        mean = np.average(q[own], axis=0, weights=weight[own])
        np.testing.assert_allclose(mean, THETA[m], atol=0.02)
    order = rng.permutation(3000)
    moved = balanced_posterior(
        log_eta[order], bag_index[order], theta, THETA.mean(0), weight[order]
    )
    np.testing.assert_allclose(moved, q[order], atol=1e-6)


def test_balancing_leaves_the_true_posterior_alone():
    x_given_class = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    rng = np.random.default_rng(1)
    bag_index = np.repeat(np.arange(3), 20_000)
    y = (rng.random((60_000, 1)) > THETA[bag_index].cumsum(1)).sum(1)
    x = (rng.random((60_000, 1)) > x_given_class[y].cumsum(1)).sum(1)
    joint = (THETA.mean(0)[:, None] * x_given_class).T  # (x, K)
    log_eta = np.log(joint / joint.sum(1, keepdims=True))[x]
    balanced, plain = (
        balanced_posterior(log_eta, bag_index, THETA, THETA.mean(0), balanced=flag)
        for flag in (True, False)
    )
    assert np.abs(balanced - plain).max() < 0.03


def test_small_bags_are_balanced_in_part_and_weights_count():
    theta = np.array([[0.5, 0.5]])

    def posterior(n, weight=None):
        log_eta = np.log(np.tile([[0.9, 0.1], [0.3, 0.7]], (n, 1)))
        weight = None if weight is None else np.tile(weight, n)
        return balanced_posterior(log_eta, np.zeros(2 * n, int), theta, theta[0], weight)

    assert 0.85 < posterior(1)[0, 0] < 0.9
    assert posterior(5000)[0, 0] < 0.85
    np.testing.assert_allclose(posterior(9, [3.0, 3.0]), posterior(9))  # only ratios count
    heavy, light = posterior(5000, [9.0, 1.0]), posterior(5000, [1.0, 9.0])
    assert heavy[0, 0] < light[0, 0] - 0.1


def test_a_bag_of_30_rows_is_balanced_half():
    theta = np.array([[0.5, 0.5]])

    def odds(n, **options):
        log_eta = np.log(np.tile([[0.9, 0.1], [0.3, 0.7]], (n // 2, 1)))
        q = balanced_posterior(log_eta, np.zeros(n, int), theta, theta[0], **options)[0]
        return np.log(q[0] / q[1])

    plain, whole = odds(30, balanced=False), odds(60_000)
    assert odds(30) == pytest.approx((plain + whole) / 2, abs=1e-3)


def test_a_class_that_a_bag_lacks_is_no_label_there():
    theta = np.array([[1.0, 0.0], [0.5, 0.5]])
    eta = np.full((20, 2), 0.5)
    q = balanced_posterior(np.log(eta), np.repeat([0, 1], 10), theta, theta.mean(0))
    assert (q[:10, 1] == 0).all()
    assert np.isfinite(q).all()


def test_a_row_whose_classes_are_all_unlikely_still_has_a_label():
    log_eta = np.array([[0.0, -2000.0, -2001.0]])
    q = balanced_posterior(log_eta, np.zeros(1, int), np.array([[0.0, 0.5, 0.5]]), THETA.mean(0))
    assert q.sum() == pytest.approx(1)


def test_a_class_that_no_bag_has_is_no_label():
    theta = np.array([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0]])
    bags = unbag.Bags(np.zeros((4, 1)), [0, 0, 1, 1], theta)
    ratios = row_ratios(bags, theta.mean(0))
    np.testing.assert_allclose(ratios[:, :2], (theta / np.array([0.45, 0.55, 1]))[[0, 0, 1, 1], :2])
    np.testing.assert_array_equal(ratios[:, 2], 0)
    q = balanced_posterior(np.full((4, K), -np.log(3)), bags.bag_index, theta, theta.mean(0))
    assert np.isfinite(q).all()
    np.testing.assert_array_equal(q[:, 2], 0)


def test_gains_are_how_much_likelier_bags_are_than_by_their_sizes():
    ratios = np.array([[1.5, 0.5], [0.5, 1.5], [0.0, 2.0]])
    log_eta = np.log([[0.8, 0.2], [0.8, 0.2], [0.5, 0.5]])
    np.testing.assert_allclose(np.exp(log_gains(log_eta, ratios)), [1.3, 0.7, 1.0])
    with np.errstate(divide="ignore"):
        impossible = log_gains(np.log([[1.0, 0.0]]), ratios[2:])
    assert np.isfinite(impossible).all()


def test_the_interval_of_gains_is_that_of_their_mean_logarithm():
    gains = np.random.default_rng(0).normal(0.7, 0.8, 2500)
    text = describe_gains(gains)
    margin = norm.ppf(0.975) * gains.std() / 50
    low, high = np.exp(gains.mean() - margin), np.exp(gains.mean() + margin)
    assert text.startswith("On 2,500 rows")
    assert f"{np.exp(gains.mean()):.2f} times as often as chance" in text
    assert f"(95% interval {low:.2f} to {high:.2f})" in text

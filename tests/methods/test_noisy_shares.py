"""Shares that are not exact, as training sees them."""

import numpy as np
import pytest
import torch
from small_jobs import THETA, TINY, K, gaussians, make, started

import unbag
from unbag.methods import Job, MatchedLikelihood, Tables, fit_many
from unbag.methods.noisy_shares import NoisyShares, share_ratios
from unbag.methods.posterior import balanced_posterior
from unbag.priors import ShareErrors


def certain(counts):
    """Log-probabilities of rows whose classes (M, K) are known, and the bag of every row."""
    bag, label = (np.repeat(part, np.ravel(counts)) for part in np.indices(np.shape(counts)))
    return np.log(np.where(np.eye(K) > 0, 1 - 2e-9, 1e-9))[label], bag


def pull(priors, counts):
    log_eta, bag = certain(counts)
    sizes = np.sum(counts, 1)
    pooled = priors.pooled(sizes)
    noisy = NoisyShares.of(priors, sizes)
    shares, _ = share_ratios(noisy, log_eta, bag, priors.values, pooled, np.ones(len(bag)))
    return shares


COUNTS = np.array([[52, 34, 14], [14, 58, 28], [34, 8, 58]])  # pooled as THETA


def test_shares_of_larger_errors_are_pulled_further():
    priors = unbag.ClassPriors(THETA, errors=ShareErrors.from_rows(np.array([101, 26, np.inf])))
    pulled = pull(priors, COUNTS)
    part = np.array([[0.5], [0.8], [0]])
    np.testing.assert_allclose(pulled, THETA + part * (COUNTS / 100 - THETA), atol=1e-3)


def test_equal_errors_give_the_mean_by_rows():
    pulled = pull(unbag.ClassPriors(THETA, errors=ShareErrors.from_rows(51)), COUNTS)
    np.testing.assert_allclose(pulled, (50 * THETA + COUNTS) / 150, atol=1e-3)


def test_a_sum_of_shares_that_is_known_stays():
    theta = np.full((2, K), 1 / K)
    errors = [[0.3, 0.3, 0.0]] * 2  # a and b may differ, their sum is known
    counts = np.array([[60, 10, 30], [10, 60, 30]])
    pulled = pull(unbag.ClassPriors(theta, errors=errors), counts)
    np.testing.assert_allclose(pulled[:, 2], 1 / K, atol=1e-6)
    assert pulled[0, 0] > 0.5
    assert pulled[1, 1] > 0.5


def test_classes_that_all_rows_have_too_often_do_not_gain():
    biased = np.add(COUNTS, [30, 0, 0])
    pulled = pull(unbag.ClassPriors(THETA, errors=ShareErrors.from_rows(10)), biased)
    np.testing.assert_allclose(pulled.mean(0), THETA.mean(0), atol=0.02)


def test_soft_labels_of_a_population_lie_between_its_shares_and_the_rows():
    rng = np.random.default_rng(0)
    log_eta = np.log(rng.dirichlet([0.3, 0.5, 0.2], size=30_000))
    bag = np.repeat(np.arange(K), 10_000)
    population = unbag.ClassPriors(THETA, shares_of="population")
    noisy = NoisyShares.of(population, np.bincount(bag))
    off = [
        np.abs(
            balanced_posterior(log_eta, bag, THETA, THETA.mean(0), noisy=given)[:10_000].mean(0)
            - THETA[0]
        ).max()
        for given in (None, noisy)
    ]
    assert off[0] < 3e-3 < 2e-2 < off[1]


@pytest.mark.parametrize("shares_of", [None, "rows"])
def test_exact_shares_cost_nothing(shares_of):
    bags = make()
    told = bags.with_priors(unbag.ClassPriors(THETA, shares_of=shares_of))
    assert Job(told).noisy_shares is None
    log_eta = [started(each).log_eta for each in (bags, told)]
    np.testing.assert_array_equal(*log_eta)


def test_errors_reach_every_method_that_knows_them():
    bags = make()
    noisy = bags.with_priors(unbag.ClassPriors(THETA, errors=ShareErrors.from_rows([20, 500, 500])))
    job = Job(noisy, **TINY)
    assert job.bag_evidence[0] < 0.3 * job.bag_evidence[1]
    replica = MatchedLikelihood().replica(job)
    np.testing.assert_allclose(replica.output_prior, job.evidence_prior)
    assert replica.objective.trust[0] < 0.3 < 0.8 < replica.objective.trust[1]
    targets = [f._targets(f.log_eta) for f in (started(bags), started(noisy))]
    assert np.abs(targets[0] - targets[1]).max() > 0.01


def test_bags_of_poor_shares_disturb_less_when_that_is_known():
    bags = make(1500, spread=2)
    wrong = THETA.copy()
    wrong[0] = [0.1, 0.2, 0.7]
    errors = ShareErrors.from_rows([4, np.inf, np.inf])
    X, y = gaussians(600, seed=1, spread=2)
    more = unbag.Bags(bags.X, bags.bag_ids, wrong)
    told = more.with_priors(unbag.ClassPriors(wrong, errors=errors))
    fits = fit_many([Job(each, Tables(learner="linear", rounds=5)) for each in (more, told)])
    wrongs = [(fit.module(torch.as_tensor(X)).argmax(1).numpy() != y).mean() for fit in fits]
    assert wrongs[1] < wrongs[0]

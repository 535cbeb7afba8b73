"""Rows whose class is known, beside bags."""

import numpy as np
import pytest
import torch
from small_jobs import THETA, TINY, WEAK, K, gaussians, make, started

import unbag
from unbag.exceptions import InvalidInputError
from unbag.methods import CrossFit, Job, Tables, check_job, fit_many
from unbag.methods.labelled_rows import read_labels, with_labels
from unbag.priors import ShareErrors


def some(bags, every=20):
    """Labels of some rows, -1 for the others."""
    labels = np.asarray(bags.labels).astype(np.int64)
    labels[np.arange(len(labels)) % every > 0] = -1
    return labels


def test_labelled_rows_leave_their_bags_with_the_shares_of_the_rest():
    bags = make()
    labels = some(bags)
    moved = with_labels(bags, labels)
    assert moved.n_rows == bags.n_rows
    left = labels < 0
    np.testing.assert_array_equal(moved.bag_index[~left], K + labels[~left])
    for m in range(K):
        rest = bags.labels[left & (bags.bag_index == m)]
        np.testing.assert_allclose(moved.priors.values[m], np.bincount(rest) / len(rest))
    np.testing.assert_allclose(moved.pooled_prior, bags.pooled_prior)


def test_shares_of_a_population_stay_and_errors_do_too():
    errors = ShareErrors.from_rows(50)
    priors = unbag.ClassPriors(THETA, shares_of="population", errors=errors)
    bags = make().with_priors(priors)
    moved = with_labels(bags, some(bags)).priors
    np.testing.assert_array_equal(moved.values[:K], THETA)
    np.testing.assert_array_equal(moved.errors.variances[:K], priors.errors.variances)
    assert not moved.errors.variances[K:].any()


def test_bags_of_which_all_rows_are_labelled_disappear():
    bags = make()
    labels = np.where(bags.bag_index == 0, bags.labels, -1)
    assert len(with_labels(bags, labels).priors.values) == K - 1 + K


def test_labels_lower_the_error():
    bags = make(600, theta=WEAK)
    X, y = gaussians(1000, seed=3)
    jobs = [Job(bags, Tables(learner="linear"), labels=each) for each in (None, some(bags, 10))]
    wrong = [(f.module(torch.as_tensor(X)).argmax(1).numpy() != y).mean() for f in fit_many(jobs)]
    assert wrong[1] < wrong[0] - 0.02


@pytest.mark.parametrize("theta", [THETA, WEAK])
def test_soft_labels_of_labelled_rows_are_their_labels_and_rules_see_the_bags_alone(theta):
    bags = make(theta=theta)
    labels = some(bags)
    fitting, plain = started(bags, labels=labels), started(bags)
    known = labels >= 0
    targets = fitting._targets(fitting.log_eta)
    np.testing.assert_allclose(targets[known], np.eye(K)[labels[known]])
    assert fitting.regime == plain.regime


def test_methods_that_take_no_labels_name_those_that_do():
    bags = make()
    for method in ("u-prr", "matched-likelihood"):
        with pytest.raises(InvalidInputError, match="crossfit and tables take labels"):
            check_job(Job(bags, method, labels=some(bags)))
    with pytest.raises(InvalidInputError, match="crossfit and tables take labels"):
        check_job(Job(bags, loss="generalized-cross-entropy", labels=some(bags)))
    assert check_job(Job(bags, CrossFit(), labels=some(bags), **TINY))


def test_labels_are_read_strictly():
    table = unbag.ClassPriors(THETA, classes=["a", "b", "c"])
    np.testing.assert_array_equal(read_labels(["c", None, float("nan")], table, 3), [2, -1, -1])
    assert read_labels([None, None], table, 2) is None
    with pytest.raises(InvalidInputError, match="length 3"):
        read_labels(["a"], table, 3)
    with pytest.raises(InvalidInputError, match="classes of the priors"):
        read_labels(["a", "d", None], table, 3)
    numbers = unbag.ClassPriors(THETA)
    np.testing.assert_array_equal(read_labels(np.array([0, np.nan, 2]), numbers, 3), [0, -1, 2])
    with pytest.raises(InvalidInputError, match="classes of the priors"):
        read_labels([0.5, None], numbers, 2)

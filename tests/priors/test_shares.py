"""Test priors, risk weights and the shift from one prior to another."""

import numpy as np
import pandas as pd
import pytest

from unbag.exceptions import ConditioningWarning, InvalidInputError, RankError
from unbag.priors import (
    ClassPriors,
    check_test_prior,
    prior_shift,
    risk_weights,
    symmetric,
)


@pytest.mark.parametrize(
    "given_prior", [[0.1, 0.9], {"no": 0.9, "yes": 0.1}, pd.Series({"no": 0.9, "yes": 0.1})]
)
def test_test_prior_is_put_in_the_order_of_classes(given_prior):
    np.testing.assert_allclose(check_test_prior(given_prior, np.array(["yes", "no"])), [0.1, 0.9])


@pytest.mark.parametrize(
    ("given_prior", "message"),
    [
        ([0.5, 0.3, 0.2], "2 shares, one for each class, got 3"),
        ([0.5, 0.4], "sum to 1, got the sum 0.9"),
        ([1.5, -0.5], "non-negative"),
        ([np.nan, 1], "finite"),
        (None, "1-dimensional"),
        ({1: 1.0}, "a share for every class, got none for 2"),
        ({1: 0.5, 2: 0.3, 3: 0.2}, "unknown 3"),
        ({"1": 0.5, "2": 0.5}, r"the priors have 1 \(int\), test_prior has '1' \(str\)"),
    ],
)
def test_bad_test_priors(given_prior, message):
    with pytest.raises(InvalidInputError, match=message):
        check_test_prior(given_prior, np.array([1, 2]))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [0.9, 0.05, 0.05]], "'y', 'z' .*shares differ"),
        ([[0.5, 0.5, 0], [0.2, 0.8, 0], [0.1, 0.9, 0]], "class 'z' is in no bag"),
        ([[0.5, 0.2, 0.3], [0.1, 0.7, 0.2]], "'x', 'y', 'z' .*at least 3 bags are needed"),
    ],
)
def test_weights_refuse_priors_without_full_rank(table, message):
    with pytest.raises(RankError, match=message):
        risk_weights(ClassPriors(table, classes=["x", "y", "z"]), [0.2, 0.3, 0.5])


def test_ill_conditioned_priors_warn():
    theta = symmetric(2, a=0.005)
    with pytest.warns(ConditioningWarning, match="condition number 200, .*weights 200"):
        risk_weights(theta, [0.5, 0.5])
    risk_weights(theta, [0.5, 0.5], warn=False)


def test_a_test_prior_may_exclude_classes_and_is_scaled_to_sum_to_one():
    classes = np.array(["yes", "no", "maybe"])
    np.testing.assert_array_equal(check_test_prior([0, 1, 0], classes), [0, 1, 0])
    shares = check_test_prior([0.3333333, 0.3333333, 0.3333333], classes)
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    for row in (risk_weights(np.eye(3), [0, 1, 0]), risk_weights(np.eye(3), {0: 0, 1: 1, 2: 0})):
        np.testing.assert_array_equal(row, np.diag([0, 1, 0]))


def test_prior_shift_carries_posteriors_from_one_prior_to_another():
    rng = np.random.default_rng(0)
    density = rng.random((20, 3))  # of 20 rows in each class
    old, new = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])

    def posterior(prior):
        joint = density * prior
        return joint / joint.sum(1, keepdims=True)

    shifted = np.exp(np.log(posterior(old)) + prior_shift(new, old))
    np.testing.assert_allclose(shifted / shifted.sum(1, keepdims=True), posterior(new))
    np.testing.assert_array_equal(prior_shift(old, old), 0)


def test_prior_shift_of_classes_without_share():
    shift = prior_shift([0.5, 0.0, 0.5, 0.0], [0.25, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(shift, [np.log(2), -np.inf, np.log(0.5), -np.inf])

"""Generated class priors."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbag.exceptions import InvalidInputError
from unbag.priors import (
    ClassPriors,
    asymmetric,
    non_square,
    perturb,
    risk_weights,
    symmetric,
)

quick = settings(deadline=None, max_examples=40)


TABLE = [[0.8, 0.2], [0.3, 0.7]]


@given(
    st.integers(2, 8),
    st.floats(0.02, 1.0),
    st.integers(0, 2**31),
    st.sampled_from(["symmetric", "asymmetric", "non_square", "perturbed"]),
)
@quick
def test_generators_and_weights(n_classes, a, seed, kind):
    theta = {
        "symmetric": lambda: symmetric(n_classes, a),
        "asymmetric": lambda: asymmetric(n_classes, seed),
        "non_square": lambda: non_square(n_classes, seed),
        "perturbed": lambda: perturb(asymmetric(n_classes, seed), 0.05, seed),
    }[kind]()
    assert theta.shape == ((2 if kind == "non_square" else 1) * n_classes, n_classes)
    assert (theta >= 0).all()
    np.testing.assert_allclose(theta.sum(axis=1), 1, atol=1e-12)
    pi = np.random.default_rng(seed).dirichlet(np.ones(n_classes))
    weights = risk_weights(theta, pi, warn=False)
    np.testing.assert_allclose(weights.T @ theta, np.diag(pi), atol=1e-7)


def test_asymmetric_shares_keep_to_their_range():
    theta = asymmetric(10, random_state=0)
    off = theta[~np.eye(10, dtype=bool)]
    assert off.max() <= 0.1
    assert abs(off.mean() - 0.05) < 0.01
    np.testing.assert_array_equal(theta, asymmetric(10, random_state=np.random.default_rng(0)))
    assert not np.allclose(*np.split(non_square(10, random_state=0), 2))


def test_perturb_names_the_bag_whose_share_would_be_negative():
    table = {"pure": [1.0, 0.0, 0.0], "even": [0.33, 0.33, 0.34], "same": [0.0, 1.0, 0.0]}
    messages = set()
    for seed in range(30):
        try:
            perturb(table, 0.9, random_state=seed)
        except InvalidInputError as error:
            messages.add(str(error))
    (message,) = messages
    assert "a share of bag 'even' negative; lower it" in message


def test_perturb_changes_every_share_but_the_largest_by_the_rate():
    theta = asymmetric(5, random_state=0)
    noisy = perturb(theta, 0.1, random_state=np.random.RandomState(1))
    ratio = (noisy / theta)[~np.eye(5, dtype=bool)]
    assert set(ratio.round(9)) == {0.9, 1.1}
    named = perturb(ClassPriors(theta, list("abcde")), 0.1, random_state=np.random.RandomState(1))
    assert named.bag_ids.tolist() == list("abcde")
    np.testing.assert_allclose(named.values, noisy)
    assert isinstance(perturb(pd.DataFrame(TABLE), 0.1), ClassPriors)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: symmetric(1, 0.5), "n_classes must be a whole number of at least 2"),
        (lambda: symmetric(2.5, 0.5), "n_classes must be"),
        (lambda: symmetric(3, 0), r"a must be a number in \(0, 1\]"),
        (lambda: asymmetric(2.5), "n_classes must be a whole number of at least 2"),
        (lambda: asymmetric(3, random_state="x"), "random_state must be"),
        (lambda: perturb(TABLE, 1.0), r"rate must be a number in \[0, 1\)"),
        (lambda: perturb(np.full((50, 10), 0.1), 0.9, 0), "share of bag 1 negative; lower it"),
    ],
)
def test_bad_settings_of_generators(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()

"""What sizes and shares of bags decide."""

import numpy as np
import pytest
from small_jobs import THETA, WEAK

import unbag
from unbag.methods import (
    Job,
    MatchedLikelihood,
    Prop,
    default_batch_size,
    default_epochs,
    default_learning_rate,
)
from unbag.methods.sizes import (
    are_pure,
    are_weak,
    choose_batching,
    kept_out_share,
    matching_batch_size,
    noise_of_shares,
    whole_bag_batch_size,
)
from unbag.methods.soft_labels import soft_batch_size, soft_epochs, soft_weight_decay


@pytest.mark.parametrize("n", [1, 10, 512, 769, 5000, 7490, 10**5, 10**7])
def test_defaults_are_in_their_ranges(n):
    batch = default_batch_size(n)
    assert min(n, 350) <= batch <= 2100
    assert n % batch < n / 20  # equal batches leave out few rows
    assert 20 <= default_epochs(n) <= 100
    assert [default_batch_size(rows) for rows in (5_632, 10**7)] == [563, 2047]
    assert 1e-3 <= default_learning_rate(n) <= 2.1e-3


def test_the_ends_of_the_ranges():
    assert [default_epochs(n) for n in (1, 10**7)] == [100, 20]
    assert [default_learning_rate(n) for n in (1, 5_120)] == [1e-3, 1e-3]
    assert default_learning_rate(10**7) == pytest.approx(2e-3, rel=1e-3)
    assert [kept_out_share(n, 0.1) for n in (1, 800, 10**7)] == [0.3, 0.25, 0.1]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([20] * 40, "whole-bags"),
        ([20] * 30, "whole-bags"),
        ([20] * 29, "stratified"),
        ([20] * 29 + [0] * 5, "stratified"),
        ([512] * 30, "whole-bags"),
        ([512] * 29 + [550], "stratified"),
    ],
)
def test_small_bags_are_kept_whole(sizes, expected):
    assert choose_batching(np.array(sizes)) == expected


def test_batches_of_whole_bags():
    assert whole_bag_batch_size(np.array([300, 300, 300])) == 600
    assert whole_bag_batch_size(np.array([100] * 3)) == 300
    assert whole_bag_batch_size(np.array([100] * 10 + [0])) == 600
    assert whole_bag_batch_size(np.array([100] * 9 + [99])) == 512
    assert whole_bag_batch_size(np.array([1, 2, 400] * 10)) == 800
    X = np.random.default_rng(0).normal(size=(90, 4))
    large = unbag.Bags(X, np.arange(90) % 3, THETA)
    small = unbag.Bags(X, np.repeat(np.arange(45), 2), np.repeat(THETA, 15, 0))
    assert Prop().replica(Job(small)).batching == "whole-bags"
    assert Prop().replica(Job(small, batching="shuffled")).batching == "shuffled"
    assert Prop().replica(Job(large)).batching == "stratified"


def test_the_noise_of_shares():
    within = (THETA * (1 - THETA)).sum()
    between = ((THETA - THETA.mean(0)) ** 2).sum()
    assert noise_of_shares(THETA) == pytest.approx(within / between)
    assert noise_of_shares(np.full((2, 2), 0.5)) == np.inf
    assert are_weak(WEAK)
    assert not are_weak(THETA)


def test_bags_are_pure_where_each_has_one_class():
    assert are_pure(np.eye(3)[[0, 0, 2]])
    assert not are_pure(np.array([[1.0, 0.0], [0.1, 0.9]]))


def test_batches_in_which_shares_are_compared():
    clear = unbag.priors.symmetric(10, 0.5)
    assert matching_batch_size(10_000, clear) == 2000  # 200 rows per bag
    assert matching_batch_size(4_000, clear) == 1333  # a third of the rows
    assert matching_batch_size(240_000, np.tile(clear, (600, 1))) == 20_000
    assert matching_batch_size(600, clear) == 600  # at least 512


def test_trainings_on_soft_labels():
    assert [soft_batch_size(n, n) for n in (100, 1_000, 4_000, 60_000)] == [33, 100, 400, 512]
    assert soft_batch_size(1_000, 640) == 100
    assert soft_batch_size(320, 180) == 32
    assert soft_batch_size(319, 180) == 30  # equal parts
    assert soft_batch_size(100, 10) == 10
    assert [soft_epochs(n) for n in (20, 1_000, 60_000)] == [150, 140, 12]
    assert [soft_weight_decay(n) for n in (280, 28_000)] == pytest.approx([0.01, 0.001])


def test_a_batch_size_that_is_given_is_taken():
    bags = unbag.Bags(np.zeros((900, 2)), np.arange(900) % 3, THETA)
    sizes = [MatchedLikelihood().replica(Job(bags, batch_size=b)).batch_size for b in (None, 70)]
    assert sizes == [450, 70]


@pytest.mark.parametrize(("epochs", "share", "expected"), [(40, 0.25, 10), (40, 0.001, 1)])
def test_a_first_look_takes_a_share_of_the_epochs(epochs, share, expected):
    bags = unbag.Bags(np.zeros((900, 2)), np.arange(900) % 3, THETA)
    assert Prop().shorten(Job(bags, epochs=epochs), share).epochs == expected
    assert Prop().shorten(Job(bags), share).epochs == max(1, round(share * default_epochs(900)))

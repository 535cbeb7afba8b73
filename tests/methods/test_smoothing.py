"""Smoothing of crossfit: how far rows are moved, and what has to speak for it."""

import dataclasses

import numpy as np
import pytest
import torch

import unbag
from unbag.methods import Job
from unbag.methods.crossfit import CrossFit
from unbag.methods.smoothing import Smoothing, principal_deviation, spread
from unbag.training import train

K = 3
THETA = np.array([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]])
FAINT = np.full((3, 3), 0.3) + 0.1 * np.eye(3)


def gaussians(n=600, shape=(8, 8), distance=12.0):
    """Classes whose means differ by that distance."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, n)
    d = int(np.prod(shape))
    centres = distance / np.sqrt(2) * np.eye(K, d)
    return (rng.normal(size=(n, d)) + centres[y]).astype(np.float32).reshape(n, *shape), y


def make_job(theta=THETA, *, data=None, smoothing=None, **settings):
    bags = unbag.make_bags(*(gaussians() if data is None else data), theta, random_state=0)
    hyperparameters = {} if smoothing is None else {"smoothing": smoothing}
    options = {"epochs": 2, "model_options": {"depth": 2, "width": 8}, **settings}
    return Job(bags, "crossfit", hyperparameters=hyperparameters, **options)


def begin(job):
    crossfit = CrossFit(job, "float32")
    crossfit.take_start(train(crossfit.start(), device="cpu"))
    return crossfit


def run_round(crossfit):
    """Radii of the networks of a round, which is run."""
    replicas = crossfit.round()
    crossfit.take_round(train(replicas, device="cpu"))
    (radius,) = {replica.smoothing for replica in replicas}
    return radius


@pytest.fixture
def verdicts(monkeypatch):
    """What the bags of rows kept out are made to say of each round after the first."""
    said = []
    monkeypatch.setattr("unbag.methods.kept_out.KeptOut.worse", lambda *_: said.pop(0))
    return said


# ---------------------------------------------------------------------------- distances of rows


def test_the_spread_of_bytes_is_that_of_the_numbers_that_networks_see():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(25_000, 2, 3)).astype(np.uint8)
    bags = unbag.Bags(X, np.arange(25_000) % 3, THETA)
    assert spread(bags) == pytest.approx(np.sqrt(6 / 12), rel=0.02)
    numbers = (X / 255).astype(np.float32)
    for same in (numbers, torch.from_numpy(numbers), torch.from_numpy(numbers).bfloat16()):
        made = unbag.Bags(same, np.arange(25_000) % 3, THETA)
        assert spread(made) == pytest.approx(spread(bags), rel=1e-3)
    large = unbag.Bags((300 * numbers).astype(np.float16), np.arange(25_000) % 3, THETA)
    assert spread(large) == pytest.approx(300 * spread(bags), rel=1e-3)  # no overflow


@pytest.mark.parametrize("n", [50, 400])
def test_the_principal_deviation_is_the_first_singular_value(n):
    rng = np.random.default_rng(0)
    X = 3 + rng.normal(size=(n, 6, 10)) * np.linspace(3, 1, 10)
    bags = unbag.Bags(X, np.arange(n) % 3, THETA)
    centred = X.reshape(n, 60) - X.reshape(n, 60).mean(0)
    expected = np.linalg.norm(centred, 2) / np.sqrt(n)
    assert 0.98 * expected < principal_deviation(bags) < expected * (1 + 1e-9)
    assert principal_deviation(unbag.Bags(np.ones((n, 5)), np.arange(n) % 3, THETA)) == 0


def test_rows_of_very_many_numbers_are_sampled(monkeypatch):
    X, y = gaussians(3000)
    bags = unbag.Bags(X, y, THETA)
    whole = spread(bags)
    monkeypatch.setattr("unbag.methods.smoothing._SAMPLE_NUMBERS", 64 * 500)
    assert spread(bags) != whole
    assert spread(bags) == pytest.approx(whole, rel=0.05)


# ------------------------------------------------------------------------------------- the rule


def test_mlps_on_images_are_smoothed_unless_bags_are_small():
    def radius(shape=(8, 8), layered=True, whole=False, share=None):
        bags = unbag.Bags(*gaussians(shape=shape), THETA)
        made = Smoothing(share, bags, layered=layered, whole=whole)
        return made.radius / spread(bags)

    assert radius() == radius((1, 8, 8)) == pytest.approx(0.2)
    assert radius((64,)) == radius((9, 7)) == 0
    assert radius(layered=False) == radius(whole=True) == radius(share=0) == 0
    assert radius((5,), layered=False, whole=True, share=0.3) == pytest.approx(0.3)


def test_rows_that_differ_little_in_every_direction_are_not_smoothed():
    # White rows would be moved by 0.2 √100 = 2 deviations; one direction of 5 makes up for that.
    X = np.random.default_rng(0).normal(size=(900, 100))
    for factor, there in ((1, False), (5, True)):
        X[:, 0] *= factor
        bags = unbag.Bags(X.reshape(900, 10, 10), np.arange(900) % 3, THETA)
        assert (Smoothing(None, bags, layered=True, whole=False).radius > 0) == there
        assert Smoothing(0.2, bags, layered=True, whole=False).radius > 0


def test_jobs_tell_what_networks_and_bags_they_have():
    def radius(job):
        return CrossFit(job, "float32")._smoothing.radius

    assert radius(make_job()) > 0
    assert radius(make_job(model="linear", model_options={})) == 0
    X, y = gaussians(960)
    bag = np.arange(960) // 12
    theta = np.zeros((80, K))
    np.add.at(theta, (bag, y), 1 / 12)
    assert radius(dataclasses.replace(make_job(), bags=unbag.Bags(X, bag, theta))) == 0
    images = unbag.Bags(X[:120].reshape(-1, 1, 8, 8), bag[:120] % 3, THETA)
    assert radius(Job(images, "crossfit", model="resnet20")) == 0
    assert radius(Job(images, "crossfit")) > 0


@pytest.mark.parametrize("theta", [THETA, FAINT])
def test_the_second_round_is_smoothed_and_then_the_last_network(theta, verdicts):
    crossfit = begin(make_job(theta))
    radius = 0.2 * spread(crossfit._replica.bags)
    assert run_round(crossfit) == 0
    assert crossfit.last().smoothing == 0
    verdicts += [False, True]
    assert run_round(crossfit) == pytest.approx(radius)
    assert crossfit.last().smoothing == pytest.approx(radius)
    assert run_round(crossfit) == pytest.approx(radius)
    assert crossfit.ended  # a later one that is worse ends the rounds
    assert crossfit.rounds == 2
    assert crossfit.last().smoothing == pytest.approx(radius)
    fit = crossfit.finish(train([crossfit.last()], device="cpu")[0])
    assert fit.outcome.stop_reason.startswith("2 rounds with mixup and smoothing after a start")


def test_a_smoothed_round_that_is_worse_is_run_again_without(verdicts):
    crossfit = begin(make_job())
    run_round(crossfit)
    before = crossfit._log_eta
    verdicts += [True, False, True]
    assert run_round(crossfit) > 0
    assert (crossfit.rounds, crossfit.ended) == (1, False)
    np.testing.assert_array_equal(crossfit._log_eta, before)
    assert run_round(crossfit) == 0
    assert crossfit.rounds == 2
    assert crossfit.last().smoothing == 0
    run_round(crossfit)
    assert crossfit.ended
    fit = crossfit.finish(train([crossfit.last()], device="cpu")[0])
    assert fit.outcome.stop_reason.startswith("2 rounds with mixup after a start")


def test_a_smoothed_round_that_diverges_is_run_again_without():
    crossfit = begin(make_job())
    run_round(crossfit)
    outcomes = train(crossfit.round(), device="cpu")
    outcomes[1] = dataclasses.replace(outcomes[1], diverged=True)
    crossfit.take_round(outcomes)
    assert (crossfit.rounds, crossfit.failed, crossfit.ended) == (1, None, False)
    assert {replica.smoothing for replica in crossfit.round()} == {0}
    crossfit.take_round(outcomes)
    assert crossfit.failed is outcomes[1]


def test_rows_whose_distances_overflow_are_not_smoothed():
    X, y = gaussians()
    bags = unbag.Bags(1e160 * X.astype(np.float64), y, THETA)
    assert Smoothing(None, bags, layered=True, whole=False).radius == 0


def test_a_radius_that_is_given_is_on_no_trial(verdicts):
    crossfit = begin(make_job(smoothing=0.4, data=gaussians(shape=(9,), distance=0.5)))
    assert crossfit.last().smoothing == pytest.approx(0.4 * spread(crossfit._replica.bags))
    assert run_round(crossfit) == 0
    verdicts.append(True)
    assert run_round(crossfit) > 0
    assert crossfit.ended
    assert crossfit.last().smoothing > 0


def test_labels_need_no_rounds_and_smooth_nothing_unless_told():
    labelled = unbag.Bags(*gaussians(), np.eye(K))
    for share, there in ((None, False), (0.2, True)):
        job = dataclasses.replace(make_job(smoothing=share), bags=labelled)
        assert (CrossFit(job, "float32").last().smoothing > 0) == there

"""Smoothing of crossfit: how far rows are moved, and what has to speak for it."""

import dataclasses

import numpy as np
import pytest
import torch
from small_jobs import THETA, WEAK, K, run_to_end, small_bags

import unbag
from unbag.methods import CrossFit, Job
from unbag.methods.crossfit import CrossFitting
from unbag.methods.smoothing import Smoothing, principal_deviation, spread
from unbag.training import train


def gaussians(n=600, shape=(8, 8), distance=12.0):
    """Classes whose means differ by that distance."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, n)
    d = int(np.prod(shape))
    centres = distance / np.sqrt(2) * np.eye(K, d)
    return (rng.normal(size=(n, d)) + centres[y]).astype(np.float32).reshape(n, *shape), y


def make_job(theta=THETA, *, data=None, smoothing=None, **settings):
    bags = unbag.make_bags(*(gaussians() if data is None else data), theta, random_state=0)
    options = {"epochs": 2, "model_options": {"depth": 2, "width": 8}, **settings}
    return Job(bags, CrossFit(adversarial_smoothing=smoothing), **options)


def describe(job):
    return CrossFitting(job.method, job)


def begin(job):
    crossfit = describe(job)
    crossfit.use_start(train(crossfit.start(), device="cpu"))
    return crossfit


def run_round(crossfit):
    """Run a round; return the radius of its networks, and whether rounds go on."""
    replicas = crossfit.round()
    goes_on = crossfit.use_round(train(replicas, device="cpu"))
    (radius,) = {replica.adversarial_smoothing for replica in replicas}
    return radius, goes_on


@pytest.fixture
def verdicts(monkeypatch):
    """What the bags of rows kept out are made to say of each round after the first."""
    said = []
    monkeypatch.setattr("unbag.methods.kept_out.KeptOut.is_worse", lambda *_: said.pop(0))
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
    found = principal_deviation(bags)
    assert 0.98 * expected < found < expected * (1 + 1e-9)
    small = unbag.Bags(1e-9 * X, np.arange(n) % 3, THETA)
    assert principal_deviation(small) == pytest.approx(1e-9 * found)
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
    def radius(shape=(8, 8), applies=True, share=None):
        bags = unbag.Bags(*gaussians(shape=shape), THETA)
        return Smoothing(share, bags, applies=applies).radius / spread(bags)

    assert radius() == radius((1, 8, 8)) == pytest.approx(0.2)
    assert radius((64,)) == 0
    assert radius((9, 7)) == pytest.approx(0.2)
    assert radius(applies=False) == radius(share=0) == 0
    assert radius((5,), applies=False, share=0.3) == pytest.approx(0.3)


def test_rows_that_differ_little_in_every_direction_are_not_smoothed():
    # White rows would be moved by 0.2 √100 = 2 deviations; one direction of 5 makes up for that.
    X = np.random.default_rng(0).normal(size=(900, 100))
    for factor, there in ((1, False), (5, True)):
        X[:, 0] *= factor
        bags = unbag.Bags(X.reshape(900, 10, 10), np.arange(900) % 3, THETA)
        assert (Smoothing(None, bags, applies=True).radius > 0) == there
        assert Smoothing(0.2, bags, applies=True).radius > 0


def test_jobs_tell_what_networks_and_bags_they_have():
    def radius(job):
        return describe(job).smoothing.radius

    assert radius(make_job()) > 0
    assert radius(make_job(model="linear", model_options={})) == 0
    X, _ = gaussians(960)
    small = small_bags(960)
    whole = unbag.Bags(X, small.bag_index, small.priors)
    assert radius(dataclasses.replace(make_job(), bags=whole)) == 0
    images = unbag.Bags(X[:120].reshape(-1, 1, 8, 8), np.arange(120) % 3, THETA)
    assert radius(Job(images, CrossFit(), model="resnet20")) == 0
    assert radius(Job(images, CrossFit())) > 0


@pytest.mark.parametrize("theta", [THETA, WEAK])
def test_the_second_round_is_smoothed_and_then_the_last_network(theta, verdicts):
    crossfit = begin(make_job(theta))
    radius = 0.2 * spread(crossfit.bags)
    assert run_round(crossfit) == (0, True)
    assert crossfit.last().adversarial_smoothing == 0
    verdicts += [False, True]
    assert run_round(crossfit) == (pytest.approx(radius), True)
    assert crossfit.last().adversarial_smoothing == pytest.approx(radius)
    # A later one that is worse ends the rounds.
    assert run_round(crossfit) == (pytest.approx(radius), False)
    assert crossfit.n_accepted == 2
    assert crossfit.last().adversarial_smoothing == pytest.approx(radius)
    fit = crossfit.finish(train([crossfit.last()], device="cpu")[0])
    expected = "Trained with cross-fitting (2 rounds, adversarial smoothing). Training st"
    assert fit.stop_reason.startswith(expected)


def test_a_smoothed_round_that_is_worse_is_run_again_without(verdicts):
    crossfit = begin(make_job())
    run_round(crossfit)
    before = crossfit.log_eta
    verdicts += [True, False, True]
    radius, goes_on = run_round(crossfit)
    assert radius > 0
    assert goes_on
    assert crossfit.n_accepted == 1
    np.testing.assert_array_equal(crossfit.log_eta, before)
    assert run_round(crossfit) == (0, True)
    assert crossfit.n_accepted == 2
    assert crossfit.last().adversarial_smoothing == 0
    assert run_round(crossfit) == (0, False)
    fit = crossfit.finish(train([crossfit.last()], device="cpu")[0])
    assert fit.stop_reason.startswith("Trained with cross-fitting (2 rounds). Training sto")


def test_a_smoothed_round_that_diverges_is_run_again_without():
    def diverge(stage, fits):
        if stage >= 3:  # after the start and the first round
            fits[1] = dataclasses.replace(fits[1], diverged=True, stop_reason=f"stage {stage}")
        return fits

    fit, radii = run_to_end(describe(make_job()).trainings(), diverge)
    assert radii[2] > 0
    assert [radii[0], radii[1], *radii[3:]] == [0, 0, 0]
    assert fit.diverged
    assert fit.stop_reason == "stage 4"
    assert fit.calibration is None


@pytest.mark.parametrize("last", [1, 2])
def test_a_start_or_a_first_round_that_diverges_ends_the_job(last):
    def diverge(stage, fits):
        if stage == last:
            fits[1] = dataclasses.replace(fits[1], diverged=True, stop_reason="infinite")
        return fits

    fit, radii = run_to_end(describe(make_job(smoothing=0.2)).trainings(), diverge)
    assert len(radii) == last
    assert fit.diverged
    assert fit.stop_reason == "infinite"


def test_rows_whose_distances_overflow_are_not_smoothed():
    X, y = gaussians()
    bags = unbag.Bags(1e160 * X.astype(np.float64), y, THETA)
    assert Smoothing(None, bags, applies=True).radius == 0


def test_a_radius_that_is_given_is_on_no_trial(verdicts):
    crossfit = begin(make_job(smoothing=0.4, data=gaussians(shape=(9,), distance=0.5)))
    assert crossfit.last().adversarial_smoothing == pytest.approx(0.4 * spread(crossfit.bags))
    assert run_round(crossfit) == (0, True)
    verdicts.append(True)
    radius, goes_on = run_round(crossfit)
    assert radius > 0
    assert not goes_on
    assert crossfit.last().adversarial_smoothing > 0


def test_labels_need_no_rounds_and_smooth_nothing_unless_told():
    labelled = unbag.Bags(*gaussians(), np.eye(K))
    for share, there in ((None, False), (0.2, True)):
        job = dataclasses.replace(make_job(smoothing=share), bags=labelled)
        assert (describe(job).last().adversarial_smoothing > 0) == there

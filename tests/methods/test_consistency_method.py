"""consistency: augmented rows, and pseudo-labels."""

import numpy as np
import pytest
import torch
from small_jobs import THETA, WEAK, K, small_bags

import unbag
from unbag.exceptions import InvalidInputError
from unbag.methods import Consistency, Job, fit_many
from unbag.training import TestSet

D = 4
CLEAR = np.full((3, 3), 0.1) + 0.7 * np.eye(3)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return rng.normal(size=(n, D)) + 2 * np.eye(K, D)[y], y


def describe(bags, method=None, **settings):
    (replica,) = next((method or Consistency()).fit(Job(bags, **settings)))
    return replica


def test_rows_are_kept_out_and_calibrate():
    X, y = rows(600)
    bags = unbag.make_bags(X, y, THETA, random_state=0)
    weight = np.linspace(1, 2, bags.n_rows)
    job = Job(bags, "consistency", epochs=4, seed=3, sample_weight=weight)
    replica = describe(bags, epochs=4, seed=3, sample_weight=weight)
    assert replica.bags.n_rows + replica.predicted.n_rows == bags.n_rows
    assert replica.predicted.n_rows == pytest.approx(0.3 * bags.n_rows, abs=15)
    kept = {row.tobytes() for row in np.asarray(replica.predicted.X)}
    assert not any(row.tobytes() in kept for row in np.asarray(replica.bags.X))
    trained = np.isin(bags.rows, replica.bags.rows)
    np.testing.assert_array_equal(replica.sample_weight, weight[trained])
    np.testing.assert_allclose(replica.pooled_prior, np.average(THETA[bags.bag_index], 0, weight))
    fit = fit_many([job], device="cpu")[0]
    assert 0.4 <= fit.calibration.temperature <= 8
    out, scaled = replica.predicted, fit.logits / fit.calibration.temperature
    eta = torch.softmax(torch.from_numpy(scaled), 1).numpy()
    gains = np.log((eta * (THETA / replica.pooled_prior)[out.bag_index]).sum(1))
    assert fit.stop_reason.startswith(
        f"Trained with pseudo-labels. On {out.n_rows} rows that it was not trained on, it names "
        f"the right bag {np.exp(gains.mean()):.2f} times as often as chance"
    )
    assert gains.mean() > 0.04


@pytest.mark.parametrize(("n", "share"), [(400, 0.3), (1000, 0.2), (8000, 0.05)])
def test_about_200_rows_are_kept_out(n, share):
    bags = unbag.Bags(np.arange(float(n))[:, None], np.arange(n) % K, THETA)
    assert describe(bags, model="linear").predicted.n_rows == pytest.approx(share * n, abs=1)


def test_equal_rows_and_small_bags_are_kept_out_as_a_whole():
    X, y = rows(300)
    twice = unbag.Bags(np.concatenate([X, X]), np.concatenate([y, y]), THETA)
    kept = {row.tobytes() for row in np.asarray(describe(twice).predicted.X)}
    assert not any(row.tobytes() in kept for row in np.asarray(describe(twice).bags.X))
    replica = describe(small_bags())
    assert set(replica.predicted.bag_index).isdisjoint(replica.bags.bag_index)
    same = unbag.Bags(np.zeros((9, 2)), np.arange(9) % K, THETA)
    with pytest.raises(InvalidInputError, match="bags must be at least two different rows, got 1"):
        fit_many([Job(same, "consistency")])


def test_seeds_decide_which_rows_are_kept_out():
    bags = unbag.make_bags(*rows(300), THETA, random_state=0)
    one, again, other = (describe(bags, seed=seed).predicted.rows for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert set(one) != set(other)


@pytest.mark.parametrize(
    ("shape", "flip"), [((3, 8, 8), True), ((1, 8, 8), False), ((8, 8), False)]
)
def test_images_of_three_colours_only_are_mirrored(shape, flip):
    X = np.random.default_rng(0).random((90, *shape), dtype=np.float32)
    bags = unbag.make_bags(X, np.arange(90) % K, THETA, random_state=0)
    assert describe(bags).pseudo_labels.flip == flip
    assert describe(bags, Consistency(flip=not flip)).pseudo_labels.flip != flip


def test_settings_reach_the_pseudo_labels():
    bags = unbag.make_bags(*rows(300), THETA, random_state=0)
    settings = {"purity": 0.8, "threshold": 0.7, "teacher": False, "balanced": False, "weight": 0.3}
    labels = describe(bags, Consistency(**settings)).pseudo_labels
    assert {name: getattr(labels, name) for name in settings} == settings
    assert float(describe(bags, Consistency(matching=2.0)).objective.matching) == 2
    assert float(describe(bags).objective.matching) == 8
    with pytest.raises(InvalidInputError, match=r"purity must be a number in \[0, 1\]"):
        Consistency(purity=1.5)


def test_batches_and_epochs():
    X = np.random.default_rng(0).normal(size=(30_000, 2)).astype(np.float32)
    bags = unbag.Bags(X, np.arange(30_000) % K, CLEAR)
    replica = describe(bags)
    assert replica.annealed
    assert replica.batch_size == 600  # 200 rows per bag
    assert replica.epochs == 200  # the most
    assert Consistency().epochs(Job(bags, epochs=3)) == replica.epochs
    given = describe(bags, epochs=3, batch_size=100, learning_rate=0.5)
    assert (given.epochs, given.batch_size, given.learning_rate) == (3, 100, 0.5)
    assert (replica.learning_rate, replica.decoupled_weight_decay) == (2e-3, 0.05)
    tenth = unbag.Bags(X[:5500], np.arange(5500) % K, CLEAR)
    assert describe(tenth).batch_size == 550
    few = unbag.make_bags(*rows(300), THETA, random_state=0)
    assert describe(few).batch_size == describe(few).bags.n_rows
    whole = describe(small_bags())
    assert (whole.batching, whole.batch_size % 12) == ("whole-bags", 0)
    assert (whole.learning_rate, whole.decoupled_weight_decay) == (1e-3, 0.05)


@pytest.mark.parametrize(("n", "epochs"), [(300, 200), (10_000, 105), (20_000, 60)])
def test_epochs_of_10_000_steps(n, epochs):
    bags = unbag.Bags(np.arange(n)[:, None] / n, np.arange(n) % K, CLEAR)
    assert Consistency().epochs(Job(bags, batch_size=100)) == epochs


def test_it_learns():
    X, y = rows(900, seed=2)
    bags = unbag.make_bags(X, y, THETA, random_state=0)
    settings = {"epochs": 30, "batch_size": 128, "model_options": {"width": 32, "depth": 3}}
    (fit,) = fit_many([Job(bags, "consistency", **settings, test=TestSet(X, y))], device="cpu")
    assert fit.history["test_error"][-1] < 0.16  # 0.11 with labels


def test_it_learns_with_a_residual_network():
    rng = np.random.default_rng(0)
    y = np.arange(240) % K
    X = rng.random((240, 1, 6, 6), dtype=np.float32)
    X[np.arange(240), 0, 2 * y] += 1.0  # a bright line
    bags = unbag.make_bags(X, y, THETA, random_state=0)
    job = Job(bags, "consistency", model="resnet20", epochs=5, batch_size=60, test=TestSet(X, y))
    history = fit_many([job], device="cpu")[0].history
    assert history["objective"][-1] < history["objective"][0] - 0.1
    assert history["test_error"][-1] < 0.5  # chance has 0.67


def test_one_that_diverges_is_told():
    bags = unbag.make_bags(*rows(90), THETA, random_state=0)
    (fit,) = fit_many([Job(bags, "consistency", epochs=3, learning_rate=1e38)], device="cpu")
    assert fit.diverged
    assert fit.calibration is None


def test_residual_networks_learn_pseudo_labels_by_gradient_descent_where_bags_differ():
    X = np.random.default_rng(0).normal(size=(10_000, 4, 4)).astype(np.float32)

    def learns(theta=CLEAR, model="resnet20", n=10_000, method=None, **settings):
        bags = unbag.Bags(X[:n], np.arange(n) % 3, theta)
        replica = describe(bags, method, model=model, **settings)
        return replica.optimizer, replica.learning_rate, float(replica.objective.matching)

    assert learns() == ("sgd", 0.1, 0)
    assert learns(method=Consistency(matching=2.0)) == ("adam", 2e-3, 2)
    assert learns(learning_rate=0.03) == ("adam", 0.03, 8)
    assert learns(WEAK) == learns(model="mlp") == learns(n=9_999) == ("adam", 2e-3, 8)
    bags = unbag.Bags(X, np.arange(10_000) % 3, CLEAR)
    assert describe(bags, model="resnet20").batch_size == 128
    small = unbag.Bags(X, np.arange(10_000) // 250, CLEAR[np.arange(40) % 3])
    assert describe(small, model="resnet20").optimizer == "adam"

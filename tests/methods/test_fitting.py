import numpy as np
import pytest
import torch
from unbag.methods.jobs import choose_batching, prepare, whole_bag_batch_size

import unbag
from unbag.exceptions import InvalidInputError, RankError
from unbag.methods import (
    METHODS,
    Job,
    default_batch_size,
    default_epochs,
    default_learning_rate,
    fit_many,
)
from unbag.models import MLP
from unbag.training import TestSet

K, D = 3, 4
THETA = unbag.priors.asymmetric(K, 0)
TINY = {"epochs": 3, "batch_size": 30, "model_options": {"width": 5}}


def rows(n=90, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return rng.normal(size=(n, D)) + 2 * np.eye(K, D)[y], y


def make(theta=THETA, sizes=None, seed=0):
    return unbag.make_bags(*rows(), theta, sizes=sizes, random_state=seed)


def fit_one(*args, **settings):
    return fit_many([Job(*args, **{**TINY, **settings})], device="cpu", precision="float64")[0]


def small_mlp(_, n_classes):
    return MLP(D, n_classes, width=6, dropout=0.2)


def test_many_jobs_equal_each_alone():
    tall = unbag.priors.non_square(K, 1)
    jobs = [
        Job(
            make(tall if i % 2 else THETA, seed=i),
            method,
            model=small_mlp,
            epochs=20,
            batch_size=30,
            learning_rate=10.0 ** -(1 + i % 3),
            seed=i,
        )
        for i, method in enumerate(METHODS)
    ]
    together = fit_many(jobs, device="cpu", precision="float64")
    for job, fit in zip(jobs, together, strict=True):
        alone = fit_many([job], device="cpu", precision="float64")[0]
        assert fit.outcome.stop_reason == alone.outcome.stop_reason
        for name, values in fit.outcome.history.items():
            np.testing.assert_allclose(values, alone.outcome.history[name], rtol=0, atol=1e-9)
        for name, value in fit.outcome.module.state_dict().items():
            other = alone.outcome.module.state_dict()[name]
            torch.testing.assert_close(value, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_three_priors(method):
    bags = make(sizes=[10, 20, 30])
    pi = np.array([0.2, 0.3, 0.5])
    fit = fit_one(bags, method, test_prior=pi)
    np.testing.assert_allclose(fit.pooled_prior, np.array([1, 2, 3]) / 6 @ THETA)
    np.testing.assert_allclose(fit.test_prior, pi)
    expected = fit.test_prior if method.startswith("u") else fit.pooled_prior
    np.testing.assert_allclose(fit.output_prior, expected)
    np.testing.assert_allclose(fit_one(bags, method).test_prior, fit.pooled_prior)


def test_weights_count_in_the_pooled_prior():
    bags = make(sizes=[10, 20, 30])
    weight = np.where(bags.bag_index == 0, 5.0, 1.0)
    fit = fit_one(bags, "prop", sample_weight=weight)
    np.testing.assert_allclose(fit.pooled_prior, np.array([50, 20, 30]) / 100 @ THETA)


def test_methods_of_the_rewritten_risk_refuse_what_cannot_be_told_apart():
    theta = [[0.6, 0.2, 0.2], [0.2, 0.4, 0.4], [0.4, 0.3, 0.3]]
    bags = make(theta)
    for method in METHODS:
        if method.startswith("u"):
            with pytest.raises(RankError, match="classes 1, 2 cannot be told apart"):
                fit_one(bags, method)
        else:
            fit = fit_one(bags, method)
            assert np.isnan(fit.outcome.history["empirical_risk"]).all()
            assert np.isfinite(fit.outcome.history["objective"]).all()


def test_bags_without_rows_are_left_out():
    bags = make(unbag.priors.non_square(K, 1))
    kept = bags.take(bags.bag_index != 4)
    fit = fit_one(kept, "u-prr")
    assert fit.outcome.history["partial_risks"].shape == (3, 5, K)
    np.testing.assert_allclose(fit.pooled_prior, kept.pooled_prior)


def linear(_, n_classes):
    return MLP(D, n_classes, depth=1)


def full_batch(bags, method, weight=None, batching="stratified"):
    fit = fit_one(
        bags,
        method,
        model=linear,
        model_options={},
        epochs=15,
        batch_size=10**6,
        learning_rate=1e-2,
        sample_weight=weight,
        batching=batching,
    )
    return fit.outcome.module.state_dict()


# prop-cr and consistency change rows at random; the others form pairs of rows, which a repeated
# row does with itself.
NO_REPEATED = ("prop-cr", "consistency", "matched-likelihood", "crossfit", "auto")


@pytest.mark.parametrize("method", [name for name in METHODS if name not in NO_REPEATED])
def test_integer_weights_are_repeated_rows_for_a_linear_model_on_full_batches(method):
    bags = make(sizes=[10, 20, 30])
    weight = np.random.default_rng(0).integers(1, 4, bags.n_rows).astype(float)
    repeated = bags.take(np.repeat(np.arange(bags.n_rows), weight.astype(int)))
    one, other = full_batch(bags, method, weight), full_batch(repeated, method)
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-9)
    plain = full_batch(bags, method)
    assert not torch.allclose(one["linears.0.weight"], plain["linears.0.weight"], atol=1e-6)


def test_biased_stratified_batches_use_the_true_bag_shares():
    # 60 rows, 57 of them in one bag: batches of 6 rows hold the small bags more often than that.
    X, y = rows(300)
    bags = unbag.make_bags(X, y, THETA, sizes=[57, 2, 1], random_state=0)
    job = Job(bags, "biased", batch_size=6, epochs=1, learning_rate=1e-12, model=linear)
    history = fit_many([job], device="cpu", precision="float64")[0].outcome.history
    major = history["partial_risks"][0][np.arange(3), THETA.argmax(1)]
    shares = np.array([57, 2, 1]) / 60
    np.testing.assert_allclose(history["objective"][0], shares @ major, rtol=1e-9)


def test_the_module_has_all_digits_of_the_precision():
    types = {
        precision: next(
            fit_many([Job(make(), **TINY)], device="cpu", precision=precision)[
                0
            ].outcome.module.parameters()
        ).dtype
        for precision in ("float32", "float64")
    }
    assert types == {"float32": torch.float32, "float64": torch.float64}


def test_the_test_error_is_under_the_test_prior():
    X, y = rows(600, seed=5)
    pi = np.array([0.98, 0.01, 0.01])
    fit = fit_one(make(), "biased", test_prior=pi, epochs=20, test=TestSet(X, y))
    with torch.no_grad():
        logits = fit.outcome.module(torch.as_tensor(X)).numpy()
    shifted = logits + np.log(pi / fit.output_prior)
    error = (shifted.argmax(1) != y).mean()
    assert fit.outcome.history["test_error"][-1] == pytest.approx(error)
    assert error > (logits.argmax(1) != y).mean() + 0.05


def test_a_class_that_the_test_prior_excludes_is_never_predicted_in_tests():
    X, y = rows(60, seed=5)
    pi = np.array([0.0, 0.5, 0.5])
    test = TestSet(X[y == 0], y[y == 0])
    fit = fit_one(make(), "biased", test_prior=pi, epochs=20, test=test)
    assert fit.outcome.history["test_error"][-1] == 1


def test_unknown_hyperparameters_and_wrong_lengths():
    with pytest.raises(InvalidInputError, match="'biased' has no hyperparameter 'alpha'"):
        fit_one(make(), "biased", hyperparameters={"alpha": 0.5})
    with pytest.raises(InvalidInputError, match="sample_weight must be a positive number"):
        fit_one(make(), sample_weight=np.ones(5))
    for bad in (-1.0, 0.0, np.nan):
        weight = np.ones(len(make()))
        weight[0] = bad
        with pytest.raises(InvalidInputError, match="sample_weight must be a positive number"):
            fit_one(make(), sample_weight=weight)


@pytest.mark.parametrize("seed", [-1, None, "a", 2**70])
def test_bad_seeds(seed):
    with pytest.raises(InvalidInputError, match="seed must be a whole number"):
        fit_many([Job(make(), seed=seed, epochs=1)])


def test_jobs_must_be_a_sequence_of_jobs():
    with pytest.raises(InvalidInputError, match="jobs must be a sequence of Job, got one Job"):
        fit_many(Job(make()))
    with pytest.raises(InvalidInputError, match="bags of type Bags, got tuple"):
        fit_many([Job((1, 2))])


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (0, -1, "test.y must be one class for each of the"),
        (0, 0, "test.y must be whole numbers from 0 to"),
        (1, 0, "test.X must be of rows of shape"),
    ],
)
def test_bad_test_sets(rows, labels, message):
    bags = make()
    X = np.zeros((4, bags.row_shape[0] + rows), np.asarray(bags.X).dtype)
    y = np.full(4 + labels, bags.priors.n_classes if "whole" in message else 0)
    with pytest.raises(InvalidInputError, match=message):
        fit_one(bags, test=TestSet(X, y))


def test_hyperparameters_reach_the_objective():
    one, other = (
        fit_one(make(), "u-prr", hyperparameters={"alpha": a}).outcome.history["objective"]
        for a in (0.1, 0.9)
    )
    assert not np.allclose(one, other)


def test_seeds_decide():
    one, again, other = (fit_one(make(), seed=s).outcome.history["objective"] for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


@pytest.mark.parametrize("n", [1, 10, 512, 769, 5000, 7490, 10**5, 10**7])
def test_defaults_are_in_their_ranges(n):
    batch = default_batch_size(n)
    assert min(n, 350) <= batch <= 2100
    assert n % batch < n / 20  # equal batches leave out few rows
    assert 20 <= default_epochs(n) <= 100
    assert 1e-3 <= default_learning_rate(n) <= 2.1e-3


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([20] * 40, "whole-bags"), ([20] * 20, "stratified"), ([700] * 40, "stratified")],
)
def test_small_bags_are_kept_whole(sizes, expected):
    assert choose_batching(np.array(sizes)) == expected


def test_batches_of_whole_bags():
    assert whole_bag_batch_size(np.array([300, 300, 300])) == 600
    assert whole_bag_batch_size(np.array([100] * 3)) == 300
    assert whole_bag_batch_size(np.array([1, 2, 400] * 10)) == 800
    bags = make()
    theta = np.repeat(THETA, 15, 0)
    small = unbag.Bags(bags.X, np.repeat(np.arange(45), 2), theta)
    assert prepare(Job(small, "prop"), "float32")[0].batching == "whole-bags"
    assert prepare(Job(small, "prop", batching="shuffled"), "float32")[0].batching == "shuffled"
    assert prepare(Job(bags, "prop"), "float32")[0].batching == "stratified"


def test_whole_bags_make_the_proportion_loss_learn_from_small_ones():
    X, y = rows(1600, seed=1)
    y = np.random.default_rng(0).permutation(y)
    X = np.random.default_rng(1).normal(size=X.shape) + 2.5 * np.eye(K, D)[y]
    bag = np.arange(1600) // 8
    theta = np.zeros((200, K))
    np.add.at(theta, (bag, y), 1 / 8)
    bags = unbag.Bags(X, bag, theta)
    test = TestSet(X, y)
    settings = {"epochs": 15, "batch_size": 80, "learning_rate": 5e-3, "test": test}
    errors = [
        fit_one(bags, "prop", **settings, batching=batching).outcome.history["test_error"][-1]
        for batching in ("auto", "shuffled")
    ]
    assert errors[0] < 0.12
    assert errors[1] > errors[0] + 0.02


def test_consistency_keeps_rows_out_and_calibrates():
    X, y = rows(600)
    bags = unbag.make_bags(X, y, THETA, random_state=0)
    job = Job(bags, "consistency", epochs=4, seed=3, sample_weight=np.linspace(1, 2, bags.n_rows))
    replica, (pooled, *_) = prepare(job, "float32")
    assert replica.bags.n_rows + replica.predicted.n_rows == bags.n_rows
    assert 0.2 * bags.n_rows < replica.predicted.n_rows < 0.35 * bags.n_rows
    kept = {row.tobytes() for row in np.asarray(replica.predicted.X)}
    assert not any(row.tobytes() in kept for row in np.asarray(replica.bags.X))
    assert len(replica.sample_weight) == replica.bags.n_rows
    np.testing.assert_allclose(pooled, np.average(THETA[bags.bag_index], 0, job.sample_weight))
    fit = fit_many([job], device="cpu")[0]
    assert 0.4 <= fit.calibration.temperature <= 8
    out, scaled = replica.predicted, fit.outcome.logits / fit.calibration.temperature
    eta = torch.softmax(torch.from_numpy(scaled), 1).numpy()
    gain = np.exp(np.log((eta * (THETA / pooled)[out.bag_index]).sum(1)).mean())
    said = f"bags of {out.n_rows} rows kept out are {gain:.2f} times as likely as by chance"
    assert said in fit.outcome.stop_reason
    assert gain > 1.05


def test_consistency_mirrors_images_of_three_colours_only():
    rng = np.random.default_rng(0)
    for shape, flip in (((3, 8, 8), True), ((1, 8, 8), False), ((8, 8), False)):
        X = rng.random((90, *shape), dtype=np.float32)
        bags = unbag.make_bags(X, np.arange(90) % K, THETA, random_state=0)
        assert prepare(Job(bags, "consistency"), "float32")[0].pseudo_labels.flip == flip
        own = prepare(Job(bags, "consistency", hyperparameters={"flip": not flip}), "float32")[0]
        assert own.pseudo_labels.flip != flip


def test_consistency_learns():
    X, y = rows(900, seed=2)
    bags = unbag.make_bags(X, y, THETA, random_state=0)
    settings = {"epochs": 30, "batch_size": 128, "model_options": {"width": 32, "depth": 3}}
    fit = fit_one(bags, "consistency", **settings, test=TestSet(X, y))
    assert fit.outcome.history["test_error"][-1] < 0.16  # 0.11 with labels


def test_consistency_learns_with_a_residual_network():
    rng = np.random.default_rng(0)
    y = np.arange(240) % K
    X = rng.random((240, 1, 8, 8), dtype=np.float32)
    X[np.arange(240), 0, 2 * y] += 1.0  # a bright line
    bags = unbag.make_bags(X, y, THETA, random_state=0)
    job = Job(bags, "consistency", model="resnet20", epochs=8, batch_size=60, test=TestSet(X, y))
    history = fit_many([job], device="cpu")[0].outcome.history
    assert history["objective"][-1] < history["objective"][0] - 0.1
    assert history["test_error"][-1] < 0.45  # chance has 0.67


def test_residual_networks_learn_pseudo_labels_by_gradient_descent_where_bags_differ():
    X = np.random.default_rng(0).normal(size=(10_000, 4, 4)).astype(np.float32)
    faint = np.full((3, 3), 0.3) + 0.1 * np.eye(3)
    clear = np.full((3, 3), 0.1) + 0.7 * np.eye(3)

    def learns(theta=clear, model="resnet20", n=10_000, **settings):
        bags = unbag.Bags(X[:n], np.arange(n) % 3, theta)
        replica, _ = prepare(Job(bags, "consistency", model=model, **settings), "float32")
        return replica.optimizer, replica.learning_rate, float(replica.objective.matching)

    assert learns() == ("sgd", 0.1, 0)
    assert learns(hyperparameters={"matching": 2.0}) == ("adam", 2e-3, 2)
    assert learns(learning_rate=0.03) == ("adam", 0.03, 8)
    assert learns(faint) == learns(model="mlp") == learns(n=9_999) == ("adam", 2e-3, 8)

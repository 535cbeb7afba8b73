"""crossfit: soft labels of bags by models that were not trained on the row."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from small_jobs import (
    THETA,
    TINY,
    WEAK,
    K,
    crossfitting,
    gaussians,
    make,
    run_to_end,
    small_bags,
    started,
)

import unbag
from unbag.evaluation import likeliest_temperature
from unbag.exceptions import InvalidInputError
from unbag.identity import identify
from unbag.methods import CrossFit, Job, fit_many, get_method, soft_labels
from unbag.methods.crossfit import CrossFitting
from unbag.methods.posterior import balanced_posterior, row_ratios
from unbag.training import Augmentation, TestSet, train


def run(replicas):
    return train(replicas, device="cpu")


# ------------------------------------------------------------------------------------ the stages


def test_folds_keep_equal_rows_together_and_some_rows_out_of_all_rounds():
    X, y = gaussians(120)
    bags = unbag.make_bags(np.concatenate([X, X]), np.concatenate([y, y]), THETA, random_state=0)
    fitting = started(bags)
    record = identify(bags.source, bags.rows)
    trained, predicted = [], []
    for replica in fitting.round():
        own, left = (
            set(record[_positions(bags, part)]) for part in (replica.bags, replica.predicted)
        )
        assert not own & left
        trained.append(own)
        predicted.append(left)
    assert set.union(*predicted) == set(record)
    assert sum(map(len, predicted)) == len(set(record))
    kept_out = set(record) - set.union(*trained)
    assert len(kept_out) / len(set(record)) == pytest.approx(0.3, abs=0.01)  # 200 rows are more
    assert fitting.last().bags.n_rows == bags.n_rows


def test_the_time_left_counts_all_later_trainings():
    def work(replicas):
        return sum(replica.epochs * replica.bags.n_rows for replica in replicas)

    fitting = crossfitting(method=CrossFit(rounds=2), epochs=3)
    start = fitting.start()
    fitting.use_start(run(start))
    first, last = fitting.round(), [fitting.last()]
    assert start[0].ahead == pytest.approx((2 * work(first) + work(last)) / work(start))
    assert [r.ahead for r in first] == pytest.approx([1 + work(last) / work(first)] * len(first))
    fitting.use_round(run(first))
    assert fitting.round()[0].ahead == pytest.approx(work(last) / work(first))
    assert last[0].ahead == 0


def _positions(bags, part):
    place = {row: i for i, row in enumerate(bags.rows)}
    return [place[row] for row in part.rows]


@pytest.mark.parametrize(("n", "share"), [(500, 0.3), (1000, 0.2), (5000, 0.1)])
def test_about_200_rows_are_kept_out(n, share):
    bags = unbag.Bags(np.arange(float(n))[:, None], np.arange(n) % K, THETA)
    assert crossfitting(bags).kept_out.sum() == round(share * n)


def test_a_round_uses_soft_labels_of_the_start_and_the_next_those_of_the_round():
    fitting = started()
    first = fitting.round()
    assert all(replica.objective is None and replica.annealed for replica in first)
    np.testing.assert_allclose(first[0].targets.sum(1), 1, atol=1e-5)
    assert fitting.use_round(run(first))
    second = fitting.round()
    assert {replica.stage for replica in first} == {"round 1"}
    assert {replica.stage for replica in second} == {"round 2"}
    assert first[0].seed != second[0].seed
    assert np.abs(first[0].targets - second[0].targets).max() > 1e-3


def test_soft_labels_are_balanced_by_the_weights_of_rows():
    bags = make()
    weight = np.where(bags.labels == 0, 8.0, 0.5)
    fitting = started(bags, sample_weight=weight)
    pooled = np.average(THETA[bags.bag_index], 0, weight)
    targets, plain = (
        balanced_posterior(fitting.log_eta, bags.bag_index, THETA, pooled, own)
        for own in (weight, None)
    )
    assert np.abs(targets - plain).max() > 0.02
    np.testing.assert_allclose(fitting.last().targets, targets, atol=1e-6)
    for fold, replica in enumerate(fitting.round()):
        own = (fitting.fold != fold) & ~fitting.kept_out
        np.testing.assert_allclose(replica.targets, targets[own], atol=1e-6)
        np.testing.assert_array_equal(replica.sample_weight, weight[own])
    np.testing.assert_array_equal(fitting.last().sample_weight, weight)
    assert all(np.array_equal(replica.sample_weight, weight) for replica in fitting.start())


def test_the_temperature_is_that_of_the_rows_kept_out():
    fitting = started(make(900))
    fits, kept_out, theta = run(fitting.round()), fitting.kept_out, THETA
    # Networks are sure and right on the rows that they may have seen, and sure and wrong elsewhere.
    new = np.empty((900, K))
    for fold, fit in enumerate(fits):
        own = fitting.fold == fold
        right = fitting.bags.labels[own]
        fit.logits[:] = 6.0 * np.eye(K)[np.where(kept_out[own], (right + 1) % K, right)]
        new[own] = fit.logits
    ratios = row_ratios(fitting.bags, theta[fitting.bags.bag_index].mean(0))
    expected, of_all = (
        float(likeliest_temperature(torch.tensor(new[own]), torch.tensor(ratios[own])))
        for own in (kept_out, np.full(900, True))
    )
    assert of_all < 0.8 * expected
    before = fitting.log_eta
    fitting.use_round(fits)
    assert fitting.calibration.temperature == pytest.approx(expected)
    np.testing.assert_allclose(
        fitting.log_eta,
        log_softmax((before + log_softmax(new / expected, axis=1)) / 2, axis=1),
        atol=1e-9,
    )


def test_rounds_end_when_bags_of_rows_kept_out_become_less_likely():
    fitting = started(method=CrossFit(rounds=5), epochs=20, learning_rate=0.02)
    fits = run(fitting.round())
    assert fitting.use_round(fits)
    kept = fitting.last().targets
    wrong = [dataclasses.replace(f, logits=-20 * np.eye(K)[f.logits.argmax(1)]) for f in fits]
    assert not fitting.use_round(wrong)
    assert fitting.n_accepted == 1
    np.testing.assert_array_equal(fitting.last().targets, kept)
    reason = fitting.finish(run([fitting.last()])[0]).stop_reason
    assert reason.startswith(
        "Trained with cross-fitting (1 round). Training stopped because another round did not "
        f"improve the fit on held-out rows. On {fitting.kept_out.sum()} rows that it was not "
        "trained on, it names"
    )


def test_all_rounds_are_run_where_each_is_better():
    bags = make(300, spread=3.0)
    (fit,) = fit_many([Job(bags, CrossFit(rounds=1), **TINY)], device="cpu")
    assert fit.stop_reason.startswith(
        "Trained with cross-fitting (1 round). All rounds were run. On 85 rows"
    )
    assert fit.settings["rounds"] == 1


@pytest.mark.parametrize(
    ("theta", "most", "factor", "step"), [(WEAK, 6, 2, 1.0), (THETA, 3, 1, 0.5)]
)
def test_with_weak_shares_rounds_take_whole_steps_with_sharper_labels(theta, most, factor, step):
    bags = make(600, theta=WEAK).with_priors(theta)
    fitting = started(bags, epochs=3)
    pooled = theta[bags.bag_index].mean(0)
    assert fitting.most_rounds == most

    def targets(log_eta):
        return balanced_posterior(factor * log_eta, bags.bag_index, theta, pooled)

    first = (fitting.fold != 0) & ~fitting.kept_out
    np.testing.assert_allclose(
        fitting.round()[0].targets, targets(fitting.log_eta)[first], atol=1e-5
    )
    before, new = fitting.log_eta, np.empty((600, K))
    fits = run(fitting.round())
    fitting.use_round(fits)
    for fold, fit in enumerate(fits):
        new[fitting.fold == fold] = fit.logits
    new = log_softmax(log_softmax(new, axis=1) / fitting.calibration.temperature, axis=1)
    expected = log_softmax((1 - step) * before + step * new, axis=1)
    np.testing.assert_allclose(fitting.log_eta, expected, atol=1e-9)
    assert np.abs(before - fitting.log_eta).max() > 0.05
    # The last network learns from half a step in both.
    halfway = log_softmax((before + new) / 2, axis=1)
    np.testing.assert_allclose(fitting.last().targets, targets(halfway), atol=1e-5)


def test_the_start_is_the_mean_of_several_networks():
    bags = make(600, theta=WEAK)
    fitting = crossfitting(bags, epochs=3)
    replicas = fitting.start()
    assert {(r.weight_decay, r.learning_rate) for r in replicas} == {(3e-3, 1e-3)}
    assert crossfitting(bags, learning_rate=0.1).start()[0].learning_rate == 0.1
    assert crossfitting(bags, weight_decay=1e-4).start()[0].weight_decay == 1e-4
    clear = crossfitting(bags.with_priors(THETA)).start()
    assert [(r.weight_decay, r.learning_rate) for r in clear] == 3 * [(1e-5, 2e-3)]
    assert len({r.seed for r in clear}) == 3
    seeds = {replica.seed for replica in replicas}
    assert len(seeds) == len(replicas) == 5
    for fitting.n_accepted in range(5):
        assert seeds.isdisjoint(replica.seed for replica in fitting.round())
    fitting.n_accepted = 0
    assert len({replica.group for replica in replicas}) == 1
    first = [next(replica.module.parameters()).sum().item() for replica in replicas]
    assert len(set(first)) == 5
    fits = run(replicas)
    fitting.use_start(fits)
    expected = log_softmax(np.mean([log_softmax(f.logits, axis=1) for f in fits], 0), axis=1)
    np.testing.assert_allclose(fitting.log_eta, expected, atol=1e-9)


@pytest.mark.parametrize("theta", [THETA, WEAK])
def test_the_first_round_learns_what_the_start_gave(theta):
    fitting, expected = (crossfitting(make(theta=theta), CrossFit(rounds=1)) for _ in range(2))
    trainings = fitting.trainings()
    fits = run(next(trainings))
    for fit in fits:
        fit.logits[:] = np.random.default_rng(0).normal(size=fit.logits.shape)
    expected.use_start(fits)
    pairs = zip(trainings.send(fits), expected.round(), strict=True)
    assert all(np.array_equal(one.targets, other.targets) for one, other in pairs)


@pytest.mark.parametrize("theta", [THETA, WEAK])
def test_a_module_of_the_users_starts_alone(theta):
    own = unbag.models.MLP(4, K, depth=1)
    assert len(crossfitting(make(theta=theta), model=own).start()) == 1


def test_a_start_by_another_prior_is_moved_to_the_pooled_one():
    bags, pi = make(), np.array([0.6, 0.3, 0.1])
    fitting = crossfitting(bags, CrossFit(start="u-prr"), test_prior=pi)
    fits = run(fitting.start())
    fitting.use_start(fits)
    mean = np.mean([log_softmax(f.logits, axis=1) for f in fits], 0)
    pooled = THETA[bags.bag_index].mean(0)
    expected = log_softmax(mean + np.log(pooled) - np.log(pi), axis=1)
    np.testing.assert_allclose(fitting.log_eta, expected, atol=1e-9)
    fit = fitting.finish(run([fitting.last()])[0])
    np.testing.assert_allclose(fit.output_prior, pooled)
    np.testing.assert_allclose(fit.test_prior, pi)


def test_small_bags_stay_whole_in_the_batches_of_the_start():
    bags = small_bags()
    fitting = crossfitting(bags, epochs=None)
    assert fitting.most_rounds == 3
    start = fitting.start()
    assert {(r.batching, r.batch_size % 12) for r in start} == {("whole-bags", 0)}
    assert [r.epochs for r in start] == 3 * [round(2000 / (960 // start[0].batch_size))]
    many = crossfitting(bags, epochs=None, batch_size=3).start()
    assert {r.epochs for r in many} == {10}
    assert crossfitting().start()[0].batching == "stratified"


def test_without_calibration_the_temperature_is_one():
    for calibrated in (True, False):
        fitting = started(method=CrossFit(calibrated=calibrated, rounds=1))
        fitting.use_round(run(fitting.round()))
        assert (fitting.calibration.temperature == 1) != calibrated


def test_without_balancing_soft_labels_are_plain_posteriors():
    fitting = started(method=CrossFit(balanced=False))
    posterior = np.exp(fitting.log_eta) * row_ratios(fitting.bags, fitting.job.pooled_prior)
    posterior /= posterior.sum(1, keepdims=True)
    np.testing.assert_allclose(fitting.last().targets, posterior, atol=1e-6)


@pytest.mark.parametrize(("d", "expected"), [(7, False), (8, True)])
def test_mlps_mix_rows_of_many_numbers_in_small_bags(d, expected):
    rows = np.random.default_rng(0).normal(size=(320, d)).astype(np.float32)
    small = unbag.Bags(rows, np.arange(320) // 8, np.tile(THETA[:2], (20, 1)))
    assert crossfitting(small).job.keeps_bags_whole
    assert crossfitting(small).last().mixup == expected


@pytest.mark.parametrize("theta", [WEAK, THETA])
def test_mlps_do_not_mix_rows_of_large_bags(theta):
    for given, expected in ((None, False), (True, True)):
        fitting = started(make(theta=theta), method=CrossFit(mixup=given))
        assert {replica.mixup for replica in fitting.round()} == {expected}
        assert fitting.last().mixup == expected


@pytest.mark.parametrize(
    ("augment", "start", "soft"),
    [
        ("none", None, None),
        ("weak", Augmentation(flip=True), Augmentation(flip=True)),
        ("strong", Augmentation(flip=True), Augmentation(strong=True, flip=True)),
    ],
)
def test_augmented_rows_are_changed_weakly_in_the_start(augment, start, soft):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3, 4, 4)).astype(np.float32)
    bags = unbag.Bags(X, np.arange(120) % 3, THETA)
    method = CrossFit(augment=augment)
    fitting = crossfitting(bags, method)
    assert fitting.start()[0].augmentation == start
    assert {replica.augmentation for replica in fitting.round()} == {soft}
    assert fitting.last().augmentation == soft
    if augment != "none":
        with pytest.raises(InvalidInputError, match="augment must be 'none', or rows that are im"):
            crossfitting(method=method)
    digits = unbag.Bags(X[:, 0], np.arange(120) % 3, THETA)
    first = crossfitting(digits, method).start()[0]
    assert not (first.augmentation and first.augmentation.flip)


def test_networks_that_are_no_mlps_have_fewer_starts_folds_and_rounds():
    X = np.random.default_rng(0).normal(size=(90, 4, 4)).astype(np.float32)
    bags = unbag.Bags(X, np.arange(90) % 3, WEAK)
    deep, mlp = (crossfitting(bags, model=model) for model in ("resnet20", "mlp"))
    assert (deep.most_rounds, mlp.most_rounds) == (3, 6)
    assert (len(deep.start()), len(mlp.start())) == (3, 5)
    assert (set(deep.fold), set(mlp.fold)) == ({0, 1, 2}, {0, 1, 2, 3, 4})
    clear = crossfitting(bags.with_priors(THETA), model="resnet20")
    assert (len(clear.start()), set(clear.fold)) == (1, {0, 1, 2})
    given = crossfitting(bags, CrossFit(folds=4, rounds=7), model="resnet20")
    assert given.most_rounds == 7
    assert set(given.fold) == {0, 1, 2, 3}


def test_weights_of_mlps_decay_on_soft_labels_the_more_the_fewer_the_rows():
    X = np.random.default_rng(0).normal(size=(28_000, 4)).astype(np.float32)
    for n, settings, expected in (
        (600, {}, 0.01),
        (28_000, {}, 0.001),
        (600, {"weight_decay": 0.0}, 0.0),
        (600, {"weight_decay": 0.1}, 0.1),
        (600, {"model": "linear", "model_options": {}}, 1e-5),  # nothing undoes the shrinking
    ):
        bags = unbag.Bags(X[:n], np.arange(n) % K, THETA)
        options = {"depth": 2, "width": 8}
        fitting = crossfitting(bags, **{"model": "mlp", "model_options": options, **settings})
        for replica in (*fitting.round(), fitting.last()):
            assert replica.weight_decay == pytest.approx(expected)
        assert fitting.start()[0].weight_decay == settings.get("weight_decay", 1e-5)


def test_folds_and_jobs_of_about_as_many_rows_form_one_stack():
    X = np.random.default_rng(0).normal(size=(7500, 4)).astype(np.float32)
    replicas = []
    for n in (7480, 7500):
        replicas += crossfitting(unbag.Bags(X[:n], np.arange(n) % K, THETA), epochs=5).round()
    assert len({replica.group for replica in replicas}) == 1
    assert {replica.batch_size for replica in replicas} == {512}
    few = crossfitting(make(333)).round()
    assert len({replica.group for replica in few}) == 1
    assert len({replica.seed for replica in few}) == len(few)


def test_the_start_has_600_steps_and_40_epochs_at_least():
    X = np.zeros((60_000, 1), np.float32)
    X[:, 0] = np.arange(60_000)
    bags = unbag.Bags(X, np.arange(60_000) % K, WEAK)
    for theta, batch_size, expected in (
        (WEAK, None, (20_000, 200)),
        (THETA, 6_000, (6_000, 60)),
        (THETA, 2_000, (2_000, 40)),
    ):
        start = crossfitting(bags.with_priors(theta), epochs=None, batch_size=batch_size).start()
        assert {(r.batch_size, r.epochs) for r in start} == {expected}


def test_fewer_epochs_shorten_the_start_as_well():
    usual = soft_labels.soft_epochs(300)
    whole, half, more = (
        crossfitting(epochs=epochs).start()[0].epochs for epochs in (None, usual // 2, 2 * usual)
    )
    assert half == pytest.approx(whole / 2, abs=1)
    assert more == whole
    assert crossfitting(epochs=1).start()[0].epochs >= 1
    assert crossfitting(epochs=None).last().epochs == usual


def test_residual_networks_learn_soft_labels_by_gradient_descent():
    X = np.random.default_rng(0).normal(size=(10_000, 4, 4)).astype(np.float32)
    for n, learning_rate, expected in (
        (10_000, None, ("sgd", 0.1, 5e-3, 128)),
        (10_000, 0.03, ("adam", 0.03, 0.0, 512)),
        (9_999, None, ("adam", 1e-3, 0.0, 512)),
    ):
        bags = unbag.Bags(X[:n], np.arange(n) % 3, THETA)
        last = crossfitting(bags, model="resnet20", learning_rate=learning_rate).last()
        assert (
            last.optimizer,
            last.learning_rate,
            last.decoupled_weight_decay,
            last.batch_size,
        ) == expected
        assert last.weight_decay == 1e-5
    linear = crossfitting().last()
    assert (linear.optimizer, linear.decoupled_weight_decay) == ("adam", 0)


@pytest.mark.parametrize(
    ("theta", "mixed", "batch", "epochs"),
    [(WEAK, True, 2500, 200), (THETA, False, 750, 80)],  # 600 steps, or 80 epochs if they are more
)
def test_residual_networks_start_in_many_steps(theta, mixed, batch, epochs):
    X = np.random.default_rng(0).normal(size=(9000, 4, 4)).astype(np.float32)
    bags = unbag.Bags(X, np.arange(9000) % 3, theta)
    deep, mlp = (crossfitting(bags, model=m, epochs=None) for m in ("resnet20", "mlp"))
    start = deep.start()[0]
    assert (start.batch_size, start.epochs) == (batch, epochs)
    small = crossfitting(bags, model="resnet20", epochs=None, batch_size=100)
    assert small.start()[0].epochs == 80
    assert (start.weight_decay, start.learning_rate) == (1e-5, 2e-3)
    assert start.augmentation == Augmentation(flip=False)
    assert mlp.start()[0].augmentation is None
    # Rows are mixed only where shares are weak.
    assert deep.last().mixup == mixed
    assert deep.last().augmentation == Augmentation(flip=False)


def test_deep_networks_start_from_shares_of_whole_bags():
    X = np.random.default_rng(0).normal(size=(960, 12, 12)).astype(np.float32)
    theta = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    small = unbag.Bags(X, np.arange(960) // 16, theta)
    deep, mlp = (crossfitting(small, model=m, epochs=None) for m in ("lenet5", "mlp"))
    start = deep.start()[0]
    assert (deep.start_name, start.learning_rate, start.batching) == ("prop", 1e-3, "whole-bags")
    assert start.epochs == 7000 // (960 // start.batch_size)
    assert start.augmentation == deep.last().augmentation == Augmentation(flip=False)
    assert (mlp.start_name, mlp.start()[0].learning_rate) == ("matched-likelihood", 2e-3)
    given = crossfitting(small, CrossFit(start="bag-likelihood"), model="lenet5", epochs=None)
    assert given.start()[0].learning_rate == 2e-3


def test_counted_shares_are_met_to_the_last_row():
    theta = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    X = np.random.default_rng(0).normal(size=(320, 4))

    def gap(shares_of):
        bags = unbag.Bags(X, np.arange(320) // 8, unbag.ClassPriors(theta, shares_of=shares_of))
        fitting = crossfitting(bags)
        targets = fitting._targets(np.log(np.random.default_rng(1).dirichlet(np.ones(3), 320)))
        means = np.add.reduceat(targets, np.arange(0, 320, 8)) / 8
        return np.abs(means - theta).max()

    assert gap("rows") < 1e-3 < 0.05 < gap(None)


def test_the_time_is_that_of_all_trainings():
    fitting = CrossFitting(CrossFit(rounds=1), Job(make(), **TINY))
    numbers = []

    def take_long(stage, fits):
        numbers.append(len(fits))
        return [dataclasses.replace(fit, seconds=10.0**stage) for fit in fits]

    fit, _ = run_to_end(fitting.trainings(), take_long)
    assert numbers == [3, 5, 1]
    assert fit.seconds == 30 + 500 + 1000


def test_the_bags_of_rows_kept_out_confirm_what_was_learned():
    theta = 0.85 * np.eye(K) + 0.05
    bags = make(600, theta=theta, spread=3.0)
    shuffled = unbag.Bags(np.random.default_rng(0).permutation(bags.X), bags.bag_index, theta)
    options = {"epochs": 15, "model": "mlp", "model_options": {"depth": 2, "width": 20}}
    low = []
    for own in (bags, shuffled):
        job = Job(own, CrossFit(rounds=1), **options)
        (fit,) = fit_many([job], device="cpu")
        said = re.search(r"On (\d+) rows .* \(95% interval (.*) to", fit.stop_reason)
        assert int(said[1]) == CrossFitting(job.method, job).kept_out.sum()
        low.append(float(said[2]))
    assert low[0] > 1.2
    assert low[1] <= 1


def test_bags_of_one_class_need_neither_start_nor_rounds(tmp_path):
    X, y = gaussians(300)
    bags = unbag.Bags(X, y, np.eye(K))
    jobs = [Job(bags, "crossfit", **TINY), Job(make(), "crossfit", **TINY | {"epochs": 3})]
    fit, _ = fit_many(jobs, device="cpu", checkpoint=tmp_path)
    (alone,) = fit_many(jobs[:1], device="cpu", checkpoint=tmp_path)
    np.testing.assert_allclose(alone.history["objective"], fit.history["objective"])
    assert fit.stop_reason == "Every bag has one class, so this is supervised learning."
    (only,) = next(CrossFit().fit(jobs[0]))
    np.testing.assert_array_equal(only.targets, np.eye(K)[y])


def test_few_rows_have_no_rounds():
    for n, rounds in ((19, 0), (20, 3)):
        bags = unbag.Bags(np.arange(float(n))[:, None], np.arange(n) % K, THETA)
        assert crossfitting(bags).most_rounds == rounds
    (fit,) = fit_many([Job(make(18), "crossfit", **TINY)], device="cpu")
    assert fit.stop_reason == "Trained on soft labels from matched-likelihood, without rounds."
    assert fit.calibration is None
    assert fit.method == "crossfit"


# ---------------------------------------------------------------------------------- as a method


def error(fit, X, y):
    with torch.no_grad():
        return (fit.module(torch.from_numpy(X)).argmax(1).numpy() != y).mean()


def assert_same_weights(one, other, **tolerance):
    for own, others in zip(one.module.parameters(), other.module.parameters(), strict=True):
        torch.testing.assert_close(own, others, **{"rtol": 0, "atol": 0, **tolerance})


@pytest.mark.parametrize("start", ["matched-likelihood", "bag-likelihood", "u-prr"])
def test_it_learns_from_any_start(start):
    X, y = gaussians(2000, seed=9, spread=3)
    options = {"model_options": {"depth": 2, "width": 20}, "epochs": 30}
    job = Job(make(600, spread=3), CrossFit(start=start, rounds=1), **options)
    (fit,) = fit_many([job], device="cpu")
    assert error(fit, X, y) < 0.12  # of the best rule: 0.04
    assert fit.settings["start"] == start
    np.testing.assert_allclose(fit.output_prior, fit.pooled_prior)


def test_it_is_repeatable_alone_and_among_others():
    jobs = [
        Job(make(seed=1), "crossfit", **TINY, seed=3),
        Job(make(seed=2), "prop", **TINY),
        Job(make(seed=3), CrossFit(rounds=1), **TINY, seed=4),
    ]
    together = fit_many(jobs, device="cpu")
    for job, fit in zip(jobs, together, strict=True):
        (alone,) = fit_many([job], device="cpu")
        assert alone.stop_reason == fit.stop_reason
        assert alone.method == fit.method == get_method(job.method).name
        assert_same_weights(alone, fit, atol=1e-5)


def test_a_test_set_is_recorded_for_the_last_network_and_changes_nothing():
    X, y = gaussians(50, seed=7)
    job = Job(make(), CrossFit(rounds=1), **TINY)
    (plain,) = fit_many([job], device="cpu")
    (tested,) = fit_many(
        [dataclasses.replace(job, test=TestSet(X, y), held_out=make(90, 5))], device="cpu"
    )
    assert len(tested.history["test_error"]) == len(tested.history["label_free_error"]) == 2
    assert tested.history["test_error"][-1] == pytest.approx(error(tested, X, y))
    assert_same_weights(plain, tested)


def test_a_stopped_run_goes_on_with_the_same_result(tmp_path, monkeypatch):
    job = Job(make(), CrossFit(rounds=2), **TINY)
    (whole,) = fit_many([job], device="cpu")

    class StoppedError(Exception):
        pass

    def stop(*_):
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(CrossFitting, "last", stop)
        with pytest.raises(StoppedError):
            fit_many([job], device="cpu", checkpoint=tmp_path)
    epochs = []
    inner = unbag.training.engine.Stack.run_epoch
    monkeypatch.setattr(
        unbag.training.engine.Stack,
        "run_epoch",
        lambda self, epoch: (epochs.append(epoch), inner(self, epoch)),
    )
    (resumed,) = fit_many([job], device="cpu", checkpoint=tmp_path)
    assert len(epochs) == TINY["epochs"]  # those of the last network only
    assert_same_weights(whole, resumed)


def test_priors_of_lower_rank_are_learned_from():
    theta = np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]])
    (fit,) = fit_many([Job(make(theta=theta), CrossFit(rounds=1), **TINY)], device="cpu")
    assert not fit.diverged


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": 1}, "folds must be a whole number of at least 2, got 1"),
        ({"rounds": -1}, "rounds must be a whole number of at least 0, got -1"),
        ({"start": "biased"}, "start must be one of 'matched-likelihood', .*got 'biased'"),
        ({"augment": True}, "augment must be one of 'none', 'weak', 'strong', got True"),
        ({"calibrated": 1}, "calibrated must be True or False, got 1"),
        ({"balanced": None}, "balanced must be True or False, got None"),
        ({"adversarial_smoothing": -0.1}, "adversarial_smoothing must be a number of at least 0"),
        ({"mixup": 0.5}, "mixup must be True or False, got 0.5"),
        ({"alpha": 0.5}, "The method 'crossfit' has no setting 'alpha'; it has: 'rounds'"),
        (
            {"start": "u-prr", "matching": 2.0},
            "matching must be left out with start='u-prr', got 2.0",
        ),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        get_method("crossfit", **settings)


def test_matching_reaches_the_start():
    start = crossfitting(method=CrossFit(matching=3.0)).start()[0]
    assert float(start.objective.matching) == 3
    assert float(crossfitting().start()[0].objective.matching) == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "generalized-cross-entropy"}, "loss must be 'cross-entropy' with method='cross"),
        ({"patience": 3}, "early_stopping must be False with method='crossfit', got True"),
    ],
)
def test_another_loss_and_early_stopping_are_refused(settings, message):
    bags = make()
    with pytest.raises(InvalidInputError, match=message):
        fit_many([Job(bags, "crossfit", held_out=bags, **settings)])


def test_only_the_last_network_is_tested():
    fitting = crossfitting(test=TestSet(*gaussians(20)), held_out=make(60, 1))
    for replica in (*fitting.start(), *fitting.round()):
        assert (replica.test, replica.held_out) == (None, None)
    assert (fitting.last().test, fitting.last().held_out) == (
        fitting.job.test,
        fitting.job.held_out,
    )


def test_the_batch_size_of_the_user_holds_in_all_trainings():
    fitting = crossfitting(batch_size=25)
    replicas = [*fitting.start(), *fitting.round(), fitting.last()]
    assert {replica.batch_size for replica in replicas} == {25}


def test_one_that_diverges_is_told_and_the_others_go_on():
    jobs = [Job(make(), "crossfit", **TINY, learning_rate=rate) for rate in (1e30, 0.01)]
    bad, good = fit_many(jobs, device="cpu")
    assert bad.diverged
    assert "not finite" in bad.stop_reason
    assert not good.diverged
    assert re.match(r"Trained with cross-fitting \([1-3] rounds?\)\. ", good.stop_reason)

"""crossfit: soft labels of bags by models that were not trained on the row."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from unbag.methods.recipes import balanced_posterior

import unbag
from unbag.exceptions import InvalidInputError
from unbag.identity import identify
from unbag.methods import Job, fit_many
from unbag.methods.crossfit import CrossFit
from unbag.training import Augmentation, TestSet, train

K = 3
THETA = np.array([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]])
TINY = {"epochs": 2, "model": "linear"}


def gaussians(n, seed=0, spread=1.5, d=4):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return (rng.normal(size=(n, d)) + spread * np.eye(K, d)[y]).astype(np.float32), y


def make(n=300, seed=0, **options):
    return unbag.make_bags(*gaussians(n, seed, **options), THETA, random_state=seed)


def work(bags=None, **settings):
    hyperparameters = settings.pop("hyperparameters", {})
    job = Job(
        make() if bags is None else bags,
        "crossfit",
        hyperparameters=hyperparameters,
        **{**TINY, **settings},
    )
    return CrossFit(job, "float32")


def run_start(crossfit):
    crossfit.take_start(train(crossfit.start(), device="cpu"))
    return crossfit


# ------------------------------------------------------------------------- balanced posteriors


def test_balanced_posteriors_of_a_large_bag_have_its_shares():
    rng = np.random.default_rng(0)
    eta = rng.dirichlet([0.3, 0.5, 0.2], size=30_000)
    bag_index = np.repeat(np.arange(3), 10_000)
    q = balanced_posterior(np.log(eta), bag_index, THETA, THETA.mean(0))
    np.testing.assert_allclose(q.sum(1), 1, atol=1e-5)
    for m in range(3):
        np.testing.assert_allclose(q[bag_index == m].mean(0), THETA[m], atol=3e-3)
    plain = balanced_posterior(np.log(eta), bag_index, THETA, THETA.mean(0), balanced=False)
    expected = eta * (THETA / THETA.mean(0))[bag_index]
    np.testing.assert_allclose(plain, expected / expected.sum(1, keepdims=True), rtol=1e-5)
    assert np.abs(plain[bag_index == 0].mean(0) - THETA[0]).max() > 0.05


def test_rows_are_balanced_with_those_of_their_bag_in_any_order():
    rng = np.random.default_rng(2)
    theta = np.vstack([THETA, [[0.2, 0.5, 0.3]]])
    bag_index = rng.choice(4, size=3000, p=[0.6, 0.3, 0.1, 0.0])  # the last has no rows
    log_eta = np.log(rng.dirichlet([0.3, 0.5, 0.2], size=3000))
    weight = rng.uniform(0.5, 2, size=3000)
    q = balanced_posterior(log_eta, bag_index, theta, THETA.mean(0), weight)
    for m in range(3):
        own = bag_index == m
        alone = balanced_posterior(
            log_eta[own], np.zeros(own.sum(), int), theta[[m]], THETA.mean(0), weight[own]
        )
        np.testing.assert_allclose(q[own], alone, atol=2e-3)  # weights are relative to others
        mean = np.average(q[own], axis=0, weights=weight[own])
        np.testing.assert_allclose(mean, THETA[m], atol=0.02)
    order = rng.permutation(3000)
    moved = balanced_posterior(
        log_eta[order], bag_index[order], theta, THETA.mean(0), weight[order]
    )
    np.testing.assert_allclose(moved, q[order], atol=1e-6)


def test_balancing_leaves_the_true_posterior_alone():
    x_given_class = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    rng = np.random.default_rng(1)
    bag_index = np.repeat(np.arange(3), 20_000)
    y = np.array([rng.choice(K, p=THETA[m]) for m in bag_index])
    x = np.array([rng.choice(3, p=x_given_class[k]) for k in y])
    joint = (THETA.mean(0)[:, None] * x_given_class).T  # (x, K)
    log_eta = np.log(joint / joint.sum(1, keepdims=True))[x]
    balanced, plain = (
        balanced_posterior(log_eta, bag_index, THETA, THETA.mean(0), balanced=flag)
        for flag in (True, False)
    )
    assert np.abs(balanced - plain).max() < 0.03


def test_small_bags_are_balanced_in_part_and_weights_count():
    theta = np.array([[0.5, 0.5]])

    def posterior(n, weight=None):
        log_eta = np.log(np.tile([[0.9, 0.1], [0.3, 0.7]], (n, 1)))
        weight = None if weight is None else np.tile(weight, n)
        return balanced_posterior(log_eta, np.zeros(2 * n, int), theta, theta[0], weight)

    assert 0.85 < posterior(1)[0, 0] < 0.9
    assert posterior(5000)[0, 0] < 0.85
    np.testing.assert_allclose(posterior(9, [3.0, 3.0]), posterior(9))  # only ratios count
    heavy, light = posterior(5000, [9.0, 1.0]), posterior(5000, [1.0, 9.0])
    assert heavy[0, 0] < light[0, 0] - 0.1


def test_a_class_that_a_bag_lacks_is_no_label_there():
    theta = np.array([[1.0, 0.0], [0.5, 0.5]])
    eta = np.full((20, 2), 0.5)
    q = balanced_posterior(np.log(eta), np.repeat([0, 1], 10), theta, theta.mean(0))
    assert (q[:10, 1] == 0).all()
    assert np.isfinite(q).all()


# ------------------------------------------------------------------------------------ the stages


def test_folds_keep_equal_rows_together_and_some_rows_out_of_all_rounds():
    X, y = gaussians(120)
    bags = unbag.make_bags(np.concatenate([X, X]), np.concatenate([y, y]), THETA, random_state=0)
    crossfit = run_start(work(bags))
    record = identify(bags.source, bags.rows)
    trained, predicted = [], []
    for replica in crossfit.round():
        own, left = (
            set(record[_positions(bags, part)]) for part in (replica.bags, replica.predicted)
        )
        assert not own & left
        trained.append(own)
        predicted.append(left)
    assert set.union(*predicted) == set(record)
    assert sum(map(len, predicted)) == len(set(record))
    kept_out = set(record) - set.union(*trained)
    assert 0.05 < len(kept_out) / len(set(record)) < 0.35
    assert crossfit.last().bags.n_rows == bags.n_rows


def _positions(bags, part):
    place = {row: i for i, row in enumerate(bags.rows)}
    return [place[row] for row in part.rows]


def test_a_round_uses_soft_labels_of_the_start_and_the_next_those_of_the_round():
    crossfit = run_start(work())
    first = crossfit.round()
    assert all(replica.objective is None and replica.annealed for replica in first)
    np.testing.assert_allclose(first[0].targets.sum(1), 1, atol=1e-5)
    crossfit.take_round(train(first, device="cpu"))
    second = crossfit.round()
    assert first[0].seed != second[0].seed
    assert np.abs(first[0].targets - second[0].targets).max() > 1e-3


def test_rounds_end_when_bags_of_rows_kept_out_become_less_likely():
    crossfit = run_start(work(hyperparameters={"rounds": 5}, epochs=60, learning_rate=0.02))
    outcomes = train(crossfit.round(), device="cpu")
    crossfit.take_round(outcomes)
    kept = crossfit.last().targets
    assert not crossfit.ended
    wrong = [dataclasses.replace(o, logits=-20 * np.eye(K)[o.logits.argmax(1)]) for o in outcomes]
    crossfit.take_round(wrong)
    assert crossfit.ended
    np.testing.assert_array_equal(crossfit.last().targets, kept)
    (last,) = train([crossfit.last()], device="cpu")
    assert "1 round" in crossfit.finish(last).outcome.stop_reason
    assert "less likely" in crossfit.finish(last).outcome.stop_reason


def test_the_second_round_may_lose_a_little_of_what_the_first_seemed_to_gain():
    jury = work()._jury
    gain = np.full(len(jury.ratios), 0.5)
    jury.compare_with(-gain, 0)
    for rounds, share, worse in ((1, 0.992, False), (1, 0.988, True), (2, 0.992, True)):
        assert jury.worse(-share * gain, rounds) == worse
    jury.faint = True
    for rounds, share, worse in ((1, 0.96, False), (1, 0.94, True), (2, 0.96, True)):
        assert jury.worse(-share * gain, rounds) == worse
    assert not jury.worse(-1.01 * gain, 2)


FAINT = np.full((3, 3), 0.3) + 0.1 * np.eye(3)


def test_where_priors_say_little_rounds_take_whole_steps_with_sharper_labels():
    bags = unbag.make_bags(*gaussians(600), FAINT, random_state=0)
    crossfit = run_start(work(bags, epochs=3))
    clear = run_start(work(bags.with_priors(THETA), epochs=3))
    assert (crossfit._most, clear._most) == (6, 3)
    for work_, factor, theta in ((crossfit, 2, FAINT), (clear, 1, THETA)):
        pooled = theta[bags.bag_index].mean(0)
        q = balanced_posterior(factor * work_._log_eta, bags.bag_index, theta, pooled)
        first = (work_._fold != 0) & ~work_._kept_out
        np.testing.assert_allclose(work_.round()[0].targets, q[first], atol=1e-5)
    before = crossfit._log_eta.copy()
    outcomes = train(crossfit.round(), device="cpu")
    crossfit.take_round(outcomes)
    temperature = crossfit._calibration.temperature
    for fold, outcome in enumerate(outcomes):
        scaled = outcome.logits / temperature
        expected = scaled - np.log(np.exp(scaled).sum(1, keepdims=True))
        own = crossfit._fold == fold
        np.testing.assert_allclose(crossfit._log_eta[own], expected, atol=1e-9)
    assert not np.allclose(before, crossfit._log_eta, atol=1e-2)
    # The last network alone learns from half a step.
    pooled = FAINT[bags.bag_index].mean(0)
    halfway = (before + crossfit._log_eta) / 2
    q = balanced_posterior(2 * halfway, bags.bag_index, FAINT, pooled)
    np.testing.assert_allclose(crossfit.last().targets, q, atol=1e-5)


def test_the_start_is_the_mean_of_several_networks():
    bags = unbag.make_bags(*gaussians(600), FAINT, random_state=0)
    crossfit = work(bags, epochs=3)
    replicas = crossfit.start()
    assert len(replicas) == 5
    assert len(work(bags, model=unbag.models.MLP(4, K, depth=1)).start()) == 1
    assert {(r.weight_decay, r.learning_rate) for r in replicas} == {(3e-3, 1e-3)}
    assert work(bags, learning_rate=0.1).start()[0].learning_rate == 0.1
    assert work(bags, weight_decay=1e-4).start()[0].weight_decay == 1e-4
    clear = work(bags.with_priors(THETA)).start()
    assert [(r.weight_decay, r.learning_rate) for r in clear] == 3 * [(1e-5, 2e-3)]
    assert len({r.seed for r in clear}) == 3
    own = unbag.models.MLP(4, K, depth=1)
    assert len(work(bags.with_priors(THETA), model=own).start()) == 1
    seeds = {replica.seed for replica in replicas}
    assert len(seeds) == 5
    for crossfit.rounds in range(5):
        assert seeds.isdisjoint(replica.seed for replica in crossfit.round())
    crossfit.rounds = 0
    assert len({replica.group for replica in replicas}) == 1
    first = [next(replica.module.parameters()).sum().item() for replica in replicas]
    assert len(set(first)) == 5
    outcomes = train(replicas, device="cpu")
    crossfit.take_start(outcomes)
    parts = [torch.log_softmax(torch.from_numpy(o.logits), 1).numpy() for o in outcomes]
    expected = torch.log_softmax(torch.from_numpy(np.mean(parts, 0)), 1).numpy()
    np.testing.assert_allclose(crossfit._log_eta, expected, atol=1e-9)


def test_where_priors_say_little_a_round_is_compared_with_the_best():
    bags = unbag.make_bags(*gaussians(20_000), FAINT, random_state=0)
    crossfit = work(bags)
    jury = crossfit._jury
    right = np.log(np.full((bags.n_rows, 3), 0.1) + 0.7 * np.eye(3)[bags.labels])
    blind = np.full_like(right, -np.log(3))
    losses = [jury.losses(e[crossfit._kept_out]) for e in (right, blind, np.roll(right, 1, 1))]
    for rounds, own, base in ((0, 0, 0), (1, 1, 1), (2, 0, 0), (3, 1, 0)):
        jury.compare_with(losses[own], rounds)  # the second takes the place of the first
        np.testing.assert_array_equal(jury.reference, losses[base])
    assert jury.worse(losses[2], 4)
    assert not jury.worse(losses[0], 4)


def test_small_bags_stay_whole_in_the_batches_of_the_start():
    X, y = gaussians(960)
    bag = np.arange(960) // 12
    theta = np.zeros((80, K))
    np.add.at(theta, (bag, y), 1 / 12)
    crossfit = work(unbag.Bags(X, bag, theta), epochs=None)
    assert crossfit._most == 3
    start = crossfit.start()
    assert {(r.batching, r.batch_size % 12) for r in start} == {("whole-bags", 0)}
    assert [r.epochs for r in start] == 3 * [round(2000 / (960 // start[0].batch_size))]
    many = work(unbag.Bags(X, bag, theta), epochs=None, batch_size=3).start()
    assert {r.epochs for r in many} == {10}
    assert work().start()[0].batching == "stratified"


def test_without_calibration_the_temperature_is_one():
    for calibrated in (True, False):
        crossfit = run_start(work(hyperparameters={"calibrated": calibrated, "rounds": 1}))
        crossfit.take_round(train(crossfit.round(), device="cpu"))
        assert (crossfit._calibration.temperature == 1) != calibrated


@pytest.mark.parametrize(("d", "expected"), [(4, False), (9, True)])
def test_mixup_where_rows_have_many_numbers(d, expected):
    crossfit = run_start(work(make(d=d)))
    assert {replica.mixup for replica in crossfit.round()} == {expected}
    assert run_start(work(make(d=d), hyperparameters={"mixup": True})).last().mixup


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
    crossfit = run_start(work(bags, hyperparameters={"augment": augment}))
    assert crossfit.start()[0].augmentation == start
    assert {replica.augmentation for replica in crossfit.round()} == {soft}
    assert crossfit.last().augmentation == soft
    if augment != "none":
        with pytest.raises(InvalidInputError, match="augment must be 'none', or rows that are im"):
            work(hyperparameters={"augment": augment})
    digits = unbag.Bags(X[:, 0], np.arange(120) % 3, THETA)
    started = work(digits, hyperparameters={"augment": augment}).start()
    assert not (started[0].augmentation and started[0].augmentation.flip)


def test_networks_that_are_no_mlps_have_fewer_starts_folds_and_rounds():
    X = np.random.default_rng(0).normal(size=(90, 4, 4)).astype(np.float32)
    bags = unbag.Bags(X, np.arange(90) % 3, FAINT)
    job = Job(bags, "crossfit", model="resnet20")
    dear, cheap = (CrossFit(j, "float32") for j in (job, dataclasses.replace(job, model="mlp")))
    assert (dear._most, cheap._most) == (3, 6)
    assert (len(dear.start()), len(cheap.start())) == (3, 5)
    assert (set(dear._fold), set(cheap._fold)) == ({0, 1, 2}, {0, 1, 2, 3, 4})
    clear = CrossFit(dataclasses.replace(job, bags=bags.with_priors(THETA)), "float32")
    assert (len(clear.start()), set(clear._fold)) == (1, {0, 1})
    own = dataclasses.replace(job, hyperparameters={"folds": 4, "rounds": 7})
    assert CrossFit(own, "float32")._most == 7
    assert set(CrossFit(own, "float32")._fold) == {0, 1, 2, 3}


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
        crossfit = work(bags, **{"model": "mlp", "model_options": {"depth": 2}, **settings})
        for replica in (*crossfit.round(), crossfit.last()):
            assert replica.weight_decay == pytest.approx(expected)
        assert crossfit.start()[0].weight_decay == settings.get("weight_decay", 1e-5)


def test_folds_and_jobs_of_about_as_many_rows_form_one_stack():
    X = np.random.default_rng(0).normal(size=(7500, 4)).astype(np.float32)
    made = []
    for n in (7480, 7500):
        crossfit = work(unbag.Bags(X[:n], np.arange(n) % K, THETA), epochs=5)
        made += crossfit.round()
    assert len({replica.group for replica in made}) == 1
    assert {replica.batch_size for replica in made} == {512}


def test_the_start_has_600_steps_and_40_epochs_at_least():
    bags = unbag.Bags(np.zeros((60_000, 4), np.float32), np.arange(60_000) % K, FAINT)
    for theta, batch_size, expected in (
        (FAINT, None, (20_000, 200)),
        (THETA, 6_000, (6_000, 60)),
        (THETA, 2_000, (2_000, 40)),
    ):
        own = work(bags.with_priors(theta), epochs=None, batch_size=batch_size).start()
        assert {(r.batch_size, r.epochs) for r in own} == {expected}


def test_residual_networks_learn_soft_labels_by_gradient_descent():
    X = np.random.default_rng(0).normal(size=(10_000, 4, 4)).astype(np.float32)
    for n, learning_rate, expected in (
        (10_000, None, ("sgd", 0.1, 5e-3, 128)),
        (10_000, 0.03, ("adam", 0.03, 0.0, 512)),
        (9_999, None, ("adam", 1e-3, 0.0, 512)),
    ):
        bags = unbag.Bags(X[:n], np.arange(n) % 3, THETA)
        job = Job(bags, "crossfit", model="resnet20", learning_rate=learning_rate)
        crossfit = CrossFit(job, "float32")
        last = crossfit.last()
        made = (last.optimizer, last.learning_rate, last.shrinkage, last.batch_size)
        assert made == expected
        assert last.weight_decay == 1e-5
    other = run_start(work()).last()
    assert (other.optimizer, other.shrinkage) == ("adam", 0)


def test_residual_networks_start_in_many_steps_and_mix_rows_only_where_priors_say_little():
    X = np.random.default_rng(0).normal(size=(9000, 4, 4)).astype(np.float32)
    for theta, mixed in ((FAINT, True), (THETA, False)):
        bags = unbag.Bags(X, np.arange(9000) % 3, theta)
        job = Job(bags, "crossfit", model="resnet20")
        deep, mlp = (CrossFit(j, "float32") for j in (job, dataclasses.replace(job, model="mlp")))
        start = deep.start()[0]
        assert start.batch_size == (2500 if mixed else 750)
        assert start.epochs == (200 if mixed else 80)  # 600 steps, or 80 epochs if they are more
        own = CrossFit(dataclasses.replace(job, batch_size=100), "float32").start()[0]
        assert own.epochs == 80
        assert (start.weight_decay, start.learning_rate) == (1e-5, 2e-3)
        assert start.augmentation == Augmentation(flip=False)
        assert mlp.start()[0].augmentation is None
        assert deep.last().mixup == mixed
        assert deep.last().augmentation == Augmentation(flip=False)


def test_the_time_is_that_of_all_trainings():
    crossfit = run_start(work(hyperparameters={"rounds": 1}))
    outcomes = [dataclasses.replace(o, seconds=10.0) for o in train(crossfit.round(), device="cpu")]
    crossfit.take_round(outcomes)
    (last,) = train([crossfit.last()], device="cpu")
    seconds = crossfit.finish(dataclasses.replace(last, seconds=100.0)).outcome.seconds
    assert 100 + 10 * len(outcomes) < seconds < 110 + 10 * len(outcomes)


def test_the_bags_of_rows_kept_out_confirm_what_was_learned():
    theta = 0.85 * np.eye(K) + 0.05
    bags = unbag.make_bags(*gaussians(600, spread=3.0), theta, random_state=0)
    shuffled = unbag.Bags(np.random.default_rng(0).permutation(bags.X), bags.bag_index, theta)
    low = []
    for own in (bags, shuffled):
        (fit,) = fit_many([work(own, epochs=20, model="mlp").job], device="cpu")
        said = re.search(
            r"bags of (\d+) rows kept out are .* chance \((.*) to", fit.outcome.stop_reason
        )
        assert int(said[1]) == work(own)._kept_out.sum()
        low.append(float(said[2]))
    assert low[0] > 1.2
    assert low[1] < 1


def test_bags_of_one_class_need_neither_start_nor_rounds(tmp_path):
    X, y = gaussians(300)
    crossfit = work(unbag.Bags(X, y, np.eye(K)))
    assert crossfit.start() == []
    jobs = [crossfit.job, work(epochs=3).job]
    fit, _ = fit_many(jobs, device="cpu", checkpoint=tmp_path)
    alone = fit_many(jobs[:1], device="cpu", checkpoint=tmp_path)[0].outcome
    np.testing.assert_allclose(alone.history["objective"], fit.outcome.history["objective"])
    assert fit.outcome.stop_reason == "every bag has one class, so this is supervised learning"
    np.testing.assert_array_equal(crossfit.last().targets, np.eye(K)[y])


def test_few_rows_have_no_rounds():
    crossfit = run_start(work(make(18)))
    assert crossfit.ended
    (fit,) = fit_many([crossfit.job], device="cpu")
    assert fit.outcome.stop_reason == "no rounds after a start by matched-likelihood"
    assert fit.calibration is None


# ---------------------------------------------------------------------------------- as a method


def error(fit, X, y):
    with torch.no_grad():
        return (fit.outcome.module(torch.from_numpy(X)).argmax(1).numpy() != y).mean()


@pytest.mark.parametrize("start", ["matched-likelihood", "bag-likelihood", "u-prr"])
def test_it_learns_from_any_start(start):
    X, y = gaussians(2000, seed=9, spread=3)
    job = Job(make(900, spread=3), "crossfit", hyperparameters={"start": start, "rounds": 1})
    (fit,) = fit_many([job], device="cpu")
    assert error(fit, X, y) < 0.12  # of the best rule: 0.04
    assert f"after a start by {start}" in fit.outcome.stop_reason
    np.testing.assert_allclose(fit.output_prior, fit.pooled_prior)


def test_it_is_repeatable_alone_and_among_others():
    jobs = [
        Job(make(seed=1), "crossfit", **TINY, seed=3),
        Job(make(seed=2), "prop", **TINY),
        Job(make(seed=3), "crossfit", **TINY, seed=4, hyperparameters={"rounds": 1}),
    ]
    together = fit_many(jobs, device="cpu")
    for job, fit in zip(jobs, together, strict=True):
        (alone,) = fit_many([job], device="cpu")
        assert alone.outcome.stop_reason == fit.outcome.stop_reason
        for one, other in zip(
            alone.outcome.module.parameters(), fit.outcome.module.parameters(), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_a_test_set_is_recorded_for_the_last_network_and_changes_nothing():
    X, y = gaussians(50, seed=7)
    job = Job(make(), "crossfit", **TINY)
    (plain,) = fit_many([job], device="cpu")
    (tested,) = fit_many([dataclasses.replace(job, test=TestSet(X, y))], device="cpu")
    assert len(tested.outcome.history["test_error"]) == 2
    assert tested.outcome.history["test_error"][-1] == pytest.approx(error(tested, X, y))
    for one, other in zip(
        plain.outcome.module.parameters(), tested.outcome.module.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_a_stopped_run_goes_on_with_the_same_result(tmp_path, monkeypatch):
    job = Job(make(), "crossfit", **TINY)
    (whole,) = fit_many([job], device="cpu")

    class StoppedError(Exception):
        pass

    def stop(*_):
        raise StoppedError

    monkeypatch.setattr(CrossFit, "last", stop)
    with pytest.raises(StoppedError):
        fit_many([job], device="cpu", checkpoint=tmp_path)
    monkeypatch.undo()
    epochs = []
    inner = unbag.training.engine.Stack.run_epoch
    monkeypatch.setattr(
        unbag.training.engine.Stack,
        "run_epoch",
        lambda self, epoch: (epochs.append(epoch), inner(self, epoch)),
    )
    (resumed,) = fit_many([job], device="cpu", checkpoint=tmp_path)
    assert len(epochs) == TINY["epochs"]  # those of the last network only
    for one, other in zip(
        whole.outcome.module.parameters(), resumed.outcome.module.parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_what_ended_is_reported_and_its_checkpoints_are_deleted(tmp_path):
    reported = {}
    jobs = [Job(make(), "prop", **TINY), Job(make(), "crossfit", **TINY)]
    fits = fit_many(jobs, device="cpu", checkpoint=tmp_path, on_finish=reported.update)
    assert sorted(reported) == [0, 1]
    assert all(reported[i].outcome is fit.outcome for i, fit in enumerate(fits))
    assert not list(tmp_path.rglob("*.safetensors"))


def test_weights_of_rows_count():
    bags = make()
    weight = np.where(bags.labels == 0, 3.0, 1.0)
    (plain,), (weighted,) = (
        fit_many([Job(bags, "crossfit", **TINY, sample_weight=w)], device="cpu")
        for w in (None, weight)
    )
    assert not np.allclose(plain.pooled_prior, weighted.pooled_prior)


def test_priors_of_lower_rank_are_learned_from():
    theta = np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]])
    bags = unbag.make_bags(*gaussians(300), theta, random_state=0)
    (fit,) = fit_many([Job(bags, "crossfit", **TINY)], device="cpu")
    assert not fit.outcome.diverged


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"folds": 1}, "folds must be a whole number of at least 2, got 1"),
        ({"rounds": -1}, "rounds must be a whole number of at least 0, got -1"),
        ({"start": "prop"}, "start must be one of 'matched-likelihood', .*got 'prop'"),
        ({"augment": True}, "augment must be one of 'none', 'weak', 'strong', got True"),
        ({"calibrated": 1}, "calibrated must be True or False, got 1"),
        ({"smoothing": -0.1}, "smoothing must be a number of at least 0, got -0.1"),
        ({"mixup": 0.5}, "mixup must be True or False, got 0.5"),
        ({"alpha": 0.5}, "method 'crossfit' has no hyperparameter 'alpha'"),
        (
            {"start": "u-prr", "matching": 2.0},
            "matching must be left out with a start by u-prr, got 2.0",
        ),
    ],
)
def test_bad_hyperparameters(hyperparameters, message):
    with pytest.raises(InvalidInputError, match=message):
        work(hyperparameters=hyperparameters)


def test_another_loss_is_refused():
    with pytest.raises(InvalidInputError, match="loss must be 'cross-entropy' with method='cross"):
        work(loss="generalized-cross-entropy")


def test_the_batch_size_of_the_user_holds_in_all_trainings():
    crossfit = run_start(work(batch_size=25))
    replicas = [*crossfit.start(), *crossfit.round(), crossfit.last()]
    assert {replica.batch_size for replica in replicas} == {25}


def test_folds_form_one_stack():
    replicas = run_start(work(make(333))).round()
    assert len({replica.group for replica in replicas}) == 1
    assert len({replica.seed for replica in replicas}) == len(replicas)


def test_one_that_diverges_is_told_and_the_others_go_on():
    jobs = [Job(make(), "crossfit", **TINY, learning_rate=rate) for rate in (1e30, 0.01)]
    bad, good = fit_many(jobs, device="cpu")
    assert bad.outcome.diverged
    assert "not finite" in bad.outcome.stop_reason
    assert not good.outcome.diverged
    assert re.match(r"[1-3] rounds? ", good.outcome.stop_reason)


def test_runs_that_share_a_folder_keep_their_checkpoints_apart(tmp_path):
    one, other = (Job(make(seed=s), "crossfit", **TINY) for s in (1, 2))
    fit_many([one], device="cpu", checkpoint=tmp_path)
    kept = set(tmp_path.rglob("*.safetensors"))
    assert kept
    fit_many([other], device="cpu", checkpoint=tmp_path, on_finish=lambda _: None)
    assert set(tmp_path.rglob("*.safetensors")) == kept


def test_a_row_whose_classes_are_all_unlikely_still_has_a_label():
    log_eta = np.array([[0.0, -2000.0, -2001.0]])
    q = balanced_posterior(log_eta, np.zeros(1, int), np.array([[0.0, 0.5, 0.5]]), THETA.mean(0))
    assert q.sum() == pytest.approx(1)


def test_early_stopping_is_refused():
    bags = make()
    with pytest.raises(InvalidInputError, match="early_stopping must be False with method='cross"):
        work(bags, held_out=bags, patience=3)

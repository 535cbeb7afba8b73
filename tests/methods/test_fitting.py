"""fit_many: many jobs at once, and what it reports."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from small_jobs import TINY as TINY_LINEAR
from small_jobs import make as make_small

import unbag
from unbag.exceptions import InvalidInputError, RankError
from unbag.methods import (
    METHODS,
    UPRR,
    CrossFit,
    Job,
    Method,
    Prop,
    Tables,
    fit_many,
    get_method,
    rehearse,
)
from unbag.models import MLP
from unbag.objectives import Proportion
from unbag.training import TestSet, engine

K, D = 3, 4
THETA = unbag.priors.asymmetric(K, 0)
TINY = {"epochs": 3, "batch_size": 30, "model_options": {"width": 5}}
QUICK = {name: get_method(name) for name in METHODS} | {"tables": Tables(rounds=1, trees=3)}


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
            epochs=3,
            batch_size=30,
            learning_rate=10.0 ** -(1 + i % 3),
            seed=i,
        )
        for i, method in enumerate(QUICK.values())
    ]
    together = fit_many(jobs, device="cpu", precision="float64")
    for job, fit in zip(jobs, together, strict=True):
        alone = fit_many([job], device="cpu", precision="float64")[0]
        assert fit.stop_reason == alone.stop_reason
        assert (fit.method, fit.settings) == (alone.method, alone.settings)
        for name, values in fit.history.items():
            np.testing.assert_allclose(values, alone.history[name], rtol=0, atol=1e-9)
        for name, value in fit.module.state_dict().items():
            other = alone.module.state_dict()[name]
            torch.testing.assert_close(value, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "auto"])
def test_the_three_priors(method):
    bags = make(sizes=[10, 20, 30])
    pi = np.array([0.2, 0.3, 0.5])
    settings = {"epochs": 1, "model": "linear", "model_options": {}}
    given, usual = fit_many(
        [Job(bags, QUICK[method], **each, **settings) for each in ({"test_prior": pi}, {})],
        device="cpu",
    )
    np.testing.assert_allclose(given.pooled_prior, np.array([1, 2, 3]) / 6 @ THETA)
    np.testing.assert_allclose(given.test_prior, pi)
    expected = given.test_prior if method.startswith("u") else given.pooled_prior
    np.testing.assert_allclose(given.output_prior, expected)
    np.testing.assert_allclose(usual.test_prior, given.pooled_prior)


@pytest.mark.parametrize("method", ["prop", "consistency", CrossFit(rounds=0)])
def test_weights_count_in_the_pooled_prior(method):
    bags = make(sizes=[10, 20, 30])
    weight = np.where(bags.bag_index == 0, 5.0, 1.0)
    fit = fit_one(bags, method, sample_weight=weight)
    np.testing.assert_allclose(fit.pooled_prior, np.array([50, 20, 30]) / 100 @ THETA)


def test_methods_of_the_rewritten_risk_refuse_what_cannot_be_told_apart():
    theta = [[0.6, 0.2, 0.2], [0.2, 0.4, 0.4], [0.4, 0.3, 0.3]]
    bags = make(theta)
    others = []
    for method in METHODS:
        if method.startswith("u"):
            with pytest.raises(RankError, match="classes 1, 2 cannot be told apart"):
                fit_one(bags, method)
        else:
            others.append(Job(bags, QUICK[method], epochs=1, model="linear"))
    for fit in fit_many(others, device="cpu"):
        assert np.isnan(fit.history["empirical_risk"]).all()
        assert np.isfinite(fit.history["objective"]).all()


def test_bags_without_rows_are_left_out():
    bags = make(unbag.priors.non_square(K, 1))
    kept = bags.take(bags.bag_index != 4)
    fit = fit_one(kept, "u-prr")
    assert fit.history["partial_risks"].shape == (3, 5, K)
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
    return fit.module.state_dict()


# prop-cr, consistency and self-training change rows at random; counts of weighted rows are taken as
# normal; the others form pairs of rows, which a repeated row does with itself.
NO_REPEATED = (
    *("prop-cr", "consistency", "count-likelihood"),
    *("matched-likelihood", "crossfit", "auto", "tables", "self-training"),
)


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
    history = fit_many([job], device="cpu", precision="float64")[0].history
    major = history["partial_risks"][0][np.arange(3), THETA.argmax(1)]
    shares = np.array([57, 2, 1]) / 60
    np.testing.assert_allclose(history["objective"][0], shares @ major, rtol=1e-9)
    shuffled = replace(job, batching="shuffled")
    assert get_method("biased").replica(shuffled).objective.bag_shares is None


def test_the_module_has_all_digits_of_the_precision():
    job = Job(make(), "prop", **TINY)
    types = {
        precision: next(
            fit_many([job], device="cpu", precision=precision)[0].module.parameters()
        ).dtype
        for precision in ("float32", "float64")
    }
    assert types == {"float32": torch.float32, "float64": torch.float64}


def test_the_test_error_is_under_the_test_prior():
    X, y = rows(600, seed=5)
    pi = np.array([0.98, 0.01, 0.01])
    fit = fit_one(make(), "biased", test_prior=pi, epochs=20, test=TestSet(X, y))
    with torch.no_grad():
        logits = fit.module(torch.as_tensor(X)).numpy()
    shifted = logits + np.log(pi / fit.output_prior)
    error = (shifted.argmax(1) != y).mean()
    assert fit.history["test_error"][-1] == pytest.approx(error)
    assert error > (logits.argmax(1) != y).mean() + 0.05


def test_a_class_that_the_test_prior_excludes_is_never_predicted_in_tests():
    X, y = rows(60, seed=5)
    pi = np.array([0.0, 0.5, 0.5])
    test = TestSet(X[y == 0], y[y == 0])
    fit = fit_one(make(), "biased", test_prior=pi, epochs=20, test=test)
    assert fit.history["test_error"][-1] == 1


def test_unknown_settings_and_wrong_lengths():
    with pytest.raises(InvalidInputError, match="The method 'biased' has no setting 'alpha'"):
        get_method("biased", alpha=0.5)
    with pytest.raises(InvalidInputError, match="sample_weight must be a positive number"):
        fit_one(make(), sample_weight=np.ones(5))
    for bad in (-1.0, 0.0, np.nan):
        weight = np.ones(len(make()))
        weight[0] = bad
        with pytest.raises(InvalidInputError, match="sample_weight must be a positive number"):
            fit_one(make(), sample_weight=weight)


@pytest.mark.parametrize("seed", [-1, None, "a", 2**70])
def test_bad_seeds(seed):
    with pytest.raises(
        InvalidInputError, match=r"seed must be a whole number in \[0, 9223372036854775807\]"
    ):
        fit_many([Job(make(), seed=seed, epochs=1)])


def test_jobs_must_be_a_sequence_of_jobs():
    with pytest.raises(InvalidInputError, match="jobs must be a sequence of Job, got one Job"):
        fit_many(Job(make()))
    with pytest.raises(InvalidInputError, match="bags of type Bags, got tuple"):
        fit_many([Job((1, 2))])
    with pytest.raises(InvalidInputError, match="bags of type Bags, got Bags"):
        fit_many([make()])


def test_rows_held_out_have_the_classes_of_training():
    other = unbag.Bags(*rows(), unbag.ClassPriors(THETA, [0, 1, 2], ["a", "b", "c"]))
    with pytest.raises(InvalidInputError, match="held_out must be Bags of the classes 0, 1, 2"):
        fit_one(make(), "prop", held_out=other)


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


def test_a_rehearsal_checks_without_training(monkeypatch):
    monkeypatch.setattr(engine.Stack, "run", None)
    rehearse(Job(make(), "crossfit"))
    with pytest.raises(InvalidInputError, match=r"test\.y must be one class for each"):
        rehearse(Job(make(), test=TestSet(np.zeros((4, D)), np.zeros(3, int))))
    with pytest.raises(InvalidInputError, match="loss must be 'cross-entropy'"):
        rehearse(Job(make(), "crossfit", loss="generalized-cross-entropy"))


def test_settings_reach_the_objective():
    one, other = (fit_one(make(), UPRR(alpha=a)).history["objective"] for a in (0.1, 0.9))
    assert not np.allclose(one, other)


def test_the_settings_of_a_job_reach_its_training():
    bags, weight = make(), np.linspace(1, 2, 90)
    job = Job(
        bags,
        test_prior=[0.2, 0.3, 0.5],
        learning_rate=0.3,
        weight_decay=0.2,
        batch_size=7,
        epochs=9,
        batching="shuffled",
        seed=4,
        sample_weight=weight,
        test=TestSet(*rows()),
        held_out=bags,
        patience=5,
        model_options={"width": 6},
    )
    replica = Prop().replica(job)
    names = ("learning_rate", "weight_decay", "batch_size", "epochs", "batching", "seed", "test")
    for name in (*names, "held_out", "patience"):
        assert getattr(replica, name) == getattr(job, name), name
    np.testing.assert_array_equal(replica.sample_weight, weight)
    np.testing.assert_allclose(replica.test_prior, [0.2, 0.3, 0.5])
    assert 6 in replica.widths
    assert Prop().replica(Job(bags)).weight_decay == 1e-5
    assert Prop().replica(Job(bags)).epochs == 100
    assert not Prop().replica(job).stop_when_negative
    assert get_method("u-stop").replica(job).stop_when_negative


def test_seeds_decide():
    one, again, other = (fit_one(make(), "prop", seed=s).history["objective"] for s in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


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
        fit_one(bags, "prop", **settings, batching=batching).history["test_error"][-1]
        for batching in ("auto", "shuffled")
    ]
    assert errors[0] < 0.12
    assert errors[1] > errors[0] + 0.02


# ------------------------------------------------------------------------------- what is reported


@dataclass(frozen=True)
class Stages(Method):
    """A method of so many trainings."""

    name = "stages"
    summary = "trainings of growing length"
    count: int = 1

    def fit(self, job):
        for epochs in range(1, self.count + 1):
            (fit,) = yield [job.replica(job.objective(Proportion), epochs=epochs)]
        return fit


def test_methods_go_through_their_trainings_in_step(monkeypatch):
    stacks = []
    inner = engine.Stack.run
    monkeypatch.setattr(
        engine.Stack,
        "run",
        lambda self, *a: (stacks.append(len(self.replicas)), inner(self, *a))[1],
    )
    jobs = [Job(make_small(), Stages(count), seed=count, **TINY_LINEAR) for count in (3, 1, 2)]
    fits = fit_many(jobs, device="cpu")
    assert [fit.n_epochs for fit in fits] == [3, 1, 2]
    assert stacks == [3, 2, 1]
    assert [fit.settings for fit in fits] == [{"count": 3}, {"count": 1}, {"count": 2}]


def test_what_ended_is_reported_and_its_checkpoints_are_deleted(tmp_path):
    reports = []

    def report(fits):
        # Those that are reported next still have theirs.
        reports.append((sorted(fits), bool(list(tmp_path.rglob("*.safetensors")))))

    jobs = [Job(make_small(), "prop", **TINY_LINEAR), Job(make_small(), Stages(2), model="linear")]
    fits = fit_many(jobs, device="cpu", checkpoint=tmp_path, on_finish=report)
    assert reports == [([0], True), ([1], True)]
    assert not list(tmp_path.rglob("*.safetensors"))
    reported = {}
    again = fit_many(jobs, device="cpu", on_finish=reported.update)
    assert all(reported[i] is fit for i, fit in enumerate(again))
    assert [fit.n_epochs for fit in fits] == [2, 2]


def test_jobs_that_share_a_stack_with_unfinished_ones_are_reported_at_the_end(tmp_path):
    reports = []
    jobs = [Job(make_small(), Stages(count), **TINY_LINEAR) for count in (2, 1)]
    fit_many(
        jobs, device="cpu", checkpoint=tmp_path, on_finish=lambda fits: reports.append(set(fits))
    )
    assert reports == [{0, 1}]
    assert not list(tmp_path.rglob("*.safetensors"))


def test_runs_that_share_a_folder_keep_their_checkpoints_apart(tmp_path):
    one, other = (Job(make_small(seed=s), CrossFit(rounds=1), **TINY_LINEAR) for s in (1, 2))
    fit_many([one], device="cpu", checkpoint=tmp_path)
    kept = set(tmp_path.rglob("*.safetensors"))
    assert len(kept) == 3  # the start, a round, the last network
    fit_many([other], device="cpu", checkpoint=tmp_path, on_finish=lambda _: None)
    assert set(tmp_path.rglob("*.safetensors")) == kept


def test_progress_is_shown_only_to_who_asks(monkeypatch, capsys):
    monkeypatch.setattr("unbag.progress._EVERY", 0.0)  # else a line per minute
    job = Job(make(), "prop", **TINY)
    fit_many([job])
    assert capsys.readouterr() == ("", "")
    fit_many([job], verbose=True)
    assert "so far" in capsys.readouterr().err

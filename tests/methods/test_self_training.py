"""self-training: features, a start by counts, a teacher, and a last network."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_jobs import K

import unbag
from unbag.evaluation import likeliest_temperature_by_counts
from unbag.exceptions import InvalidInputError
from unbag.methods import Job, SelfTraining, fit_many, self_training
from unbag.methods.self_training import _Stages
from unbag.models import LeNet5
from unbag.objectives import MatchedLikelihood
from unbag.training import Augmentation, train

SIDE = 12


def images(n=400, size=8, seed=0):
    """Images with one of three bright bars, in bags whose counts are known."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.normal(0.3, 0.1, (n, SIDE, SIDE)).astype(np.float32)
    for image, label in zip(X, y, strict=True):
        image[2 + 3 * label : 4 + 3 * label] += 0.4
    bag = np.arange(n) // size
    theta = np.zeros((n // size, K))
    np.add.at(theta, (bag, y), 1 / size)
    return unbag.Bags(X, bag, unbag.ClassPriors(theta, shares_of="rows")), y


def job(bags, method=None, **settings):
    return Job(bags, method or SelfTraining(), **({"model": "lenet5", "epochs": 2} | settings))


def stages(wanted, change=lambda _, fit: fit):
    """Run a job; return its replicas with their fits, and its end. ``change`` changes fits."""
    trainings, seen = wanted.method.fit(wanted), []
    replicas = next(trainings)
    while True:
        fits = [change(len(seen), fit) for fit in train(replicas, device="cpu")]
        seen += list(zip(replicas, fits, strict=True))
        try:
            replicas = trainings.send(fits)
        except StopIteration as end:
            return seen, end.value


def test_every_stage_begins_with_what_the_one_before_has_learned():
    bags, _ = images()
    wanted = job(bags, SelfTraining(features=True))
    seen, end = stages(wanted)
    features, start, teacher, last = (replica for replica, _ in seen)
    names = ["features", "start", "teacher", "last network"]
    assert [replica.stage for replica, _ in seen] == names
    learned = seen[0][1].module.state_dict()
    for replica in (start, last):
        weights = replica.module.state_dict()
        assert torch.equal(weights["conv1.weight"], learned["conv1.weight"])
        assert not torch.equal(weights["output.weight"], torch.zeros(()))
    started = seen[1][1].module.state_dict()
    for name, value in teacher.module.state_dict().items():
        assert torch.equal(value, started[name])
    assert features.contrast is not None
    assert start.batching == teacher.batching == "whole-bags"
    assert last.batching == "shuffled"
    assert teacher.pseudo_labels.soft
    assert start.augmentation == Augmentation()  # features are steady
    assert end.seconds == pytest.approx(sum(fit.seconds for _, fit in seen))


def test_each_stage_leaves_time_for_the_later_ones():
    bags, _ = images()
    seen, _ = stages(job(bags, SelfTraining(features=True)))
    replicas = [replica for replica, _ in seen]
    assert [replica.time_share for replica in replicas] == [0.5, 0.5, 0.5, 1.0]
    features, start, teacher, last = replicas
    assert last.ahead == 0
    assert teacher.ahead == pytest.approx(1 / 3.75)
    assert start.ahead == pytest.approx(4.75 * 2 / start.epochs)
    assert features.ahead == pytest.approx((start.epochs + 4.75 * 2) / 4)


def test_without_features_the_start_sees_plain_rows():
    bags, _ = images()
    (start,) = next(SelfTraining().fit(job(bags)))
    assert start.stage == "start"
    assert start.augmentation is None
    assert start.backbone_rate == 1


def test_a_module_of_the_users_brings_its_features():
    bags, _ = images(size=32, n=1280)
    module = LeNet5(1, K, size=(SIDE, SIDE))
    (start,) = next(SelfTraining().fit(job(bags, model=module)))
    assert torch.equal(start.module.conv1.weight, module.conv1.weight)
    # Shares of 32 rows have as much noise as bags have signal: twice as much as with 16.
    assert start.backbone_rate == pytest.approx(0.5, rel=0.1)


def test_bags_are_kept_out_whole_of_teacher_and_last_network():
    bags, _ = images()
    weight = np.linspace(1, 2, bags.n_rows)
    wanted = job(bags, sample_weight=weight)
    stage = _Stages(SelfTraining(), wanted)
    of_bag = np.bincount(bags.bag_index, stage.kept_out)
    assert set(of_bag) == {0, 8}
    teacher = stage.teacher(stage.module)
    assert teacher.bags.n_rows == (~stage.kept_out).sum()
    np.testing.assert_array_equal(teacher.sample_weight, weight[~stage.kept_out])
    assert teacher.predicted.n_rows == bags.n_rows


def test_labels_of_the_last_network_add_up_to_the_counts():
    bags, _ = images()
    stage = _Stages(SelfTraining(), job(bags))
    (fit,) = train([stage.teacher(stage.module)], device="cpu")
    last = stage.last(stage.module, fit)
    means = np.zeros((bags.priors.n_bags, K))
    np.add.at(means, last.bags.bag_index, last.targets / 8)
    present = np.unique(last.bags.bag_index)
    np.testing.assert_allclose(means[present], bags.priors.values[present], atol=0.01)
    np.testing.assert_array_equal(last.bags.rows, np.flatnonzero(~stage.kept_out))


def test_the_last_network_comes_back_with_a_temperature_from_bags_it_has_not_seen():
    bags, _ = images()
    wanted = job(bags)
    seen, end = stages(wanted)
    replica, fit = seen[-1]
    kept_out = _Stages(SelfTraining(), wanted).kept_out
    np.testing.assert_array_equal(replica.predicted.rows, np.flatnonzero(kept_out))
    assert end.module is fit.module
    kept = replica.predicted
    expected = likeliest_temperature_by_counts(
        torch.from_numpy(fit.logits), torch.tensor(kept.bag_index), torch.tensor(bags.priors.values)
    )
    assert end.calibration.temperature == expected != 1


def test_features_are_for_convolutional_networks_and_many_rows(monkeypatch):
    monkeypatch.setattr(self_training, "_FEATURE_ROWS", 400)
    bags, _ = images()
    few, _ = images(n=392)
    module = LeNet5(1, K, size=(SIDE, SIDE))

    def first_stage(bags, method=None, **settings):
        method = method or SelfTraining()
        return next(method.fit(job(bags, method, **settings)))[0].stage

    assert first_stage(bags) == "features"
    assert first_stage(few, SelfTraining(features=True)) == "features"
    assert first_stage(few) == "start"
    assert first_stage(bags, model=module) == "start"
    assert first_stage(bags, model="mlp") == "start"
    assert first_stage(bags, SelfTraining(features=False)) == "start"


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_stage_that_diverged_ends_the_job(place):
    bags, _ = images()
    wanted = job(bags, SelfTraining(features=True), epochs=1)
    seen, end = stages(wanted, lambda number, fit: replace(fit, diverged=number == place))
    assert len(seen) == place + 1
    assert end.diverged


def test_of_large_bags_it_takes_the_likelihood():
    bags, _ = images()
    seen, end = stages(job(bags, batching="stratified", epochs=1))
    start, teacher, _ = (replica for replica, _ in seen)
    for replica in (start, teacher):
        assert isinstance(replica.objective, MatchedLikelihood)
        assert replica.batching == "stratified"
    assert end.calibration.temperature > 0


def test_it_learns_from_the_counts_of_small_bags():
    bags, y = images(n=960)
    (fit,) = fit_many([job(bags, epochs=40, seed=1)])
    with torch.no_grad():
        found = fit.module(torch.from_numpy(np.asarray(bags.X))).argmax(1).numpy()
    assert (found == y).mean() > 0.97
    assert fit.method == "self-training"
    assert fit.stop_reason.startswith("Trained with pseudo-labels. On ")


def test_epochs_shorten_all_stages(monkeypatch):
    monkeypatch.setattr(self_training, "_START_STEPS", 1000)
    bags, _ = images()
    short, usual = (
        [replica.epochs for replica, _ in stages(job(bags, epochs=e))[0]] for e in (2, 4)
    )
    assert short[1:] == [5, 2]
    assert usual[1:] == [10, 4]
    assert usual[0] == pytest.approx(2 * short[0], abs=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": images()[0], "patience": 2}, "early_stopping must be False with method='se"),
        ({"loss": "generalized-cross-entropy"}, "loss must be 'cross-entropy' with method='self"),
    ],
)
def test_what_it_cannot_do_is_refused(settings, message):
    bags, _ = images()
    with pytest.raises(InvalidInputError, match=message):
        fit_many([job(bags, **settings)])


@pytest.mark.parametrize("name", ["features", "strong"])
def test_settings_are_checked(name):
    with pytest.raises(InvalidInputError, match=f"{name} must be"):
        SelfTraining(**{name: "yes"})

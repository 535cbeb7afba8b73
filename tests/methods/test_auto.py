"""auto: the method that suits bags and network."""

import dataclasses

import numpy as np
import pytest
import torch

import unbag
from unbag.exceptions import InvalidInputError, MissingBagsWarning
from unbag.methods import Auto, Job, Tables, auto, fit_many, get_method, shortened
from unbag.methods.soft_labels import soft_epochs

THETA = [[0.7, 0.3], [0.2, 0.8]]
TINY = {"epochs": 2, "model": "linear"}


def make(theta=THETA, n=60):
    rng = np.random.default_rng(0)
    return unbag.Bags(rng.normal(size=(n, 3)), np.arange(n) % 2, theta)


def choose(bags, *, one_training=False, **settings):
    return Auto(one_training).choose(Job(bags, **settings))[0].name


def test_the_first_rule_that_holds_decides(monkeypatch):
    pure, mixed = make([[0.0, 1.0], [1.0, 0.0]]), make()
    assert choose(pure) == choose(pure, one_training=True) == "bag-likelihood"
    assert choose(mixed) == "tables"
    assert choose(mixed, model="linear") == "crossfit"
    assert choose(mixed, one_training=True) == "matched-likelihood"
    assert choose(mixed, held_out=mixed, patience=3) == "matched-likelihood"
    assert choose(pure, loss="generalized-cross-entropy") == "u-prr"
    monkeypatch.setattr(auto, "_MOST_ROWS", 60)
    assert choose(mixed) == "tables"
    assert choose(mixed, model="linear") == "crossfit"
    monkeypatch.setattr(auto, "_MOST_ROWS", 59)
    method, reason = Auto().choose(Job(mixed))
    assert method.name == "matched-likelihood"
    assert reason == "bags mix classes and have 60 rows, over 59"


def test_residual_networks_learn_from_augmented_images_where_bags_differ():
    X = np.random.default_rng(0).normal(size=(60, 4, 4)).astype(np.float32)
    differ = unbag.Bags(X, np.arange(60) % 2, THETA)
    alike = unbag.Bags(X, np.arange(60) % 2, [[0.5, 0.5], [0.55, 0.45]])
    small = unbag.Bags(X, np.arange(60) // 2, np.tile(THETA, (15, 1)))
    network = unbag.models.ResNet20(1, 2)
    assert choose(differ, model="resnet20") == choose(differ, model=network) == "consistency"
    assert choose(alike, model="resnet20") == "crossfit"
    assert choose(small, model="resnet20") == choose(small, model=network) == "self-training"
    assert choose(small, model="mlp") == "crossfit"
    assert choose(differ, model="mlp") == "crossfit"
    own = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 4)),
        torch.nn.Conv2d(1, 2, 3),
        torch.nn.BatchNorm2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 2),
    )
    assert choose(differ, model=own) == "consistency"
    assert choose(small, model=own) == "self-training"
    own[2] = torch.nn.Identity()  # without normalisation
    assert choose(small, model=own) == "self-training"
    assert choose(differ, model=own) == "crossfit"
    assert choose(differ, model="resnet20", one_training=True) == "matched-likelihood"


def test_a_warm_start_is_one_training():
    bags = make()
    clf = unbag.UnbagClassifier(np.array(THETA), warm_start=True, random_state=0, **TINY)
    assert clf.fit(bags.X, bags.bag_ids).method_ == "crossfit"
    assert clf.fit(bags.X, bags.bag_ids).method_ == "matched-likelihood"
    clf.set_params(method="crossfit")
    with pytest.raises(InvalidInputError, match="warm_start must be False with method='crossfit'"):
        clf.fit(bags.X, bags.bag_ids)


def test_a_part_of_the_training_is_shorter_than_the_whole():
    bags = make()
    clf = unbag.UnbagClassifier(np.array(THETA), model="linear", random_state=0)
    job = clf.prepare(bags.X, bags.bag_ids)
    assert shortened(job, 0.25).epochs == round(0.25 * soft_epochs(bags.n_rows))
    assert shortened(dataclasses.replace(job, epochs=30), 0.5).epochs == 15
    assert shortened(dataclasses.replace(job, epochs=1), 0.25).epochs == 1
    assert shortened(dataclasses.replace(job, method="prop"), 0.5).epochs == 50
    assert Auto().epochs(job) == soft_epochs(bags.n_rows)


def test_a_part_of_the_rounds_is_taken_by_the_method_chosen_for_the_whole():
    short = shortened(Job(make()), 0.34)
    assert (short.method, short.epochs) == (Tables(rounds=1), None)


def test_bags_without_rows_do_not_matter():
    with pytest.warns(MissingBagsWarning):
        bags = unbag.Bags(np.zeros((2, 1)), ["a", "a"], {"a": [1.0, 0.0], "b": [0.5, 0.5]})
    assert choose(bags) == "bag-likelihood"


def test_auto_is_the_method_that_it_chooses():
    fits = fit_many([Job(make(), method, **TINY) for method in ("auto", "crossfit")], device="cpu")
    for one, other in zip(*(fit.module.parameters() for fit in fits), strict=True):
        assert torch.equal(one, other)
    assert [fit.method for fit in fits] == ["crossfit", "crossfit"]
    assert fits[0].settings == fits[1].settings == get_method("crossfit").settings


def test_a_job_is_checked_by_the_method_that_is_chosen(monkeypatch):
    monkeypatch.setattr(Auto, "choose", lambda *_: (get_method("crossfit"), ""))
    bags = make()
    with pytest.raises(InvalidInputError, match="early_stopping must be False with method='cross"):
        fit_many([Job(bags, "auto", held_out=bags, patience=2, **TINY)])


def test_auto_has_no_settings_of_other_methods():
    with pytest.raises(InvalidInputError, match="The method 'auto' has no setting 'matching'"):
        get_method("auto", matching=1.0)


@pytest.mark.parametrize(("priors", "expected"), [(THETA, "crossfit"), (None, "bag-likelihood")])
def test_the_classifier_tells_what_was_chosen(priors, expected):
    bags = make()
    priors = None if priors is None else np.array(priors)
    clf = unbag.UnbagClassifier(priors, "auto", random_state=0, **TINY)
    clf.fit(bags.X, bags.bag_ids)
    assert clf.method_ == expected
    assert clf.settings_ == get_method(expected).settings
    assert clf.method == "auto"
    assert clf.predict(bags.X[:2]).shape == (2,)


def test_a_learner_is_checked_at_once():
    with pytest.raises(InvalidInputError, match="learner must be"):
        Auto(learner=42)

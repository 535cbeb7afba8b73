import numpy as np
import pytest
import torch

import unbag
from unbag.exceptions import InvalidInputError, MissingBagsWarning
from unbag.methods import Job, choose_method, choosing, fit_many, soft_epochs

THETA = [[0.7, 0.3], [0.2, 0.8]]
TINY = {"epochs": 2, "model": "linear"}


def make(theta=THETA, n=60):
    rng = np.random.default_rng(0)
    return unbag.Bags(rng.normal(size=(n, 3)), np.arange(n) % 2, theta)


def test_the_first_rule_that_holds_decides(monkeypatch):
    pure, mixed = make([[0.0, 1.0], [1.0, 0.0]]), make()
    assert choose_method(pure).method == "bag-likelihood"
    assert choose_method(pure, one_training=True).method == "bag-likelihood"
    assert choose_method(mixed).method == "crossfit"
    assert choose_method(mixed, one_training=True).method == "matched-likelihood"
    monkeypatch.setattr(choosing, "MOST_ROWS", 59)
    many = choose_method(mixed)
    assert many.method == "matched-likelihood"
    assert many.reason == "bags mix classes and have 60 rows, over 59"


def test_residual_networks_learn_from_augmented_images_where_bags_differ():
    X = np.random.default_rng(0).normal(size=(60, 4, 4)).astype(np.float32)
    differ = unbag.Bags(X, np.arange(60) % 2, THETA)
    alike = unbag.Bags(X, np.arange(60) % 2, [[0.5, 0.5], [0.55, 0.45]])
    small = unbag.Bags(X, np.arange(60) // 2, np.tile(THETA, (15, 1)))
    network = unbag.models.ResNet20(1, 2)
    assert choose_method(differ, model="resnet20").method == "consistency"
    assert choose_method(differ, model=network).method == "consistency"
    assert choose_method(alike, model="resnet20").method == "crossfit"
    assert choose_method(small, model="resnet20").method == "crossfit"
    assert choose_method(differ, model="mlp").method == "crossfit"
    assert choose_method(differ, model="resnet20", one_training=True).method != "consistency"


def test_another_loss_needs_partial_risks():
    assert choose_method(make(), own_loss=True).method == "u-prr"


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
    clf = unbag.UnbagClassifier(np.array(THETA), random_state=0)
    short = clf.prepare(bags.X, bags.bag_ids).shortened(0.25)
    assert short.job.epochs == round(0.25 * soft_epochs(bags.n_rows))


def test_bags_without_rows_do_not_matter():
    with pytest.warns(MissingBagsWarning):
        bags = unbag.Bags(np.zeros((2, 1)), ["a", "a"], {"a": [1.0, 0.0], "b": [0.5, 0.5]})
    assert choose_method(bags).method == "bag-likelihood"


def test_auto_is_the_method_that_it_chooses():
    fits = fit_many([Job(make(), method, **TINY) for method in ("auto", "crossfit")], device="cpu")
    for one, other in zip(*(fit.outcome.module.parameters() for fit in fits), strict=True):
        assert torch.equal(one, other)


def test_auto_takes_no_hyperparameters():
    with pytest.raises(InvalidInputError, match="method 'auto' has no hyperparameter 'matching'"):
        fit_many([Job(make(), "auto", hyperparameters={"matching": 1.0}, **TINY)])


@pytest.mark.parametrize(("priors", "expected"), [(THETA, "crossfit"), (None, "bag-likelihood")])
def test_the_classifier_tells_what_was_chosen(priors, expected):
    bags = make()
    priors = None if priors is None else np.array(priors)
    clf = unbag.UnbagClassifier(priors, "auto", random_state=0, **TINY)
    clf.fit(bags.X, bags.bag_ids)
    assert clf.method_ == expected
    assert clf.method == "auto"
    assert clf.predict(bags.X[:2]).shape == (2,)

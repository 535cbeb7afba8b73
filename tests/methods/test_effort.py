"""How long networks are trained, and how deep they are."""

import numpy as np
import pytest
from small_jobs import make

import unbag
from unbag.exceptions import InvalidInputError
from unbag.methods import Consistency, CrossFit, Job

X = np.zeros((60_000, 2, 2), np.uint8)
X[::2] = 9  # two different rows
ROWS = unbag.Bags(X, np.arange(60_000) % 2, [[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize(
    ("effort", "accelerated", "epochs", "depth"),
    [
        ("fast", False, 12, 3),
        ("balanced", False, 12, 3),
        ("best", False, 40, 5),
        ("fast", True, 12, 3),
        ("balanced", True, 40, 5),
        ("best", True, 80, 5),
    ],
)
def test_epochs_on_soft_labels_and_depth(effort, accelerated, epochs, depth):
    job = Job(ROWS, CrossFit(), effort=effort, accelerated=accelerated)
    assert CrossFit().epochs(job) == epochs
    assert len(job.network().blocks()[0]) == depth
    given = Job(ROWS, effort=effort, accelerated=accelerated, model_options={"depth": 2})
    assert len(given.network().blocks()[0]) == 2


def test_epochs_on_pseudo_labels():
    usual, fast, best = (
        Consistency().epochs(Job(ROWS, model="resnet20", effort=effort))
        for effort in ("balanced", "fast", "best")
    )
    assert (usual, fast, best) == (60, 15, 120)


def test_the_classifier_passes_it_on():
    bags = make()
    clf = unbag.UnbagClassifier(bags.priors, model="mlp", effort="best", method="crossfit")
    job = clf.prepare(bags.X, bags.bag_ids)
    assert job.effort == "best"
    assert not job.accelerated
    assert len(job.network().blocks()[0]) == 5
    clf.set_params(depth=2)
    assert len(clf.prepare(bags.X, bags.bag_ids).network().blocks()[0]) == 2
    clf.set_params(effort="most")
    with pytest.raises(InvalidInputError, match="effort must be one of 'fast', 'balanced', 'best'"):
        clf.fit(bags.X, bags.bag_ids)

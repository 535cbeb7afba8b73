"""What several processes train together is what one trains, but for rounding."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from together import run_together
from torch import nn

from unbag import objectives
from unbag.bags import Bags
from unbag.methods import Job
from unbag.processes import current_processes
from unbag.training import Augmentation, Contrast, PseudoLabels, pseudo_labels, train
from unbag.training.batches import BATCHINGS

THETA = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])


def some_bags(n=90, shape=(5,)):
    rng = np.random.default_rng(0)
    return Bags(rng.normal(size=(n, *shape)), rng.permutation(np.arange(n) % 3), THETA)


class Net(nn.Module):
    """Layers whose training looks at the whole batch, with weights nobody seeded."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Dropout2d(0.3), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.2))
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.head(self.layers(x)))


def replicas():
    """Name replicas that between them need all sums over rows, and all random numbers."""
    bags, images = some_bags(), some_bags(shape=(1, 6, 6))
    weight = np.linspace(0.5, 2, bags.n_rows)
    targets = np.random.default_rng(1).dirichlet(np.ones(3), bags.n_rows)
    job = Job(bags, "prop", model_options={"width": 6, "dropout": 0.2}, epochs=2, batch_size=25)
    found = {}
    for number, kind in enumerate(dict.fromkeys(objectives.OBJECTIVES.values())):
        batching = [*BATCHINGS][number % len(BATCHINGS)]
        options = {"batching": batching, "sample_weight": weight if number % 2 else None}
        found[kind.__name__] = job.replica(job.objective(kind), **options)
    assert {type(r.objective) for r in found.values()} == {*objectives.OBJECTIVES.values()}
    soft = {"objective": None, "targets": targets, "mixup": True, "batching": "shuffled"}
    soft |= {"predicted": bags, "held_out": bags}
    found["soft labels"] = job.replica(**soft)
    found["smoothed"] = job.replica(
        **soft, adversarial_smoothing=0.5, sample_weight=weight, annealed=True, optimizer="sgd"
    )
    likelihood = job.objective(objectives.BagLikelihood)
    found["corrupted rows"] = job.replica(likelihood, augmentation=Augmentation(strong=True))
    labels = PseudoLabels(purity=0.4)
    found["pseudo-labels"] = job.replica(
        likelihood, pseudo_labels=labels, predicted=bags.take(np.arange(30)), sample_weight=weight
    )
    soft_labels = PseudoLabels(soft=True)
    found["soft pseudo-labels"] = job.replica(likelihood, pseudo_labels=soft_labels)
    job = Job(images, "prop", model=Net(), epochs=2, batch_size=25)
    found["teacher with statistics of its own"] = job.replica(
        job.objective(objectives.BagLikelihood), pseudo_labels=soft_labels
    )
    views = job.replica(job.objective(objectives.Proportion), batching="shuffled")
    found["views"] = replace(views, objective=None, contrast=Contrast(flip=True))
    found["layers"] = job.replica(job.objective(objectives.Unbiased))
    strong = Augmentation(strong=True, flip=True)
    found["changed images"] = job.replica(job.objective(objectives.Proportion), augmentation=strong)
    # A process has no rows at all of such batches.
    few = Job(bags, "prop", model_options={"width": 6}, epochs=1, batch_size=2)
    found["few rows"] = few.replica(few.objective(objectives.Proportion), sample_weight=None)
    return found


def train_all():
    """Train each replica, and all that can be stacked together."""
    torch.manual_seed(current_processes().rank)  # the networks of users differ from rank to rank
    found = replicas()
    with mock.patch.object(pseudo_labels, "_GAIN_RATE", 5.0):  # so that factors change labels
        fits = train(list(found.values()), device="cpu", precision="float64")
    return {name: contents(fit) for name, fit in zip(found, fits, strict=True)}


def contents(fit):
    state = {name: value.numpy() for name, value in fit.module.state_dict().items()}
    history = {f"history of {name}": values for name, values in fit.history.items()}
    return state | history | ({} if fit.logits is None else {"logits": fit.logits})


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        for part, value in values.items():
            scale = np.abs(value).max(initial=1.0, where=np.isfinite(value))
            message = f"{part} of {name}"
            np.testing.assert_allclose(
                found[name][part], value, rtol=0, atol=1e-10 * scale, err_msg=message
            )


def test_two_processes_train_what_one_trains():
    torch.manual_seed(0)
    expected = train_all()
    for result in run_together(train_all):
        assert not isinstance(result, BaseException), result
        assert_equal(result, expected)


def float32_replicas():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 20)) + np.repeat(rng.normal(size=(4, 20)), 625, 0)
    bags = Bags(X.astype(np.float32), np.repeat(np.arange(4) % 3, 625), THETA)
    options = {"width": 64, "dropout": 0.2}
    found = {}
    for batch_size in (600, 603):  # of whole blocks, and with rows left over
        job = Job(bags, "prop", model_options=options, epochs=6, batch_size=batch_size)
        for kind in (objectives.PartialRiskRegularized, objectives.Proportion):
            found[f"{kind.__name__}, {batch_size}"] = job.replica(job.objective(kind))
        weight = np.linspace(0.5, 2, bags.n_rows)
        soft = {"objective": None, "targets": rng.dirichlet(np.ones(3), bags.n_rows)}
        soft |= {"mixup": True, "batching": "shuffled", "sample_weight": weight}
        found[f"soft labels, {batch_size}"] = job.replica(**soft)
    return found


def train_in_float32():
    torch.manual_seed(0)
    found = float32_replicas()
    fits = [train([replica], device="cpu")[0] for replica in found.values()]
    return {
        name: {part: value.numpy() for part, value in fit.module.state_dict().items()}
        for name, fit in zip(found, fits, strict=True)
    }


@pytest.mark.parametrize("size", [2, 4])
def test_float32_is_not_rounded_otherwise_on_several_processes(size):
    """Else a ReLU flips, and the networks grow apart: by 1e-4 and more in so many steps."""
    expected = train_in_float32()
    for result in run_together(train_in_float32, size=size):
        assert not isinstance(result, BaseException), result
        for name, parts in expected.items():
            for part, value in parts.items():
                np.testing.assert_allclose(
                    result[name][part], value, rtol=0, atol=1e-6, err_msg=f"{part} of {name}"
                )

"""Modules of the user's: fine-tuning, frozen layers, and networks that learned nothing."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import unbag
from unbag.exceptions import NothingLearnedError, TrainingDivergedError
from unbag.methods import Job, fit_many

X = np.random.default_rng(0).random((120, 1, 6, 6)).astype(np.float32)
BAGS = unbag.Bags(X, np.arange(120) % 2, [[0.9, 0.1], [0.2, 0.8]])


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)
    )


def trained(module, **settings):
    job = Job(BAGS, "prop", model=module, epochs=3, batch_size=40, learning_rate=0.05, **settings)
    (fit,) = fit_many([job], device="cpu")
    return fit


def changes(module, fit):
    pairs = zip(module.state_dict().items(), fit.module.state_dict().values(), strict=True)
    return {name: (after - before).abs().max().item() for (name, before), after in pairs}


def test_the_backbone_has_a_rate_of_its_own():
    module = network()
    whole, slow, held = (changes(module, trained(module, backbone_rate=r)) for r in (1, 0.1, 0))
    assert held["0.weight"] == held["1.weight"] == 0 < held["4.weight"]
    assert 0 < slow["0.weight"] < 0.5 * whole["0.weight"]
    assert slow["4.weight"] > 0.5 * whole["4.weight"]


def test_frozen_layers_and_their_statistics_stay():
    module = network()
    module[:2].requires_grad_(False)
    changed = changes(module, trained(module))
    assert changed["4.weight"] > 0
    assert {changed[name] for name in changed if name[0] in "01"} == {0}
    module[1].requires_grad_(True)
    assert changes(module, trained(module))["1.running_mean"] > 0


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_network_that_says_the_same_of_all_rows_is_no_model(precision):
    constant = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    nn.init.zeros_(constant[1].weight)
    job = Job(BAGS, "prop", model=constant, epochs=1, batch_size=120, learning_rate=1e-12)
    good = dataclasses.replace(job, model=network(), learning_rate=0.05, epochs=5)
    bad_fit, good_fit = fit_many([job, good], device="cpu", precision=precision)
    assert bad_fit.information < 1e-9
    with pytest.raises(NothingLearnedError, match=r"same probabilities\. Its one epoch was run\."):
        bad_fit.raise_if_failed()
    assert issubclass(NothingLearnedError, TrainingDivergedError)  # so that searches go on
    good_fit.raise_if_failed()
    eta = torch.softmax(good_fit.module.double()(torch.from_numpy(X).double()), 1).detach()
    mean = eta.mean(0)
    assert good_fit.information == pytest.approx(
        (eta * (eta / mean).log()).sum(1).mean().item(), rel=0.2
    )

"""The adversarial consistency of prop-cr."""

import copy
import math

import pytest
import torch

import naive
from unbag.exceptions import InvalidInputError
from unbag.objectives import (
    OBJECTIVES,
    RiskObjective,
    get,
)
from unbag.objectives.consistency import divergences

THETA = [[0.8, 0.2], [0.3, 0.7]]


TOLERANCE = 1e-9


RISK_OBJECTIVES = [name for name, cls in OBJECTIVES.items() if issubclass(cls, RiskObjective)]


def build(name, batch, **parameters):
    if name in RISK_OBJECTIVES:
        parameters["test_prior"] = batch.test_prior
    return get(name, batch.theta, **parameters)


@pytest.mark.parametrize("progress", [0.0, 0.1, 0.4, 1.0])
def test_consistency_equals_the_naive_loop(progress):
    batch = naive.random_batch(7, 3, n=40)
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3, dtype=torch.float64)
    inputs = torch.rand(40, 5, dtype=torch.float64)
    batch.logits = model(inputs)
    objective = build("prop-cr", batch, probe=3.0, radius=0.5, consistency=0.2)

    torch.manual_seed(1)
    value = objective(batch.logits, batch.bag_index, model=model, inputs=inputs, progress=progress)
    torch.manual_seed(1)
    noise = torch.rand_like(inputs) - 0.5
    weight = 0.2 * math.exp(-5 * (1 - min(progress / 0.4, 1)) ** 2)
    shift = naive.consistency(model, inputs, noise, probe=3.0, radius=0.5)
    expected = naive.prop(batch) + weight * shift

    parameters = list(model.parameters())
    got = torch.autograd.grad(value, parameters, retain_graph=True)
    want = torch.autograd.grad(expected, parameters)
    assert naive.relative_difference(value.detach(), expected.detach()) <= TOLERANCE
    for gradient, expected_gradient in zip(got, want, strict=True):
        assert naive.relative_difference(gradient, expected_gradient) <= TOLERANCE


def test_perturbation_has_the_radius_and_does_more_than_noise():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    inputs = torch.rand(300, 20)
    logits = model(inputs).detach()
    seen = []
    model.register_forward_hook(lambda _module, arguments, _output: seen.append(arguments[0]))
    get("prop-cr", torch.eye(3), radius=0.7)(
        logits, torch.arange(300) % 3, model=model, inputs=inputs
    )
    result = (seen[-1] - inputs).detach()
    torch.testing.assert_close(result.norm(dim=1), torch.full((300,), 0.7), rtol=1e-3, atol=0)
    random = torch.randn(300, 20)
    random = 0.7 * random / random.norm(dim=1, keepdim=True)

    @torch.no_grad()
    def shift(perturbation):
        log_p, log_q = logits.log_softmax(-1), model(inputs + perturbation).log_softmax(-1)
        return float((log_p.exp() * (log_p - log_q)).sum(1).mean())

    assert shift(result) > 2 * shift(random)


def test_consistency_leaves_running_statistics_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    inputs, bag_index = torch.rand(8, 4), torch.arange(8) % 3
    logits = model(inputs)
    before = copy.deepcopy(model.state_dict())
    get("prop-cr", torch.eye(3))(logits, bag_index, model=model, inputs=inputs).backward()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model[1].track_running_stats


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"inputs": torch.zeros(2, 3)}, "model must be given, since prop-cr perturbs the inputs"),
        ({"model": torch.nn.Linear(3, 2)}, "inputs must be given"),
        (
            {"model": torch.nn.Linear(3, 2), "inputs": torch.zeros(2, 3), "progress": 1.5},
            r"progress must be a number in \[0, 1\], got 1.5",
        ),
    ],
)
def test_consistency_needs_the_model_and_its_inputs(given, message):
    with pytest.raises(InvalidInputError, match=message):
        get("prop-cr", THETA)(torch.zeros(2, 2), torch.tensor([0, 1]), **given)


def test_divergences_of_a_stack_are_those_of_each_replica():
    logits, perturbed = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    stacked = divergences(logits, perturbed)
    for r in range(3):
        torch.testing.assert_close(stacked[r], divergences(logits[r], perturbed[r]))

"""Stacked networks against plain torch modules."""

import pytest
import torch
from torch import nn

from unbag.models import MLP, ResNet20
from unbag.training.networks import stack_modules
from unbag.training.randomness import seed_keys

CPU = torch.device("cpu")


def mlps(n, **options):
    made = []
    for seed in range(n):
        torch.manual_seed(seed)
        module = MLP(6, 3, width=5, **options).double()
        for norm in module.norms:
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        made.append(module)
    return made


def stack(modules):
    return stack_modules(modules, CPU, torch.float64, torch.float64)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("training", [False, True])
def test_stacked_forward_gradient_and_running_statistics(depth, training):
    modules = mlps(3, depth=depth)
    network = stack(modules)
    x = torch.randn(3, 7, 2, 3, dtype=torch.float64)
    keys = seed_keys([0, 1, 2], CPU)
    logits = network.forward(x, keys, 0, training=training)
    gradients = torch.autograd.grad(logits.square().sum(), network.parameters)
    joined = network.join(gradients)
    for r, module in enumerate(modules):
        module.train(training)
        own = module(x[r])
        torch.testing.assert_close(logits[r], own, rtol=0, atol=1e-12)
        own.square().sum().backward()
        lengths = sorted(p.grad.double().norm().item() for p in module.parameters())
        total = sum(length**2 for length in lengths) ** 0.5
        assert joined[r].norm().item() == pytest.approx(total, rel=1e-10)
        extracted = network.extract(r)
        assert not extracted.training
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(extracted.state_dict()[name], value)


def test_untracked_forward_leaves_running_statistics():
    network = stack(mlps(2))
    before = network.buffers.clone()
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    keys = seed_keys([0, 1], CPU)
    untracked = network.forward(x, keys, 0, training=True, track=False)
    assert torch.equal(network.buffers, before)
    tracked = network.forward(x, keys, 0, training=True)
    assert torch.equal(tracked, untracked)
    assert not torch.equal(network.buffers, before)


def test_dropout_has_its_rate_and_keeps_the_mean():
    rates = [0.0, 0.2, 0.6]
    modules = [MLP(4, 3, depth=2, width=2000, dropout=rate).double() for rate in rates]
    for module in modules:  # the output is the mean of the hidden units, which are all one
        nn.init.zeros_(module.norms[0].weight)
        nn.init.ones_(module.norms[0].bias)
        nn.init.constant_(module.linears[1].weight, 1 / 2000)
        nn.init.zeros_(module.linears[1].bias)
    network = stack(modules)
    x = torch.zeros(3, 50, 4, dtype=torch.float64)
    keys = seed_keys([0, 1, 2], CPU)
    first = network.forward(x, keys, 0, training=True)[..., 0].detach()
    for rate, rows in zip(rates, first, strict=True):
        deviation = (rate / (1 - rate) / 2000) ** 0.5
        assert abs(float(rows.mean()) - 1) <= 5 * deviation / 50**0.5 + 1e-9
        assert float(rows.std()) == pytest.approx(deviation, rel=0.4, abs=1e-12)
    assert torch.equal(network.forward(x, keys, 0, training=True)[..., 0], first)
    assert not torch.equal(network.forward(x, keys, 1, training=True)[..., 0], first)
    evaluated = network.forward(x, keys, 1, training=False)[..., 0].detach()
    torch.testing.assert_close(evaluated, torch.ones_like(first))


def test_modules_of_other_kinds_run_as_they_are():
    torch.manual_seed(0)
    modules = [ResNet20(1, 3).double() for _ in range(2)]
    network = stack(modules)
    x = torch.rand(2, 4, 8, 8, dtype=torch.float64)
    keys = seed_keys([0, 1], CPU)
    logits = network.forward(x, keys, 0, training=True)
    for r, module in enumerate(modules):
        torch.testing.assert_close(logits[r], module.train()(x[r]), rtol=0, atol=1e-12)
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(network.extract(r).state_dict()[name], value)
    with torch.no_grad():
        logits = network.forward(x, keys, 0, training=False)
    torch.testing.assert_close(logits[1], modules[1].eval()(x[1]), rtol=0, atol=1e-12)


def test_extracted_modules_are_copies():
    modules = mlps(2)
    network = stack(modules)
    kept = [p.clone() for p in modules[0].parameters()]
    extracted = network.extract(0)
    with torch.no_grad():
        network.weights.add_(1)
    for own, given, before in zip(
        extracted.parameters(), modules[0].parameters(), kept, strict=True
    ):
        assert torch.equal(own, before)
        assert torch.equal(given, before)

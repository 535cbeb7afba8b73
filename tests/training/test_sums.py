"""Sums over rows in blocks: right, and the same on any number of processes."""

import pytest
import torch

from unbag.models import MLP
from unbag.objectives.losses import cross_entropy
from unbag.training import sums
from unbag.training.networks import stack_modules
from unbag.training.part import deal_rows
from unbag.training.randomness import seed_keys
from unbag.training.sums import block_length, sum_rows

CPU = torch.device("cpu")
SIZES = [512, 515, 600, 1000, 1003]


@pytest.mark.parametrize("n", [10, *SIZES])
@pytest.mark.parametrize("many", [1, 1 << 30])
def test_sums_are_right(n, many, monkeypatch):
    monkeypatch.setattr(sums, "_CACHED", many)
    x, y = torch.randn(2, n, 5), torch.randn(2, n, 3)
    length = block_length(n)
    found = sum_rows(x, length)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, x.double().sum(1, keepdim=True), rtol=0, atol=1e-4)
    products = x.double().transpose(1, 2) @ y.double()
    torch.testing.assert_close(sums._sum_products(x, y, length), products, rtol=0, atol=1e-4)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("size", [2, 4])
def test_sums_of_parts_are_those_of_the_whole(n, size):
    x, y = 1 + torch.randn(1, n, 20), torch.randn(1, n, 32)
    length = block_length(n)
    parts = deal_rows(n, size)
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    whole = [sum_rows(x, length), sums._sum_products(x, y, length)]
    together = [
        sum(sum_rows(x[:, rows], length) for rows in parts),
        sum(sums._sum_products(x[:, rows], y[:, rows], length) for rows in parts),
    ]
    for a, b in zip(whole, together, strict=True):
        assert torch.equal(a.float(), b.float())


def test_partners_are_in_one_part():
    for n in (3, 90, *SIZES):
        for size in (1, 2, 3, 4, 8):
            for rows in deal_rows(n, size):
                assert set(rows.tolist()) == {n - 1 - i for i in rows.tolist()}


@pytest.mark.parametrize("n", [600, 603])
def test_gradients_are_those_of_the_module(n):
    torch.manual_seed(0)
    modules = [MLP(6, 3, width=8, depth=2) for _ in range(2)]
    network = stack_modules(modules, CPU, torch.float32, torch.float32, (6,))
    x = torch.randn(2, n, 6)
    for learn in (True, False):
        rows = x.clone().requires_grad_()
        logits = network.forward(rows, seed_keys([0, 1], CPU), 0, training=True, learn=learn)
        value = logits.square().mean(1).sum()
        if learn:
            gradients = torch.autograd.grad(value, network.parameters, retain_graph=True)
        (of_rows,) = torch.autograd.grad(value, rows)
        plain = x.clone().requires_grad_()
        expected = torch.stack([m.train()(r) for m, r in zip(modules, plain, strict=True)])
        expected.square().mean(1).sum().backward()
        torch.testing.assert_close(of_rows, plain.grad)
    assert all(gradient.dtype == torch.float64 for gradient in gradients)
    for r, module in enumerate(modules):
        linears, norms = module.blocks()
        layers = [layer for pair in zip(linears, [*norms, None], strict=True) for layer in pair]
        parameters = [p for layer in layers if layer is not None for p in layer.parameters()]
        for found, parameter in zip(gradients, parameters, strict=True):
            expected = (
                parameter.grad.T if parameter.ndim == 2 else parameter.grad
            ) / 2  # of two passes
            torch.testing.assert_close(found[r].squeeze(0).float(), expected, rtol=1e-4, atol=1e-6)


def test_the_place_of_a_row_plays_no_part_in_its_loss():
    logits = 3 * torch.randn(1, 1003, 3)
    for n in (1, 7, 250, 500, 1001):
        assert torch.equal(cross_entropy(logits[:, :n]), cross_entropy(logits)[:, :n])

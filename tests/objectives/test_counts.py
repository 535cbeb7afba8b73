"""The likelihood of the class counts of whole bags."""

import itertools
import math

import numpy as np
import pytest
import torch

from unbag.exceptions import InvalidInputError
from unbag.objectives import CountLikelihood, counts

BAG = torch.tensor([0] * 5 + [1] * 6)
COUNTS = torch.tensor([[1.0, 4.0, 0.0], [2.0, 1.0, 3.0]], dtype=torch.float64)
THETA = COUNTS / COUNTS.sum(1, keepdim=True)


def chance_of_count(probabilities, count):
    """Sum over all ways to choose the rows of the class."""
    total = torch.zeros((), dtype=torch.float64)
    for chosen in itertools.product([False, True], repeat=len(probabilities)):
        if sum(chosen) == count:
            ones = torch.tensor(chosen)
            total = total + torch.where(ones, probabilities, 1 - probabilities).prod()
    return total


def by_enumeration(logits):
    eta = torch.softmax(logits.double(), 1)
    value = torch.zeros((), dtype=torch.float64)
    for m, k in itertools.product(range(2), range(3)):
        chance = chance_of_count(eta[m == BAG][:, k], int(COUNTS[m, k]))
        value = value - torch.log(chance) / COUNTS[m].sum() / 2
    return value


@pytest.mark.parametrize("scale", [0.3, 3.0, 8.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_value_and_gradient_are_those_of_enumeration(scale, dtype, tolerance):
    generator = torch.Generator().manual_seed(1)
    logits = (scale * torch.randn(11, 3, generator=generator)).to(dtype).requires_grad_()
    objective = CountLikelihood(THETA, bag_counts=[5, 6])
    value, expected = objective(logits, BAG), by_enumeration(logits)
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    gradients = [torch.autograd.grad(v, logits)[0].double() for v in (value, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=tolerance)


def test_no_probabilities_explain_counts_better_than_the_true_ones():
    truth = torch.tensor([0.9, 0.6, 0.5, 0.2], dtype=torch.float64)
    chances = [chance_of_count(truth, c) for c in range(5)]

    def expected(eta):
        log_eta = torch.log(torch.stack([eta, 1 - eta], 1))
        value = 0.0
        for c, chance in enumerate(chances):
            known = torch.tensor([[c, 4.0 - c]], dtype=torch.float64)
            rows, none = known.sum(1), torch.zeros_like(known)
            bag = torch.zeros(4, dtype=torch.long)
            value += (
                chance * counts.log_count_chance(log_eta, bag, known, rows, none, longest=4).sum()
            )
        return value

    for other in ([0.8, 0.7, 0.5, 0.2], [0.55] * 4, [0.99, 0.8, 0.3, 0.1]):
        assert expected(torch.tensor(other, dtype=torch.float64)) < expected(truth) - 1e-3


def test_part_of_a_bag_and_shares_that_are_not_exact_are_normal():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 2, generator=generator, dtype=torch.float64)
    eta, theta = torch.softmax(logits, 1)[:, 0], 0.75

    def value(**settings):
        objective = CountLikelihood([[theta, 1 - theta]], **settings)
        return objective(logits, torch.zeros(4, dtype=torch.long)).item()

    def normal(missing):
        variance = (eta * (1 - eta)).sum().item() + missing * theta * (1 - theta) + 1 / 12
        gap = eta.sum().item() - 4 * theta
        return 2 * (gap**2 / variance + math.log(2 * math.pi * variance)) / 2 / 4

    assert value(bag_counts=[16]) == pytest.approx(normal(4 * (1 - 4 / 16)), rel=1e-9)
    assert value(bag_counts=[4], excess=[0.5]) == pytest.approx(normal(4 * 0.5), rel=1e-9)
    assert value(bag_counts=[4]) == value()
    assert value() != pytest.approx(normal(0), rel=1e-3)


def test_counts_of_large_bags_are_nearly_normal(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    objective = CountLikelihood([[0.55, 0.45]], bag_counts=[300])
    bag = torch.zeros(300, dtype=torch.long)
    normal = objective(logits, bag)
    monkeypatch.setattr(counts, "_MOST_ROWS", 300)
    exact = objective(logits, bag)
    assert normal != exact
    torch.testing.assert_close(normal, exact, rtol=0.02, atol=0)


def test_bags_that_a_batch_lacks_cost_nothing():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    bag = torch.tensor([7, 7, 2, 2, 9, 9])
    many = CountLikelihood(np.full((12, 2), 0.5), bag_counts=np.full(12, 2))
    few = CountLikelihood(np.full((3, 2), 0.5), bag_counts=np.full(3, 2))
    expected = few(logits, torch.tensor([1, 1, 0, 0, 2, 2])) * 3 / 12
    torch.testing.assert_close(many(logits, bag), expected)
    stacked = CountLikelihood.stack([many, few], 12)
    both = stacked(logits.expand(2, 6, 2), torch.stack([bag, torch.tensor([1, 1, 0, 0, 2, 2])]))
    torch.testing.assert_close(both, torch.stack([expected, expected * 4]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"bag_counts": [3]},
            "bag_counts must be a number of at least 0 for each of 2 bags, got",
        ),
        ({"excess": [0.1, -0.2]}, r"excess must be .* got 2 numbers from -0.2"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        CountLikelihood(THETA, **settings)

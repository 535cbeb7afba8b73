"""The likelihood of bags, and the distance to their shares."""

import math

import numpy as np
import pytest
import torch

import naive
import unbag
from closed_form import DiscreteProblem
from unbag.objectives import (
    get,
)

THETA = [[0.8, 0.2], [0.3, 0.7]]


def test_bag_likelihood_of_unequal_bags_equals_the_score_of_evaluation():
    batch = naive.random_batch(4, 3)
    sizes = torch.bincount(batch.bag_index, minlength=4)
    shares = (sizes / sizes.sum()).numpy()
    value = get("bag-likelihood", batch.theta, bag_shares=shares)(batch.logits, batch.bag_index)
    score = unbag.evaluation.bag_log_loss(
        torch.softmax(batch.logits, 1).detach().numpy(),
        batch.bag_index.numpy(),
        priors=batch.theta.numpy(),
    )
    assert value.item() == pytest.approx(score, rel=1e-9)


def test_bag_likelihood_is_least_at_the_true_posterior():
    problem = DiscreteProblem()
    theta = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    theta = theta.double()
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    chance = shares[:, None] * problem.x_given_bag(theta)  # (M, X), of bag and x
    m, x = torch.cartesian_prod(torch.arange(4), torch.arange(4)).T
    objective = get("bag-likelihood", theta, bag_shares=shares)
    logits = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=500, line_search_fn="strong_wolfe")

    def value():
        optimizer.zero_grad()
        loss = objective(logits[x], m, weight=chance[m, x])
        loss.backward()
        return loss

    least = optimizer.step(value)
    assert least > 0
    pooled = shares @ theta
    joint = pooled[:, None] * problem.x_given_class  # (K, X)
    torch.testing.assert_close(torch.softmax(logits, 1).T, joint / joint.sum(0), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["bag-likelihood", "matched-likelihood"])
def test_likelihoods_take_a_class_that_no_bag_has_for_impossible(name):
    bag_index = torch.tensor([0, 0, 0, 1, 1, 1])
    objective = get(name, [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    logits = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    value = objective(logits, bag_index)
    value.backward()
    assert torch.isfinite(value)
    assert (logits.grad[:, 2] > 0).all()  # its probability is lowered for every row
    if name == "matched-likelihood":
        return  # its floor of shares depends on the number of classes
    # Where it has none, nothing differs from a table without it.
    logits = logits.detach()
    logits[:, 2] = -1e3
    without = get(name, [[1.0, 0.0], [0.5, 0.5]])(logits[:, :2], bag_index)
    torch.testing.assert_close(objective(logits, bag_index), without)


def distance(logits, bag_index, theta):
    """The part that matched-likelihood adds to bag-likelihood."""
    added = get("matched-likelihood", theta)(logits, bag_index)
    return (added - get("bag-likelihood", theta)(logits, bag_index)).item()


def test_the_matched_distance_has_no_bias_from_few_rows():
    problem = DiscreteProblem()
    theta = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]).double()
    joint = theta.mean(0)[:, None] * problem.x_given_class
    logits = torch.log(joint / joint.sum(0)).T  # of the true posterior
    values = []
    for seed in range(2000):
        x, bag_index = problem.draw(theta, [4, 4], seed)
        values.append(distance(logits[x], bag_index, theta))
    mean, error = np.mean(values), np.std(values) / math.sqrt(len(values))
    assert abs(mean) < 4 * error
    assert error < 0.02  # a plain square of the mean would have a mean of 0.4


def test_the_matched_distance_punishes_knowing_bags_by_heart_and_spares_timid_models():
    theta = torch.tensor([[0.6, 0.4], [0.4, 0.6]]).double()
    bag_index = torch.arange(2).repeat_interleave(50)
    by_heart = 20 * torch.nn.functional.one_hot(bag_index, 2).double()
    assert distance(by_heart, bag_index, theta) > 1
    assert abs(distance(0.01 * by_heart, bag_index, theta)) < 0.001
    right = 20 * torch.nn.functional.one_hot((torch.arange(100) % 5 < 3).long(), 2).double()
    right[:50] = right[:50].flip(1)
    assert -0.2 < distance(right, bag_index, theta) < 0  # of exact shares, noise cannot cancel


def test_a_bag_with_one_row_in_a_batch_has_no_pairs():
    logits = torch.randn(2, 2, dtype=torch.float64)
    assert distance(logits, torch.tensor([0, 1]), THETA) == 0


def test_a_class_of_no_bag_is_impossible_and_a_bag_without_rows_has_no_share():
    theta = [[0.8, 0.2, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]]
    batch = naive.random_batch(2, 2)
    small = get("bag-likelihood", THETA)(batch.logits, batch.bag_index)
    never = torch.full_like(batch.logits[:, :1], -1e9)
    logits = torch.cat([batch.logits, never], 1)
    with_class = get("bag-likelihood", theta, bag_shares=[0.5, 0.5, 0.0])(logits, batch.bag_index)
    torch.testing.assert_close(with_class, small)

"""What "unbiased" promises, on a problem where the risk is known exactly."""

import pytest
import torch

from closed_form import DiscreteProblem, epoch_means, standard_errors_off
from naive import priors_of_shape
from unbag import priors
from unbag.objectives import get
from unbag.statistics import zero_one_losses
from unbag.training.batches import ShuffledBatches, StratifiedBatches

pytestmark = pytest.mark.slow
PROBLEM = DiscreteProblem()


def uneven(n_bags):
    return [20 + 9 * (m % 7) for m in range(n_bags)]


@pytest.mark.parametrize(
    ("theta", "sizes", "batch_size", "n_epochs"),
    [
        (priors.symmetric(3, a=0.5), [9500, 450, 50], 32, 1600),
        (priors.symmetric(3, a=0.5), [9500, 450, 50], 7, 600),
        (priors.symmetric(3, a=0.5), [400, 300, 300], 64, 2000),
        (priors.asymmetric(3, random_state=0), [9500, 450, 50], 2, 300),
        (priors_of_shape(7, 3, seed=0), [5, 900, 40, 300, 1, 80, 700], 16, 3000),
        (priors_of_shape(40, 3, seed=0), uneven(40), 16, 3000),
        (priors_of_shape(300, 3, seed=0), uneven(300), 32, 800),
    ],
)
def test_stratified_batches_average_to_the_risk_of_all_rows(theta, sizes, batch_size, n_epochs):
    objective = get("unbiased", theta, test_prior=PROBLEM.test_prior)
    x, bag_index = PROBLEM.draw(objective.theta, sizes, seed=0)
    logits = PROBLEM.logits[x]
    expected = float(objective(logits, bag_index))
    means = epoch_means(objective, logits, bag_index, StratifiedBatches, batch_size, n_epochs)
    assert abs(standard_errors_off(means, expected)) < 4
    assert means.std() / n_epochs**0.5 < 0.02  # else the line above would prove little


@pytest.mark.parametrize(("batch_size", "n_epochs"), [(32, 300), (256, 300)])
def test_shuffled_batches_lose_the_small_bags(batch_size, n_epochs):
    objective = get("unbiased", priors.symmetric(3, a=0.5), test_prior=PROBLEM.test_prior)
    x, bag_index = PROBLEM.draw(objective.theta, [9500, 450, 50], seed=0)
    logits = PROBLEM.logits[x]
    expected = float(objective(logits, bag_index))
    means = epoch_means(objective, logits, bag_index, ShuffledBatches, batch_size, n_epochs)
    assert abs(standard_errors_off(means, expected)) > 20


@pytest.mark.parametrize("theta", [priors.symmetric(3, a=0.3), priors_of_shape(7, 3, seed=1)])
def test_risk_of_freely_drawn_bags_averages_to_the_true_risk(theta):
    """The expectation over the data itself, for any loss."""
    repeats, bag_size = 20_000, 40
    generator = torch.Generator().manual_seed(0)
    table = PROBLEM.x_given_bag(torch.tensor(theta))  # (M, X)
    n_bags, n_values = table.shape
    draws = torch.multinomial(
        table.repeat(repeats, 1), bag_size, replacement=True, generator=generator
    )
    # A row of weight c stands for c rows: every bag has one row for each value of x.
    counts = torch.nn.functional.one_hot(draws, n_values).sum(1).view(repeats, -1)  # (S, M·X)
    logits = PROBLEM.logits.repeat(n_bags, 1).expand(repeats, -1, -1)
    bag_index = torch.arange(n_bags).repeat_interleave(n_values).expand(repeats, -1)
    error = (PROBLEM.test_prior[:, None] * PROBLEM.x_given_class).T  # (X, K)
    for loss, expected in (
        ("cross-entropy", PROBLEM.risk()),
        (zero_one_losses, float((error * zero_one_losses(PROBLEM.logits)).sum())),
    ):
        objective = get("unbiased", theta, test_prior=PROBLEM.test_prior, loss=loss)
        values = objective(logits, bag_index, counts)
        assert abs(standard_errors_off(values, expected)) < 4
        assert values.std() / repeats**0.5 < 0.01

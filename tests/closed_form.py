"""A small discrete problem whose risk is known exactly, to test what is promised on average."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unbag.objectives import Objective, cross_entropy
from unbag.training.batches import Batches
from unbag.training.randomness import seed_keys


@dataclass
class DiscreteProblem:
    """Three classes; x takes four values, each with logits of its own, good or bad."""

    test_prior: Tensor = field(default_factory=lambda: _table([0.2, 0.3, 0.5]))
    x_given_class: Tensor = field(
        default_factory=lambda: _table(
            [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.15, 0.3, 0.5]]
        )
    )
    logits: Tensor = field(
        default_factory=lambda: _table(
            [[2.0, 0.5, -1.0], [-0.5, 1.0, 0.0], [0.3, -0.2, 0.4], [1.0, -2.0, 3.0]]
        )
    )

    def risk(self) -> float:
        """R = Σ_k π_k Σ_x p(x | k) ℓ_k(x)."""
        losses = cross_entropy(self.logits)  # (X, K)
        of_class = (self.x_given_class * losses.T).sum(1)  # (K,)
        return float((self.test_prior * of_class).sum())

    def x_given_bag(self, theta: Tensor) -> Tensor:
        """Shape (M, X): every bag mixes the classes by its priors."""
        return theta @ self.x_given_class

    def draw(self, theta: Tensor, sizes: Sequence[int], seed: int) -> tuple[Tensor, Tensor]:
        """Rows of every bag, independently: the value of x and the bag of each."""
        generator = torch.Generator().manual_seed(seed)
        parts = zip(self.x_given_bag(theta), sizes, strict=True)
        values = [torch.multinomial(p, s, True, generator=generator) for p, s in parts]
        return torch.cat(values), torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def _table(values: Sequence[object]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def epoch_means(
    objective: Objective,
    logits: Tensor,
    bag_index: Tensor,
    batching: type[Batches],
    batch_size: int,
    n_epochs: int,
) -> Tensor:
    """Mean of the objective over the batches of each epoch, shape (n_epochs,)."""
    keys = seed_keys([0], torch.device("cpu"))
    batches = batching(bag_index[None], objective.n_bags, batch_size, keys)
    inclusion = None if batches.inclusion is None else batches.inclusion[0]
    means = []
    for epoch in range(n_epochs):
        positions = torch.cat(list(batches.epoch(epoch)), 1)[0]  # (S, B)
        values = objective(logits[positions], bag_index[positions], inclusion=inclusion)  # (S,)
        means.append(values.mean())
    return torch.stack(means)


def standard_errors_off(values: Tensor, expected: float) -> float:
    """How many standard errors the mean of independent values is from what is expected."""
    error = values.std() / math.sqrt(len(values))
    return float((values.mean() - expected) / error)

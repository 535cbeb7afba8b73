"""The eight objectives as plain loops over bags and classes, straight from their formulas.

Slow on purpose and independent of ``unbag.statistics``: the reference that the vectorised
objectives are tested and timed against.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unbag import priors

LossOfOneClass = Callable[[Tensor, int], Tensor]  # logits (n, K), class -> losses (n,)


@dataclass
class Batch:
    """A batch, with what the formulas need besides."""

    logits: Tensor  # (n, K)
    bag_index: Tensor  # (n,)
    theta: Tensor  # (M, K)
    test_prior: Tensor  # (K,)
    weight: Tensor | None = None  # (n,)
    inclusion: Tensor | None = None  # (M,)

    def present(self) -> list[int]:
        """Bags with rows in the batch; the others contribute nothing."""
        return [m for m in range(len(self.theta)) if (self.bag_index == m).any()]

    def classes(self) -> range:
        return range(self.theta.shape[1])

    def chance(self, m: int) -> float:
        """How likely bag m is to be present."""
        return 1.0 if self.inclusion is None else float(self.inclusion[m])


def cross_entropy(logits: Tensor, k: int) -> Tensor:
    return F.cross_entropy(logits, torch.full((len(logits),), k), reduction="none")


def generalized_cross_entropy(logits: Tensor, k: int, q: float = 0.7) -> Tensor:
    return (1 - torch.softmax(logits, 1)[:, k] ** q) / q


def zero_one(logits: Tensor, k: int) -> Tensor:
    return (logits.argmax(1) != k).to(logits.dtype)


def probability(logits: Tensor, k: int) -> Tensor:
    return torch.softmax(logits, 1)[:, k]


def bag_mean(batch: Batch, m: int, k: int, function: LossOfOneClass) -> Tensor:
    """Mean over the rows of bag m: R_mk of a loss, E_mk of zero-one, Q_mk of probability."""
    rows = batch.bag_index == m
    values = function(batch.logits[rows], k)
    if batch.weight is None:
        return values.mean()
    return (batch.weight[rows] * values).sum() / batch.weight[rows].sum()


def bag_size(batch: Batch, m: int) -> float:
    rows = batch.bag_index == m
    return float(rows.sum() if batch.weight is None else batch.weight[rows].sum())


def risk_weights(batch: Batch) -> Tensor:
    """W = (Π Θ†)ᵀ with Θ† = (ΘᵀΘ)⁻¹Θᵀ."""
    theta = batch.theta
    left_inverse = torch.linalg.inv(theta.T @ theta) @ theta.T  # (K, M)
    return (torch.diag(batch.test_prior) @ left_inverse).T


def biased(batch: Batch, loss: LossOfOneClass = cross_entropy) -> Tensor:
    total = torch.zeros(())
    n = sum(bag_size(batch, m) for m in batch.present())
    for m in batch.present():
        largest = int(batch.theta[m].argmax())
        total = total + bag_size(batch, m) / n * bag_mean(batch, m, largest, loss)
    return total


def prop(batch: Batch) -> Tensor:
    total = torch.zeros(())
    for m in batch.present():
        for k in batch.classes():
            share = bag_mean(batch, m, k, probability)
            total = total - batch.theta[m, k] * torch.log(share) / batch.chance(m)
    return total


def unbiased(batch: Batch, loss: LossOfOneClass = cross_entropy) -> Tensor:
    weights, total = risk_weights(batch), torch.zeros(())
    for m in batch.present():
        for k in batch.classes():
            total = total + weights[m, k] * bag_mean(batch, m, k, loss) / batch.chance(m)
    return total


def u_correct(batch: Batch, loss: LossOfOneClass = cross_entropy) -> Tensor:
    weights, total = risk_weights(batch), torch.zeros(())
    for k in batch.classes():
        of_class = torch.zeros(())
        for m in batch.present():
            of_class = of_class + weights[m, k] * bag_mean(batch, m, k, loss) / batch.chance(m)
        total = total + of_class.abs()
    return total


def u_flood(
    batch: Batch, loss: LossOfOneClass = cross_entropy, *, flood_level: float = 0.05
) -> Tensor:
    return (unbiased(batch, loss) - flood_level).abs() + flood_level


def u_prr(
    batch: Batch,
    loss: LossOfOneClass = cross_entropy,
    *,
    alpha: float = 0.7,
    ascent_scale: float = 5.0,
) -> Tensor:
    weights, risk, regulariser = risk_weights(batch), torch.zeros(()), torch.zeros(())
    for m in batch.present():
        for k in batch.classes():
            level = 1 - batch.theta[m, k]
            partial_risk = bag_mean(batch, m, k, loss)
            # 1e-6: a share that equals its level has reached it, whatever the rounding.
            reached = bag_mean(batch, m, k, zero_one) >= level - 1e-6
            sign = 1.0 if reached else -ascent_scale
            term = weights[m, k].abs() * sign * (partial_risk - level)
            risk = risk + weights[m, k] * partial_risk / batch.chance(m)
            regulariser = regulariser + term / batch.chance(m)
    return alpha * risk + (1 - alpha) * regulariser


def bag_likelihood(batch: Batch) -> Tensor:
    """Cross-entropy of the bag, for bags of equal size."""
    share = 1 / len(batch.theta)
    pooled = batch.theta.mean(0)
    eta = torch.softmax(batch.logits, 1)
    total = torch.zeros(())
    for m in batch.present():
        rows = batch.bag_index == m
        chance = share * sum(batch.theta[m, k] / pooled[k] * eta[rows, k] for k in batch.classes())
        weight = torch.ones(int(rows.sum())) if batch.weight is None else batch.weight[rows]
        mean = (weight * -torch.log(chance)).sum() / weight.sum()
        total = total + share * mean / batch.chance(m)
    return total


def matched_likelihood(batch: Batch, *, matching: float = 8.0) -> Tensor:
    """Bag likelihood and the distance of mean posteriors, over pairs, for bags of equal size."""
    n_classes, pooled = batch.theta.shape[1], batch.theta.mean(0)
    eta = torch.softmax(batch.logits, 1)
    distance = torch.zeros(())
    for m in batch.present():
        rows = torch.nonzero(batch.bag_index == m).flatten().tolist()
        joint = batch.theta[m] / pooled * eta[rows]
        gaps = joint / joint.sum(1, keepdim=True) - batch.theta[m]
        weight = [1.0 if batch.weight is None else float(batch.weight[i]) for i in rows]
        total, number = torch.zeros(n_classes), 0.0
        for i in range(len(rows)):
            for j in range(len(rows)):
                if i != j:
                    total = total + weight[i] * weight[j] * gaps[i] * gaps[j]
                    number += weight[i] * weight[j]
        if number:
            share = 1 / len(batch.theta) / batch.chance(m)
            distance = (
                distance + share * (total / number / (batch.theta[m] + 0.1 / n_classes)).sum()
            )
    certain = (eta.detach() ** 2 / pooled).sum(1).mean()
    confidence = ((certain - 1) / (n_classes - 1)).clamp(0, 1)
    return bag_likelihood(batch) + matching * confidence**2 * distance


def count_likelihood(batch: Batch) -> Tensor:
    """Chances of the numbers of rows of each class, row by row, for bags that are whole."""
    total = torch.zeros(())
    for m in batch.present():
        rows = torch.nonzero(batch.bag_index == m).flatten().tolist()
        size = bag_size(batch, m)
        for k in batch.classes():
            eta = torch.softmax(batch.logits[rows], 1)[:, k]
            count = float(batch.theta[m, k]) * size
            if batch.weight is None:  # chances of 0, 1, 2, ... rows of the class
                chances = torch.ones(1, dtype=eta.dtype)
                for q in eta:
                    none, one = F.pad(chances, [0, 1]), F.pad(chances, [1, 0])
                    chances = (1 - q) * none + q * one
                log_chance = torch.log(chances[round(count)])
            else:
                weight = batch.weight[rows]
                variance = (weight**2 * eta * (1 - eta)).sum() + 1 / 12
                gap = (weight * eta).sum() - count
                log_chance = -(gap**2 / variance + torch.log(2 * torch.pi * variance)) / 2
            total = total - log_chance / size / len(batch.theta) / batch.chance(m)
    return total


NAIVE: dict[str, Callable[..., Tensor]] = {
    "biased": biased,
    "prop": prop,
    "prop-cr": prop,  # the consistency term has a loop of its own, below
    "unbiased": unbiased,
    "u-correct": u_correct,
    "u-flood": u_flood,
    "u-stop": unbiased,
    "u-prr": u_prr,
    "bag-likelihood": bag_likelihood,
    "matched-likelihood": matched_likelihood,
    "count-likelihood": count_likelihood,
}


def consistency(
    model: torch.nn.Linear, inputs: Tensor, noise: Tensor, *, probe: float, radius: float
) -> Tensor:
    """Mean KL(η(x) ‖ η(x + r)) of a linear model, whose KL has the gradient ξAᵀ(η(x + ξd) − η(x)).

    A constant of 1e-8 guards the division by the length of a gradient.
    """
    total = torch.zeros(())
    for x, start in zip(inputs, noise, strict=True):
        with torch.no_grad():
            eta = torch.softmax(model(x), 0)
            direction = start / (start.norm() + 1e-8)
            moved = torch.softmax(model(x + probe * direction), 0)
            gradient = probe * model.weight.T @ (moved - eta)
            perturbation = radius * gradient / (gradient.norm() + 1e-8)
        log_moved = torch.log_softmax(model(x + perturbation), 0)
        total = total + (eta * (eta.log() - log_moved)).sum()
    return total / len(inputs)


# What the comparisons run on: (M, K), and whether some bags are absent from the batch.
SETTINGS = [(10, 10, False), (20, 10, False), (7, 3, False), (20, 10, True), (7, 3, True)]


def priors_of_shape(n_bags: int, n_classes: int, seed: int) -> np.ndarray[Any, Any]:
    """Θ of asymmetric bags, as many as asked for."""
    tables = [priors.asymmetric(n_classes, seed + i) for i in range(-(-n_bags // n_classes))]
    return np.vstack(tables)[:n_bags]


def random_batch(
    n_bags: int,
    n_classes: int,
    *,
    absent: bool = False,
    weighted: bool = False,
    n: int = 200,
    seed: int = 0,
) -> Batch:
    """Make a float64 batch with uneven bags; with ``absent``, every third bag has no rows."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.linspace(0.5, 1.5, n_bags, dtype=torch.float64)
    if absent:
        shares[::3] = 0
    test_prior = torch.linspace(1, 2, n_classes, dtype=torch.float64)
    logits = torch.randn(n, n_classes, dtype=torch.float64, generator=generator)
    return Batch(
        logits=(2 * logits).requires_grad_(),
        bag_index=torch.multinomial(shares, n, replacement=True, generator=generator),
        theta=torch.tensor(priors_of_shape(n_bags, n_classes, seed)),
        test_prior=test_prior / test_prior.sum(),
        weight=torch.rand(n, dtype=torch.float64, generator=generator) + 0.1 if weighted else None,
    )


def value_and_gradient(value: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    (gradient,) = torch.autograd.grad(value, batch.logits)
    return value.detach(), gradient


def relative_difference(got: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected number."""
    return float((got - expected).abs().max() / expected.abs().max())

"""The eight objectives as plain loops over bags and classes, straight from their formulas.

Slow on purpose and independent of ``unbag.statistics``: the reference that the vectorised
objectives are tested and timed against.
"""

from collections.abc import Callable, Iterator
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

    def present(self) -> Iterator[tuple[int, Tensor, Tensor, float]]:
        """Every bag with rows: m, its logits, their weights, the chance to be present."""
        for m in range(len(self.theta)):
            rows = self.bag_index == m
            if rows.any():
                logits = self.logits[rows]
                weight = torch.ones_like(logits[:, 0]) if self.weight is None else self.weight[rows]
                chance = 1.0 if self.inclusion is None else float(self.inclusion[m])
                yield m, logits, weight, chance


def cross_entropy(logits: Tensor, k: int) -> Tensor:
    return F.cross_entropy(logits, torch.full((len(logits),), k), reduction="none")


def generalized_cross_entropy(logits: Tensor, k: int, q: float = 0.7) -> Tensor:
    return (1 - torch.softmax(logits, 1)[:, k] ** q) / q


def zero_one(logits: Tensor, k: int) -> Tensor:
    return (logits.argmax(1) != k).to(logits.dtype)


def mean(values: Tensor, weight: Tensor) -> Tensor:
    return (values * weight).sum() / weight.sum()


def risk_weights(batch: Batch) -> Tensor:
    """W = (Π Θ†)ᵀ with Θ† = (ΘᵀΘ)⁻¹Θᵀ."""
    theta = batch.theta
    left_inverse = torch.linalg.inv(theta.T @ theta) @ theta.T  # (K, M)
    return (torch.diag(batch.test_prior) @ left_inverse).T


def biased(batch: Batch, loss: LossOfOneClass = cross_entropy) -> Tensor:
    total, rows = torch.zeros(()), 0.0
    for m, logits, weight, _ in batch.present():
        largest = int(batch.theta[m].argmax())
        total = total + weight.sum() * mean(loss(logits, largest), weight)
        rows += float(weight.sum())
    return total / rows


def prop(batch: Batch, loss: LossOfOneClass = cross_entropy) -> Tensor:  # noqa: ARG001
    total = torch.zeros(())
    for m, logits, weight, chance in batch.present():
        for k in range(logits.shape[1]):
            share = mean(torch.softmax(logits, 1)[:, k], weight)
            total = total - batch.theta[m, k] * torch.log(share) / chance
    return total


def unbiased(batch: Batch, loss: LossOfOneClass = cross_entropy) -> Tensor:
    weights, total = risk_weights(batch), torch.zeros(())
    for m, logits, weight, chance in batch.present():
        for k in range(logits.shape[1]):
            total = total + weights[m, k] * mean(loss(logits, k), weight) / chance
    return total


def u_correct(batch: Batch, loss: LossOfOneClass = cross_entropy) -> Tensor:
    weights = risk_weights(batch)
    of_class = [torch.zeros(())] * batch.theta.shape[1]
    for m, logits, weight, chance in batch.present():
        for k in range(logits.shape[1]):
            term = weights[m, k] * mean(loss(logits, k), weight) / chance
            of_class[k] = of_class[k] + term
    return sum((term.abs() for term in of_class), torch.zeros(()))


def u_flood(
    batch: Batch, loss: LossOfOneClass = cross_entropy, *, flood_level: float = 0.05
) -> Tensor:
    return (unbiased(batch, loss) - flood_level).abs() + flood_level


def u_prr(
    batch: Batch,
    loss: LossOfOneClass = cross_entropy,
    *,
    alpha: float = 0.5,
    ascent_scale: float = 5.0,
) -> Tensor:
    weights, risk, regulariser = risk_weights(batch), torch.zeros(()), torch.zeros(())
    for m, logits, weight, chance in batch.present():
        for k in range(logits.shape[1]):
            level = 1 - batch.theta[m, k]
            partial = mean(loss(logits, k), weight)
            # 1e-6: a share that equals its level has reached it, whatever the rounding.
            reached = float(mean(zero_one(logits, k), weight)) >= float(level) - 1e-6
            sign = 1.0 if reached else -ascent_scale
            risk = risk + weights[m, k] * partial / chance
            regulariser = regulariser + weights[m, k].abs() * sign * (partial - level) / chance
    return alpha * risk + (1 - alpha) * regulariser


NAIVE: dict[str, Callable[..., Tensor]] = {
    "biased": biased,
    "prop": prop,
    "prop-cr": prop,  # the consistency term has a loop of its own, below
    "unbiased": unbiased,
    "u-correct": u_correct,
    "u-flood": u_flood,
    "u-stop": unbiased,
    "u-prr": u_prr,
}


def consistency(
    model: torch.nn.Linear, inputs: Tensor, noise: Tensor, *, probe: float, radius: float
) -> Tensor:
    """Mean KL(η(x) ‖ η(x + r)) of a linear model, whose KL has the gradient ξAᵀ(η(x + ξd) − η(x)).

    A constant of 1e-8 guards the division by the length of a gradient, here that of the mean.
    """
    total = torch.zeros(())
    for x, start in zip(inputs, noise, strict=True):
        with torch.no_grad():
            eta = torch.softmax(model(x), 0)
            direction = start / (start.norm() + 1e-8)
            moved = torch.softmax(model(x + probe * direction), 0)
            gradient = probe * model.weight.T @ (moved - eta) / len(inputs)
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

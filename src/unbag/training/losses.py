"""What a step differentiates: a number for every replica, from a batch of its rows."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.objectives import Objective
from unbag.objectives.consistency import (
    adversarial_perturbation,
    consistency_weight,
    divergences,
    unit,
)
from unbag.training.augmentation import augment
from unbag.training.batches import Batches
from unbag.training.networks import StackedNetwork
from unbag.training.randomness import derive, uniform
from unbag.training.recording import as_it_stands
from unbag.training.replica import Replica
from unbag.training.rows import CHUNK, Rows

__all__ = [
    "AdversarialLoss",
    "BatchLoss",
    "SmoothedSoftLabelLoss",
    "SoftLabelLoss",
    "Values",
    "objective_kind",
]

# What a derived key is for; batches use small numbers.
_DROPOUT, _NOISE, _MIX, _CHANGE = 100, 101, 102, 105
Values = tuple[Tensor, Tensor, Tensor]  # losses (R,), partial risks (R, M, K), presence (R, M)


def objective_kind(replica: Replica) -> str:
    """Replicas of the same kind have their objectives stacked."""
    return type(replica.objective).__name__


class BatchLoss:
    """The objectives of a stack, each on the bag statistics of its replicas.

    Parameters
    ----------
    replicas : sequence of Replica
        Those with objectives of one class stand together.
    network : StackedNetwork
    rows : Rows
    batches : Batches
    keys : Tensor of shape (R,)
        Random key of every replica.
    step : Tensor
        Number of steps taken; the stack counts it.

    Attributes
    ----------
    model : StackedNetwork
        The network that predicts, when training has ended.
    state : dict of Tensor
        What changes from step to step, beside the network.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        network: StackedNetwork,
        rows: Rows,
        batches: Batches,
        keys: Tensor,
        step: Tensor,
    ) -> None:
        self.network = network
        self.part = network.part
        self.rows = rows
        self.batches = batches
        self.keys = keys
        self.step = step
        self.model = network
        self.augmentation = replicas[0].augmentation
        self.state: dict[str, Tensor] = {}
        self.objectives = self._stack(replicas)
        self.compile(as_it_stands)

    def _stack(self, replicas: Sequence[Replica]) -> list[tuple[slice, Objective]]:
        groups: dict[str, list[int]] = {}
        for r, replica in enumerate(replicas):
            groups.setdefault(objective_kind(replica), []).append(r)
        pairs = []
        for members in groups.values():
            parts = [o for r in members if (o := replicas[r].objective) is not None]
            if parts:  # else there are soft labels
                joined = type(parts[0]).stack(parts, self.batches.n_bags).to(self.keys.device)
                pairs.append((slice(members[0], members[-1] + 1), joined))
        return pairs

    def __call__(self, positions: Tensor) -> Values:
        """Losses of a batch, and its partial risks and presence, without gradient."""
        return self._evaluate(positions)

    def begin_epoch(self, progress: float) -> None:
        """Set what changes with the share of training done."""

    def end_step(self, active: Tensor) -> None:
        """Follow the weights that a step has changed, of replicas that are active."""

    @torch.no_grad()
    def predict(self, rows: Tensor, device: torch.device | str) -> Tensor:
        """Logits of rows of these indices, on a device: (R, n) to (R, n, K)."""
        logits = torch.zeros(*rows.shape, self.rows.n_classes, dtype=self.rows.dtype, device=device)
        for number, chunk in self.part.deal(torch.split(rows, CHUNK, 1)):
            x = self.rows.numbers(chunk)
            predicted = self.model.forward(x, self.keys, 0, training=False)
            logits[:, number * CHUNK :][:, : x.shape[1]] = predicted
        return self.part.add(logits)

    def compile(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Compile for CUDA by ``wrap``, or, if it returns what it is given, undo that."""
        self._evaluate: Callable[..., Values] = wrap(self.evaluate)

    def evaluate(self, positions: Tensor) -> Values:
        """Forward pass and objectives."""
        return self._from_logits(positions, self._forward(self._batch(positions)))

    def _batch(self, positions: Tensor) -> Tensor:
        """Rows of a batch, changed where there is augmentation."""
        x = self.rows.batch(positions)
        changes = self.augmentation
        if changes is None:
            return x
        keys = derive(self.keys, _CHANGE, self.step)
        return augment(x, keys, strong=changes.strong, flip=changes.flip, part=self.part)

    def _forward(self, x: Tensor, *, track: bool = True, learn: bool = True) -> Tensor:
        keys = derive(self.keys, _DROPOUT)
        return self.network.forward(x, keys, self.step, training=True, track=track, learn=learn)

    def _from_logits(self, positions: Tensor, logits: Tensor) -> Values:
        bag_index = self.rows.bag_index.gather(1, positions)
        weight = None if self.rows.weight is None else self.rows.weight.gather(1, positions)
        first = self.objectives[0][1]
        total = None if self.part.is_whole else self.part.sum
        statistics = first.statistics(logits, bag_index, weight, self.batches.inclusion, total)
        parts = [objective.reduce(statistics.part(part)) for part, objective in self.objectives]
        return torch.cat(parts), statistics.risks.detach(), statistics.presence


class AdversarialLoss(BatchLoss):
    """Adds virtual adversarial consistency (prop-cr), in pieces that are compiled one by one."""

    def __init__(self, replicas: Sequence[Replica], *arguments: Any) -> None:
        super().__init__(replicas, *arguments)
        # The largest weight of the term, and lengths of the probing step and the perturbation.
        self.consistency, self.probe, self.radius = self._strengths(replicas)
        self.weight = torch.zeros(len(self.keys), device=self.keys.device)
        self.compile(as_it_stands)

    def begin_epoch(self, progress: float) -> None:
        """Set the weight of the consistency term."""
        ramp = consistency_weight(progress, maximum=1.0)
        self.weight.copy_(ramp * self.consistency)

    def compile(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Compile for CUDA by ``wrap``, or, if it returns what it is given, undo that."""
        self._start = wrap(self._forward_batch)
        self._end: Callable[..., Values] = wrap(self._add_divergence)
        self._direction = wrap(self._random_direction)
        self._probe = wrap(self._divergence_at)
        self._scale = wrap(self._scaled)

    def __call__(self, positions: Tensor) -> Values:
        """Losses of a batch, and its partial risks and presence, without gradient."""
        x, logits = self._start(positions)
        perturbation = self._perturbation(x.detach(), logits.detach())
        return self._end(positions, x, logits, perturbation)

    def _forward_batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        x = self._batch(positions)
        return x, self._forward(x)

    def _add_divergence(
        self, positions: Tensor, x: Tensor, logits: Tensor, perturbation: Tensor
    ) -> Values:
        value, risks, presence = self._from_logits(positions, logits)
        shifted = self._forward(x + perturbation, track=False)
        distance = self.part.mean(divergences(logits, shifted))
        return value + self.weight * distance, risks, presence

    def _perturbation(self, x: Tensor, logits: Tensor) -> Tensor:
        """Virtual adversarial perturbation of the batch."""
        with torch.no_grad():
            start = self._direction(x)
        return adversarial_perturbation(lambda d: self._probe(x, logits, d), start, self._scale)

    def _random_direction(self, x: Tensor) -> Tensor:
        keys = derive(self.keys, _NOISE, self.step)
        noise = uniform(keys, self.part.numbers(x), math.prod(x.shape[2:])).view(x.shape)
        noise = noise.to(x.dtype) - 0.5
        return unit(noise, 2)

    def _divergence_at(self, x: Tensor, logits: Tensor, direction: Tensor) -> Tensor:
        probe = _per_replica(self.probe, x)
        shifted = self._forward(x + probe * direction, track=False, learn=False)
        return self.part.mean(divergences(logits, shifted)).sum() * self.part.n_rows(x)

    def _scaled(self, gradient: Tensor) -> Tensor:
        return _per_replica(self.radius, gradient) * unit(gradient, 2)

    def _strengths(self, replicas: Sequence[Replica]) -> list[Tensor]:  # noqa: ARG002 - used by a subclass
        objective = self.objectives[0][1]
        return [objective.get_buffer(name) for name in ("consistency", "probe", "radius")]


class SoftLabelLoss(BatchLoss):
    r"""Cross-entropy with a share of every class as the label of a row, and mixup.

    .. math:: -\frac1B \sum_i \sum_k \tilde q_{ik} \log \eta_k(\tilde x_i), \qquad
        \tilde x_i = \lambda_i x_i + (1 - \lambda_i) x_{j(i)}

    with the labels mixed like the rows, λ uniform in [0, 1], and j(i) another row of the batch:
    batches must be shuffled. Bags play no part, so there are no partial risks.
    """

    def __init__(self, replicas: Sequence[Replica], *arguments: Any) -> None:
        super().__init__(replicas, *arguments)
        rows, bag_index = self.rows, self.rows.bag_index
        priors = replicas[0].bags.priors
        self.targets = torch.zeros(*bag_index.shape, priors.n_classes, device=bag_index.device)
        for target, replica in zip(self.targets, replicas, strict=True):
            assert replica.targets is not None
            soft_labels = torch.from_numpy(np.asarray(replica.targets, np.float32))
            target[: len(soft_labels)].copy_(soft_labels)
        mixed = [replica.mixup for replica in replicas]
        self.mixed = torch.tensor(mixed, device=bag_index.device) if any(mixed) else None
        shape = (len(replicas), self.batches.n_bags)
        self.nothing = torch.zeros(*shape, 1, dtype=rows.dtype, device=bag_index.device)

    def _batch(self, positions: Tensor) -> Tensor:
        """Mixed rows of a batch."""
        return self._mix(super()._batch(positions))

    def _from_logits(self, positions: Tensor, logits: Tensor) -> Values:
        target = self.targets.gather(1, positions[..., None].expand(-1, -1, self.targets.shape[2]))
        target = self._mix(target.to(logits.dtype))
        losses = -(target * torch.log_softmax(logits, -1)).sum(-1)  # (R, B)
        if self.rows.weight is None:
            value = self.part.mean(losses)
        else:
            weight = self.rows.weight.gather(1, positions)
            value = self.part.total(weight * losses) / self.part.total(weight)
        return value, self.nothing, self.nothing[..., 0]

    def _mix(self, values: Tensor) -> Tensor:
        """Mix the entries (R, B, ...) of a batch, rows or labels."""
        if self.mixed is None:
            return values
        keys = derive(self.keys, _MIX, self.step)
        share = uniform(keys, self.part.numbers(values), 1)  # (R, B, 1)
        share = torch.where(self.mixed[:, None, None], share, 1.0).to(values.dtype)
        share = share.view(*values.shape[:2], *[1] * (values.ndim - 2))
        return share * values + (1 - share) * values.flip(1)


class SmoothedSoftLabelLoss(AdversarialLoss, SoftLabelLoss):
    r"""Adds adversarial smoothing to soft labels.

    .. math:: w(t) \, \frac1B \sum_i KL\bigl(\eta(\tilde x_i) \,\|\, \eta(\tilde x_i + r_i)\bigr),
        \qquad \|r_i\| = \rho

    with r in the direction in which the divergence grows fastest, and the replica's ``smoothing``
    for ρ (virtual adversarial training; Miyato et al., TPAMI 2019). The direction is found by one
    power step, from a random point at the distance ρ as well. The first η has no gradient, rows
    count alike whatever their weights, and w grows to 1 in the first two fifths of training.
    """

    def _strengths(self, replicas: Sequence[Replica]) -> list[Tensor]:
        radii = [replica.adversarial_smoothing for replica in replicas]
        radius = torch.tensor(radii, dtype=self.rows.dtype, device=self.keys.device)
        return [torch.ones_like(radius), radius, radius]


def _per_replica(values: Tensor, x: Tensor) -> Tensor:
    """Shape (R,) to (R, 1, ...), to multiply rows x with."""
    return values.to(x).view(-1, *[1] * (x.ndim - 1))

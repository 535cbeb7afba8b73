"""Training on labels that a network gives itself, held in line with the shares of the bags."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.evaluation import likeliest_temperature, likeliest_temperature_by_counts
from unbag.models import is_normalized
from unbag.statistics import bag_sum, present_bags, take_bags
from unbag.training.augmentation import augment
from unbag.training.contrast import ContrastiveLoss
from unbag.training.losses import (
    AdversarialLoss,
    BatchLoss,
    SmoothedSoftLabelLoss,
    SoftLabelLoss,
    Values,
)
from unbag.training.networks import stack_modules
from unbag.training.part import ALL_ROWS, Part
from unbag.training.randomness import derive
from unbag.training.replica import PseudoLabels, Replica

__all__ = ["PseudoLabelLoss", "loss_class"]

_WEAK, _STRONG = 103, 104  # what a derived key is for
_DECAY = 0.999  # of the teacher; less in the first steps
_STEADY_DECAY = 0.998  # of a teacher that begins with a network that has learned
_CERTAINTY_POWER = 2  # of soft labels
_GAIN_RATE = 0.05  # of the factors that balance a bag, for a batch
_FLOOR = 0.1  # over K, as in matched-likelihood
_LARGEST_GAIN = np.log(100.0)
_SMALLEST = 1e-30
_FITTING_STEPS, _LARGEST_LOG = 15, 40.0  # of shares of whole bags
_NEVER = 2.0  # a confidence that no row has


class PseudoLabelLoss(BatchLoss):
    r"""An objective on weakly changed rows, and pseudo-labels on strongly changed ones.

    .. math:: L = L_{\text{objective}}(\text{weak}) + w \, \frac1B \sum_i
        [\max_k q_{ik} \ge \tau] \cdot -\log \eta_{\hat k(i)}(\text{strong}_i), \qquad
        \hat k(i) = \operatorname{argmax}_k q_{ik}

    - The teacher, whose weights are a moving average of the network's, sees the weak rows. Its
      probabilities at temperature T, times θ_mk / p_k and a factor of bag and class, give q.
    - The factors follow the batches such that the mean of q over a bag stays at the bag's shares.
      Where batches hold whole bags, they are found in every batch, so that it is at the shares.
    - Soft labels are q itself, times the square of 1 less its entropy by log K; the objective is
      taken of the changed rows then, τ plays no part, and T is 1.
    - T and τ are set before every epoch from rows that are kept out of training: T makes their
      bags likeliest, or, of whole bags, their class counts; and τ is the smallest confidence at
      which the mean of the confidences above it, which are calibrated by then, is the wanted
      purity.

    Parameters
    ----------
    replicas : sequence of Replica
        With equal ``pseudo_labels``; ``predicted`` are the rows that are kept out.
    """

    def __init__(self, replicas: Sequence[Replica], *arguments: Any) -> None:
        super().__init__(replicas, *arguments)
        options = replicas[0].pseudo_labels
        assert options is not None
        self.options: PseudoLabels = options
        device, network = self.keys.device, self.network
        shape = (len(replicas), self.batches.n_bags, replicas[0].bags.priors.n_classes)
        theta, ratios = np.zeros(shape), np.ones(shape)
        for r, replica in enumerate(replicas):
            bags, m = replica.bags, replica.bags.priors.n_bags
            prior = replica.output_prior
            prior = bags.priors.pooled(bags.counts) if prior is None else prior
            theta[r, :m] = replica.bags.priors.values
            ratios[r, :m] = theta[r, :m] / np.where(prior > 0, prior, 1)
        self.theta = torch.tensor(theta, dtype=self.rows.dtype, device=device)
        self.ratios = torch.tensor(ratios, dtype=self.rows.dtype, device=device)
        self.whole_bags = replicas[0].batching == "whole-bags"
        if not options.soft:
            self.kept_out = self._place_kept_out(replicas, device)
        self.gain = torch.zeros_like(self.theta)  # logarithms
        self.temperature = torch.ones(len(replicas), dtype=self.rows.dtype, device=device)
        self.threshold = torch.full_like(self.temperature, _NEVER)
        self.state = {"pseudo.gain": self.gain}
        if options.teacher:
            modules = [replica.module for replica in replicas]
            dtype = network.weights.dtype
            row_shape = replicas[0].bags.row_shape
            compute = network.compute
            self.model = stack_modules(modules, device, dtype, compute, row_shape, self.part)
            self.state["teacher.weights"] = self.model.weights
            self.state["teacher.buffers"] = self.model.buffers
        self.tracks = options.soft and is_normalized(replicas[0].module)

    @staticmethod
    def _place_kept_out(replicas: Sequence[Replica], device: torch.device) -> Tensor:
        """Bag of every row that is kept out, (R, n'), −1 behind replicas with fewer."""
        parts = []
        for replica in replicas:
            assert replica.predicted is not None
            parts.append(torch.as_tensor(replica.predicted.bag_index))
        padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-1)
        return padded.to(device)

    # -------------------------------------------------------------------------------- a batch

    def evaluate(self, positions: Tensor) -> Values:
        """Forward passes, objective on weak rows, cross-entropy of pseudo-labels on strong ones."""
        x = self.rows.batch(positions)
        changes: dict[str, Any] = {"flip": self.options.flip, "part": self.part}
        weak = augment(x, derive(self.keys, _WEAK, self.step), strong=False, **changes)
        keys = derive(self.keys, _STRONG, self.step)
        changed = augment(x, keys, strong=self.options.strong, **changes)
        if self.options.soft:
            logits = logits_changed = self._forward(changed)
        else:
            logits = self._forward(weak)
            # Strong rows are normalised by themselves, and running statistics are those of weak
            # ones, which rows to predict are like.
            logits_changed = self._forward(changed, track=False)
        values, risks, presence = self._from_logits(positions, logits)
        target = self._label(positions, weak, logits)
        losses = -(target * torch.log_softmax(logits_changed, -1)).sum(-1)  # (R, B)
        if self.rows.weight is not None:
            weight = self.rows.weight.gather(1, positions)
            losses = losses * weight / self.part.mean(weight)[:, None]
        return values + self.options.weight * self.part.mean(losses), risks, presence

    @torch.no_grad()
    def _label(self, positions: Tensor, weak: Tensor, logits: Tensor) -> Tensor:
        """Pseudo-labels (R, B, K), 0 for rows that do not count; the factors take a step."""
        if self.options.teacher:
            # The network sees changed rows only, so the teacher counts statistics of weak ones.
            logits = self.model.forward(weak, self.keys, 0, training=self.tracks)
        else:
            logits = logits.detach()
        index = self.rows.bag_index.gather(1, positions)
        q = self._posterior(logits, index)
        if self.options.balanced and self.whole_bags:
            q = self._balance_whole(q, index, self.part)
        elif self.options.balanced:
            weight = None if self.rows.weight is None else self.rows.weight.gather(1, positions)
            self._balance(q, index, weight)
        if self.options.soft:
            return q * _certainty(q) ** _CERTAINTY_POWER
        confidence, label = q.max(-1, keepdim=True)
        sure = confidence >= self.threshold[:, None, None]
        return torch.zeros_like(q).scatter_(-1, label, sure.to(q.dtype))

    def _balance(self, q: Tensor, bag_index: Tensor, weight: Tensor | None = None) -> None:
        """Take a step of the factors towards the shares of the bags of a batch."""
        n_bags = self.batches.n_bags
        each = torch.ones_like(q[..., :1]) if weight is None else weight[..., None].to(q)
        parts = [bag_sum(values, bag_index, n_bags) for values in (each, each * q)]
        sums = self.part.sum(torch.cat(parts, -1))
        rows = sums[..., :1]  # (R, M, 1)
        mean = sums[..., 1:] / torch.where(rows > 0, rows, 1.0)
        gap = (self.theta - mean) / (self.theta + _FLOOR / self.theta.shape[-1])
        step = torch.where(rows > 0, _GAIN_RATE * gap, 0.0)
        self.gain.copy_((self.gain + step).clamp(-_LARGEST_GAIN, _LARGEST_GAIN))

    def _balance_whole(self, q: Tensor, bag_index: Tensor, part: Part) -> Tensor:
        """Posterior (R, n, K) whose mean over the rows of every bag is at its shares.

        Rows of no bag, −1, are taken for those of one more.
        """
        table = torch.cat([self.theta, self.theta.mean(1, keepdim=True)], 1)
        last = table.shape[1] - 1
        place, theta = torch.where(bag_index < 0, last, bag_index), table
        if part.is_whole:  # else processes have other bags
            bags, place = present_bags(place, last + 1)
            theta = take_bags(table, bags)
        n_bags = theta.shape[1]
        rows = part.sum(bag_sum(torch.ones_like(q[..., :1]), place, n_bags)).clamp_min(1)
        log_q = torch.log(q.clamp_min(_SMALLEST))
        gain = torch.zeros_like(theta)
        of_rows = place[..., None].expand(q.shape)
        for _ in range(_FITTING_STEPS):
            mean = part.sum(bag_sum(q, place, n_bags)) / rows
            step = torch.log(theta.clamp_min(_SMALLEST)) - torch.log(mean.clamp_min(_SMALLEST))
            gain = (gain + step).clamp(-_LARGEST_LOG, _LARGEST_LOG)
            q = torch.softmax(log_q + gain.gather(1, of_rows), -1)
        return q

    def _posterior(self, logits: Tensor, bag_index: Tensor) -> Tensor:
        """Posterior of rows given their bags, balanced: (R, n, K)."""
        table = torch.log(self.ratios.clamp_min(_SMALLEST)) + self.gain
        log_eta = torch.log_softmax(logits / self.temperature[:, None, None], -1)
        index = bag_index.clamp_min(0)[..., None].expand(log_eta.shape)
        return torch.softmax(log_eta + table.gather(1, index), -1)

    # ------------------------------------------------------------------------ between batches

    @torch.no_grad()
    def end_step(self, active: Tensor) -> None:
        """Let the teacher follow the network."""
        if not self.options.teacher:
            return
        step = self.step.to(self.rows.dtype)
        decay = ((1 + step) / (10 + step)).clamp_max(_DECAY)
        if self.options.soft:
            decay = torch.full_like(decay, _STEADY_DECAY)
        pairs = [(self.model.weights, self.network.weights)]
        if not self.tracks:
            pairs.append((self.model.buffers, self.network.buffers))
        for mean, followed in pairs:
            mean.lerp_(followed, (1 - decay) * active[:, None])

    @torch.no_grad()
    def begin_epoch(self, progress: float) -> None:  # noqa: ARG002 - the base names it
        """Set temperature and threshold from the rows that are kept out; soft labels have none."""
        if self.options.soft:
            return
        assert self.rows.predicted is not None
        logits, has_bag = self.predict(self.rows.predicted, self.keys.device), self.kept_out >= 0
        if self.whole_bags:
            temperature = likeliest_temperature_by_counts(logits, self.kept_out, self.theta)
            self.temperature.copy_(temperature)
        else:
            index = self.kept_out.clamp_min(0)[..., None].expand(logits.shape)
            ratios = self.ratios.gather(1, index)
            ratios = torch.where(has_bag[..., None], ratios, 1.0)
            self.temperature.copy_(likeliest_temperature(logits, ratios))
        if self.options.threshold is not None:
            self.threshold.fill_(self.options.threshold)
            return
        q = self._posterior(logits, self.kept_out)
        if self.options.balanced and self.whole_bags:
            q = self._balance_whole(q, self.kept_out, ALL_ROWS)  # which every process has
        confidence = q.amax(-1) * has_bag
        self.threshold.copy_(lowest_pure(confidence, self.options.purity))


def _certainty(q: Tensor) -> Tensor:
    """How sure probabilities (..., K) are, from 0 to 1: (..., 1)."""
    entropy = -torch.xlogy(q, q).sum(-1, keepdim=True)
    return (1 - entropy / math.log(q.shape[-1])).clamp_min(0)


def lowest_pure(confidence: Tensor, purity: float) -> Tensor:
    """Smallest confidence at which the mean of those not below it is the purity; else 2.

    Parameters
    ----------
    confidence : Tensor of shape (R, n)
        Rows of 0 are none.
    purity : float

    Examples
    --------
    >>> lowest_pure(torch.tensor([[0.9, 0.5, 1.0], [0.2, 0.3, 0.0]]), 0.8)
    tensor([0.5000, 2.0000])
    """
    falling = confidence.sort(1, descending=True).values
    count = torch.arange(1, falling.shape[1] + 1, device=falling.device)
    pure = (falling.cumsum(1) / count >= purity) & (falling > 0)
    last = pure.sum(1, keepdim=True) - 1  # means fall as well, so the pure ones come first
    lowest = torch.where(last >= 0, falling.gather(1, last.clamp_min(0)), _NEVER)
    return lowest.squeeze(1)


def loss_class(replica: Replica) -> type[BatchLoss]:
    """Tell what the step of a stack differentiates; its replicas are all of one kind."""
    if replica.targets is not None:
        return SmoothedSoftLabelLoss if replica.is_adversarial else SoftLabelLoss
    if replica.pseudo_labels is not None:
        return PseudoLabelLoss
    if replica.contrast is not None:
        return ContrastiveLoss
    return AdversarialLoss if replica.is_adversarial else BatchLoss

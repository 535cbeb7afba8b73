"""The one training loop: a stack of replicas, one batched step for all of them.

Read :meth:`Stack.run` first, then :meth:`Stack._step`. On CUDA the step is recorded as a graph,
compiled where training is long; on the CPU the same lines run as they stand.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.deadline import Deadline
from unbag.exceptions import SlowTrainingWarning
from unbag.processes import Processes
from unbag.progress import TrainingProgress
from unbag.training.batches import BATCHINGS
from unbag.training.checkpoint import Checkpoint
from unbag.training.finishing import finish
from unbag.training.fit import Fit
from unbag.training.history import History
from unbag.training.losses import objective_kind
from unbag.training.networks import stack_modules
from unbag.training.optimizers import OPTIMIZERS
from unbag.training.part import part_of
from unbag.training.pseudo_labels import loss_class
from unbag.training.randomness import seed_keys
from unbag.training.recording import as_it_stands, compiled, record
from unbag.training.replica import Replica
from unbag.training.rows import Rows, ScoredStack

__all__ = ["PRECISIONS", "Stack"]

# Name to the types of weights and of matrix products. tf32 is float32 with a flag (see run.py).
PRECISIONS = {
    "float64": (torch.float64, torch.float64),
    "float32": (torch.float32, torch.float32),
    "tf32": (torch.float32, torch.float32),
    "bf16": (torch.float32, torch.bfloat16),
}
# Compilation takes 10 to 60 s and makes steps five times as fast: it pays above this many numbers.
_COMPILED_FROM = 1e11
_ADVERSARIAL_PASSES = 3  # of a batch: unchanged, to find the direction, and moved


class Stack:
    """R replicas of one group on one device.

    Parameters
    ----------
    replicas : sequence of Replica
        All of the same ``group``.
    device : torch.device
    precision : str
        A key of ``PRECISIONS``.
    test_every : int
        Epochs between two tests; the last is always tested.
    processes : Processes, optional
        Those that train this stack together; each takes its part of every batch.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        device: torch.device,
        precision: str,
        test_every: int = 1,
        processes: Processes | None = None,
    ) -> None:
        # Methods become slices of the stack when equal ones stand together.
        self.order = sorted(range(len(replicas)), key=lambda i: objective_kind(replicas[i]))
        self.replicas = [replicas[i] for i in self.order]
        self.device = device
        self.test_every = test_every
        self.dtype, compute = PRECISIONS[precision]
        first = self.replicas[0]
        self.epochs = first.epochs
        self.processes = processes or Processes()
        self.part = part_of(self.processes, first.rows_per_batch, device)
        modules = [r.module for r in self.replicas]
        row_shape = first.bags.row_shape
        self.network = stack_modules(modules, device, self.dtype, compute, row_shape, self.part)
        self.keys = seed_keys([r.seed for r in self.replicas], device)
        self.n_bags = max(r.bags.priors.n_bags for r in self.replicas)
        self.rows = Rows(self.replicas, device, self.dtype)
        batching = BATCHINGS[first.batching]
        self.batches = batching(self.rows.bag_index, self.n_bags, first.rows_per_batch, self.keys)
        self._place_state()
        self.loss = loss_class(first)(
            self.replicas, self.network, self.rows, self.batches, self.keys, self.state["step"]
        )
        self.model = self.loss.model
        self.state |= self.loss.state
        self._update: Callable[..., Any] = self._take_step
        self._score: Callable[..., Tensor] = self._sum_errors
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda" and not self.network.draws_numbers and self.part.is_whole:
            self._record()

    def _place_state(self) -> None:
        replicas, k = len(self.replicas), self.replicas[0].bags.priors.n_classes
        table = (replicas, self.n_bags, k)
        weights = np.full(table, np.nan)
        for r, replica in enumerate(self.replicas):
            if replica.risk_weights is not None:
                weights[r] = 0.0
                weights[r, : len(replica.risk_weights)] = replica.risk_weights
        self.risk_weights = self._tensor(weights)
        self.learning_rate = self._tensor([r.learning_rate for r in self.replicas])[:, None]
        self.rate_factors = self.network.rate_factors([r.backbone_rate for r in self.replicas])
        self.weight_decay = self._tensor([r.weight_decay for r in self.replicas])[:, None]
        self._change = OPTIMIZERS[self.replicas[0].optimizer]
        decay = [r.decoupled_weight_decay for r in self.replicas]
        self.decoupled_weight_decay = self._tensor(decay)[:, None] if any(decay) else None
        annealed = [r.annealed for r in self.replicas]
        self.annealed = (
            torch.tensor(annealed, device=self.device)[:, None] if any(annealed) else None
        )
        stops = [r.stop_when_negative for r in self.replicas]
        self.stop_when_negative = torch.tensor(stops, device=self.device)
        positions = torch.zeros(
            replicas, self.batches.batch_size, dtype=torch.int64, device=self.device
        )
        self.positions = self.part.take(positions)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=self.dtype, device=self.device)

        self.state = {
            "weights": self.network.weights,
            "buffers": self.network.buffers,
            "moment1": torch.zeros_like(self.network.weights),
            "moment2": torch.zeros_like(self.network.weights),
            "step": torch.zeros((), dtype=torch.int32, device=self.device),
            "finite": torch.ones(replicas, dtype=torch.bool, device=self.device),
            "active": torch.ones(replicas, dtype=torch.bool, device=self.device),
            **{f"counter.{name}": value for name, value in self.network.counters.items()},
        }
        self.patience: Tensor | None = None
        if self.replicas[0].patience is not None:
            patience = [r.patience or 0 for r in self.replicas]
            self.patience = torch.tensor(patience, device=self.device)
            self.state |= {
                "best_weights": self.network.weights.clone(),
                "best_buffers": self.network.buffers.clone(),
                "best_error": torch.full((replicas,), torch.inf, device=self.device).double(),
                "best_epoch": torch.zeros(replicas, dtype=torch.int64, device=self.device),
            }
        # Sums over the batches of an epoch, fetched once at its end.
        self.sums = {
            "objective": zeros(replicas),
            "empirical_risk": zeros(replicas),
            "negative_share": zeros(replicas),
            "partial_risks": zeros(*table),
            "presence": zeros(replicas, self.n_bags),
        }
        self.history = History(self.epochs)
        self.ended = [0] * replicas  # epochs run; 0 while running
        self.timed_out = [False] * replicas

    def _tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=self.dtype, device=self.device)

    # ------------------------------------------------------------------------------- the loop

    def run(
        self,
        progress: TrainingProgress,
        checkpoint: Checkpoint | None = None,
        checkpoint_seconds: float = 30.0,
        deadline: Deadline | None = None,
        on_epoch: Callable[[int, int, dict[str, float]], None] | None = None,
    ) -> list[Fit]:
        """Train to the end, or to a deadline; return the fits in the order of the replicas."""
        deadline = deadline or Deadline()
        first = self._resume(checkpoint)
        progress.advance(first * len(self.replicas))
        saved = time.monotonic()
        for epoch in range(first, self.epochs):
            with deadline.stage():
                self.run_epoch(epoch)
            last = epoch + 1 == self.epochs
            if not (last or deadline.has_time_for(1)):
                self._end_all(epoch + 1)
            progress.advance(len(self.replicas), self.history.describe_last())
            for r, place in enumerate(self.order if on_epoch is not None else ()):
                if on_epoch is not None and self.ended[r] in (0, epoch + 1):
                    on_epoch(place, epoch + 1, self.history.last(r))
            over = not bool(self.state["active"].any())
            due = time.monotonic() - saved > checkpoint_seconds
            if checkpoint is not None and (due or last or over):
                self._save(checkpoint, epoch + 1)
                saved = time.monotonic()
            if over:
                progress.advance((self.epochs - epoch - 1) * len(self.replicas))
                break
        if self.patience is not None:
            with torch.no_grad():
                self.model.weights.copy_(self.state["best_weights"])
                self.model.buffers.copy_(self.state["best_buffers"])
        return [fit for _, fit in sorted(zip(self.order, finish(self), strict=True))]

    def run_epoch(self, epoch: int) -> None:
        """Take every batch of an epoch once, then write the history."""
        self.loss.begin_epoch(epoch / self.epochs)
        for sums in self.sums.values():
            sums.zero_()
        for plan in self.batches.epoch(epoch):
            positions = self.part.take(plan)
            for step in range(positions.shape[1]):
                self.positions.copy_(positions[:, step])
                self._step() if self._graph is None else self._graph.replay()
        self._end_epoch(epoch)

    def _step(self) -> None:
        """One step of every replica: forward, objective, gradient, new weights."""
        before = self.network.buffers.clone()
        values, risks, presence = self.loss(self.positions)
        gradients = torch.autograd.grad(
            values.sum(), self.network.parameters, allow_unused=True, materialize_grads=True
        )
        with torch.no_grad():
            self._update(gradients, before, values.detach(), risks, presence)
        self.loss.end_step(self.state["active"])

    def _take_step(
        self,
        gradients: Sequence[Tensor],
        before: Tensor,
        values: Tensor,
        risks: Tensor,
        presence: Tensor,
    ) -> None:
        """Update the running replicas whose objective is finite; add to the epoch's sums."""
        state = self.state
        weights, buffers = state["weights"], state["buffers"]
        step = state["step"].add_(1)
        gradient = self.part.add(self.network.join(gradients)).to(self.dtype)
        gradient.addcmul_(self.weight_decay, weights)
        # A gradient whose square overflows would stop Adam silently.
        finite = torch.isfinite(values) & torch.isfinite(torch.linalg.vector_norm(gradient, dim=1))
        state["finite"].logical_and_(finite | ~state["active"])
        state["active"].logical_and_(finite)
        # Rows of replicas that ended become zero, so that their moments stay finite; the rate
        # below leaves their weights alone.
        active = state["active"][:, None]
        gradient.masked_fill_(~active, 0)
        rate = self._rate(step) * active * self.rate_factors
        if self.decoupled_weight_decay is not None:
            weights.mul_(1 - rate * self.decoupled_weight_decay)
        weights.sub_(self._change(state, gradient, rate, step))
        buffers.copy_(torch.where(active, buffers, before))

        risk = (self.risk_weights * risks * presence[..., None]).sum((-2, -1))
        present = (presence > 0).to(self.dtype)
        self.sums["objective"].add_(values)
        self.sums["empirical_risk"].add_(risk)
        self.sums["negative_share"].add_((risk < 0).to(self.dtype))
        self.sums["partial_risks"].add_(risks)
        self.sums["presence"].add_(present)

    def _rate(self, step: Tensor) -> Tensor:
        """Learning rates (R, 1) of this step, counted from 1."""
        if self.annealed is None:
            return self.learning_rate
        done = (step - 1).to(self.dtype) / (self.epochs * self.batches.n_steps)
        cosine = (1 + torch.cos(torch.pi * done)) / 2
        return self.learning_rate * torch.where(self.annealed, cosine, 1.0)

    # -------------------------------------------------------------------------- end of an epoch

    @torch.no_grad()
    def _end_epoch(self, epoch: int) -> None:
        sums, steps = self.sums, self.batches.n_steps
        risk = sums["empirical_risk"] / steps
        active = self.state["active"]
        stopping = active & self.stop_when_negative & (risk < 0)
        row = {
            "objective": sums["objective"] / steps,
            "empirical_risk": risk,
            "negative_share": torch.where(risk.isnan(), risk, sums["negative_share"] / steps),
            "partial_risks": sums["partial_risks"] / sums["presence"][..., None],
        }
        if self.rows.scored:
            due = epoch + 1 == self.epochs or (epoch + 1) % self.test_every == 0
            due = due or bool(stopping.any())
            for name, scored in self.rows.scored.items():
                row[name] = self._error(scored) if due else torch.full_like(risk, torch.nan)
        self.history.write(epoch, row)
        if self.patience is not None:
            stopping = stopping | self._keep_best(row["label_free_error"], epoch)
        active.logical_and_(~stopping)
        for r, running in enumerate(active.tolist()):
            if not running and not self.ended[r]:
                self.ended[r] = epoch + 1

    def _end_all(self, epochs: int) -> None:
        """End the replicas that are still running after so many epochs."""
        self.state["active"].fill_(False)
        self.timed_out = [ended == 0 for ended in self.ended]
        self.ended = [ended or epochs for ended in self.ended]

    def _keep_best(self, error: Tensor, epoch: int) -> Tensor:
        """Remember the weights of replicas that improved; tell which have waited long enough."""
        assert self.patience is not None
        state = self.state
        better = state["active"] & (error < state["best_error"])
        for name, value in (("weights", self.model.weights), ("buffers", self.model.buffers)):
            best = state[f"best_{name}"]
            best.copy_(torch.where(better[:, None], value, best))
        state["best_error"].copy_(torch.where(better, error.double(), state["best_error"]))
        state["best_epoch"].masked_fill_(better, epoch + 1)
        return state["active"] & (epoch + 1 - state["best_epoch"] >= self.patience)

    def _error(self, scored: ScoredStack) -> Tensor:
        wrong = torch.zeros_like(scored.table[:, 0, 0])
        for _, chunk in self.part.deal(scored.chunks()):
            wrong += self._score(*chunk, scored.table)
        return self.part.add(wrong) / scored.n_rows

    def _sum_errors(self, rows: Tensor, group: Tensor, table: Tensor) -> Tensor:
        logits = self.model.forward(self.rows.numbers(rows), self.keys, 0, training=False)
        predicted = (logits + self.rows.logit_shift).argmax(-1)
        return ScoredStack.sum_errors(predicted, group, table)

    # ------------------------------------------------------------------- checkpoint and resume

    def _save(self, checkpoint: Checkpoint, epoch: int) -> None:
        tensors = {f"state.{k}": v for k, v in self.state.items()}
        tensors |= self.history.tensors()
        tensors["ended"] = torch.tensor(self.ended)
        checkpoint.save(tensors, {"epoch": epoch})

    @torch.no_grad()
    def _resume(self, checkpoint: Checkpoint | None) -> int:
        """Load the last state, if there is one, and return the epoch to go on with."""
        loaded = self.processes.once(lambda: None if checkpoint is None else checkpoint.load())
        if loaded is None:
            return 0
        tensors, progress = loaded
        for name, value in self.state.items():
            value.copy_(tensors[f"state.{name}"])
        self.history.restore(tensors, progress["epoch"])
        self.ended = tensors["ended"].tolist()
        return progress["epoch"] if self.state["active"].any() else self.epochs

    # ------------------------------------------------------------------------------------ CUDA

    def _record(self) -> None:
        """Record the step as one CUDA graph, leaving the state as it was.

        A module of the user's may do what cannot be compiled, or not be recorded; then its step
        runs as it stands.
        """
        kept = [*self.state.values(), *self.sums.values()]
        problem: Exception | None = None
        for wrap in (compiled, as_it_stands) if self._is_long() else (as_it_stands,):
            self.loss.compile(wrap)
            self._update, self._score = wrap(self._take_step), wrap(self._sum_errors)
            try:
                self._graph = record(self._step, kept)
            except Exception as error:
                if self.network.is_known:
                    raise
                problem = error
            else:
                return
        why = str(problem).partition("\n")[0]
        message = f"Training is slower, since a step cannot be recorded as a CUDA graph: {why}"
        warnings.warn(message, SlowTrainingWarning, stacklevel=2)

    def _is_long(self) -> bool:
        """Whether training reads and writes enough numbers that fused kernels pay."""
        widths = sum(self.replicas[0].widths)
        each = self.batches.batch_size * widths + self.state["weights"].shape[1]
        passes = _ADVERSARIAL_PASSES if self.replicas[0].is_adversarial else 1
        steps = self.epochs * self.batches.n_steps
        return len(self.replicas) * steps * passes * each > _COMPILED_FROM

"""A job: one model to fit, and what follows from its data and settings."""

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unbag.bags import Bags
from unbag.methods.base import Method
from unbag.methods.labelled_rows import with_labels
from unbag.methods.noisy_shares import NoisyShares
from unbag.methods.sizes import (
    EFFORTS,
    choose_batching,
    default_batch_size,
    default_epochs,
    default_learning_rate,
    whole_bag_batch_size,
)
from unbag.models import ModuleFactory, build_model
from unbag.objectives import Objective
from unbag.objectives.losses import LossOfEveryClass
from unbag.priors import check_test_prior, risk_weights
from unbag.training import Replica, TestSet
from unbag.training.batches import BATCHINGS
from unbag.validation import as_float_array, check_choice, check_number, invalid, shorten

__all__ = ["Job"]

_WEIGHT_DECAY = 1e-5
_DEEP = 5  # layers of an MLP that is trained for longer
_LONGER_ON_CPU = {"fast": 1.0, "balanced": 1.0, "best": 10 / 3}
_LONGER = {"fast": 1.0, "balanced": 10 / 3, "best": 20 / 3}


@dataclass(frozen=True, eq=False)
class Job:
    """One model to fit: data, method, network, settings. ``None`` means a default from the data.

    Parameters
    ----------
    bags : Bags
        Training rows with bag ids and class priors.
    method : str or Method
        A name, for its default settings, or an object such as ``UPRR(alpha=0.5)``.
    test_prior : array of shape (K,) or dict, optional
        π; by default the class shares of the rows.
    loss : str or callable
        The loss ℓ, for every class.
    model : str, nn.Module or factory
    model_options : dict
        ``depth``, ``width`` and ``dropout`` of the MLP.
    learning_rate : float, optional
        Learning rate of Adam. If it is left out, residual networks learn soft labels by gradient
        descent from 10,000 rows on.
    weight_decay : float, optional
        In Adam's L2 form. If it is left out, it is 1e-5, and more where MLPs learn soft labels or
        start crossfit from weak shares.
    batch_size, epochs : int, optional
    backbone_rate : float
        Factor of the learning rate for all weights but those of the last layer.
    batching : {"auto", "stratified", "shuffled", "whole-bags"}
        How batches are drawn; "auto" keeps small bags whole.
    effort : {"fast", "balanced", "best"}
        How long to train where ``epochs`` is left out, and how deep an MLP is where its depth is.
    accelerated : bool
        Whether training has a GPU, where "balanced" takes more steps than on the CPU.
    seed : int
        Seed of initial weights, batches and dropout.
    sample_weight : array of shape (n,), optional
    labels : integer array of shape (n,), optional
        Position of the class of rows where it is known, else -1; they are learned from.
    test : TestSet, optional
        Labelled rows whose error is recorded, for research.
    held_out : Bags, optional
        Other rows of bags, whose label-free error is recorded. Their shares must have full
        column rank.
    patience : int, optional
        Training ends after this many epochs without a smaller label-free error of ``held_out``,
        and the weights of the best epoch are kept.
    """

    bags: Bags
    method: str | Method = "auto"
    test_prior: Any = None
    loss: str | LossOfEveryClass = "cross-entropy"
    model: str | nn.Module | ModuleFactory = "mlp"
    model_options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    backbone_rate: float = 1.0
    batching: str = "auto"
    effort: str = "balanced"
    accelerated: bool = False
    seed: int = 0
    sample_weight: NDArray[np.float64] | None = None
    labels: NDArray[np.int64] | None = None
    test: TestSet | None = None
    held_out: Bags | None = None
    patience: int | None = None

    def check(self) -> None:
        """Refuse settings that are wrong for every method."""
        check_number("seed", self.seed, low=0, high=2**63 - 1, integer=True)
        check_choice("batching", self.batching, ("auto", *BATCHINGS))
        check_choice("effort", self.effort, EFFORTS)
        if self.held_out is not None:
            known, given = self.rows.priors.classes, self.held_out.priors.classes
            if list(known) != list(given):
                allowed = f"Bags of the classes {shorten(known)} as in training"
                raise invalid("held_out", allowed, f"the classes {shorten(given)}")

    # ------------------------------------------------------------------- what follows from the data

    @cached_property
    def rows(self) -> Bags:
        """The training rows, without bags that have none; labelled ones in bags of one class."""
        rows = self.bags.present()
        return rows if self.labels is None else with_labels(rows, self.labels)

    @cached_property
    def theta(self) -> NDArray[np.float64]:
        """Θ of these bags: (M, K)."""
        return self.rows.priors.values

    @cached_property
    def mixed_theta(self) -> NDArray[np.float64]:
        """Θ of the bags without those of labelled rows: what rules about bags look at."""
        return self.bags.present().priors.values

    @cached_property
    def weight(self) -> NDArray[np.float64] | None:
        """Weight of every row, checked: (n,)."""
        given = self.sample_weight
        return None if given is None else _check_weight(given, self.rows.n_rows)

    @cached_property
    def bag_weights(self) -> NDArray[np.float64]:
        """Sum of the weights of the rows of every bag: (M,)."""
        bags = self.rows
        m = bags.priors.n_bags
        return np.asarray(np.bincount(bags.bag_index, self.weight, m), dtype=np.float64)

    @cached_property
    def noisy_shares(self) -> NoisyShares | None:
        """How far the shares of bags bind; None where they are exact."""
        return NoisyShares.of(self.rows.priors, self.rows.counts)

    @cached_property
    def bag_evidence(self) -> NDArray[np.float64]:
        """Weight of every bag in a likelihood, as if its shares were exact: (M,)."""
        noisy, counts = self.noisy_shares, self.rows.counts
        return self.bag_weights if noisy is None else self.bag_weights / (1 + counts * noisy.noise)

    @cached_property
    def evidence_prior(self) -> NDArray[np.float64]:
        """Class shares of all rows with these weights: (K,)."""
        return self.rows.priors.pooled(self.bag_evidence)

    @cached_property
    def pooled_prior(self) -> NDArray[np.float64]:
        """Class shares of all rows together: (K,)."""
        return self.rows.priors.pooled(self.bag_weights)

    @cached_property
    def target_prior(self) -> NDArray[np.float64]:
        """π, checked; the pooled prior where it is not given: (K,)."""
        if self.test_prior is None:
            return self.pooled_prior
        return check_test_prior(self.test_prior, self.rows.priors.classes)

    @cached_property
    def batches(self) -> str:
        """How batches are drawn; with ``batching="auto"`` the sizes of the bags decide."""
        counts = self.bags.present().counts
        return choose_batching(counts) if self.batching == "auto" else self.batching

    @property
    def keeps_bags_whole(self) -> bool:
        """Whether every bag is in one batch, since the shares of a part of it say little."""
        return self.batches == "whole-bags"

    @property
    def usual_epochs(self) -> int:
        """Epochs of one training on the objective of bags."""
        return default_epochs(self.rows.n_rows)

    @property
    def usual_batch_size(self) -> int:
        """Rows per batch of the objective of bags."""
        if self.keeps_bags_whole:
            return whole_bag_batch_size(self.rows.counts)
        return default_batch_size(self.rows.n_rows)

    @property
    def longer(self) -> float:
        """How many times as long as on the CPU networks learn soft labels."""
        return (_LONGER if self.accelerated else _LONGER_ON_CPU)[self.effort]

    # --------------------------------------------------------------------- what methods are made of

    def network(self, seed: int | None = None) -> nn.Module:
        """Build the network with initial weights from a seed, by default the job's."""
        seed = self.seed if seed is None else seed
        shape, k = self.rows.row_shape, self.rows.priors.n_classes
        options = self.model_options
        if self.model == "mlp" and self.longer > 1:
            options = {"depth": _DEEP} | options
        return build_model(self.model, shape, k, seed, **options)

    def objective(self, kind: type[Objective], **settings: Any) -> Objective:
        """Build an objective for the bags; what it does not take of them is not passed."""
        parameters = inspect.signature(kind).parameters
        data: dict[str, Any] = {"loss": self.loss} if "loss" in parameters else {}
        if "test_prior" in parameters:
            data["test_prior"] = self.target_prior
        if "bag_shares" in parameters:
            data["bag_shares"] = self.bag_evidence / self.bag_evidence.sum()
        if "bag_counts" in parameters:
            data["bag_counts"] = self.rows.counts
        if "excess" in parameters and self.noisy_shares is not None:
            data["excess"] = self.noisy_shares.excess
        if "trust" in parameters and self.noisy_shares is not None:
            data["trust"] = 1 / (1 + self.noisy_shares.excess)
        return kind(self.rows.priors, **(data | settings))

    def replica(self, objective: Objective, **changes: Any) -> Replica:
        """Describe one training on an objective by the job's settings, with changes.

        ``output_prior``, under which the softmax is a posterior, is the pooled prior; methods that
        are built on the rewritten risk change it to ``target_prior``.
        """
        bags = self.rows
        full_rank = bags.priors.rank == bags.priors.n_classes
        settings: dict[str, Any] = {
            "bags": bags,
            "objective": objective,
            "module": self.network(),
            "seed": self.seed,
            "epochs": self.usual_epochs if self.epochs is None else self.epochs,
            "batch_size": self.usual_batch_size if self.batch_size is None else self.batch_size,
            "learning_rate": (
                default_learning_rate(bags.n_rows)
                if self.learning_rate is None
                else self.learning_rate
            ),
            "weight_decay": _WEIGHT_DECAY if self.weight_decay is None else self.weight_decay,
            "backbone_rate": self.backbone_rate,
            "batching": self.batches,
            "sample_weight": self.weight,
            "risk_weights": (
                risk_weights(bags.priors, self.target_prior, warn=False) if full_rank else None
            ),
            "test": self.test,
            "held_out": self.held_out,
            "patience": self.patience,
            "pooled_prior": self.pooled_prior,
            "test_prior": self.target_prior,
            "output_prior": self.pooled_prior,
        }
        return Replica(**(settings | changes))


def _check_weight(sample_weight: Any, n: int) -> NDArray[np.float64]:
    weight = as_float_array("sample_weight", sample_weight, ndim=1)
    if len(weight) != n:
        raise invalid("sample_weight", f"a positive number for each of {n} rows", len(weight))
    if not (np.isfinite(weight).all() and (weight > 0).all()):
        got = f"numbers from {weight.min():g} to {weight.max():g}"
        raise invalid(
            "sample_weight", "a positive number for each row", got, "leave out rows of 0."
        )
    return weight

"""What the engine is given for each model."""

import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unbag.bags import Bags
from unbag.evaluation import error_table
from unbag.fingerprint import module_settings
from unbag.objectives import Objective, ProportionConsistency
from unbag.priors import prior_shift
from unbag.training.batches import BATCHINGS
from unbag.training.optimizers import OPTIMIZERS
from unbag.validation import check_choice, check_flag, check_number, invalid, shorten

__all__ = [
    "Augmentation",
    "Contrast",
    "PseudoLabels",
    "Replica",
    "Scored",
    "TestSet",
]


# What replicas of one stack must share of a field: nothing, or whether it is given. A field without
# a rule must be equal in all of them.
_ANY: dict[str, Any] = {"stack": lambda _: None}
_GIVEN: dict[str, Any] = {"stack": lambda value: value is not None}


@dataclass(frozen=True, eq=False)
class TestSet:
    """Labelled rows on which the error is recorded, for research only.

    Parameters
    ----------
    X : array or Tensor of shape (n, ...)
    y : integer array of shape (n,)
        Class index of every row, 0 to K−1.
    """

    __test__ = False  # not a test case of pytest's

    X: NDArray[np.generic] | torch.Tensor
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows whose error is recorded: the mean over rows i of ``table[group[i], predicted[i]]``.

    Parameters
    ----------
    source : array or Tensor
        Where the rows lie.
    rows : integer array of shape (n,) or None
        Which of them; None means all.
    group : integer array of shape (n,)
        The class of a labelled row, or the bag of one without a label.
    table : array of shape (G, K)
        What a row of a group adds to the error when it is predicted as class k.
    """

    source: NDArray[np.generic] | torch.Tensor
    rows: NDArray[np.int64] | None
    group: NDArray[np.int64]
    table: NDArray[np.float64]


@dataclass(frozen=True)
class Augmentation:
    """Random changes of the rows of every batch, see ``training/augmentation.py``.

    Parameters
    ----------
    strong : bool
    flip : bool
        Whether images may be mirrored, left for right.
    """

    strong: bool = False
    flip: bool = False


@dataclass(frozen=True)
class Contrast:
    """How a network learns features without bags: two views of a row are to look alike.

    Parameters
    ----------
    temperature : float
        Of the similarities between views; small ones tell apart even rows that look alike.
    flip : bool
        Whether images may be mirrored, left for right.
    """

    temperature: float = 0.2
    flip: bool = False

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=0, low_open=True)
        check_flag("flip", self.flip)


@dataclass(frozen=True)
class PseudoLabels:
    """How a network is trained on labels that it gives itself, beside its objective.

    Parameters
    ----------
    purity : float
        Share of the pseudo-labels that should be right, according to the calibrated network.
    threshold : float, optional
        Confidence that a label needs, in place of one that follows from ``purity``.
    teacher : bool
        Whether a moving average of the network gives the labels, else the network itself.
    balanced : bool
        Whether labels of a bag are held in line with its shares: those of whole bags in every
        batch, those of parts in the mean of many batches.
    flip : bool
        Whether images may be mirrored, left for right.
    weight : float
        Of their loss.
    soft : bool
        Whether the network goes on from one that has learned: every row then counts, by the square
        of how sure its label is, with probabilities as its label; the objective is taken of the
        changed rows as well, and the teacher follows slowly from the first step.
    strong : bool
        Whether rows that the network sees are changed strongly.
    """

    purity: float = 0.95
    threshold: float | None = None
    teacher: bool = True
    balanced: bool = True
    flip: bool = False
    weight: float = 1.0
    soft: bool = False
    strong: bool = True

    def __post_init__(self) -> None:
        check_number("purity", self.purity, low=0, high=1)
        if self.threshold is not None:
            check_number("threshold", self.threshold, low=0)
        check_number("weight", self.weight, low=0)
        for name in ("teacher", "balanced", "flip", "soft", "strong"):
            check_flag(name, getattr(self, name))


def _architecture(module: nn.Module) -> tuple[object, ...]:
    return (
        type(module),
        getattr(module, "architecture", None) or module_settings(module),
        tuple(p.requires_grad for p in module.parameters()),
    )


@dataclass(frozen=True, eq=False)
class Replica:
    """One model to train.

    Parameters
    ----------
    bags : Bags
        Training rows. Replicas whose bags share a ``source`` share it on the device.
    objective : Objective or None
        Built for ``bags.priors``; None where there are ``targets``, or ``contrast``.
    module : nn.Module
        The network with its initial weights; it is copied, not changed.
    seed : int
        Seed of batches and dropout.
    epochs, batch_size : int
    learning_rate : float
        The first one where it is annealed.
    optimizer : {"adam", "sgd"}
        Adam, or gradient descent with Nesterov's momentum of 0.9.
    weight_decay : float
        Added to the gradient: the L2 form.
    backbone_rate : float
        Factor of the learning rate for all weights but those of the last layer.
    decoupled_weight_decay : float
        Weight decay apart from the gradient: a step of rate r multiplies weights by 1 − r times it.
    batching : {"stratified", "shuffled", "whole-bags"}
    sample_weight : array of shape (n,), optional
        Positive weight of every row.
    risk_weights : array of shape (M, K), optional
        W, for the empirical risk in the history; not a number where it is not given.
    stop_when_negative : bool
        End after the first epoch whose mean empirical risk is negative.
    test : TestSet, optional
    held_out : Bags, optional
        Rows without labels that are not trained on; their label-free error is recorded.
    pooled_prior, output_prior : array of shape (K,), optional
        Class shares of all rows of the job, and those under which the softmax is a posterior.
    test_prior : array of shape (K,), optional
        π of the label-free error; by default the pooled prior of the rows held out.
    patience : int, optional
        End after this many epochs without a smaller label-free error, and keep the weights of the
        epoch with the smallest; needs ``held_out``.
    annealed : bool
        Lower the learning rate to zero along a cosine.
    targets : array of shape (n, K), optional
        Soft labels: shares of the classes for every row, to train on in place of an objective.
    mixup : bool
        Train on mixtures of two rows and their soft labels; needs batches that are shuffled.
    adversarial_smoothing : float
        With targets: the network is also trained to give the same probabilities for a row that is
        moved by this distance in the direction that changes the prediction most; 0 for none.
    augmentation : Augmentation, optional
        Train on changed rows.
    pseudo_labels : PseudoLabels, optional
        Train on augmented rows and on labels that the network gives; needs ``predicted``, rows that
        are not trained on.
    contrast : Contrast, optional
        Learn features from views of rows, in place of an objective; the outputs are no classes.
    predicted : Bags, optional
        Rows whose logits come back with the fit.
    stage : str
        What this training is, for the progress bar.
    time_share : float
        With a time limit: share of the time left after which it ends, at the end of an epoch.
    time_needed : float
        With a time limit the training is left out, and its fit is None, where less time is left
        than this many times the longest stage of the job so far; 0 for one that must be done.
    ahead : float
        For the time left of a progress bar: how many times longer than this stage the later ones
        take together, at most.
    """

    bags: Bags = field(metadata={"stack": lambda bags: (bags.row_shape, str(bags.source.dtype))})
    objective: Objective | None = field(metadata={"stack": lambda o: o and id(o.loss)})
    module: nn.Module = field(metadata={"stack": _architecture})
    seed: int = field(metadata=_ANY)
    epochs: int
    batch_size: int = field(metadata=_ANY)  # what counts are the rows per batch
    learning_rate: float = field(metadata=_ANY)
    weight_decay: float = field(default=0.0, metadata=_ANY)
    decoupled_weight_decay: float = field(default=0.0, metadata=_ANY)
    backbone_rate: float = field(default=1.0, metadata=_ANY)
    optimizer: str = "adam"
    batching: str = "stratified"
    sample_weight: NDArray[np.float64] | None = field(default=None, metadata=_GIVEN)
    risk_weights: NDArray[np.float64] | None = field(default=None, metadata=_ANY)
    stop_when_negative: bool = field(default=False, metadata=_ANY)
    test: TestSet | None = field(default=None, metadata=_GIVEN)
    held_out: Bags | None = field(default=None, metadata=_GIVEN)
    pooled_prior: NDArray[np.float64] | None = field(default=None, metadata=_ANY)
    test_prior: NDArray[np.float64] | None = field(default=None, metadata=_ANY)
    output_prior: NDArray[np.float64] | None = field(default=None, metadata=_ANY)
    patience: int | None = field(default=None, metadata=_GIVEN)
    annealed: bool = field(default=False, metadata=_ANY)
    targets: NDArray[np.floating] | None = field(default=None, metadata=_GIVEN)
    mixup: bool = field(default=False, metadata=_ANY)
    adversarial_smoothing: float = field(default=0.0, metadata={"stack": bool})
    augmentation: Augmentation | None = None
    pseudo_labels: PseudoLabels | None = None
    contrast: Contrast | None = None
    predicted: Bags | None = field(default=None, metadata=_GIVEN)
    stage: str = field(default="training", metadata=_ANY | {"fingerprint": False})
    time_share: float = field(default=1.0, metadata=_ANY | {"fingerprint": False})
    time_needed: float = field(default=0.0, metadata=_ANY | {"fingerprint": False})
    ahead: float = field(default=0.0, metadata=_ANY | {"fingerprint": False})

    def __post_init__(self) -> None:
        check_number("epochs", self.epochs, low=1, integer=True)
        check_number("batch_size", self.batch_size, low=1, integer=True)
        check_number("learning_rate", self.learning_rate, low=0, low_open=True)
        check_number("backbone_rate", self.backbone_rate, low=0)
        check_number("weight_decay", self.weight_decay, low=0)
        check_number("decoupled_weight_decay", self.decoupled_weight_decay, low=0)
        check_number("adversarial_smoothing", self.adversarial_smoothing, low=0)
        check_choice("batching", self.batching, BATCHINGS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        given = [v is not None for v in (self.objective, self.targets, self.contrast)]
        if sum(given) != 1:
            allowed = "exactly one of objective, targets and contrast"
            raise invalid("objective", allowed, f"{sum(given)} of them")
        if self.targets is not None:
            shape = (self.bags.n_rows, self.bags.priors.n_classes)
            if np.shape(self.targets) != shape:
                raise invalid("targets", f"of shape {shape}", f"shape {np.shape(self.targets)}")
        if self.mixup and self.targets is None:
            raise invalid("mixup", "False without targets", True)
        if self.adversarial_smoothing and self.targets is None:
            raise invalid("adversarial_smoothing", "0 without targets", self.adversarial_smoothing)
        if self.mixup and self.batching != "shuffled":
            raise invalid("batching", "'shuffled' with mixup", repr(self.batching))
        if self.pseudo_labels is not None:
            if self.objective is None:
                raise invalid("pseudo_labels", "given with an objective", "targets")
            if self.predicted is None and not self.pseudo_labels.soft:
                raise invalid("predicted", "given together with pseudo_labels", "None")
            if self.augmentation is not None:
                allowed = "None with pseudo_labels, which have their own"
                raise invalid("augmentation", allowed, self.augmentation)
        if not any(p.requires_grad for p in self.module.parameters()):
            raise invalid("module", "one with parameters to train", "none that requires_grad")
        if self.test is not None:
            self._check_rows("test.X", self.test.X)
            self._check_labels(self.test)
        for name, part in (("held_out", self.held_out), ("predicted", self.predicted)):
            if part is not None:
                self._check_rows(f"{name}.X", part.source)
        if self.patience is not None:
            check_number("patience", self.patience, low=1, integer=True)
            if self.held_out is None:
                raise invalid("held_out", "given together with patience", "None")

    def _check_rows(self, name: str, rows: NDArray[np.generic] | torch.Tensor) -> None:
        row_shape = self.bags.row_shape
        if tuple(rows.shape[1:]) != row_shape:
            got = f"rows of shape {tuple(rows.shape[1:])}"
            raise invalid(name, f"of rows of shape {row_shape} as in training", got)
        # All lie in one array on the device, and bytes are scaled to [0, 1], other types not.
        types = [str(x.dtype).removeprefix("torch.") for x in (self.bags.source, rows)]
        if (types[0] == "uint8") != (types[1] == "uint8"):
            raise invalid(name, f"of type {types[0]} like the training rows", types[1])

    def _check_labels(self, test: TestSet) -> None:
        k = self.bags.priors.n_classes
        labels = np.asarray(test.y)
        if labels.shape != (len(test.X),) or len(labels) == 0:
            allowed = f"one class for each of the {len(test.X)} rows, at least one"
            raise invalid("test.y", allowed, f"an array of shape {labels.shape}")
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= k:
            raise invalid("test.y", f"whole numbers from 0 to {k - 1}", shorten(np.unique(labels)))

    @property
    def rows_per_batch(self) -> int:
        """Batch size, at most all rows."""
        return min(self.batch_size, self.bags.n_rows)

    @property
    def widths(self) -> list[int]:
        """How many numbers each layer makes of a row, about."""
        weights = [p for p in self.module.parameters() if p.ndim > 1]
        row = math.prod(self.bags.row_shape)
        images = any(p.ndim == 4 for p in weights)  # convolutions: channels times pixels
        return [p.shape[0] * row // 4 if images else p.shape[0] for p in weights]

    @property
    def is_adversarial(self) -> bool:
        """Whether training takes a forward pass of perturbed rows."""
        return self.adversarial_smoothing > 0 or isinstance(self.objective, ProportionConsistency)

    @cached_property
    def scored(self) -> dict[str, Scored]:
        """Rows whose error is recorded, by its name in the history."""
        parts = {}
        if self.test is not None:
            wrong = 1.0 - np.eye(self.bags.priors.n_classes)
            parts["test_error"] = Scored(self.test.X, None, np.asarray(self.test.y), wrong)
        if self.held_out is not None:
            bags = self.held_out
            table = error_table(bags.counts, bags.priors, self.test_prior)
            parts["label_free_error"] = Scored(bags.source, bags.rows, bags.bag_index, table)
        return parts

    @property
    def logit_shift(self) -> NDArray[np.float64] | None:
        """log(test prior / output prior), added to logits before an error is taken: (K,)."""
        if self.test_prior is None or self.output_prior is None:
            return None
        return prior_shift(self.test_prior, self.output_prior)

    @property
    def group(self) -> tuple[object, ...]:
        """Replicas with the same group can be trained as one stack."""
        return (
            *(part.metadata.get("stack", _same)(getattr(self, part.name)) for part in fields(self)),
            self.rows_per_batch,
            self.bags.n_rows // self.rows_per_batch,
            self.is_adversarial,
        )


def _same(value: object) -> object:
    return value

r"""crossfit: every row gets a soft label from its bag and networks of folds.

1. A start on all rows, by ``matched-likelihood``: the mean of the log-probabilities of three MLPs,
   which differ and are trained side by side; of five where Θ says little. Of other networks it is
   one, or three where Θ says little; a module of the user's is trained once. Residual networks see
   changed images, here and in the rounds.
2. Rounds. A row's soft label is its posterior given the bag,

   .. math:: q_{ik} \propto \eta_k(x_i) \, c_{mk}, \qquad \frac1{n_m} \sum_{i \in m} q_{ik} =
       \theta_{mk},

   with factors c of the bag that make the mean of its soft labels its shares; c = θ/p where η is
   the true posterior. Rows are split in folds, equal rows together. For each fold one network is
   trained on the soft labels of the other folds, with mixup where rows have many numbers (residual
   networks only where Θ says little), and predicts the rows of its own. The mean of the new
   log-probabilities, at their temperature, and those before gives the next soft labels. Where Θ
   says little that would crawl. There the new ones alone give the labels of the next round (the
   last network learns from the mean all the same), probabilities are squared before they are
   balanced, and MLPs may have six rounds instead of three.
3. Some rows are kept out of the trainings of all rounds. The likelihood of their bags gives
   temperatures, and when a round after the first makes it significantly worse (the second: much
   worse), that one is dropped and the rounds end. The start has these rows, since shares are known
   of whole bags only: on parts of bags it is far worse where Θ says little, and a network that sees
   the rest of a bag only through its shares learns to make up there for what it knows by heart.
4. One network is trained on the soft labels of all rows.

MLPs on images are smoothed: trained to say the same of rows that are moved by a share of their
spread, in the direction that changes their word most. That begins with the second round.
If this one is worse than the first, it is run again without, and so is all that follows (see
:mod:`unbag.methods.smoothing`).

It is EM on the bag likelihood with out-of-fold predictions, which hardly know a row's bag by
heart. Balanced factors use what plain EM leaves aside: that a bag as a whole has known shares.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import nn

from unbag.evaluation import Calibration
from unbag.identity import identify
from unbag.methods.jobs import (
    Fit,
    Job,
    matching_batch_size,
    prepare,
    says_little,
    tells_labels,
)
from unbag.methods.kept_out import KeptOut
from unbag.methods.recipes import (
    DESCENT,
    DESCENT_BATCH,
    balanced_posterior,
    descends,
    has_mirror_images,
    likelihood_gain,
    row_ratios,
    soft_batch,
    soft_decay,
    soft_epochs,
)
from unbag.methods.registry import METHODS
from unbag.methods.smoothing import Smoothing
from unbag.models import ResNet20, build_model
from unbag.priors import ClassPriors
from unbag.training import Augmentation, Outcome, Replica
from unbag.training.networks import is_batched
from unbag.validation import check_choice, check_number, invalid

__all__ = ["AUGMENTATIONS", "STARTS", "CrossFit"]

_Floats = NDArray[np.float64]
STARTS = ("matched-likelihood", "bag-likelihood", "u-prr")
AUGMENTATIONS = ("none", "weak", "strong")

# Of the start: at least so many steps and epochs, the latter two where bags are small.
_STEPS, _EPOCHS, _SMALL_BAG_STEPS, _SMALL_BAG_EPOCHS = 600, 40, 2000, 10
# Deep networks learn little in a few steps of large batches.
_DEEP_BATCH, _DEEP_EPOCHS = 2500, 80
_FOLDS, _FEW_FOLDS, _FAINT_FEW_FOLDS = 5, 2, 3  # few of networks that run one after another
_ROUNDS, _STEP = 3, 0.5  # half a step from the log-probabilities before to the new ones
# MLPs in the start; the latter where priors say little. Other networks: one, or there the former.
_START_NETWORKS, _FAINT_START_NETWORKS = 3, 5
# Where priors say little, rounds take whole steps, their labels are sharper, and there are more.
_MANY_ROUNDS, _SHARPENING = 6, 2.0
_FAINT_RATE, _FAINT_DECAY = 1e-3, 3e-3  # of the start of MLPs where priors say little
_START_RATE, _SOFT_RATE = 2e-3, 1e-3
_VALIDATION, _MOST_VALIDATION, _VALIDATION_ROWS = 0.1, 0.3, 200
_LEAST_RECORDS = 20  # or four for every fold; below, there are no rounds
_OF_START = 1000  # last of the numbers that tell a seed, where others have the fold
# Between two rows of few numbers there may lie the region of another class.
_MANY_NUMBERS = 8
_SMALLEST = 1e-30


@dataclass(frozen=True)
class _Options:
    """Hyperparameters of the procedure."""

    folds: int | None = None
    rounds: int | None = None
    start: str = "matched-likelihood"
    mixup: bool | None = None
    smoothing: float | None = None
    balanced: bool = True
    calibrated: bool = True
    augment: str | None = None

    def __post_init__(self) -> None:
        if self.folds is not None:
            check_number("folds", self.folds, low=2, integer=True)
        if self.rounds is not None:
            check_number("rounds", self.rounds, low=0, integer=True)
        if self.smoothing is not None:
            check_number("smoothing", self.smoothing, low=0)
        check_choice("start", self.start, STARTS)
        if self.augment is not None:
            check_choice("augment", self.augment, AUGMENTATIONS)
        for name in ("mixup", "balanced", "calibrated"):
            value = getattr(self, name)
            if not (isinstance(value, bool | np.bool_) or (name == "mixup" and value is None)):
                raise invalid(name, "True or False", repr(value))


class CrossFit:
    """The trainings of one job, in their order; what each needs comes from those before.

    ``start``, then ``round`` while not ``ended``, then ``last`` return what is to be trained; the
    outcomes go to ``take_start``, ``take_round`` and ``finish``.

    Parameters
    ----------
    job : Job
        With method ``crossfit``.
    precision : str
    """

    def __init__(self, job: Job, precision: str) -> None:
        if job.patience is not None:
            remedy = "its rounds end by themselves."
            raise invalid("early_stopping", "False with method='crossfit'", True, remedy)
        if job.loss != "cross-entropy":
            raise invalid("loss", "'cross-entropy' with method='crossfit'", repr(job.loss))
        given, options = job.hyperparameters, METHODS["crossfit"].options
        METHODS["crossfit"].check_hyperparameters(given)
        self.options = _Options(**{k: v for k, v in given.items() if k in options})
        self.job = job
        own = {k: v for k, v in given.items() if k not in options}
        if own and self.options.start != "matched-likelihood":
            allowed = f"left out with a start by {self.options.start}"
            raise invalid("matching", allowed, own["matching"])
        began = replace(job, method=self.options.start, hyperparameters=own)
        self._begun, (_, _, self._begun_prior) = prepare(began, precision)
        self._replica, self._priors = prepare(job, precision)
        bags = self._replica.bags
        self._table: ClassPriors = bags.priors
        self._pooled = self._priors[0]
        # MLPs are trained side by side, other networks one after another.
        self._dear = not is_batched(self._replica.module)
        whole = self._begun.batching == "whole-bags"  # then counts say more than shares
        self._faint = not whole and says_little(self._table.values)
        few = _FAINT_FEW_FOLDS if self._faint else _FEW_FOLDS
        self._folds = self.options.folds or (few if self._dear else _FOLDS)
        self._fold, self._kept_out = self._split()
        ratios = row_ratios(bags, self._pooled)[self._kept_out]
        self._jury = KeptOut(ratios, faint=self._faint)
        usual = _MANY_ROUNDS if self._faint and not self._dear else _ROUNDS
        self._most = usual if self.options.rounds is None else self.options.rounds
        self.rounds = 0  # accepted
        self._seconds = 0.0  # of all trainings so far
        self._pure = tells_labels(self._table.values)
        self.ended = self._pure or self._most == 0 or not self._kept_out.any()
        self._why = "all rounds were run"
        self._confirmation = ""
        wide = math.prod(bags.row_shape) >= _MANY_NUMBERS
        residual = isinstance(self._replica.module, ResNet20)
        # A small residual network learns less from mixed rows, unless labels are poor.
        mixed = wide and (self._faint or not residual)
        self._mixup = mixed if self.options.mixup is None else bool(self.options.mixup)
        self._layered = not self._dear and len(self._replica.widths) > 1
        share = self.options.smoothing
        self._smoothing = Smoothing(share, bags, layered=self._layered, whole=whole)
        self._weak = self._changed = None  # rows of the start, and of trainings on soft labels
        augment = self.options.augment or ("weak" if residual else "none")
        if augment != "none":
            if len(bags.row_shape) not in (2, 3):
                got = f"{augment!r} for rows of shape {bags.row_shape}"
                raise invalid("augment", "'none', or rows that are images (n, C, H, W)", got)
            flip = has_mirror_images(bags.row_shape)
            self._weak = Augmentation(flip=flip)
            self._changed = Augmentation(augment == "strong", flip)
        self._log_eta = np.zeros((bags.n_rows, self._table.n_classes))
        self._joint_log_eta = self._log_eta  # with half a step: what the last network learns from
        self._calibration: Calibration | None = None
        self.failed: Outcome | None = None

    def _split(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Fold of every row, and whether it is kept out; equal rows go together."""
        bags = self._replica.bags
        record = identify(bags.source, bags.rows)
        n = int(record.max()) + 1
        rng = np.random.default_rng(self.job.seed)
        order = rng.permutation(n)
        share = np.clip(_VALIDATION_ROWS / n, _VALIDATION, _MOST_VALIDATION)
        kept_out = order < (share * n if n >= max(_LEAST_RECORDS, 4 * self._folds) else 0)
        return (order % self._folds)[record], kept_out[record]

    # ------------------------------------------------------------------------------- the start

    def start(self) -> list[Replica]:
        """Return the replicas of the start; none where labels are known."""
        if self._pure:
            return []
        begun = self._begun
        bags, n = begun.bags, begun.bags.n_rows
        small = begun.batching == "whole-bags"
        own = begun.batch_size if small else matching_batch_size(n, self._table.values)
        steps, least = (_SMALL_BAG_STEPS, _SMALL_BAG_EPOCHS) if small else (_STEPS, _EPOCHS)
        deep = self._dear and not small
        batch = min(n, self.job.batch_size or (min(own, _DEEP_BATCH) if deep else own))
        if deep:
            steps = max(steps, _DEEP_EPOCHS * (n // batch))
        epochs = max(steps / (n // batch), least)
        decayed = self._faint and not self._dear
        first = replace(
            begun,
            batch_size=batch,
            epochs=max(1, round(self._haste() * epochs)),
            learning_rate=self.job.learning_rate or (_FAINT_RATE if decayed else _START_RATE),
            weight_decay=self._decay(_FAINT_DECAY if decayed else None),
            annealed=True,
            augmentation=self._weak,
            predicted=bags,
            test=None,
            held_out=None,
        )
        others = [
            replace(first, seed=seed, module=self._build(seed))
            for number in range(1, self._start_networks())
            for seed in [_seed(self.job.seed, number, _OF_START)]
        ]
        return [first, *others]

    def _start_networks(self) -> int:
        """How many networks the start is the mean of."""
        # A module of the user's brings its weights, and copies of one start differ too little.
        if isinstance(self.job.model, nn.Module):
            return 1
        if self._dear:
            return _START_NETWORKS if self._faint else 1
        return _FAINT_START_NETWORKS if self._faint else _START_NETWORKS

    def _build(self, seed: int) -> nn.Module:
        """Return a network with other initial weights."""
        job, shape = self.job, self._replica.bags.row_shape
        module = build_model(job.model, shape, self._table.n_classes, seed, **job.model_options)
        return module.to(next(self._replica.module.parameters()).dtype)

    def _decay(self, own: float | None) -> float:
        """Weight decay of the job, or the method's own where the job leaves it open."""
        given = self._replica.weight_decay
        return given if own is None or self.job.weight_decay is not None else own

    def _haste(self) -> float:
        """Share of the usual training that the job asks for."""
        if self.job.epochs is None:
            return 1.0
        return min(1.0, self.job.epochs / soft_epochs(self._replica.bags.n_rows))

    def take_start(self, outcomes: list[Outcome]) -> None:
        """Use the mean log-probabilities of the start."""
        if self._pure or self._give_up(outcomes):
            return
        parts = [log_softmax(o.logits, axis=1) for o in outcomes if o.logits is not None]
        from_prior, to_prior = (np.maximum(p, _SMALLEST) for p in (self._begun_prior, self._pooled))
        shift = np.log(to_prior) - np.log(from_prior)
        self._log_eta = self._joint_log_eta = log_softmax(np.mean(parts, 0) + shift, axis=1)

    def _give_up(self, outcomes: list[Outcome]) -> bool:
        """Whether a training diverged.

        That ends the job, and is what it comes to, but a round on trial is run again, not smoothed.
        """
        self._seconds += sum(outcome.seconds for outcome in outcomes)
        diverged = next((outcome for outcome in outcomes if outcome.diverged), None)
        if diverged is None:
            return False
        if self.rounds and self._smoothing.on_trial:
            self._smoothing.give_up()
        else:
            self.failed, self.ended = diverged, True
        return True

    # ------------------------------------------------------------------------------ the rounds

    def round(self) -> list[Replica]:
        """Return one replica a fold."""
        targets, bags = self._targets(self._log_eta), self._replica.bags
        parts = [
            np.flatnonzero((self._fold != fold) & ~self._kept_out) for fold in range(self._folds)
        ]
        batch = soft_batch(bags.n_rows, min(map(len, parts)))  # of all, for one stack
        smoothing = self._smoothing.radius if self.rounds else 0.0
        made = []
        for fold, rows in enumerate(parts):
            seed = _seed(self.job.seed, self.rounds, fold)
            own = bags.take(np.flatnonzero(self._fold == fold))
            replica = self._soft(rows, targets, seed, batch)
            made.append(replace(replica, smoothing=smoothing, predicted=own, test=None))
        return made

    def _targets(self, log_eta: _Floats) -> NDArray[np.float32]:
        replica = self._replica
        return balanced_posterior(
            log_eta * (_SHARPENING if self._faint else 1.0),
            replica.bags.bag_index,
            self._table.values,
            self._pooled,
            replica.sample_weight,
            balanced=self.options.balanced,
        )

    def _soft(
        self, rows: NDArray[np.int64], targets: NDArray[np.float32], seed: int, batch: int
    ) -> Replica:
        """Return a replica that learns soft labels of some rows."""
        replica, job, n = self._replica, self.job, len(rows)
        weight = replica.sample_weight
        bags = replica.bags if n == replica.bags.n_rows else replica.bags.take(rows)
        module = self._build(seed)
        optimizer: dict[str, Any] = {"learning_rate": job.learning_rate or _SOFT_RATE}
        if descends(module, replica.bags.n_rows, job.learning_rate):
            optimizer, batch = DESCENT, DESCENT_BATCH
        # Linear models have no normalisation that would undo the shrinking of their weights.
        decay = soft_decay(replica.bags.n_rows) if self._layered else None
        return replace(
            replica,
            bags=bags,
            objective=None,
            targets=targets[rows],
            module=module,
            seed=seed,
            sample_weight=None if weight is None else weight[rows],
            epochs=job.epochs or soft_epochs(replica.bags.n_rows),
            batch_size=job.batch_size or batch,
            batching="shuffled",
            annealed=True,
            weight_decay=self._decay(decay),
            mixup=self._mixup,
            augmentation=self._changed,
            held_out=None,
            risk_weights=None,
            **optimizer,
        )

    def take_round(self, outcomes: list[Outcome]) -> None:
        """Join predictions of all folds with those before, or end the rounds."""
        if self._give_up(outcomes):
            return
        log_eta = np.empty_like(self._log_eta)
        for fold, outcome in enumerate(outcomes):
            assert outcome.logits is not None
            log_eta[self._fold == fold] = log_softmax(outcome.logits, axis=1)
        jury, out = self._jury, self._kept_out
        temperature = jury.temperature(log_eta[out]) if self.options.calibrated else 1.0
        log_eta = log_softmax(log_eta / temperature, axis=1)
        losses = jury.losses(log_eta[out])
        # The start was trained on the rows that are kept out, so it is no measure.
        if self.rounds and jury.worse(losses, self.rounds):
            if self._smoothing.on_trial:
                self._smoothing.give_up()  # and run the round again
                return
            self.ended = True
            self._why = "the next made the bags of rows that were kept out less likely"
            return
        jury.compare_with(losses, self.rounds)
        self._confirmation = f"; {likelihood_gain(-losses)}"
        if self.rounds:
            self._smoothing.confirm()
        self._joint_log_eta = log_softmax((1 - _STEP) * self._log_eta + _STEP * log_eta, axis=1)
        self._log_eta = log_eta if self._faint else self._joint_log_eta
        self._calibration = Calibration(temperature, np.zeros(self._table.n_classes))
        self.rounds += 1
        self.ended = self.rounds == self._most

    # -------------------------------------------------------------------------------- the last

    def last(self) -> Replica:
        """Return the replica of the last training, on all rows."""
        rows = np.arange(self._replica.bags.n_rows)
        batch = soft_batch(len(rows), len(rows))
        made = self._soft(rows, self._targets(self._joint_log_eta), self.job.seed, batch)
        return replace(made, smoothing=self._smoothing.last, held_out=self._replica.held_out)

    def finish(self, outcome: Outcome) -> Fit:
        """Make the fit of the job."""
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        how = "with mixup" if self._mixup else "without mixup"
        if self._smoothing.last:
            how += " and smoothing" if self._mixup else " and with smoothing"
        reason = f"{rounds} {how} after a start by {self.options.start}: {self._why}"
        reason += self._confirmation
        if self._most == 0 or not self._kept_out.any():
            reason = f"no rounds after a start by {self.options.start}"
        if self._pure:
            reason = "every bag has one class, so this is supervised learning"
        reason = outcome.stop_reason if outcome.diverged else reason
        seconds = self._seconds + (0.0 if outcome is self.failed else outcome.seconds)
        ended = replace(outcome, stop_reason=reason, seconds=seconds)
        return Fit(ended, *self._priors, self._calibration)


def _seed(*numbers: int) -> int:
    """Return a seed that is told by several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])

"""The steps of cross-fitting for one job: start, rounds, last network."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import nn

from unbag.evaluation import Calibration
from unbag.identity import identify
from unbag.methods.base import Trainings
from unbag.methods.job import Job
from unbag.methods.kept_out import KeptOut
from unbag.methods.posterior import (
    HALF_TRUSTED_ROWS,
    balanced_posterior,
    describe_gains,
    row_ratios,
)
from unbag.methods.regimes import find_regime
from unbag.methods.single import UPRR, BagLikelihood, MatchedLikelihood, Prop, SingleTraining
from unbag.methods.sizes import (
    ADAM_RATE,
    are_pure,
    are_weak,
    kept_out_share,
    matching_batch_size,
)
from unbag.methods.smoothing import Smoothing
from unbag.methods.soft_labels import (
    DESCENT,
    DESCENT_BATCH,
    MIXUP_NUMBERS,
    has_mirror_images,
    learns_by_descent,
    soft_batch_size,
    soft_epochs,
    soft_weight_decay,
)
from unbag.models import is_convolutional
from unbag.priors import prior_shift
from unbag.training import Augmentation, Fit, Replica
from unbag.training.networks import is_batched
from unbag.validation import invalid

if TYPE_CHECKING:
    from unbag.methods.crossfit import CrossFit

__all__ = ["AUGMENTATIONS", "STARTS", "CrossFitting"]

_Floats = NDArray[np.float64]
STARTS: dict[str, type[SingleTraining]] = {
    kind.name: kind for kind in (MatchedLikelihood, BagLikelihood, UPRR, Prop)
}
AUGMENTATIONS = ("none", "weak", "strong")

# The least steps and epochs of the start, of large bags and of bags that are kept whole.
_STEPS, _EPOCHS, _SMALL_BAG_STEPS, _SMALL_BAG_EPOCHS = 600, 40, 2000, 10
# Networks that are not batched are deep ones, which learn little in a few steps of large batches.
_DEEP_BATCH, _DEEP_EPOCHS, _DEEP_SMALL_BAG_STEPS = 2500, 80, 7000
_LABEL_STEP = 0.5  # the last network learns from the mean of old and new log-probabilities
_KEPT_OUT = 0.1  # of the rows
_LEAST_RECORDS = 4  # per fold; below, there are no rounds
_START_STREAM = 1000  # the last number of a start's seed, where others have the fold
_TIME_SHARE = 0.5  # of the time left, with a time limit, for each stage before the last


class CrossFitting:
    """Steps of one job: start, rounds, last network."""

    def __init__(self, settings: "CrossFit", job: Job) -> None:
        self.settings = settings
        self.job = job
        self.bags = job.rows
        # All others are changes of it.
        self.replica = MatchedLikelihood().replica(job, output_prior=job.pooled_prior)
        self.is_sequential = not is_batched(self.replica.module)
        # In small bags single rows say so little that deep networks learn slowly from them.
        by_shares = job.keeps_bags_whole and is_convolutional(self.replica.module)
        self.start_name = settings.start or (Prop if by_shares else MatchedLikelihood).name
        matching = {} if settings.matching is None else {"matching": settings.matching}
        self.start_replica = STARTS[self.start_name](**matching).replica(job)
        self.has_hidden_layers = not self.is_sequential and len(self.replica.widths) > 1
        self.is_convolutional = is_convolutional(self.replica.module)
        self.is_pure = are_pure(job.theta)
        self.are_counted = job.bags.priors.shares_of == "rows"
        # Where bags are kept whole, counts say more than shares.
        is_weak = not job.keeps_bags_whole and are_weak(job.mixed_theta)
        self.regime = find_regime(weak_shares=is_weak, sequential=self.is_sequential)
        self.folds = settings.folds or self.regime.folds
        self.fold, self.kept_out = self._split()
        ratios = row_ratios(self.bags, job.pooled_prior)[self.kept_out]
        self.judge = KeptOut(ratios, self.regime)
        most = self.regime.rounds if settings.rounds is None else settings.rounds
        self.most_rounds = 0 if self.is_pure or not self.kept_out.any() else most
        self.n_accepted = 0
        is_wide = math.prod(self.bags.row_shape) >= MIXUP_NUMBERS
        is_poor = is_weak if self.is_convolutional else job.keeps_bags_whole
        by_default = is_wide and is_poor
        self.mixup = by_default if settings.mixup is None else bool(settings.mixup)
        self.smoothing = Smoothing(
            settings.adversarial_smoothing,
            self.bags,
            applies=self.has_hidden_layers and not job.keeps_bags_whole,
        )
        are_images = len(self.bags.row_shape) in (2, 3)
        usual = "weak" if self.is_convolutional and are_images else "none"
        augment = settings.augment or usual
        self.start_augmentation, self.soft_augmentation = self._augmentations(augment)
        self.log_eta = np.zeros((self.bags.n_rows, self.bags.priors.n_classes))
        self.final_log_eta = self.log_eta  # what the last network learns from
        self.calibration: Calibration | None = None
        self.why_ended = "All rounds were run."
        self.gains = ""
        self.seconds = 0.0  # of all trainings so far

    def trainings(self) -> Trainings:
        """Yield replicas, receive their fits, return the fit of the job."""
        if not self.is_pure:
            fits = yield self.start()
            if failed := self._diverged(fits):
                return self.finish(failed)
            self.use_start(fits)
        while self.n_accepted < self.most_rounds:
            fits = yield self.round()
            if fits[0] is None:
                self.why_ended = "The rounds ended because the time was up."
                break
            failed = self._diverged(fits)
            if failed and self._is_smoothing_on_trial():
                self.smoothing.give_up()  # and run the round again
            elif failed:
                return self.finish(failed)
            elif not self.use_round(fits):
                break
        (fit,) = yield [self.last()]
        self.seconds += fit.seconds
        return self.finish(fit)

    def _split(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Fold of every row, and whether it is kept out; equal rows go together."""
        record = identify(self.bags.source, self.bags.rows)
        n = int(record.max()) + 1
        order = np.random.default_rng(self.job.seed).permutation(n)
        kept_out = order < kept_out_share(n, _KEPT_OUT) * n
        kept_out &= n >= _LEAST_RECORDS * self.folds
        return (order % self.folds)[record], kept_out[record]

    def _augmentations(self, augment: str) -> tuple[Augmentation | None, Augmentation | None]:
        """Return changes of the rows of the start, and of trainings on soft labels."""
        if augment == "none":
            return None, None
        if len(self.bags.row_shape) not in (2, 3):
            got = f"{augment!r} for rows of shape {self.bags.row_shape}"
            raise invalid("augment", "'none', or rows that are images (n, C, H, W)", got)
        flip = has_mirror_images(self.bags.row_shape)
        return Augmentation(flip=flip), Augmentation(augment == "strong", flip)

    def _diverged(self, fits: list[Fit]) -> Fit | None:
        """Count the time of trainings, and find one that diverged."""
        self.seconds += sum(fit.seconds for fit in fits)
        return next((fit for fit in fits if fit.diverged), None)

    def _is_smoothing_on_trial(self) -> bool:
        return self.n_accepted > 0 and self.smoothing.is_on_trial

    def _weight_decay(self, usual: float | None) -> float:
        """Weight decay of the job, or the usual one of a stage where the job leaves it open."""
        if usual is None or self.job.weight_decay is not None:
            return self.replica.weight_decay
        return usual

    # ------------------------------------------------------------------------------- the start

    def start(self) -> list[Replica]:
        """Describe the networks of the start."""
        job, n = self.job, self.bags.n_rows
        steps, least, batch = _STEPS, _EPOCHS, matching_batch_size(n, job.mixed_theta)
        if job.keeps_bags_whole:
            steps, least, batch = _SMALL_BAG_STEPS, _SMALL_BAG_EPOCHS, self.start_replica.batch_size
            steps = _DEEP_SMALL_BAG_STEPS if self.is_convolutional else steps
        elif self.is_sequential:
            least, batch = _DEEP_EPOCHS, min(batch, _DEEP_BATCH)
        batch = min(n, job.batch_size or batch)
        epochs = max(steps / (n // batch), least)
        first = replace(
            self.start_replica,
            stage="start",
            time_share=_TIME_SHARE,
            batch_size=batch,
            epochs=max(1, round(self._share_of_usual_epochs() * epochs)),
            learning_rate=job.learning_rate or self._start_rate(),
            weight_decay=self._weight_decay(self.regime.start_decay),
            annealed=True,
            augmentation=self.start_augmentation,
            predicted=self.bags,
            test=None,
            held_out=None,
        )
        # A module of the user's brings its weights, and copies of one start differ too little.
        count = 1 if isinstance(job.model, nn.Module) else self.regime.start_networks
        seeds = [_seed(job.seed, number, _START_STREAM) for number in range(1, count)]
        ahead = self._work_ahead(self.most_rounds) / (count * first.epochs * n)
        first = replace(first, ahead=ahead)
        return [first, *(replace(first, seed=s, module=job.network(s)) for s in seeds)]

    def _start_rate(self) -> float:
        by_shares = self.start_name == Prop.name
        return ADAM_RATE if by_shares else self.regime.start_rate

    def _share_of_usual_epochs(self) -> float:
        if self.job.epochs is None:
            return 1.0
        return min(1.0, self.job.epochs / soft_epochs(self.bags.n_rows))

    def use_start(self, fits: list[Fit]) -> None:
        """Take the mean log-probabilities of the start."""
        parts = [log_softmax(fit.logits, axis=1) for fit in fits]
        assert self.start_replica.output_prior is not None
        shift = prior_shift(self.job.pooled_prior, self.start_replica.output_prior)
        self.log_eta = self.final_log_eta = log_softmax(np.mean(parts, 0) + shift, axis=1)

    # ------------------------------------------------------------------------------ the rounds

    @property
    def _soft_epochs(self) -> int:
        return self.job.epochs or soft_epochs(self.bags.n_rows, self.job.longer)

    @property
    def _round_work(self) -> float:
        """Epochs × rows of one round."""
        return self._soft_epochs * (self.folds - 1) * float(np.count_nonzero(~self.kept_out))

    def _work_ahead(self, rounds: int) -> float:
        """Epochs × rows of so many rounds and the last network."""
        return rounds * self._round_work + self._soft_epochs * self.bags.n_rows

    def round(self) -> list[Replica]:
        """Describe one network per fold."""
        targets = self._targets(self.log_eta)
        trained = [
            np.flatnonzero((self.fold != fold) & ~self.kept_out) for fold in range(self.folds)
        ]
        batch = soft_batch_size(self.bags.n_rows, min(map(len, trained)))  # of all, for one stack
        return [
            replace(
                self._soft(rows, targets, _seed(self.job.seed, self.n_accepted, fold), batch),
                stage=f"round {self.n_accepted + 1}",
                time_share=_TIME_SHARE,
                time_needed=2.0,  # and as much for the last network
                ahead=self._work_ahead(self.most_rounds - self.n_accepted - 1) / self._round_work,
                adversarial_smoothing=self.smoothing.radius if self.n_accepted else 0.0,
                predicted=self.bags.take(np.flatnonzero(self.fold == fold)),
                test=None,
            )
            for fold, rows in enumerate(trained)
        ]

    def _targets(self, log_eta: _Floats) -> NDArray[np.float32]:
        """Soft labels of all rows: (n, K)."""
        return balanced_posterior(
            log_eta * self.regime.sharpening,
            self.bags.bag_index,
            self.job.theta,
            self.job.pooled_prior,
            self.job.weight,
            balanced=self.settings.balanced,
            half_trusted_rows=0.0 if self.are_counted else HALF_TRUSTED_ROWS,
            noisy=self.job.noisy_shares,
        )

    def _soft(
        self, rows: NDArray[np.int64], targets: NDArray[np.float32], seed: int, batch: int
    ) -> Replica:
        """Describe a training on the soft labels of some rows."""
        job, n, weight = self.job, self.bags.n_rows, self.job.weight
        module = job.network(seed)
        optimizer: dict[str, Any] = {"learning_rate": job.learning_rate or ADAM_RATE}
        if learns_by_descent(module, n, job.learning_rate):
            optimizer, batch = DESCENT, DESCENT_BATCH
        # Linear models have no normalisation that would undo the shrinking of their weights.
        usual_decay = soft_weight_decay(n) if self.has_hidden_layers else None
        return replace(
            self.replica,
            bags=self.bags if len(rows) == n else self.bags.take(rows),
            objective=None,
            targets=targets[rows],
            module=module,
            seed=seed,
            sample_weight=None if weight is None else weight[rows],
            epochs=self._soft_epochs,
            batch_size=job.batch_size or batch,
            batching="shuffled",
            annealed=True,
            weight_decay=self._weight_decay(usual_decay),
            mixup=self.mixup,
            augmentation=self.soft_augmentation,
            held_out=None,
            risk_weights=None,
            **optimizer,
        )

    def use_round(self, fits: list[Fit]) -> bool:
        """Join the predictions of all folds with earlier ones; return False if rounds end here."""
        log_eta = np.empty_like(self.log_eta)
        for fold, fit in enumerate(fits):
            log_eta[self.fold == fold] = log_softmax(fit.logits, axis=1)
        judge, kept_out = self.judge, self.kept_out
        temperature = judge.temperature(log_eta[kept_out]) if self.settings.calibrated else 1.0
        log_eta = log_softmax(log_eta / temperature, axis=1)
        losses = judge.losses(log_eta[kept_out])
        # The start was trained on the rows that are kept out, so the first round has no judge.
        if self.n_accepted and judge.is_worse(losses, self.n_accepted):
            if self.smoothing.is_on_trial:
                self.smoothing.give_up()  # and run the round again
                return True
            self.why_ended = (
                "Training stopped because another round did not improve the fit on held-out rows."
            )
            return False
        judge.accept(losses, self.n_accepted)
        self.gains = describe_gains(-losses)
        if self.n_accepted:
            self.smoothing.confirm()
        self.final_log_eta = _between(self.log_eta, log_eta, _LABEL_STEP)
        self.log_eta = _between(self.log_eta, log_eta, self.regime.step)
        self.calibration = Calibration(temperature, np.zeros(log_eta.shape[1]))
        self.n_accepted += 1
        return True

    # -------------------------------------------------------------------------------- the last

    def last(self) -> Replica:
        """Describe the last training, on all rows."""
        n = self.bags.n_rows
        targets = self._targets(self.final_log_eta)
        return replace(
            self._soft(np.arange(n), targets, self.job.seed, soft_batch_size(n, n)),
            stage="last network",
            adversarial_smoothing=self.smoothing.final_radius,
            held_out=self.job.held_out,
        )

    def finish(self, fit: Fit) -> Fit:
        """Make the fit of the job from its last training, or from one that diverged."""
        if not fit.diverged:
            fit = replace(fit, stop_reason=self._describe(), calibration=self.calibration)
        priors = {name: getattr(self.replica, name) for name in _PRIORS}
        return replace(fit, seconds=self.seconds, **priors)

    def _describe(self) -> str:
        if self.is_pure:
            return "Every bag has one class, so this is supervised learning."
        if not self.n_accepted:
            return f"Trained on soft labels from {self.start_name}, without rounds."
        rounds = "1 round" if self.n_accepted == 1 else f"{self.n_accepted} rounds"
        options = {"mixup": self.mixup, "adversarial smoothing": bool(self.smoothing.final_radius)}
        parts = [rounds, *(name for name, used in options.items() if used)]
        text = f"Trained with cross-fitting ({', '.join(parts)}). {self.why_ended}"
        return f"{text} {self.gains}"


_PRIORS = ("pooled_prior", "test_prior", "output_prior")


def _between(old: _Floats, new: _Floats, step: float) -> _Floats:
    """Log-probabilities at a share of the way from old to new ones."""
    return new if step == 1 else log_softmax((1 - step) * old + step * new, axis=1)


def _seed(*numbers: int) -> int:
    """Return a seed that depends on all of these numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])

"""``self-training``: features without labels, a start by counts, and labels of a teacher.

For deep networks and images in small bags. A bag says little about a single row, so a network that
starts from random weights learns slowly, and one that is taught by itself too early is taught its
own errors. Each stage begins with what the one before has learned:

1. Features: two views of an image are to look alike, and views of two images are not. Bags play no
   part, so that this works as well in large bags as in small ones.
2. A start by ``prop`` on whole bags, or by ``matched-likelihood`` where bags are not small. The
   less bags say, the slower it changes the features.
3. A teacher, the moving average of the network, gives every row a soft label; those of a bag add up
   to its counts. The network learns these labels and the counts at once, on changed rows.
4. A last network learns the teacher's labels of all rows.

Some bags are kept out of the last two stages. The temperature makes their counts likeliest.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_softmax
from torch import nn

from unbag.methods.base import Method, Trainings
from unbag.methods.consistency import calibrate, keep_out
from unbag.methods.job import Job
from unbag.methods.posterior import HALF_TRUSTED_ROWS, balanced_posterior
from unbag.methods.single import CountLikelihood, MatchedLikelihood, Prop
from unbag.methods.sizes import ADAM_RATE, LEAST_BATCH, noise_of_shares
from unbag.methods.soft_labels import DESCENT, has_mirror_images, learns_by_descent, soft_epochs
from unbag.models import is_convolutional, is_normalized, take_features, with_projector
from unbag.training import Augmentation, Contrast, Fit, PseudoLabels, Replica
from unbag.validation import check_flag, invalid

__all__ = ["SelfTraining"]

_START_STEPS, _STEPS_FROM_FEATURES = 7000, 2000
_FEATURE_ROWS = 10_000
_FEATURE_NOISE = 16.0  # of shares, from which on a start changes features less than the last layer
_TEACHER_LONGER = 2.5
_STEADY_RATE = 0.03  # of gradient descent, for a network that has learned already
_RATE = 2e-3  # of Adam
_LAST_BATCH = 256
_TIME_SHARE = 0.5  # of the time left, with a time limit, for each stage before the last


@dataclass(frozen=True)
class SelfTraining(Method):
    """Features without labels, a start by counts, and labels of a teacher; None means a default.

    Parameters
    ----------
    features : bool, optional
        Whether features are learned first. By default they are by convolutional networks from
        10,000 rows on, but not where the network is a module, which brings weights of its own.
    strong : bool, optional
        Whether images are changed strongly when the network learns from the teacher. By default
        they are for networks with batch normalisation; small networks learn less from such images.

    Examples
    --------
    >>> SelfTraining(features=False).settings
    {'features': False, 'strong': None}
    """

    name = "self-training"
    summary = "features without labels, a start by counts, then labels from a teacher network"
    features: bool | None = None
    strong: bool | None = None

    def __post_init__(self) -> None:
        for name in ("features", "strong"):
            if getattr(self, name) is not None:
                check_flag(name, getattr(self, name))

    def check(self, job: Job) -> None:
        """Refuse early stopping and other losses."""
        if job.patience is not None:
            remedy = "its stages end by themselves."
            raise invalid("early_stopping", "False with method='self-training'", True, remedy)
        if job.loss != "cross-entropy":
            raise invalid("loss", "'cross-entropy' with method='self-training'", repr(job.loss))

    def epochs(self, job: Job) -> int:
        """Epochs of the last network, and of the features; the teacher has 2.5 times as many."""
        return soft_epochs(job.rows.n_rows, job.longer)

    def fit(self, job: Job) -> Trainings:
        """Yield the features, the start, the teacher and the last network."""
        return _Stages(self, job).trainings()


def feature_replica(
    job: Job, projected: nn.Module, epochs: int, optimizer: dict[str, Any]
) -> Replica:
    """Describe the training of features from the rows of a job."""
    return replace(
        Prop().replica(job),
        stage="features",
        module=projected,
        objective=None,
        contrast=Contrast(flip=has_mirror_images(job.rows.row_shape)),
        epochs=epochs,
        batch_size=min(LEAST_BATCH, job.rows.n_rows),
        batching="shuffled",
        annealed=True,
        test=None,
        held_out=None,
        risk_weights=None,
        **optimizer,
    )


class _Stages:
    """Stages of one job."""

    def __init__(self, settings: SelfTraining, job: Job) -> None:
        self.job = job
        self.bags = job.rows
        self.module = job.network()
        self.flip = has_mirror_images(self.bags.row_shape)
        self.by_descent = learns_by_descent(self.module, self.bags.n_rows, job.learning_rate)
        self.has_features = isinstance(job.model, nn.Module)
        usual = (
            is_convolutional(self.module)
            and self.bags.n_rows >= _FEATURE_ROWS
            and not self.has_features
        )
        self.learns_features = usual if settings.features is None else settings.features
        self.strong = is_normalized(self.module) if settings.strong is None else settings.strong
        kind = Prop if job.keeps_bags_whole else MatchedLikelihood
        self._start_replica = kind().replica(job)
        self.kept_out = keep_out(job)
        self.epochs = job.epochs or soft_epochs(self.bags.n_rows, job.longer)
        self.seconds = 0.0

    def trainings(self) -> Trainings:
        """Yield replicas, receive their fits, return the fit of the job."""
        projected = with_projector(self.module, self.job.seed) if self.learns_features else None
        if projected is not None:
            fit = yield from self._train(self.features(projected))
            if fit.diverged:
                return self.finish(fit)
            self.module, self.has_features = take_features(self.module, fit.module), True
        fit = yield from self._train(self.start(self.module))
        if fit.diverged:
            return self.finish(fit)
        teacher = yield from self._train(self.teacher(fit.module))
        if teacher.diverged:
            return self.finish(teacher)
        replica = self.last(self.module, teacher)
        last = yield from self._train(replica)
        return self.finish(
            last if last.diverged else calibrate(replica, last, by_counts=self.job.keeps_bags_whole)
        )

    def _train(self, replica: Replica) -> Generator[list[Any], list[Any], Fit]:
        costs = self._costs()
        place = list(costs).index(replica.stage)
        later = sum(list(costs.values())[place + 1 :])
        share = _TIME_SHARE if later else 1.0
        ahead = later / costs[replica.stage]
        (fit,) = yield [replace(replica, ahead=ahead, time_share=share)]
        self.seconds += fit.seconds
        assert isinstance(fit, Fit)
        return fit

    def finish(self, fit: Fit) -> Fit:
        """Give the fit the time of all stages."""
        return replace(fit, seconds=self.seconds)

    # ------------------------------------------------------------------------------ the stages

    def features(self, projected: nn.Module) -> Replica:
        """Describe the training of features, through another last layer."""
        optimizer = self._optimizer(DESCENT["learning_rate"])
        return feature_replica(self.job, projected, self.epochs, optimizer)

    def start(self, module: nn.Module) -> Replica:
        """Describe the training on shares of bags; random weights learn from plain rows."""
        job = self.job
        slower = min(1.0, _FEATURE_NOISE / noise_of_shares(job.theta)) if self.has_features else 1.0
        return replace(
            self._start_replica,
            stage="start",
            module=module,
            epochs=self._start_epochs(),
            learning_rate=job.learning_rate or ADAM_RATE,
            backbone_rate=min(job.backbone_rate, slower),
            augmentation=Augmentation(flip=self.flip) if self.has_features else None,
            annealed=True,
        )

    def teacher(self, module: nn.Module) -> Replica:
        """Describe the training on counts and on labels of a teacher."""
        kind = CountLikelihood if self.job.keeps_bags_whole else MatchedLikelihood
        return replace(
            self._of_part(kind().replica(self.job)),
            stage="teacher",
            module=module,
            predicted=self.bags,
            pseudo_labels=PseudoLabels(flip=self.flip, soft=True, strong=self.strong),
            epochs=round(_TEACHER_LONGER * self.epochs),
            annealed=True,
            **self._optimizer(_STEADY_RATE),
        )

    def last(self, module: nn.Module, teacher: Fit) -> Replica:
        """Describe the training on the soft labels of the teacher."""
        job = self.job
        are_counted = job.bags.priors.shares_of == "rows"
        targets = balanced_posterior(
            log_softmax(teacher.logits, axis=1),
            self.bags.bag_index,
            job.theta,
            job.pooled_prior,
            job.weight,
            half_trusted_rows=0.0 if are_counted else HALF_TRUSTED_ROWS,
            noisy=job.noisy_shares,
        )
        return replace(
            self._of_part(MatchedLikelihood().replica(job, output_prior=job.pooled_prior)),
            stage="last network",
            module=module,
            objective=None,
            targets=targets[~self.kept_out],
            predicted=self.bags.take(np.flatnonzero(self.kept_out)),
            batch_size=job.batch_size or _LAST_BATCH,
            batching="shuffled",
            epochs=self.epochs,
            augmentation=Augmentation(flip=self.flip),
            annealed=True,
            risk_weights=None,
            **self._optimizer(DESCENT["learning_rate"]),
        )

    def _of_part(self, replica: Replica) -> Replica:
        """Change a replica to the bags that are not kept out."""
        rows, weight = np.flatnonzero(~self.kept_out), self.job.weight
        sample_weight = None if weight is None else weight[rows]
        return replace(replica, bags=self.bags.take(rows), sample_weight=sample_weight)

    def _start_epochs(self) -> int:
        """Epochs of the start, fewer where the job is given fewer than usual."""
        learned = self.has_features or self.learns_features
        steps = _STEPS_FROM_FEATURES if learned else _START_STEPS
        usual = soft_epochs(self.bags.n_rows)
        share = 1.0 if self.job.epochs is None else min(1.0, self.job.epochs / usual)
        return max(1, round(share * steps * self._start_replica.batch_size / self.bags.n_rows))

    def _costs(self) -> dict[str, float]:
        """About how many passes of all rows each stage takes, forward and back."""
        return {
            "features": 2.0 * self.epochs,
            "start": float(self._start_epochs()),
            "teacher": 1.5 * _TEACHER_LONGER * self.epochs,
            "last network": float(self.epochs),
        }

    def _optimizer(self, rate: float) -> dict[str, Any]:
        if self.by_descent:
            return DESCENT | {"learning_rate": rate}
        return {"learning_rate": self.job.learning_rate or _RATE}

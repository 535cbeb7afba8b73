"""``consistency``: one training on augmented rows, with pseudo-labels of a teacher."""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from unbag.evaluation import Calibration, likeliest_temperature, likeliest_temperature_by_counts
from unbag.identity import identify
from unbag.methods.base import Method, Trainings
from unbag.methods.job import Job
from unbag.methods.posterior import describe_gains, log_gains, row_ratios
from unbag.methods.single import CountLikelihood, MatchedLikelihood, SingleTraining
from unbag.methods.sizes import (
    ADAM_RATE,
    LEAST_BATCH,
    are_weak,
    kept_out_share,
    limited_epochs,
    matching_batch_size,
)
from unbag.methods.soft_labels import (
    DESCENT,
    DESCENT_BATCH,
    has_mirror_images,
    learns_by_descent,
)
from unbag.training import Fit, PseudoLabels, Replica
from unbag.validation import invalid

__all__ = ["Consistency", "calibrate", "keep_out"]

_KEPT_OUT = 0.05
_STEPS, _FEW_EPOCHS, _MANY_EPOCHS = 10_000, 60, 200
_LONGER = {"fast": 0.25, "balanced": 1.0, "best": 2.0}
_ADAM = {"learning_rate": 2e-3, "decoupled_weight_decay": 0.05}


@dataclass(frozen=True)
class Consistency(Method):
    """A likelihood of bags on augmented rows, with pseudo-labels of a teacher.

    Parameters
    ----------
    purity : float
        Share of the pseudo-labels that should be right, according to the calibrated network.
    threshold : float, optional
        Fixed confidence that a label needs; by default it follows from ``purity``.
    teacher : bool
        Whether a moving average of the network gives the labels; otherwise the network does.
    balanced : bool
        Whether the mean label of a bag is held at its shares.
    flip : bool, optional
        Whether images may be mirrored, left for right; by default colour images are.
    weight : float
        Weight of the loss on pseudo-labels.
    matching : float, optional
        Weight of the distance of mean posteriors from the shares; by default that of
        ``matched-likelihood``, but 0 by gradient descent, whose steps are too large for it.
    """

    name = "consistency"
    summary = "likelihood of the bags on augmented rows, with pseudo-labels from a teacher network"
    is_single: ClassVar[bool] = True
    purity: float = 0.95
    threshold: float | None = None
    teacher: bool = True
    balanced: bool = True
    flip: bool | None = None
    weight: float = 1.0
    matching: float | None = None

    def __post_init__(self) -> None:
        self._pseudo_labels(flip=False)

    def _pseudo_labels(self, *, flip: bool) -> PseudoLabels:
        known = {field.name for field in fields(PseudoLabels)}
        settings = {name: value for name, value in self.settings.items() if name in known}
        return PseudoLabels(**settings | ({"flip": flip} if self.flip is None else {}))

    def epochs(self, job: Job) -> int:
        """10,000 steps, but 60 to 200 epochs; a quarter or twice as many by the effort."""
        return self._replica(replace(job, epochs=None)).epochs

    def fit(self, job: Job) -> Trainings:
        """Train once, and set the temperature by the bags of rows that were kept out."""
        replica = self._replica(job)
        fits: list[Fit] = yield [replica]
        if fits[0].diverged:
            return fits[0]
        return calibrate(replica, fits[0], by_counts=job.keeps_bags_whole)

    def _replica(self, job: Job) -> Replica:
        """Describe the one training: some rows are kept out, the others have pseudo-labels."""
        bags = job.rows
        n_rows = bags.n_rows
        whole = job.keeps_bags_whole
        by_descent = (
            learns_by_descent(job.network(), n_rows, job.learning_rate)
            and self.matching is None
            and not whole
            and not are_weak(job.theta)
        )
        matching = 0.0 if by_descent else self.matching
        method: SingleTraining = (
            MatchedLikelihood() if matching is None else MatchedLikelihood(matching)
        )
        if whole and self.matching is None:
            method = CountLikelihood()
        replica = method.replica(job)
        kept_out = keep_out(job)
        trained = int((~kept_out).sum())
        batch = replica.batch_size
        if by_descent:
            batch = DESCENT_BATCH
        elif not whole:
            batch = max(LEAST_BATCH, min(matching_batch_size(n_rows, job.theta), n_rows // 10))
        batch = job.batch_size or min(batch, trained)
        weight = job.weight
        given = {} if job.learning_rate is None else {"learning_rate": job.learning_rate}
        adam = _ADAM | ({"learning_rate": ADAM_RATE} if whole else {})
        optimizer: dict[str, Any] = DESCENT if by_descent else adam | given
        return replace(
            replica,
            bags=bags.take(np.flatnonzero(~kept_out)),
            predicted=bags.take(np.flatnonzero(kept_out)),
            sample_weight=None if weight is None else weight[~kept_out],
            pseudo_labels=self._pseudo_labels(flip=has_mirror_images(bags.row_shape)),
            batch_size=batch,
            epochs=job.epochs or self._usual_epochs(trained, batch, job.effort),
            annealed=True,
            **optimizer,
        )

    @staticmethod
    def _usual_epochs(n_rows: int, batch: int, effort: str) -> int:
        longer = _LONGER[effort]
        few, many = (max(1, round(longer * epochs)) for epochs in (_FEW_EPOCHS, _MANY_EPOCHS))
        return limited_epochs(round(longer * _STEPS), n_rows, batch, few, many)


def keep_out(job: Job) -> NDArray[np.bool_]:
    """Choose the rows that are kept out: equal rows together, or whole bags."""
    bags = job.rows
    # Shares of a small bag are known for the whole bag only.
    unit = bags.bag_index if job.keeps_bags_whole else identify(bags.source, bags.rows)
    n = int(unit.max()) + 1
    share = kept_out_share(bags.n_rows, _KEPT_OUT)
    order = np.random.default_rng(job.seed).permutation(n)
    kept_out = np.asarray((order < share * n)[unit])
    if kept_out.all():
        raise invalid("bags", "at least two different rows", f"{n}")
    return kept_out


def calibrate(replica: Replica, fit: Fit, *, by_counts: bool) -> Fit:
    """Find the temperature on the rows kept out, and say how well their bags are predicted.

    With ``by_counts`` it is the one at which the class counts of whole bags are likeliest.
    """
    assert replica.predicted is not None
    assert replica.output_prior is not None
    assert fit.logits is not None
    bags = replica.predicted
    ratios = row_ratios(bags, replica.output_prior)
    logits, ratio = torch.from_numpy(fit.logits), torch.from_numpy(ratios)
    if by_counts:
        index, theta = torch.tensor(bags.bag_index), torch.tensor(bags.priors.values)
        temperature = float(likeliest_temperature_by_counts(logits, index, theta))
    else:
        temperature = float(likeliest_temperature(logits, ratio))
    gains = log_gains(log_softmax(fit.logits / temperature, axis=1), ratios)
    return replace(
        fit,
        calibration=Calibration(temperature, np.zeros(ratios.shape[1])),
        stop_reason=f"Trained with pseudo-labels. {describe_gains(gains)}",
    )

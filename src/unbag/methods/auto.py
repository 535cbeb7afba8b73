"""``auto``: the method that suits bags and network, by rules that can be read and printed."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from unbag.learners import check_learner
from unbag.methods.base import Method, Trainings
from unbag.methods.consistency import Consistency
from unbag.methods.crossfit import CrossFit
from unbag.methods.job import Job
from unbag.methods.self_training import SelfTraining
from unbag.methods.single import UPRR, BagLikelihood, MatchedLikelihood
from unbag.methods.sizes import are_pure, are_weak, choose_batching
from unbag.methods.tables import Tables
from unbag.models import IMAGE_MODELS, MLP_DEFAULTS, is_convolutional, is_normalized

__all__ = ["Auto"]

_MOST_ROWS = 200_000


@dataclass(frozen=True)
class Auto(Method):
    """The method that suits bags and network; the first rule that holds decides.

    1. A learner is given: ``tables`` with it.
    2. The loss is not cross-entropy: ``u-prr``, since the likelihoods need cross-entropy.
    3. Every bag has one class: ``bag-likelihood``, which is then plain cross-entropy.
    4. Training stops early, or goes on from the last fit: ``matched-likelihood``, a method of one
       training.
    5. Rows are a table of at most 200,000, and nothing about a network is asked for (``model``, its
       sizes, epochs, batch size, learning rate and weight decay are at their defaults): ``tables``.
    6. The network is convolutional, given by name or as a module, and bags are small:
       ``self-training``. If bags are not small, shares are not weak, and the network has batch
       normalisation: ``consistency``, one training on augmented images.
    7. There are more than 200,000 rows: ``matched-likelihood``, since the 11 to 19 trainings or
       more of ``crossfit`` take long, and its soft labels gain least where rows are many.
    8. Otherwise ``crossfit``.

    Parameters
    ----------
    one_training : bool
        Whether methods of more than one training are ruled out.
    learner : str or classifier, optional
        That of ``tables``, which is chosen then.

    Examples
    --------
    >>> import numpy as np, unbag
    >>> from unbag.methods import Job
    >>> X, y = np.eye(4).repeat(50, 0)[:, :3], np.repeat([0, 0, 1, 1], 50)
    >>> bags = unbag.make_bags(X, y, [[0.9, 0.1], [0.2, 0.8]], random_state=0)
    >>> method, reason = Auto().choose(Job(bags))
    >>> method.name, reason
    ('tables', 'rows are a table, and no setting of a network was given')
    >>> Auto().choose(Job(bags, epochs=50))[0].name
    'crossfit'
    >>> Auto().choose(Job(unbag.Bags(X, y, np.eye(2))))[0].name
    'bag-likelihood'
    """

    name = "auto"
    summary = "chooses one of these methods, to suit the bags and the network"
    is_single: ClassVar[bool] = True  # where it has to be
    one_training: bool = False
    learner: Any = None

    def __post_init__(self) -> None:
        if self.learner is not None:
            check_learner(self.learner)

    def choose(self, job: Job) -> tuple[Method, str]:
        """Return the method and the reason for it."""
        if self.learner is not None:
            return Tables(learner=self.learner), "a learner was given"
        if job.loss != "cross-entropy":
            return UPRR(), "the loss is not cross-entropy"
        n = job.rows.n_rows
        flat = len(job.rows.row_shape) == 1 and n <= _MOST_ROWS and not _asks_for_network(job)
        if job.labels is not None:
            return Tables() if flat else CrossFit(), "some rows have labels"
        if are_pure(job.theta):
            return BagLikelihood(), "every bag has one class, so this is supervised learning"
        if self.one_training or job.patience is not None:
            return MatchedLikelihood(), "training stops early, or goes on from the last fit"
        if flat:
            return Tables(), "rows are a table, and no setting of a network was given"
        are_small = choose_batching(job.rows.counts) == "whole-bags"
        if are_small and len(job.rows.row_shape) > 1 and is_convolutional(job.network()):
            return SelfTraining(), "the network is convolutional, and bags are small"
        if not are_small and not are_weak(job.theta) and _is_deep(job):
            return Consistency(), "the network is convolutional, and bags differ enough"
        if n > _MOST_ROWS:
            return MatchedLikelihood(), f"bags mix classes and have {n:,} rows, over {_MOST_ROWS:,}"
        return CrossFit(), f"bags mix classes and have {n:,} rows in all"

    def check(self, job: Job) -> None:
        """Check the job by the method that is chosen."""
        self.choose(job)[0].check(job)

    def epochs(self, job: Job) -> int:
        """Epochs of the method that is chosen."""
        return self.choose(job)[0].epochs(job)

    def shorten(self, job: Job, share: float) -> Job:
        """Shorten the method that is chosen for the whole."""
        return self.choose(job)[0].shorten(job, share)

    def fit(self, job: Job) -> Trainings:
        """Yield the trainings of the method that is chosen."""
        method, _ = self.choose(job)
        fit = yield from method.fit(job)
        return replace(fit, method=method.name, settings=method.settings)


def _asks_for_network(job: Job) -> bool:
    """Whether a setting that only networks have is not at its default."""
    numbers = (job.epochs, job.batch_size, job.learning_rate, job.weight_decay)
    sizes = job.model_options.items() <= MLP_DEFAULTS.items()
    return job.model != "mlp" or not sizes or any(number is not None for number in numbers)


def _is_deep(job: Job) -> bool:
    """Whether the network is convolutional, with batch normalisation."""
    if isinstance(job.model, str) and job.model not in IMAGE_MODELS:
        return False
    module = job.network()
    return is_convolutional(module) and is_normalized(module)

"""Methods that train once on one objective: the eight of the paper, and two likelihoods."""

from dataclasses import dataclass
from typing import Any, ClassVar

from unbag.methods.base import Method, Trainings
from unbag.methods.job import Job
from unbag.methods.sizes import matching_batch_size
from unbag.objectives import OBJECTIVES, Objective
from unbag.training import Fit, Replica

__all__ = [
    "UPRR",
    "BagLikelihood",
    "Biased",
    "CountLikelihood",
    "MatchedLikelihood",
    "Prop",
    "PropCR",
    "SingleTraining",
    "UCorrect",
    "UFlood",
    "UStop",
    "Unbiased",
]


@dataclass(frozen=True)
class SingleTraining(Method):
    """Base of methods that train once; their fields are the settings of the objective."""

    is_single: ClassVar[bool] = True
    objective: ClassVar[type[Objective]]

    def __init_subclass__(cls, **options: Any) -> None:
        """Take the objective with the name of the method, unless the class sets one."""
        super().__init_subclass__(**options)
        if "name" in vars(cls) and "objective" not in vars(cls):
            cls.objective = OBJECTIVES[cls.name]
        if hasattr(cls, "objective"):
            cls.needs_rank = cls.objective.needs_rank

    def replica(self, job: Job, **changes: Any) -> Replica:
        """Describe the one training."""
        if self.needs_rank:
            changes = {"output_prior": job.target_prior, **changes}
        return job.replica(self.build_objective(job), **changes)

    def build_objective(self, job: Job) -> Objective:
        """Build the objective for the bags of a job."""
        return job.objective(self.objective, **self.settings)

    def fit(self, job: Job) -> Trainings:
        """Train once."""
        fits: list[Fit] = yield [self.replica(job)]
        return fits[0]


@dataclass(frozen=True)
class Biased(SingleTraining):
    """Every row is labelled with the largest class of its bag."""

    name = "biased"
    summary = "every row has the most common class of its bag as its label"

    def build_objective(self, job: Job) -> Objective:
        """Build the objective; shuffled batches count the rows that they have, as in the paper."""
        shares = {"bag_shares": None} if job.batches == "shuffled" else {}
        return job.objective(self.objective, **shares)


@dataclass(frozen=True)
class Prop(SingleTraining):
    """The predicted shares of every bag are matched to the known ones."""

    name = "prop"
    summary = "predicted shares of every bag are matched to the known ones"


@dataclass(frozen=True)
class PropCR(SingleTraining):
    """``prop`` with virtual adversarial consistency.

    Parameters
    ----------
    consistency : float
        The largest weight λ of the consistency term.
    """

    name = "prop-cr"
    summary = "prop with virtual adversarial consistency"
    consistency: float = 0.05


@dataclass(frozen=True)
class Unbiased(SingleTraining):
    """Unbiased estimate of the risk."""

    name = "unbiased"
    summary = "unbiased estimate of the risk"


@dataclass(frozen=True)
class UCorrect(SingleTraining):
    """Unbiased, with the risk of every class kept above zero."""

    name = "u-correct"
    summary = "unbiased, but the risk of every class is kept above zero"


@dataclass(frozen=True)
class UFlood(SingleTraining):
    """Unbiased, with the risk kept above a flood level.

    Parameters
    ----------
    flood_level : float
        b, the level.
    """

    name = "u-flood"
    summary = "unbiased, but the risk is kept above a flood level"
    flood_level: float = 0.05


@dataclass(frozen=True)
class UStop(SingleTraining):
    """Unbiased, ended after the first epoch whose mean empirical risk is negative."""

    name = "u-stop"
    summary = "unbiased, but training ends when the risk turns negative"

    def replica(self, job: Job, **changes: Any) -> Replica:
        """Describe the one training."""
        return super().replica(job, stop_when_negative=True, **changes)


@dataclass(frozen=True)
class UPRR(SingleTraining):
    """Unbiased with partial risk regularisation, the paper's method.

    Parameters
    ----------
    alpha : float
        α, the weight of the unbiased risk; the rest is that of the regulariser.
    ascent_scale : float
        s_GA, the scale of gradient ascent.
    """

    name = "u-prr"
    summary = "unbiased with partial risk regularisation"
    alpha: float = 0.7
    ascent_scale: float = 5.0


@dataclass(frozen=True)
class BagLikelihood(SingleTraining):
    """Likelihood of the bag of every row."""

    name = "bag-likelihood"
    summary = "the likelihood that every row is in its bag"

    def replica(self, job: Job, **changes: Any) -> Replica:
        """Describe the one training."""
        return super().replica(job, **({"output_prior": job.evidence_prior} | changes))


@dataclass(frozen=True)
class MatchedLikelihood(SingleTraining):
    """``bag-likelihood``, with the mean posterior of every bag held at its shares.

    Parameters
    ----------
    matching : float
        λ, the weight of the distance of mean posteriors from the shares.
    """

    name = "matched-likelihood"
    summary = "bag-likelihood, where the mean posterior of every bag equals its shares"
    matching: float = 8.0

    def replica(self, job: Job, **changes: Any) -> Replica:
        """Describe the one training; batches are large enough to compare shares in."""
        size = job.usual_batch_size
        if not job.keeps_bags_whole:
            size = max(size, matching_batch_size(job.rows.n_rows, job.mixed_theta))
        settings = {
            "batch_size": size if job.batch_size is None else job.batch_size,
            "output_prior": job.evidence_prior,
        }
        return super().replica(job, **(settings | changes))


@dataclass(frozen=True)
class CountLikelihood(SingleTraining):
    """Likelihood of the number of rows of each class in every bag."""

    name = "count-likelihood"
    summary = "likelihood of the class counts of small bags"

    def replica(self, job: Job, **changes: Any) -> Replica:
        """Describe the one training."""
        return super().replica(job, **({"output_prior": job.evidence_prior} | changes))

r"""Cross-fitting: every row gets a soft label from its bag and from networks of other folds.

1. A start on all rows, by ``matched-likelihood``: the mean log-probabilities of several networks.
2. Rounds. The soft label of a row is its posterior given the bag,

   .. math:: q_{ik} \propto \eta_k(x_i) \, c_{mk}, \qquad \frac1{n_m} \sum_{i \in m} q_{ik} =
       \theta_{mk},

   with factors c of the bag that make the mean of its soft labels its shares; c = θ/p where η is
   the true posterior. Rows are split in folds, equal rows together. For each fold one network is
   trained on the soft labels of the other folds, and predicts the rows of this one. The old
   log-probabilities move towards the new ones, at their temperature, and give the next soft labels.
3. Some rows are kept out of the trainings of all rounds. The likelihood of their bags gives the
   temperatures. When it says that a round after the first is worse than the one before, that round
   is dropped and the rounds end. The start has these rows, since shares are known of whole bags
   only: a network that sees the rest of a bag through its shares learns to make up there for what
   it has memorised.
4. One network is trained on the soft labels of all rows.

MLPs on images are smoothed: trained to give the same probabilities for rows that are moved by a
share of their spread in the direction that changes the prediction most. That begins with the second
round. If this one is worse than the first, it is run again without, and so is all that follows (see
:mod:`unbag.methods.smoothing`).

It is EM on the bag likelihood with out-of-fold predictions, which hardly memorise a row's bag.
Balanced factors use what plain EM leaves aside: that a bag as a whole has known shares.
"""

from dataclasses import dataclass

from unbag.methods.base import Method, Trainings
from unbag.methods.cross_fitting import AUGMENTATIONS, STARTS, CrossFitting
from unbag.methods.job import Job
from unbag.methods.single import MatchedLikelihood
from unbag.methods.soft_labels import soft_epochs
from unbag.validation import check_choice, check_flag, check_number, invalid

__all__ = ["CrossFit"]


@dataclass(frozen=True)
class CrossFit(Method):
    """Cross-fitted soft labels; None means a default that depends on bags and network.

    Parameters
    ----------
    rounds : int, optional
        The largest number of rounds. With 0, the last network learns the labels of the start.
    folds : int, optional
        Number of parts that rows are split in, at least 2.
    start : {"matched-likelihood", "bag-likelihood", "u-prr", "prop"}, optional
        The method of the start. The default is "matched-likelihood", but "prop" for convolutional
        networks and small bags.
    matching : float, optional
        Weight λ of a start by ``matched-likelihood``.
    mixup : bool, optional
        Whether networks learn from mixtures of two rows. By default they do where soft labels are
        poor: convolutional networks with weak shares, and others in bags that are kept whole, if
        rows have 8 numbers or more.
    adversarial_smoothing : float, optional
        Distance by which rows are moved, as a share of their spread; 0 turns smoothing off. The
        default is 0.2 for MLPs on images, and 0 otherwise.
    balanced : bool
        Whether the mean soft label of a bag equals its shares.
    calibrated : bool
        Whether the log-probabilities of a round are divided by a temperature.
    augment : {"none", "weak", "strong"}, optional
        Random changes of images. The default is "weak" for convolutional networks, else "none".

    Examples
    --------
    >>> CrossFit(rounds=2).settings["rounds"]
    2
    """

    name = "crossfit"
    summary = "networks learn soft labels that networks of the other folds gave"
    takes_labels = True
    rounds: int | None = None
    folds: int | None = None
    start: str | None = None
    matching: float | None = None
    mixup: bool | None = None
    adversarial_smoothing: float | None = None
    balanced: bool = True
    calibrated: bool = True
    augment: str | None = None

    def __post_init__(self) -> None:
        if self.folds is not None:
            check_number("folds", self.folds, low=2, integer=True)
        if self.rounds is not None:
            check_number("rounds", self.rounds, low=0, integer=True)
        if self.adversarial_smoothing is not None:
            check_number("adversarial_smoothing", self.adversarial_smoothing, low=0)
        if self.start is not None:
            check_choice("start", self.start, STARTS)
        if self.matching is not None and self.start not in (None, MatchedLikelihood.name):
            raise invalid("matching", f"left out with start={self.start!r}", self.matching)
        if self.augment is not None:
            check_choice("augment", self.augment, AUGMENTATIONS)
        if self.mixup is not None:
            check_flag("mixup", self.mixup)
        check_flag("balanced", self.balanced)
        check_flag("calibrated", self.calibrated)

    def check(self, job: Job) -> None:
        """Refuse early stopping and other losses."""
        if job.patience is not None:
            remedy = "its rounds end by themselves."
            raise invalid("early_stopping", "False with method='crossfit'", True, remedy)
        if job.loss != "cross-entropy":
            raise invalid("loss", "'cross-entropy' with method='crossfit'", repr(job.loss))

    def epochs(self, job: Job) -> int:
        """Epochs on soft labels; the start is shortened when a job has fewer."""
        return soft_epochs(job.rows.n_rows, job.longer)

    def fit(self, job: Job) -> Trainings:
        """Yield the start, the rounds, and the last network."""
        return CrossFitting(self, job).trainings()

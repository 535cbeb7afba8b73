r"""``tables``: models of shares, learners of soft labels, and trust unless bags contradict.

1. Penalised linear models of three kinds of features are fitted to the shares of bags. Their
   strengths are judged by whole bags that were left out; all of them, and the constant shares of
   all rows, are mixed by that evidence. Where bags are few or say little, that is nearly the
   constant, and what follows starts from the shares of each row's bag.
2. Rounds: the posterior of every row given its bag, balanced to the shares of the bag, is the soft
   label of the row. A random forest and boosted trees learn the soft labels, and predict rows that
   they were not trained on: the forest out of bag, the boosted trees by folds. Their predictions
   are mixed by the likelihood of the bags of these rows, and give the next soft labels. The first
   round has the forest alone.
3. Both learn the last soft labels from all rows, and so do networks, one per fold. The model is the
   mean of the log-probabilities of these and of the models of shares, with the weights under which
   the bags of unseen rows are likeliest (those of the models of shares are in bags that were left
   out).
4. Trust. The slope of the shares of bags left out on those that the models of shares predict for
   them tells how far to go from constant shares to the model. It is taken as 1 ± 1 before, so that
   bags that are few, or that differ for other reasons, leave it near 1.
"""

from dataclasses import dataclass, replace
from typing import Any

from unbag.learners import check_learner
from unbag.methods.base import Method, Trainings
from unbag.methods.job import Job
from unbag.methods.table_fitting import TableFitting
from unbag.validation import check_number, invalid

__all__ = ["Tables"]


@dataclass(frozen=True)
class Tables(Method):
    """Models of shares and trees, trusted unless bags left out contradict.

    Parameters
    ----------
    rounds : int
        Rounds of learners on soft labels, each on those that the one before gave.
    trees : int
        Trees of each forest, and iterations of boosting.
    learner : str or classifier, optional
        What takes the place of the forest, the boosted trees and the networks: "trees",
        "extra-trees", "boosting", "linear", "mlp", or a classifier of scikit-learn, or of a library
        with the same interface, that has ``predict_proba`` and takes ``sample_weight``; in a
        Pipeline the last step must. Each row is given once per class, with its soft label as the
        weight, and five folds predict each other.

    Examples
    --------
    >>> import unbag
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> theta = unbag.priors.symmetric(n_classes=3, a=0.7)
    >>> bags = unbag.make_bags(X, y, theta, random_state=0)
    >>> clf = unbag.UnbagClassifier(theta, Tables(trees=20), random_state=0)
    >>> bool((clf.fit(bags.X, bags.bag_ids).predict(X) == y).mean() > 0.9)
    True
    """

    name = "tables"
    summary = "models of shares, then trees on soft labels; used unless left-out bags contradict it"
    takes_labels = True
    rounds: int = 3
    trees: int = 100
    learner: Any = None

    def __post_init__(self) -> None:
        if self.learner is not None:
            check_learner(self.learner)
        check_number("rounds", self.rounds, low=1, integer=True)
        check_number("trees", self.trees, low=1, integer=True)

    def check(self, job: Job) -> None:
        """Refuse early stopping, other losses and rows that are no table."""
        if job.patience is not None:
            raise invalid("early_stopping", "False with method='tables'", True)
        if job.loss != "cross-entropy":
            raise invalid("loss", "'cross-entropy' with method='tables'", repr(job.loss))
        if len(job.rows.row_shape) != 1:
            got = f"rows of shape {job.rows.row_shape}"
            remedy = "images need a network: method='crossfit'."
            raise invalid("X", "a table with method='tables'", got, remedy)

    def shorten(self, job: Job, share: float) -> Job:
        """Return the job with a share of the rounds, at least one."""
        return replace(job, method=replace(self, rounds=max(1, round(share * self.rounds))))

    def fit(self, job: Job) -> Trainings:
        """Yield the models of shares, the rounds, and the last models."""
        return TableFitting(self, job).trainings()

"""What learns the soft labels of rows: it predicts the rows that it has not seen."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from threadpoolctl import threadpool_limits
from torch import nn

from unbag.identity import identify
from unbag.learners import LearnerModel, as_module, fit_learner
from unbag.methods.job import Job
from unbag.trees import SMALLEST_CHANCE, TreeEnsemble

__all__ = ["Boosting", "Forest", "GivenLearner", "SoftLearner", "SoftRows", "out_of_bag"]

_Floats = NDArray[np.float64]
_Targets = NDArray[np.float32]
_FOLDS, _FEW_FOLDS = 5, 2
_MANY_ROWS = 20_000  # above which there are few folds, and a row stands for one class
_LEAST_LABEL = 0.02  # soft labels below it are left out where rows stand once per class
_LEAF_ROWS = 3
_BOOSTING: dict[str, Any] = {
    "learning_rate": 0.08,
    "max_leaf_nodes": 15,
    "l2_regularization": 1.0,
    "early_stopping": False,
}


@dataclass(frozen=True, eq=False)
class SoftRows:
    """The rows of a job, in the form in which learners take them.

    Parameters
    ----------
    job : Job
    x : array of shape (n, d)
    """

    job: Job
    x: _Floats

    @cached_property
    def _record(self) -> NDArray[np.int64]:
        return identify(self.job.rows.source, self.job.rows.rows)

    def folds(self, *seed: int) -> NDArray[np.int64]:
        """Divide rows in folds; equal rows go together: (n,)."""
        count = _FOLDS if len(self.x) <= _MANY_ROWS else _FEW_FOLDS
        order = np.random.default_rng(seed).permutation(int(self._record.max()) + 1)
        return np.asarray((order % count)[self._record])

    def once_per_class(
        self, targets: _Targets, rows: NDArray[np.int64], seed: int
    ) -> tuple[_Floats, NDArray[np.int64], _Floats]:
        """Repeat rows once per class, with the soft label as the weight.

        Where rows are many, each stands for one class, drawn by its soft label.
        """
        soft, k = targets[rows], targets.shape[1]
        weight = np.ones(len(rows)) if self.job.weight is None else self.job.weight[rows]
        if len(rows) > _MANY_ROWS:
            drawn = np.random.default_rng([self.job.seed, seed]).random(len(rows))
            label = (soft.cumsum(1)[:, :-1] < drawn[:, None]).sum(1)
            if len(np.unique(label)) > 1:
                return self.x[rows], label, weight
        row, label = np.divmod(np.flatnonzero(soft.ravel() > _LEAST_LABEL), k)
        if len(np.unique(label)) < 2:  # nothing to tell apart
            row, label = np.divmod(np.arange(soft.size), k)
        return self.x[rows[row]], label, weight[row] * soft[row, label]


class SoftLearner(ABC):
    """A kind of classifier that learns soft labels.

    Parameters
    ----------
    rows : SoftRows
    n_trees : int
        Trees of a forest, or iterations of boosting.

    Attributes
    ----------
    part : str
        Its name in the model.
    name : str
        Its name in what is shown.
    sharpening : float
        What its log-probabilities are multiplied with before they make soft labels.
    time_needed : float
        How many times the longest stage before it the first round of it takes, at most.
    """

    part: str
    name: str
    sharpening: float = 1.0
    time_needed: float = 1.0

    def __init__(self, rows: SoftRows, n_trees: int) -> None:
        self.rows = rows
        self.n_trees = n_trees

    @abstractmethod
    def unseen(self, targets: _Targets, number: int) -> _Floats:
        """Log-probabilities (n, K) of every row by models that were not trained on it."""

    @abstractmethod
    def last(self, targets: _Targets, number: int) -> nn.Module:
        """Learn from all rows; return a module from rows to log-probabilities."""

    def earlier(self) -> nn.Module | None:
        """Return what it learned in the last round, where that was from all rows."""
        return None


class Forest(SoftLearner):
    """A random forest, whose predictions out of bag are by trees that did not see the row."""

    part = name = "forest"
    sharpening = 1.5  # a forest regresses to the mean

    grown: RandomForestRegressor

    def _grow(self, targets: _Targets, number: int) -> RandomForestRegressor:
        self.grown = RandomForestRegressor(
            self.n_trees,
            min_samples_leaf=_LEAF_ROWS,
            max_features="sqrt",
            n_jobs=-1,
            random_state=self.rows.job.seed + number,
        ).fit(self.rows.x, targets, self.rows.job.weight)
        return self.grown

    def unseen(self, targets: _Targets, number: int) -> _Floats:
        """Predict rows out of bag."""
        return out_of_bag(self._grow(targets, number), self.rows.x, targets)

    def last(self, targets: _Targets, number: int) -> nn.Module:
        """Grow a forest."""
        return TreeEnsemble.from_forest(self._grow(targets, number))

    def earlier(self) -> nn.Module:
        """Return the forest of the last round."""
        return TreeEnsemble.from_forest(self.grown)


class ByFolds(SoftLearner):
    """A learner whose models of some folds of the rows predict the other folds."""

    @abstractmethod
    def fit(self, targets: _Targets, rows: NDArray[np.int64], number: int) -> nn.Module:
        """Learn from some rows."""

    def unseen(self, targets: _Targets, number: int) -> _Floats:
        """Predict each fold by the others."""
        fold = self.rows.folds(self.rows.job.seed, number)

        log_p = np.empty(targets.shape)
        for left_out in np.unique(fold):
            model = self.fit(targets, np.flatnonzero(fold != left_out), number)
            with torch.no_grad():
                log_p[fold == left_out] = model(torch.as_tensor(self.rows.x[fold == left_out]))
        return log_p


class Boosting(ByFolds):
    """Boosted trees."""

    part, name = "boosting", "boosted trees"
    time_needed = 10.0

    def fit(self, targets: _Targets, rows: NDArray[np.int64], number: int) -> nn.Module:
        """Boost trees on the soft labels of some rows."""
        x, label, weight = self.rows.once_per_class(targets, rows, number)
        model = HistGradientBoostingClassifier(
            max_iter=self.n_trees, random_state=self.rows.job.seed, **_BOOSTING
        )
        with threadpool_limits(torch.get_num_threads(), "openmp"):
            model.fit(x, label, sample_weight=weight)
        return TreeEnsemble.from_boosting(model, targets.shape[1])

    def last(self, targets: _Targets, number: int) -> nn.Module:
        """Boost trees on all rows."""
        return self.fit(targets, np.arange(len(targets)), number)


class GivenLearner(ByFolds):
    """The learner that a user gives, by name or as a classifier.

    Parameters
    ----------
    rows : SoftRows
    n_trees : int
    learner : str or classifier
    """

    part = "learner"
    sharpening = Forest.sharpening

    def __init__(self, rows: SoftRows, n_trees: int, learner: Any) -> None:
        super().__init__(rows, n_trees)
        self.learner = learner
        self.name = learner if isinstance(learner, str) else type(learner).__name__

    def _learn(self, targets: _Targets, rows: NDArray[np.int64], number: int) -> tuple[Any, Any]:
        x, label, weight = self.rows.once_per_class(targets, rows, number)
        return fit_learner(self.learner, x, label, weight, self.rows.job.seed, self.n_trees)

    def fit(self, targets: _Targets, rows: NDArray[np.int64], number: int) -> nn.Module:
        """Fit a copy to the soft labels of some rows."""
        return LearnerModel(*self._learn(targets, rows, number), targets.shape[1])

    def last(self, targets: _Targets, number: int) -> nn.Module:
        """Fit a copy to all rows, and make tensors of it where it has any."""
        learner, classes = self._learn(targets, np.arange(len(targets)), number)
        return as_module(learner, classes, targets.shape[1], self.rows.x)


def out_of_bag(forest: RandomForestRegressor, x: _Floats, targets: _Targets) -> _Floats:
    """Log-probabilities of rows by the trees that did not see them: (n, K).

    Rows that every tree has seen get the mean soft label.
    """
    total, seen = np.zeros(targets.shape), np.zeros(len(x))
    x = x.astype(np.float32)
    for tree, chosen in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        unseen = np.ones(len(x), dtype=bool)
        unseen[chosen] = False
        total[unseen] += tree.predict(x[unseen])
        seen += unseen
    shares = np.where(seen[:, None] > 0, total / np.maximum(seen, 1)[:, None], targets.mean(0))
    return np.asarray(log_softmax(np.log(np.clip(shares, SMALLEST_CHANCE, 1)), axis=1))

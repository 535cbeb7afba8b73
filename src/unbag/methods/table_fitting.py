"""The steps of ``tables`` for one job: models of shares, rounds of forests, last models, trust."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from torch import nn

from unbag.evaluation import error_table
from unbag.identity import identify
from unbag.learners import LearnerModel, as_module, fit_learner
from unbag.methods.base import Task, Trainings
from unbag.methods.evidence import evidence_weights
from unbag.methods.job import Job
from unbag.methods.posterior import balanced_posterior, describe_gains, log_gains, row_ratios
from unbag.methods.share_models import BagData, SharePath, fit_path, mix_paths, slope_of_paths
from unbag.methods.single import MatchedLikelihood
from unbag.methods.soft_labels import (
    MIXUP_NUMBERS,
    soft_batch_size,
    soft_epochs,
    soft_weight_decay,
)
from unbag.models import build_model
from unbag.priors import prior_shift
from unbag.tabular import FEATURES, Features, Networks, TabularModel
from unbag.training import Fit, Replica
from unbag.trees import TreeEnsemble

if TYPE_CHECKING:
    from unbag.methods.tables import Tables

__all__ = ["TableFitting", "out_of_bag"]

_Floats = NDArray[np.float64]
_LEAF_ROWS = 3
_SHARPENING = 1.5  # a forest regresses to the mean
_BOOSTING: dict[str, Any] = {
    "learning_rate": 0.08,
    "max_leaf_nodes": 15,
    "l2_regularization": 1.0,
    "early_stopping": False,
}
_FOLDS = 5  # of rows, for learners and networks, which have no predictions out of bag
# Longest stages so far that further models of shares and a forest need: of 20,000 and 100,000 rows
# they take five to eight times, and a forest six to ten times, as long as the linear models.
_TIME_NEEDED = 15.0
_LEAST_LABEL = 0.02  # soft labels below it are left out where rows stand once per class
_NETWORK: dict[str, Any] = {"depth": 3, "width": 128}
_NETWORK_RATE = 1e-3
_SHARPNESSES = (0.5, 0.7, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
_LEAST_WEIGHT = 0.01  # of networks, below which they are left out
_LEAST_TRUST = 0.5  # below which the answer is mostly constant
_SMALLEST_SHARE = 1e-9
_LEAST_CHANCE = 1e-4  # a class that no leaf has seen is unlikely, not impossible


class TableFitting:
    """Steps of one job: models of shares, rounds, boosted trees, trust."""

    def __init__(self, settings: "Tables", job: Job) -> None:
        self.settings = settings
        self.job = job
        self.n_begun = 0  # stages, of which progress tells the number
        self.replica = MatchedLikelihood().replica(job)  # networks are changes of it
        # Forests compare numbers of float32, so all parts learn from these.
        self.x = np.asarray(torch.as_tensor(job.rows.X), dtype=np.float32).astype(np.float64)
        self.data = BagData.of(
            job.rows.bag_index,
            job.theta,
            job.weight,
            job.seed,
            None if job.noisy_shares is None else job.noisy_shares.noise,
        )
        self.shares = np.maximum(job.pooled_prior, _SMALLEST_SHARE)
        self.forest: RandomForestRegressor | None = None
        self.objectives: list[float] = []  # cross-entropy of soft labels out of bag, by round

    def trainings(self) -> Trainings:
        """Yield tasks, receive their results, return the fit."""
        paths = yield [
            self._task(f"models of shares ({kind})", self._path(kind), _TIME_NEEDED * (number > 0))
            for number, kind in enumerate(FEATURES)
        ]
        paths = [path for path in paths if path is not None]
        shares = mix_paths(paths, self.shares, self.x.shape[1])
        with torch.no_grad():
            log_eta = shares(torch.as_tensor(self.x)).numpy()
        trust, targets, out_of_bag = 0.0, self._targets(log_eta), log_eta
        for number in range(self.settings.rounds):
            (learned,) = yield [self._round(targets, number)]
            if learned is None:  # the time is up
                break
            out_of_bag = learned
            self.objectives.append(float(-(targets * out_of_bag).sum(1).mean()))
            if number == 0:
                trust = self._trust(paths, out_of_bag)
            sharper = _SHARPENING * out_of_bag - (_SHARPENING - 1) * np.log(self.shares)
            if number + 1 < self.settings.rounds:
                targets = self._targets(log_softmax(sharper, axis=1))
        parts: dict[str, nn.Module] = {"shares": shares}
        weight = 0.0
        if self.settings.learner is None:
            (parts["forest"],) = yield [Task("forest as tensors", self._last_forest)]
            (boosting,) = yield [self._task("boosted trees", lambda: self._boosting(targets), 1.0)]
            if boosting is not None:
                parts["boosting"] = boosting
            fits = yield self._networks(targets)
            if not any(fit is None or fit.diverged for fit in fits):
                weight = self._weight_of_networks(fits, out_of_bag)
        else:
            (parts["learner"],) = yield [
                self._task(f"last {self._learner_name}", lambda: self._last(targets))
            ]
        weights = [(1 - weight) / len(parts)] * len(parts)
        if weight >= _LEAST_WEIGHT:
            parts["networks"] = Networks([fit.module for fit in fits])
            weights.append(weight)
        model = TabularModel(parts, [w / sum(weights) for w in weights], self.shares, trust).eval()
        return self._fit(model, self._describe(parts, out_of_bag))

    # ------------------------------------------------------------------------- the parts

    def _path(self, kind: str) -> Callable[[], SharePath | None]:
        def run() -> SharePath | None:
            rng = np.random.default_rng([self.job.seed, FEATURES.index(kind)])
            features = Features.learn(kind, self.x, rng)
            return None if features is None else fit_path(features, self.x, self.data)

        return run

    def _targets(self, log_eta: _Floats) -> NDArray[np.float32]:
        """Soft labels of all rows, whose mean over each bag is its shares: (n, K)."""
        return balanced_posterior(
            log_eta,
            self.data.bag_index,
            self.job.theta,
            self.job.pooled_prior,
            self.job.weight,
            half_trusted_rows=0,
            noisy=self.job.noisy_shares,
        )

    def _round(self, targets: NDArray[np.float32], number: int) -> Task:
        """Predict every row by a learner that was not trained on it."""
        if self.settings.learner is None:
            run = self._forest(targets, number)
            return self._task(f"forest {number + 1}", run, float(number > 0))

        def by_folds() -> _Floats:
            fold = self._folds(self.job.seed, number)
            log_p = np.empty(targets.shape)
            for left_out in np.unique(fold):
                rows = np.flatnonzero(fold != left_out)
                learner = LearnerModel(*self._learn(targets, rows), targets.shape[1])
                log_p[fold == left_out] = learner(torch.as_tensor(self.x[fold == left_out]))
            return log_p

        name = f"{self._learner_name}, round {number + 1}"
        return self._task(name, by_folds, float(number > 0))

    def _task(self, name: str, run: Callable[[], Any], time_needed: float = 0.0) -> Task:
        """Describe the next task, with its number among all stages."""
        return Task(self._numbered(name), run, time_needed)

    def _numbered(self, name: str) -> str:
        self.n_begun += 1
        lasts = 2 if self.settings.learner is None else 1
        return f"{name} ({self.n_begun} of {len(FEATURES) + self.settings.rounds + lasts})"

    def _folds(self, *seed: int) -> NDArray[np.int64]:
        """Divide rows in folds; equal rows go together."""
        record = identify(self.job.rows.source, self.job.rows.rows)
        order = np.random.default_rng(seed).permutation(int(record.max()) + 1)
        return np.asarray((order % _FOLDS)[record])

    @property
    def _learner_name(self) -> str:
        learner = self.settings.learner
        return learner if isinstance(learner, str) else type(learner).__name__

    def _learn(
        self, targets: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.int64]]:
        """Fit the given learner to soft labels of some rows; return it with its classes."""
        x, label, weight = self._once_per_class(targets, rows)
        settings = self.settings
        return fit_learner(settings.learner, x, label, weight, self.job.seed, settings.trees)

    def _last(self, targets: NDArray[np.float32]) -> nn.Module:
        """Fit the given learner to all rows, as tensors where it has any."""
        learner, classes = self._learn(targets, np.arange(len(targets)))
        return as_module(learner, classes, targets.shape[1], self.x)

    def _once_per_class(
        self, targets: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> tuple[_Floats, NDArray[np.int64], _Floats]:
        """Repeat rows once per class, with the soft label as the weight."""
        soft, k = targets[rows], targets.shape[1]
        weight = np.ones(len(rows)) if self.job.weight is None else self.job.weight[rows]
        row, label = np.divmod(np.flatnonzero(soft.ravel() > _LEAST_LABEL), k)
        if len(np.unique(label)) < 2:  # nothing to tell apart
            row, label = np.divmod(np.arange(soft.size), k)
        return self.x[rows[row]], label, weight[row] * soft[row, label]

    def _forest(self, targets: NDArray[np.float32], number: int) -> Callable[[], _Floats]:
        def run() -> _Floats:
            """Grow a forest, and return its log-probabilities out of bag (n, K)."""
            self.forest = RandomForestRegressor(
                self.settings.trees,
                min_samples_leaf=_LEAF_ROWS,
                max_features="sqrt",
                n_jobs=-1,
                random_state=self.job.seed + number,
            ).fit(self.x, targets, self.job.weight)
            return out_of_bag(self.forest, self.x, targets)

        return run

    def _last_forest(self) -> TreeEnsemble:
        """Turn the forest of the last round to tensors, where it was grown."""
        return TreeEnsemble.from_forest(self.forest)

    def _boosting(self, targets: NDArray[np.float32]) -> TreeEnsemble:
        """Boost trees on the soft labels."""
        x, label, weight = self._once_per_class(targets, np.arange(len(targets)))
        model = HistGradientBoostingClassifier(
            max_iter=self.settings.trees, random_state=self.job.seed, **_BOOSTING
        )
        model.fit(x, label, sample_weight=weight)
        return TreeEnsemble.from_boosting(model, targets.shape[1])

    def _networks(self, targets: NDArray[np.float32]) -> list[Replica]:
        """Describe one network per fold of the rows, which learns from the other folds."""
        job, bags = self.job, self.job.rows
        n, k = targets.shape
        stage = self._numbered("networks")
        fold = self._folds(job.seed)
        trained = [np.flatnonzero(fold != number) for number in np.unique(fold)]
        batch = soft_batch_size(n, min(map(len, trained)))
        return [
            replace(
                self.replica,
                stage=stage,
                time_needed=0.5,
                bags=bags.take(rows),
                predicted=bags.take(np.flatnonzero(fold == number)),
                objective=None,
                targets=targets[rows],
                module=build_model("mlp", bags.row_shape, k, job.seed + number, **_NETWORK),
                seed=job.seed + number,
                sample_weight=None if job.weight is None else job.weight[rows],
                epochs=soft_epochs(n),
                batch_size=batch,
                batching="shuffled",
                learning_rate=_NETWORK_RATE,
                weight_decay=soft_weight_decay(n),
                annealed=True,
                mixup=self.x.shape[1] >= MIXUP_NUMBERS,
                risk_weights=None,
                test=None,
                held_out=None,
            )
            for number, rows in enumerate(trained)
        ]

    def _weight_of_networks(self, fits: list[Fit], out_of_bag: _Floats) -> float:
        """Weight of the networks by the likelihood of bags, each model at its best sharpness.

        A forest regresses to the mean, so that without this sharpness networks would win.
        """
        log_p = np.empty_like(out_of_bag)
        fold = self._folds(self.job.seed)
        for number, fit in zip(np.unique(fold), fits, strict=True):
            log_p[fold == number] = log_softmax(fit.logits, axis=1)
        gains = [self._best_gains(log_eta) for log_eta in (log_p, out_of_bag)]
        return float(evidence_weights(np.stack(gains))[0])

    def _best_gains(self, log_eta: _Floats) -> _Floats:
        sharpened = (t * log_eta - (t - 1) * np.log(self.shares) for t in _SHARPNESSES)
        return max((self._gains(log_softmax(e, axis=1)) for e in sharpened), key=np.mean)

    def _trust(self, paths: list[SharePath], out_of_bag: _Floats) -> float:
        """How far to go from constant shares to the model, by bags left out; and say so.

        Where none can be left out, the likelihood of the bags of rows out of bag stands in.
        """
        if paths and self.data.judging.any():
            slope = slope_of_paths(paths, self.data)
            trust, is_shown, judges = slope.trust, slope.is_positive, "Bags"
        else:
            gains = self._gains(out_of_bag)
            trust = float(evidence_weights(np.stack([gains, np.zeros_like(gains)]))[0])
            is_shown, judges = trust >= _LEAST_TRUST, "Rows"
        if trust < _LEAST_TRUST:
            word = "show that little was learned"
        else:
            word = "confirm the model" if is_shown else "neither confirm nor refute the model"
        share = f"{trust:.0%}"
        use = (
            f"count for {share} and the shares of all rows for the rest"
            if share != "100%"
            else "are used"
        )
        self.verdict = f"{judges} that were left out {word}, so its predictions {use}."
        return trust

    def _gains(self, log_eta: _Floats) -> _Floats:
        """Logarithm of how much likelier the bag of every row is than by its size: (n,)."""
        return log_gains(log_eta, row_ratios(self.job.rows, self.job.pooled_prior))

    # -------------------------------------------------------------------------- the fit

    def _describe(self, parts: dict[str, nn.Module], out_of_bag: _Floats) -> str:
        n_rounds = len(self.objectives)  # fewer than the settings say where the time was up
        rounds = "1 forest" if n_rounds == 1 else f"{n_rounds} forests"
        gains = describe_gains(self._gains(out_of_bag))
        trees = f"{rounds} and boosted trees" if "boosting" in parts else rounds
        learned = trees if self.settings.learner is None else self._learner_name
        return f"Trained with models of shares, {learned}. {self.verdict} {gains}"

    def _fit(self, model: TabularModel, reason: str) -> Fit:
        job, n = self.job, len(self.objectives)
        table = (n, *job.theta.shape)
        history = {
            "epoch": np.arange(1.0, n + 1),
            "objective": np.array(self.objectives),
            "empirical_risk": np.full(n, np.nan),
            "negative_share": np.full(n, np.nan),
            "partial_risks": np.full(table, np.nan),
        }
        fit = Fit(
            model,
            history,
            n,
            reason,
            diverged=False,
            pooled_prior=job.pooled_prior,
            test_prior=job.target_prior,
            output_prior=job.pooled_prior,
        )
        return replace(fit, history=history | _final_errors(job, model, n))


def out_of_bag(forest: RandomForestRegressor, x: _Floats, targets: NDArray[np.float32]) -> _Floats:
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
    return np.asarray(log_softmax(np.log(np.clip(shares, _LEAST_CHANCE, 1)), axis=1))


def _final_errors(job: Job, model: TabularModel, n_epochs: int) -> dict[str, _Floats]:
    """Errors on rows that record one; they are known at the end only, so not a number before."""
    columns = {}
    shift = prior_shift(job.target_prior, job.pooled_prior)

    def predict(rows: Any) -> NDArray[np.int64]:
        with torch.no_grad():
            log_p = model(torch.as_tensor(rows)).numpy()
        return np.asarray((log_p + shift).argmax(1))

    def column(error: float) -> _Floats:
        return np.append(np.full(n_epochs - 1, np.nan), error)

    if job.test is not None:
        columns["test_error"] = column(float((predict(job.test.X) != job.test.y).mean()))
    if job.held_out is not None:
        bags = job.held_out
        table = error_table(bags.counts, bags.priors, job.target_prior)
        columns["label_free_error"] = column(float(table[bags.bag_index, predict(bags.X)].mean()))
    return columns

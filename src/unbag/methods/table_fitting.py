"""The steps of ``tables`` for one job: models of shares, rounds of learners, last models, trust."""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import nn

from unbag.evaluation import error_table
from unbag.methods.base import Task, Trainings
from unbag.methods.evidence import evidence_weights, stacking_weights
from unbag.methods.job import Job
from unbag.methods.posterior import balanced_posterior, describe_gains, log_gains, row_ratios
from unbag.methods.share_models import (
    BagData,
    SharePath,
    fit_path,
    mix_paths,
    predict_left_out,
    slope_of_paths,
)
from unbag.methods.single import MatchedLikelihood
from unbag.methods.sizes import ADAM_RATE, SMALLEST_SHARE
from unbag.methods.soft_labels import soft_batch_size, soft_epochs, soft_weight_decay
from unbag.methods.soft_learners import Boosting, Forest, GivenLearner, SoftLearner, SoftRows
from unbag.models import build_model
from unbag.priors import prior_shift
from unbag.progress import StageTimes
from unbag.tabular import FEATURES, Features, Networks, TabularModel
from unbag.training import Fit, Replica

if TYPE_CHECKING:
    from unbag.methods.tables import Tables

__all__ = ["TableFitting"]

_Floats = NDArray[np.float64]
_Networks = Generator[list[Replica], list[Any], list[Fit]]
# Longest stages so far that further models of shares and a forest need: of 20,000 and 100,000 rows
# they take five to eight times, and a forest six to ten times, as long as the linear models.
_TIME_NEEDED = 15.0
# How long stages take at most, in units of the linear models of shares. The last models are trained
# once and not once per fold.
_COSTS = {"linear": 1.0, "steps": 8.0, "waves": 8.0, "forest": 10.0, "last forest": 10.0}
_COSTS |= {"boosting": 20.0, "last boosting": 5.0, "learner": 20.0, "last learner": 5.0}
_COSTS |= {"networks": 20.0}
_NETWORK: dict[str, Any] = {"depth": 3, "width": 128}
_SHARPNESSES = (0.5, 0.7, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
_LEAST_WEIGHT = 0.01  # of a part, below which it is left out
_LEAST_TRUST = 0.5  # below which the answer is mostly constant
_NAMES = {"shares": "models of shares", "networks": "networks"}


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
        self.shares = np.maximum(job.pooled_prior, SMALLEST_SHARE)
        self.ratios = row_ratios(job.rows, job.pooled_prior)
        self.rows = SoftRows(job, self.x)
        self.learners: list[SoftLearner]
        if settings.learner is None:
            self.learners = [kind(self.rows, settings.trees) for kind in (Forest, Boosting)]
        else:
            self.learners = [GivenLearner(self.rows, settings.trees, settings.learner)]
        self.unseen: dict[str, _Floats] = {}  # log-probabilities of the last round, by learner
        self.plan = self._plan()
        self.times = StageTimes(self.plan, _COSTS)
        self.objectives: list[float] = []  # cross-entropy of soft labels of unseen rows, by round

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
        trust, targets = 0.0, self._targets(log_eta)
        for number in range(self.settings.rounds):
            # The first of several rounds learns from a guess, for which one learner is enough.
            is_guess = number == 0 and self.settings.rounds > 1
            learners = self.learners[:1] if is_guess else self.learners
            results = yield [self._round(learner, targets, number) for learner in learners]
            if results[0] is None:  # the time is up
                break
            self.unseen = _known(learners, results)
            mixed = self._mix(self.unseen)
            self.objectives.append(float(-(targets * mixed).sum(1).mean()))
            if number == 0:
                trust = self._trust(paths, mixed)
            targets = self._targets(mixed)
        learners = [learner for learner in self.learners if learner.part in self.unseen]
        learned = yield [self._last(learner, targets) for learner in learners]
        late = [number for number, module in enumerate(learned) if module is None]
        if late:  # the time is up; only the process that did the last round knows what it learned
            names = [f"{learners[i].name} of the last round" for i in late]
            found = yield [Task(n, learners[i].earlier) for n, i in zip(names, late, strict=True)]
            for number, module in zip(late, found, strict=True):
                learned[number] = module
        parts: dict[str, nn.Module] = _known(learners, learned)
        unseen = {name: self.unseen[name] for name in parts}
        if paths and self.data.judging.all():
            parts["shares"] = shares
            unseen["shares"] = predict_left_out(paths, self.data)
        if self.settings.learner is None:
            fits = yield from self._train_networks(targets)
            if fits:
                parts["networks"] = Networks([fit.module for fit in fits])
                unseen["networks"] = self._join(fits)
        weights = self._stack(unseen)
        used = {name: weight for name, weight in weights.items() if weight >= _LEAST_WEIGHT}
        parts = {name: parts[name] for name in used}
        total = sum(used.values())
        mixing = [weight / total for weight in used.values()]
        model = TabularModel(parts, mixing, self.shares, trust).eval()
        return self._fit(model, self._describe(parts))

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

    def _round(self, learner: SoftLearner, targets: NDArray[np.float32], number: int) -> Task:
        """Predict every row by models that were not trained on it."""
        run = lambda: log_softmax(learner.unseen(targets, number), axis=1)  # noqa: E731
        is_new = learner.part not in self.unseen
        needed = 0.0 if number == 0 else learner.time_needed if is_new else 1.0
        return self._task(f"{learner.name}, round {number + 1}", run, needed)

    def _last(self, learner: SoftLearner, targets: NDArray[np.float32]) -> Task:
        """Learn the last soft labels from all rows."""
        number = len(self.objectives)
        needed = float(self.settings.learner is None)  # one that is given must be learned
        return self._task(f"last {learner.name}", lambda: learner.last(targets, number), needed)

    def _mix(self, unseen: Mapping[str, _Floats]) -> _Floats:
        """Mix the predictions of learners, sharpened, by their weights: (n, K)."""
        weights = self._weights(unseen)
        total = np.zeros_like(next(iter(unseen.values())))
        for learner in self.learners:
            if learner.part in unseen:
                s = learner.sharpening
                sharp = log_softmax(
                    s * unseen[learner.part] - (s - 1) * np.log(self.shares), axis=1
                )
                total += weights[learner.part] * sharp
        return np.asarray(log_softmax(total, axis=1))

    def _weights(self, unseen: Mapping[str, _Floats]) -> dict[str, float]:
        """Weights by the likelihood of the bags of unseen rows, each model at its best sharpness.

        Without it, a model would lose for how sure it is, and forests regress to the mean.
        """
        gains = np.stack([self._best_gains(log_p) for log_p in unseen.values()])
        return dict(zip(unseen, evidence_weights(gains).tolist(), strict=True))

    def _stack(self, unseen: Mapping[str, _Floats]) -> dict[str, float]:
        """Weights of the best mixture by the likelihood of the bags of unseen rows."""
        log_p = np.stack(list(unseen.values()))
        weights = stacking_weights(log_p, self.ratios, self.shares)
        return dict(zip(unseen, weights.tolist(), strict=True))

    def _task(self, name: str, run: Callable[[], Any], time_needed: float = 0.0) -> Task:
        """Describe the next task, with its number among all stages."""
        stage = self._numbered(name)
        return Task(stage, run, time_needed, self.times, self.n_begun - 1)

    def _plan(self) -> list[str]:
        """Kinds of all stages, in order."""
        parts = [learner.part for learner in self.learners]
        rounds = self.settings.rounds
        return [
            *FEATURES,
            *(parts if rounds == 1 else parts[:1] + (rounds - 1) * parts),
            *(f"last {part}" for part in parts),
            *(["networks"] if self.settings.learner is None else []),
        ]

    def _numbered(self, name: str) -> str:
        self.n_begun += 1
        return f"{name} ({self.n_begun} of {len(self.plan)})"

    def _train_networks(self, targets: NDArray[np.float32]) -> _Networks:
        """Train a network per fold; none if there is no time or one diverges."""
        fits: list[Any] = yield self._networks(targets, self.rows.folds(self.job.seed))
        return [] if any(fit is None or fit.diverged for fit in fits) else fits

    def _networks(self, targets: NDArray[np.float32], fold: NDArray[np.int64]) -> list[Replica]:
        """Describe one network per fold of the rows, which learns from the other folds."""
        job, bags = self.job, self.job.rows
        n, k = targets.shape
        stage = self._numbered("networks")
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
                learning_rate=ADAM_RATE,
                weight_decay=soft_weight_decay(n),
                annealed=True,
                risk_weights=None,
                test=None,
                held_out=None,
            )
            for number, rows in enumerate(trained)
        ]

    def _join(self, fits: list[Fit]) -> _Floats:
        """Join the predictions of all folds by networks that were not trained on them: (n, K)."""
        fold = self.rows.folds(self.job.seed)
        log_p = np.empty((len(fold), len(self.shares)))
        for number, fit in enumerate(fits):
            log_p[fold == number] = log_softmax(fit.logits, axis=1)
        return log_p

    def _best_gains(self, log_p: _Floats) -> _Floats:
        """Gains of rows at the sharpness at which their bags are likeliest."""
        sharpened = (t * log_p - (t - 1) * np.log(self.shares) for t in _SHARPNESSES)
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
        return log_gains(log_eta, self.ratios)

    # -------------------------------------------------------------------------- the fit

    def _describe(self, parts: Iterable[str]) -> str:
        n_rounds = len(self.objectives)  # fewer than the settings say where the time was up
        rounds = "1 round" if n_rounds == 1 else f"{n_rounds} rounds"
        gains = describe_gains(self._gains(self._mix(self.unseen)))
        names = _NAMES | {learner.part: learner.name for learner in self.learners}
        *first, last = (names[part] for part in parts)
        listed = f"{', '.join(first)} and {last}" if first else last
        return f"Trained in {rounds}; it predicts by {listed}. {self.verdict} {gains}"

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


def _known(learners: list[SoftLearner], results: list[Any]) -> dict[str, Any]:
    """Results by the part of the model, without those for which there was no time."""
    pairs = zip(learners, results, strict=False)
    return {learner.part: result for learner, result in pairs if result is not None}


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

"""Search over methods and hyperparameters without a label, by Optuna on the stacked engine."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from unbag.bags import Bags
from unbag.callbacks import Callback, End, Trial, check_callbacks, tell
from unbag.estimator import UnbagClassifier
from unbag.estimator.inputs import without_columns_of_bags
from unbag.evaluation import evaluate
from unbag.exceptions import InvalidInputError, TrainingDivergedError
from unbag.fingerprint import fingerprint
from unbag.identity import hash_rows
from unbag.methods import fit_many, shortened
from unbag.selection.result import TuningResult
from unbag.selection.scorers import accuracy_scorer, likelihood_scorer
from unbag.selection.sharing import Workers, open_storage, tell_end
from unbag.selection.space import DEFAULT_SEARCH, OF_METHOD, check_search, settings_of
from unbag.validation import check_choice, check_number, import_optional, invalid

__all__ = ["DEFAULT_SEARCH", "tune"]

SCORERS = {"accuracy": accuracy_scorer, "likelihood": likelihood_scorer}
POLL = 1.0  # seconds between two looks at what other processes still do
_FIRST_LOOK = 0.25  # of the epochs, after which a trial may be given up
_ROUND = "outcomes of the round from trial "  # before the number of its first trial


def tune(
    X: Any,
    y: Any,
    estimator: UnbagClassifier,
    *,
    search: Mapping[str, Any] | None = None,
    n_trials: int = 32,
    scoring: str = "likelihood",
    validation_size: float = 0.2,
    evaluation_size: float = 0.2,
    storage: Any = "sqlite:///unbag-tune.db",
    study_name: str | None = None,
    at_once: int = 8,
    random_state: int = 0,
    verbose: bool = False,
) -> TuningResult:
    """Choose method and hyperparameters without labels, and evaluate the choice on untouched rows.

    Rows are split into three parts; equal rows stay together. Trials are trained on the first part
    and scored on the second. The winner is fitted again on both, and evaluated on the third.
    ``at_once`` trials are trained together. Each is first trained for a quarter of its epochs, and
    given up if it is then worse than the median of the others. The first trial is the estimator as
    it is. It is never given up, so the result never has a worse score.

    Parameters
    ----------
    X, y
        Rows and their bag ids, of which columns that tell the bag are left out; or Bags, and None.
    estimator : UnbagClassifier
        With ``priors``; settings that the search does not name are taken from it.
    search : dict, optional
        Name of a parameter to a list of choices, a range (low, high), or (low, high, "log");
        ``DEFAULT_SEARCH`` by default, which has methods of one training. A name such as
        ``method__alpha`` is a setting of the method, and only drawn with methods that have it.
    n_trials : int, default=32
        Trials in all, with those that the storage already holds.
    scoring : {"likelihood", "accuracy"}
        The bag likelihood, a proper score of probabilities, or the label-free accuracy.
    validation_size, evaluation_size : float, default=0.2
        Shares of the rows.
    storage : str, path, Optuna storage or None
        Where trials are kept, so that a search that was killed goes on; None for memory only. By
        default a SQLite file, which serves one process; the result is then the same as without the
        kill. With a path such as ``"/shared/trials.log"`` (Optuna's ``JournalStorage``), the
        address of a database server, or another storage of Optuna, the same call on several
        machines is one search: each trial is trained by one of them, trials of a process that was
        killed are taken over by others after a minute, and all return the same model.
    study_name : str, optional
        By default a name made from the data and the search, so that two searches never mix.
    at_once : int, default=8
    random_state : int, default=0
        Seed of splits, of the search and of every model.
    verbose : bool, default=False

    Returns
    -------
    TuningResult
    """
    optuna: Any = import_optional("optuna", "tune")
    from unbag.selection.sampling import CountedSampler  # it needs optuna

    space = check_search(DEFAULT_SEARCH if search is None else search, estimator)
    check_choice("scoring", scoring, SCORERS)
    check_number("n_trials", n_trials, low=1, integer=True)
    check_number("at_once", at_once, low=1, integer=True)
    check_number("random_state", random_state, low=0, integer=True)
    for name, size in (("validation_size", validation_size), ("evaluation_size", evaluation_size)):
        check_number(name, size, low=0, high=1, low_open=True, high_open=True)
    if validation_size + evaluation_size >= 1:
        got = f"{validation_size + evaluation_size:g} with evaluation_size"
        raise invalid("validation_size", "below 1 together with evaluation_size", got)
    callbacks = check_callbacks(estimator.callbacks)
    if estimator.priors is None:
        raise invalid("estimator", "an UnbagClassifier with priors", "priors=None")
    bags = X if isinstance(X, Bags) else without_columns_of_bags(Bags(X, y, estimator.priors))
    both, untouched = bags.train_test_split(evaluation_size, random_state=random_state)
    share = validation_size / (1 - evaluation_size)
    parts = (*both.train_test_split(share, random_state=random_state), untouched)
    digest = _fingerprint(parts, space, scoring, estimator, random_state)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        opened, is_shared = open_storage(optuna, storage)
        study = optuna.create_study(
            storage=opened,
            study_name=study_name or f"unbag-{digest[:12]}",
            direction="maximize",
            load_if_exists=True,
            sampler=CountedSampler(random_state),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=0),
        )
    except InvalidInputError:
        raise
    except Exception as error:  # every kind of storage has its errors
        if not isinstance(storage, str | os.PathLike):  # one that is open already
            raise
        got = f"one that cannot be opened ({str(error).splitlines()[0]})"
        remedy = "give a file, for example: trials.log or sqlite:///trials.db"
        raise invalid("storage", "a storage of Optuna", got, remedy) from None
    if study.user_attrs.get("fingerprint", digest) != digest:
        message = f"The study {study.study_name!r} is of other data or another search; name a new."
        raise InvalidInputError(message)
    study.set_user_attr("fingerprint", digest)
    given = (space, estimator, parts, SCORERS[scoring], random_state, callbacks)
    searching = _Search(optuna, study, *given)
    if is_shared:
        with Workers(optuna, study) as workers:
            searching.search_together(workers, n_trials, at_once, verbose)
    else:
        searching.search_alone(n_trials, at_once, verbose)

    complete = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    if not complete:
        raise TrainingDivergedError("Every trial failed; narrow the search, e.g. learning_rate.")
    best = study.best_trial
    chosen = searching.make(best.params)
    chosen.fit_bags(both)
    report = evaluate(chosen, untouched)
    accuracy = report.accuracy
    values = {"score": float(best.value), "accuracy": float(accuracy)}
    values |= {"accuracy_low": accuracy.low, "accuracy_high": accuracy.high}
    reason = f"The best of {len(study.trials)} trials."
    tell(callbacks, End(0, "tune", reason, dict(best.params), values))
    return TuningResult(
        best_params=dict(best.params),
        best_score=float(best.value),
        best_estimator=chosen,
        evaluation=report,
        trials=[
            {
                "number": t.number,
                "params": t.params,
                # Optuna has a value of pruned trials too.
                "score": t.value if t.state == optuna.trial.TrialState.COMPLETE else None,
                "state": t.state.name,
            }
            for t in study.trials
            if t.state.is_finished()
        ],
        training=both,
        held_out=untouched,
    )


@dataclass
class _Search:
    """Trials of a study, in rounds of several at a time.

    A round is drawn, trained, and its outcomes are kept at once, before the study is told of the
    first. So a search that is killed has a round whole or not at all, and the trials of a round
    that never ended are taken up again, with the numbers and the settings that they have.
    """

    optuna: Any
    study: Any
    space: Mapping[str, Any]
    estimator: UnbagClassifier
    parts: tuple[Bags, ...]
    scorer: Callable[[Any, Bags], float]
    seed: int
    callbacks: Sequence[Callback] = ()
    abandoned: list[Any] = field(default_factory=list)  # trials that a killed process began
    workers: Workers | None = None  # where several processes search

    def search_alone(self, n_trials: int, at_once: int, verbose: bool) -> None:
        """Go on until so many trials have ended, with those first that a killed process began."""
        states = self.optuna.trial.TrialState
        self.settle()
        self.abandoned = [t for t in self.study.trials if t.state == states.RUNNING]
        while (missing := n_trials - self._n_ended(n_trials)) > 0:
            asked = [self._next_trial() for _ in range(min(at_once, missing))]
            self.run(asked, verbose)

    def search_together(self, workers: Workers, n_trials: int, at_once: int, verbose: bool) -> None:
        """Go on, beside other processes, until trials 0 to ``n_trials`` - 1 have ended."""
        waiting = self.optuna.trial.TrialState.WAITING
        self.workers = workers
        while True:
            mine = workers.take_over(n_trials, at_once, self._tell)
            trials = self.study.get_trials(deepcopy=False)
            queued = sum(t.state == waiting for t in trials[:n_trials])
            free = max(0, n_trials - len(trials)) + queued
            for trial in [self.study.ask() for _ in range(min(at_once - len(mine), free))]:
                if trial.number >= n_trials:  # others were faster; it waits for a longer search
                    workers.give_back(trial)
                elif workers.begin(trial):
                    mine.append(trial)
            ready = []
            for trial in mine:
                with self._unless_ended():
                    if trial.number > 0:
                        self._suggest(trial)
                    ready.append(trial)
            if ready:
                self.run(ready, verbose)
            elif self._n_ended(n_trials) >= n_trials:
                return
            else:
                time.sleep(POLL)

    def _n_ended(self, n_trials: int) -> int:
        """Trials that ended; those of a killed process stay open and are not counted."""
        trials = self.study.get_trials(deepcopy=False)[:n_trials]
        return sum(t.state.is_finished() for t in trials)

    def make(self, params: Mapping[str, Any]) -> UnbagClassifier:
        """Return the estimator of a trial."""
        classifier: UnbagClassifier = clone(self.estimator)
        classifier.set_params(**params, random_state=self.seed)
        return classifier

    def settle(self) -> None:
        """Tell the study the outcomes that are kept, where it was not told before a kill."""
        open_ = {t.number for t in self.study.trials if not t.state.is_finished()}
        for name, outcomes in self.study.user_attrs.items():
            if name.startswith(_ROUND):
                self._tell({n: outcome for n, outcome in outcomes.items() if int(n) in open_})

    def run(self, asked: Sequence[Any], verbose: bool) -> None:
        """Train trials for a quarter of their epochs, then the survivors whole."""
        states = self.optuna.trial.TrialState
        outcomes: dict[int, tuple[str, float | None]] = {}
        survivors = []
        for trial, score in self._scores(
            [(t, self.make(t.params)) for t in asked], _FIRST_LOOK, verbose
        ):
            if self.workers is not None and not self.workers.owns(trial):
                continue  # this process was slow, and another one took the trial over
            if score is None:
                outcomes[trial.number] = states.FAIL.name, None
            elif self._is_given_up(trial, score):
                outcomes[trial.number] = states.PRUNED.name, None
            else:
                survivors.append((trial, self.make(trial.params)))
        for trial, score in self._scores(survivors, 1.0, verbose):
            state = states.FAIL if score is None else states.COMPLETE
            outcomes[trial.number] = state.name, score
        if self.workers is None:
            self.study.set_user_attr(f"{_ROUND}{asked[0].number}", outcomes)
            self._tell(outcomes)
            return
        for trial in asked:
            outcome = outcomes.get(trial.number)
            if outcome is not None and self.workers.end(trial, outcome):
                self._tell({trial.number: outcome})

    def _next_trial(self) -> Any:
        """Draw the settings of a trial; the first of all is the estimator as it was given."""
        if self.abandoned:
            trial = self.optuna.trial.Trial(self.study, self.abandoned.pop(0)._trial_id)
        else:
            trial = self.study.ask()
        if trial.number > 0:
            self._suggest(trial)
        return trial

    def _unless_ended(self) -> contextlib.AbstractContextManager[None]:
        """Leave out what cannot be done as another process has ended the trial."""
        return contextlib.suppress(self.optuna.exceptions.UpdateFinishedTrialError)

    def _is_given_up(self, trial: Any, score: float) -> bool:
        if not self.study.trials[trial.number].intermediate_values:  # else told before a kill
            with self._unless_ended():
                trial.report(score, step=0)
        return bool(trial.params) and trial.should_prune()

    def _tell(self, outcomes: Mapping[Any, tuple[str, float | None]]) -> None:
        for number, (state, score) in outcomes.items():
            tell_end(self.optuna, self.study, int(number), state, score)
            params = self.study.trials[int(number)].params
            tell(self.callbacks, Trial(int(number), params, score, state))

    def _scores(
        self, candidates: Sequence[tuple[Any, UnbagClassifier]], share: float, verbose: bool
    ) -> list[tuple[Any, float | None]]:
        """Train estimators for a share of their epochs, as few stacks as possible."""
        if not candidates:
            return []
        train, validation, _ = self.parts
        jobs = [shortened(estimator.prepare_bags(train), share) for _, estimator in candidates]
        first = candidates[0][1]
        fits = fit_many(jobs, device=first.device, precision=first.precision, verbose=verbose)
        scores: list[tuple[Any, float | None]] = []
        for (trial, estimator), job, fit in zip(candidates, jobs, fits, strict=True):
            try:
                estimator.take(job, fit)
                score = self.scorer(estimator, validation)
            except TrainingDivergedError:
                score = None
            scores.append((trial, score if score is None or np.isfinite(score) else None))
        return scores

    def _suggest(self, trial: Any) -> None:
        """Draw settings; those of other methods than the one drawn are left alone."""
        method = self.estimator.method
        for name, values in sorted(self.space.items(), key=lambda item: item[0] != "method"):
            if name.startswith(OF_METHOD) and name not in settings_of(method):
                continue
            if isinstance(values, list):
                drawn = trial.suggest_categorical(name, values)
            else:
                low, high = values[:2]
                whole = isinstance(low, int) and isinstance(high, int)
                suggest = trial.suggest_int if whole else trial.suggest_float
                drawn = suggest(name, low, high, log=len(values) == 3)
            if name == "method":
                method = drawn


def _fingerprint(
    parts: tuple[Bags, ...],
    space: Mapping[str, Any],
    scoring: str,
    estimator: UnbagClassifier,
    seed: int,
) -> str:
    settings = {k: v for k, v in estimator.get_params(deep=False).items() if k not in _NO_RESULT}
    rows = [(hash_rows(np.asarray(part.X)), part.bag_ids) for part in parts]
    return fingerprint(space, scoring, seed, rows, settings)


_NO_RESULT = ("verbose", "checkpoint", "random_state", "callbacks")  # the search has its own

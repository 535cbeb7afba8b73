"""A search that several processes share: who works on which trial, and who was killed."""

import contextlib
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Any, Self

from unbag.validation import invalid

__all__ = ["Workers", "open_storage", "tell_end"]

EVERY = 10.0  # seconds between two signs of life of a process
# Seconds without one after which others take over its trials: more than the 30 for which nobody can
# write to a journal after a process was killed that was writing.
GRACE = 60.0
_LONGEST_LINE = 1 << 16  # bytes of the first line of a journal that are looked at
_ALIVE = "signs of life of "
_WORKER = "worker"  # attribute of a trial: the process that works on it


def open_storage(optuna: Any, storage: Any) -> tuple[Any, bool]:
    """Give a storage as Optuna takes it, and whether several processes may share it.

    A path stands for a file that Optuna's ``JournalStorage`` keeps. SQLite serves one search at a
    time.
    """
    if isinstance(storage, os.PathLike) or (isinstance(storage, str) and "://" not in storage):
        _check_journal(Path(storage))
        journal = optuna.storages.journal
        return optuna.storages.JournalStorage(journal.JournalFileBackend(os.fspath(storage))), True
    address = storage if isinstance(storage, str) else getattr(storage, "url", "")
    return storage, storage is not None and not str(address).startswith("sqlite")


def _check_journal(path: Path) -> None:
    """Refuse a file that cannot be written, or holds anything but a journal of Optuna."""
    remedy = "give a new file, for example: trials.log or sqlite:///trials.db"
    try:
        path.touch()
        with path.open("rb") as file:
            first = file.readline(_LONGEST_LINE)
    except OSError as error:
        got = f"{str(path)!r} ({error.strerror})"
        raise invalid("storage", "a file that can be written", got, remedy) from None
    if first and not (first.startswith(b"{") and b'"op_code"' in first):
        got = f"{str(path)!r}, which holds something else"
        raise invalid("storage", "a journal of Optuna, or a file to make", got, remedy)


def tell_end(optuna: Any, study: Any, number: int, state: str, score: float | None) -> None:
    """Tell a study the end of a trial, where no other process has told it."""
    states, trial = optuna.trial.TrialState, study.trials[number]
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
        if trial.state == states.WAITING:  # others did not hear of this process, and queued it
            study._storage.set_trial_state_values(trial._trial_id, states.RUNNING)
        study.tell(number, score, state=states[state], skip_if_finished=True)


class Workers:
    """The processes at one study, of which this is one while the context lasts.

    Each gives a sign of life from time to time: a number that grows. A process whose number has
    not grown for a while, by the clock of the one that looks, was killed. Its trials are put in
    Optuna's queue again, with their settings, from which exactly one process takes each. The end
    of a trial is told once: what a process that was only slow tells later is left out.
    """

    def __init__(self, optuna: Any, study: Any) -> None:
        self._states = optuna.trial.TrialState
        self._study = study
        self._name = secrets.token_hex(8)
        self._signs = 0
        self._seen: dict[str, tuple[Any, float]] = {}  # the last sign of others, and its time here
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._sign()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self, trial: Any) -> None:
        """Note that this process works on a trial."""
        trial.set_user_attr(_WORKER, self._name)

    def give_back(self, trial: Any) -> None:
        """Put a trial that this process will not train in the queue again."""
        self._study._storage.set_trial_state_values(trial._trial_id, self._states.WAITING)

    def take_over(self) -> None:
        """Put trials of processes that were killed in the queue again."""
        now, signs = time.monotonic(), self._study.user_attrs
        for trial in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            worker = trial.user_attrs.get(_WORKER)
            if worker == self._name:
                continue
            # One without a worker was begun by a process that was killed before it could say so.
            who = f"{_ALIVE}{worker}" if worker else f"trial {trial.number}"
            sign = signs.get(who)
            if who not in self._seen or self._seen[who][0] != sign:
                self._seen[who] = sign, now
            elif now - self._seen[who][1] > GRACE:
                self._queue(trial._trial_id, worker)

    def _queue(self, trial_id: int, worker: str | None) -> None:
        storage = self._study._storage
        trial = storage.get_trial(trial_id)  # another process may have been faster
        if trial.state == self._states.RUNNING and trial.user_attrs.get(_WORKER) == worker:
            with contextlib.suppress(RuntimeError):  # it has ended
                storage.set_trial_user_attr(trial_id, _WORKER, "")
                storage.set_trial_state_values(trial_id, self._states.WAITING)

    def _live(self) -> None:
        while not self._over.wait(EVERY):
            with contextlib.suppress(Exception):  # the next sign may get through
                self._sign()

    def _sign(self) -> None:
        self._signs += 1
        self._study.set_user_attr(f"{_ALIVE}{self._name}", self._signs)

"""A search that several processes share: who works on which trial, and who was killed."""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from unbag.validation import invalid

__all__ = ["Workers", "open_storage", "tell_end"]

EVERY = 10.0  # seconds between two signs of life of a process
MISSED = 6  # signs of one process without any of another, after which that one was killed
_LONGEST_LINE = 1 << 16  # bytes of the first line of a journal that are looked at
_ALIVE = "signs of life of "
_CLAIM, _NOBODY = "claim ", "nobody"  # attributes of a trial: claim NUMBER: NAME OF A PROCESS
Outcome = tuple[str, float | None]  # how a trial ended, and its score


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
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
        state = optuna.trial.TrialState[state]
        study.tell(number, score, state=state, skip_if_finished=True)


class Workers:
    """The processes at one study, of which this is one while the context lasts.

    A trial belongs to one process at a time. To begin a trial, to take it over and to end it is to
    write a claim of the next number to its attributes. Of claims with the same number the first
    one counts, and a journal has all claims in one order, which all processes read. So of those
    that want to take a trial over one gets it, and a process that was only slow either ends its
    trial or has lost it. Databases promise no order of claims: there a trial may be trained twice
    in such a case, but ends once.

    Each process gives a sign of life from time to time: a number that grows. One whose number has
    not grown while another gave several signs was killed. A clock would not do: while nobody can
    write, nobody gives signs.
    """

    def __init__(self, optuna: Any, study: Any) -> None:
        self._optuna = optuna
        self._study = study
        self._name = secrets.token_hex(8)
        self._signs = 0
        # The last sign of others, and how many this process had given when it saw it first.
        self._seen: dict[str, tuple[Any, int]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._sign()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def begin(self, trial: Any) -> bool:
        """Claim a trial that this process asked for, and tell whether it got it."""
        return self._claim(trial._trial_id, _NOBODY)

    def owns(self, trial: Any) -> bool:
        """Whether a trial is still this process's to train."""
        frozen = self._study._storage.get_trial(trial._trial_id)
        return not frozen.state.is_finished() and _claims(frozen).owner == self._name

    def end(self, trial: Any, outcome: Outcome) -> bool:
        """Claim the end of a trial, and tell whether this process may tell it."""
        return self._claim(trial._trial_id, self._name, outcome)

    def give_back(self, trial: Any) -> None:
        """Put a trial that this process has not begun in Optuna's queue, for a longer search."""
        waiting = self._optuna.trial.TrialState.WAITING
        self._study._storage.set_trial_state_values(trial._trial_id, waiting)

    def take_over(
        self, n_trials: int, at_most: int, tell: Callable[[dict[int, Outcome]], None]
    ) -> list[Any]:
        """Claim some of the first trials of processes that were killed.

        Where such a process had claimed the end of a trial, that end is told.
        """
        taken: list[Any] = []
        running = self._optuna.trial.TrialState.RUNNING
        signs = self._study.user_attrs
        for trial in self._study.get_trials(deepcopy=False, states=(running,)):
            if trial.number >= n_trials or len(taken) == at_most:
                break
            _, owner, outcome = _claims(trial)
            # A trial of nobody was begun by a process that was killed before it could say so.
            who = f"trial {trial.number}" if owner == _NOBODY else f"{_ALIVE}{owner}"
            if owner == self._name or not self._is_silent(who, signs.get(who)):
                continue
            if outcome is not None:
                tell({trial.number: outcome})
            elif self._claim(trial._trial_id, owner):
                taken.append(self._optuna.trial.Trial(self._study, trial._trial_id))
        return taken

    def _is_silent(self, who: str, sign: Any) -> bool:
        if who not in self._seen or self._seen[who][0] != sign:
            self._seen[who] = sign, self._signs
        return self._signs - self._seen[who][1] > MISSED

    def _claim(self, trial_id: int, owner: str, outcome: Outcome | None = None) -> bool:
        """Write the next claim to a trial of this owner, and tell whether it counts."""
        storage = self._study._storage
        number, present, end = _claims(storage.get_trial(trial_id))
        if present != owner or end is not None:
            return False
        key = f"{_CLAIM}{number}: {self._name}"
        with contextlib.suppress(self._optuna.exceptions.UpdateFinishedTrialError):
            storage.set_trial_user_attr(trial_id, key, outcome)
        return _first_claim(storage.get_trial(trial_id), number) == key

    def _live(self) -> None:
        while not self._over.wait(EVERY):
            with contextlib.suppress(Exception):  # the next sign may get through
                self._sign()

    def _sign(self) -> None:
        self._study.set_user_attr(f"{_ALIVE}{self._name}", self._signs + 1)
        self._signs += 1


class _Claims(NamedTuple):
    number: int  # of the next claim
    owner: str
    outcome: Outcome | None  # with which the owner has claimed the end


def _claims(trial: Any) -> _Claims:
    """Follow the claims to a trial from the first to the last that counts."""
    number, owner = 0, _NOBODY
    while (key := _first_claim(trial, number)) is not None:
        name = key.removeprefix(f"{_CLAIM}{number}: ")
        number += 1
        if name == owner:
            return _Claims(number, owner, trial.user_attrs[key])
        owner = name
    return _Claims(number, owner, None)


def _first_claim(trial: Any, number: int) -> str | None:
    return next((key for key in trial.user_attrs if key.startswith(f"{_CLAIM}{number}: ")), None)

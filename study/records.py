"""Records of trained models: one line of JSON each, in compact files."""

import datetime
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from study.plan import OURS, Run
from unbag.exceptions import InvalidInputError
from unbag.files import write_whole
from unbag.methods import Fit
from unbag.validation import invalid

_SELECTION, _RUNS = "selection.jsonl", "runs.jsonl"


def thinned(n_epochs: int, n_points: int = 30) -> NDArray[np.int64]:
    """Epochs of which errors are kept: dense at first, then evenly spaced, and the last.

    Examples
    --------
    >>> thinned(5)
    array([1, 2, 3, 4, 5])
    >>> len(thinned(500)), thinned(500)[-1]
    (54, np.int64(500))
    """
    spread = [np.geomspace(1, n_epochs, n_points), np.linspace(1, n_epochs, n_points)]
    return np.unique(np.rint(np.concatenate(spread)).astype(np.int64))


Environment = dict[str, Any]  # where and when models were trained


def describe_environment(device: torch.device, precision: str) -> Environment:
    """Describe this machine, for :meth:`Records.add`."""
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    return {
        "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "precision": precision,
        "date": datetime.date.today().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
    }


def key_of(environment: Environment) -> str:
    """Short name by which records refer to an environment."""
    return hashlib.sha256(json.dumps(environment).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Record:
    """The outcome of one run; errors are shares, not percent.

    Attributes
    ----------
    run : Run
    environment : str
        Key of an environment of the same file.
    error, best_error : float
        Last test error, and the smallest of all epochs that were tested; 1 where training failed
        before the first test.
    label_free_error : float or None
        Of the rows held out, after the last epoch.
    n_epochs : int
        Epochs run.
    diverged : bool
    seconds : float
        Of all its trainings: the time of a stack is divided by the models in it.
    stop_reason : str or None
        Why it ended, for methods that are not the paper's: after how many rounds.
    epochs, errors, risks : tuples
        Test error and mean empirical risk of some epochs.
    """

    run: Run
    environment: str
    error: float
    best_error: float
    n_epochs: int
    seconds: float
    label_free_error: float | None = None
    diverged: bool = False
    epochs: tuple[int, ...] = ()
    errors: tuple[float, ...] = ()
    risks: tuple[float | None, ...] = ()
    stop_reason: str | None = None

    @classmethod
    def of(cls, run: Run, fit: Fit, environment: str) -> "Record":
        """Make the record of a fit; curves are left out where rows were held out."""
        history = fit.history
        errors = history["test_error"]
        tested = errors[np.isfinite(errors)] if np.isfinite(errors).any() else np.ones(1)
        free = history.get("label_free_error")
        kept = thinned(fit.n_epochs) - 1 if free is None else np.arange(0)
        kept = kept[np.isfinite(errors[kept])]
        return cls(
            run=run,
            environment=environment,
            error=_round(tested[-1]),
            best_error=_round(tested.min()),
            n_epochs=fit.n_epochs,
            seconds=round(fit.seconds, 3),
            label_free_error=None if free is None or np.isnan(free[-1]) else _round(free[-1]),
            diverged=fit.diverged,
            epochs=tuple((kept + 1).tolist()),
            errors=tuple(_round(e) for e in errors[kept]),
            risks=tuple(_significant(r) for r in history["empirical_risk"][kept]),
            stop_reason=fit.stop_reason if run.method in OURS else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without those at their default."""
        values = {**vars(self), "run": self.run.to_dict()}
        return {k: v for k, v in values.items() if v is not None and v is not False and v != ()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Record":
        """Undo :meth:`to_dict`."""
        lists = {k: tuple(v) for k, v in values.items() if isinstance(v, list)}
        return cls(**{**values, **lists, "run": Run.from_dict(values["run"])})


def _round(error: float) -> float:
    return round(float(error), 6)


def _significant(value: float) -> float | None:
    return float(f"{value:.5g}") if np.isfinite(value) else None


class Records:
    """All records of a folder: ``DATASET/selection.jsonl`` and ``DATASET/runs.jsonl``.

    The first has the runs that chose hyperparameters. A file is replaced as a whole when records
    are added, so that one cut short is never left behind.

    Parameters
    ----------
    folder : path
        Need not exist before the first record is added.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise invalid("results", "a folder", f"{folder}, which is a file")
        self._files: dict[Path, dict[Run, Record]] = {}
        self.environments: dict[str, Environment] = {}
        for path in sorted(self.folder.glob("*/*.jsonl")):
            self._files[path] = self._read(path)

    def _read(self, path: Path) -> dict[Run, Record]:
        records = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                values = json.loads(line)
                if "key" in values:
                    self.environments[values.pop("key")] = values
                    continue
                record = Record.from_dict(values)
            except (ValueError, TypeError, KeyError, AttributeError, InvalidInputError) as error:
                got = f"line {number}: {error}"
                remedy = "restore the file, or delete it to run its models again."
                raise invalid(str(path), "a file of records", got, remedy) from None
            records[record.run] = record
        return records

    def __getitem__(self, run: Run) -> Record:
        return self._files[self._path(run)][run]

    def __contains__(self, run: Run) -> bool:
        return run in self._files.get(self._path(run), {})

    def __iter__(self) -> Iterator[Record]:
        for records in self._files.values():
            yield from records.values()

    def __len__(self) -> int:
        return sum(map(len, self._files.values()))

    def _path(self, run: Run) -> Path:
        return self.folder / run.dataset / (_SELECTION if run.held_out else _RUNS)

    def frame(self) -> pd.DataFrame:
        """Return one row per record, in the order of the files.

        The columns are the fields of the run and of the record, ``drop`` and ``run``, which is the
        run in trial 0; numbers that are missing are NaN, and errors are in percent.
        """
        names = [field.name for field in (*fields(Run), *fields(Record)) if field.name != "run"]
        rows = [{**vars(r.run), **vars(r), "run": r.run.first} for r in self]
        frame = pd.DataFrame(rows, columns=[*names, "run"])
        errors = frame[["error", "best_error", "label_free_error"]].astype(float)
        frame[errors.columns] = 100 * errors
        return frame.assign(drop=100 * (errors["error"] - errors["best_error"]))

    def add(self, records: Iterable[Record], environment: Environment) -> None:
        """Add records, and write the files that they belong to."""
        self.environments[key_of(environment)] = environment
        changed = set()
        for record in records:
            path = self._path(record.run)
            self._files.setdefault(path, {})[record.run] = record
            changed.add(path)
        for path in sorted(changed):
            self._write(path)

    def _write(self, path: Path) -> None:
        records = self._files[path].values()
        used = sorted({record.environment for record in records})
        lines = [{"key": key, **self.environments[key]} for key in used]
        lines += [record.to_dict() for record in records]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        write_whole(path, text)

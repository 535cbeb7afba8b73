"""What is told while models are trained: a protocol, and loggers on top of it."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unbag.exceptions import CallbackError
from unbag.plain import to_plain
from unbag.validation import import_optional, invalid

__all__ = [
    "Callback",
    "End",
    "Epoch",
    "JsonLinesLogger",
    "MlflowLogger",
    "Stage",
    "TensorBoardLogger",
    "Trial",
    "check_callbacks",
    "tell",
]


# ------------------------------------------------------------------------------- what is told


@dataclass(frozen=True)
class Epoch:
    """A network has run an epoch.

    Attributes
    ----------
    job : int
        The model that is fitted: its position in the jobs of ``fit_many``, else 0.
    stage : str
        What is trained, such as "training" or "training the start".
    network : int
        Which of the networks of this stage, from 0.
    epoch, epochs : int
        The epoch, from 1, and how many there will be at most.
    values : dict of str to float
        ``objective``, ``empirical_risk``, ``negative_share`` and, where there are rows for it,
        ``label_free_error`` and ``test_error``; those that are no number are left out.
    """

    job: int
    stage: str
    network: int
    epoch: int
    epochs: int
    values: dict[str, float]


@dataclass(frozen=True)
class Stage:
    """A step of a method has ended: the training of a network, or work that no network does.

    Attributes
    ----------
    job : int
    stage : str
    seconds : float
        What it took; of networks that were trained together, its part of it.
    """

    job: int
    stage: str
    seconds: float


@dataclass(frozen=True)
class Trial:
    """A trial of a search has ended.

    Attributes
    ----------
    number : int
    params : dict
        Its settings.
    score : float or None
        None where it was given up or failed.
    state : str
        "COMPLETE", "PRUNED" or "FAIL".
    """

    number: int
    params: dict[str, Any]
    score: float | None
    state: str


@dataclass(frozen=True)
class End:
    """A model has been fitted, or a search has ended.

    Attributes
    ----------
    job : int
    method, stop_reason : str
        How the model was trained, and why that ended.
    settings : dict
        Of the method and of training, or those that a search found.
    values : dict of str to float
        ``n_epochs``; of a search, ``score`` and the label-free ``accuracy`` with the ends of its
        interval, ``accuracy_low`` and ``accuracy_high``.
    """

    job: int
    method: str
    stop_reason: str
    settings: dict[str, Any] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)


class Callback:
    """Base of callbacks: each method does nothing until it is overridden.

    An error in a callback ends the training with a :class:`~unbag.exceptions.CallbackError`, which
    names the callback and what it was told. Callbacks are copied with the classifier, and pickled
    where that is.

    Examples
    --------
    >>> import numpy as np, unbag
    >>> class Printer(unbag.callbacks.Callback):
    ...     def on_epoch(self, told):
    ...         print(told.stage, told.epoch, sorted(told.values))
    >>> X, ids = np.eye(4).repeat(20, 0), np.repeat(["a", "b"], 40)
    >>> priors = {"a": [0.9, 0.1], "b": [0.2, 0.8]}
    >>> clf = unbag.UnbagClassifier(priors, method="u-prr", epochs=2, callbacks=[Printer()])
    >>> _ = clf.fit(X, ids)
    training 1 ['empirical_risk', 'negative_share', 'objective']
    training 2 ['empirical_risk', 'negative_share', 'objective']
    """

    def on_epoch(self, told: Epoch) -> None:
        """Take note of an epoch of a network."""

    def on_stage(self, told: Stage) -> None:
        """Take note of the end of a stage."""

    def on_trial(self, told: Trial) -> None:
        """Take note of the end of a trial of a search."""

    def on_end(self, told: End) -> None:
        """Take note of the end of a fit or of a search."""


_METHODS = {Epoch: "on_epoch", Stage: "on_stage", Trial: "on_trial", End: "on_end"}


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Refuse what is not a sequence of callbacks; None stands for none."""
    given = () if callbacks is None else callbacks
    if not isinstance(given, Sequence) or not all(isinstance(c, Callback) for c in given):
        allowed = "a sequence of unbag.callbacks.Callback"
        raise invalid("callbacks", allowed, repr(callbacks), "put one callback in a list.")
    return tuple(given)


def tell(callbacks: Sequence[Callback], what: Epoch | Stage | Trial | End) -> None:
    """Tell all callbacks; an error of one names it."""
    for callback in callbacks:
        try:
            getattr(callback, _METHODS[type(what)])(what)
        except Exception as error:
            name = f"{type(callback).__name__}.{_METHODS[type(what)]}"
            message = f"The callback {name} failed with {type(error).__name__}: {error}"
            raise CallbackError(f"{message}. It was told {what}.") from error


# -------------------------------------------------------------------------------------- loggers


class JsonLinesLogger(Callback):
    """Appends a line of JSON to a file for everything that is told.

    Parameters
    ----------
    path : path
        Each line has ``event`` ("epoch", "stage", "trial" or "end"), ``time``, and the attributes
        of what is told.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def _write(self, told: Epoch | Stage | Trial | End) -> None:
        head = {"event": type(told).__name__.lower(), "time": datetime.now(UTC).isoformat()}
        line = json.dumps(head | to_plain(asdict(told)), default=str)
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    on_epoch = on_stage = on_trial = on_end = _write


class TensorBoardLogger(Callback):
    """Writes the curves of training for TensorBoard (extra ``tensorboard``).

    Parameters
    ----------
    folder : path
        Each model that is fitted has a folder of its own in it: ``0``, ``1`` and so on.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder
        self._writers: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_writers": {}}

    def on_epoch(self, told: Epoch) -> None:
        """Write the values of an epoch."""
        writer = self._writer(told.job)
        for name, value in told.values.items():
            writer.add_scalar(f"{_place(told)}{name}", value, told.epoch)

    def on_trial(self, told: Trial) -> None:
        """Write the score of a trial."""
        if told.score is not None:
            self._writer("search").add_scalar("score", told.score, told.number)
            self._writer("search").flush()

    def on_end(self, told: End) -> None:
        """Write how training ended, and close the file."""
        writer = self._writer(told.job)
        writer.add_text("end", f"{told.method}: {told.stop_reason}")
        for name, value in told.values.items():
            writer.add_scalar(f"end/{name}", value)
        self._writers.pop(told.job).close()

    def _writer(self, name: Any) -> Any:
        if name not in self._writers:
            import_optional("tensorboard", "tensorboard")
            from torch.utils.tensorboard import SummaryWriter

            self._writers[name] = SummaryWriter(Path(self.folder, str(name)))
        return self._writers[name]


class MlflowLogger(Callback):
    """Logs to MLflow: a run per model, and one per trial of a search (extra ``mlflow``).

    Parameters
    ----------
    experiment : str, default="unbag"
        It is made if need be.
    tracking_uri : str, optional
        By default where MLflow logs anyway.
    run_name : str, optional
    """

    def __init__(
        self,
        experiment: str = "unbag",
        *,
        tracking_uri: str | None = None,
        run_name: str | None = None,
    ) -> None:
        self.experiment, self.tracking_uri, self.run_name = experiment, tracking_uri, run_name
        self._runs: dict[int, str] = {}

    def on_epoch(self, told: Epoch) -> None:
        """Log the values of an epoch."""
        client, run = self._run(told.job)
        for name, value in told.values.items():
            client.log_metric(run, f"{_place(told)}{name}", value, step=told.epoch)

    def on_stage(self, told: Stage) -> None:
        """Log what a stage took."""
        client, run = self._run(told.job)
        client.log_metric(run, f"{told.stage}/seconds", told.seconds)

    def on_trial(self, told: Trial) -> None:
        """Log a trial as a run of its own."""
        client, run = self._new_run(f"trial {told.number}")
        for name, value in told.params.items():
            client.log_param(run, name, value)
        if told.score is not None:
            client.log_metric(run, "score", told.score)
        client.set_terminated(run, "FAILED" if told.state == "FAIL" else "FINISHED")

    def on_end(self, told: End) -> None:
        """Log how training ended, and end the run."""
        client, run = self._run(told.job)
        for name, value in {"method": told.method, **told.settings}.items():
            client.log_param(run, name, value)
        for name, number in told.values.items():
            client.log_metric(run, name, number)
        client.set_tag(run, "stop_reason", told.stop_reason)
        client.set_terminated(run)
        del self._runs[told.job]

    def _run(self, job: int) -> tuple[Any, str]:
        if job not in self._runs:
            _, self._runs[job] = self._new_run(self.run_name)
        return self._client(), self._runs[job]

    def _new_run(self, name: str | None) -> tuple[Any, str]:
        client = self._client()
        known = client.get_experiment_by_name(self.experiment)
        place = known.experiment_id if known else client.create_experiment(self.experiment)
        return client, client.create_run(place, run_name=name).info.run_id

    def _client(self) -> Any:
        mlflow: Any = import_optional("mlflow", "mlflow")
        return mlflow.MlflowClient(self.tracking_uri)


def _place(told: Epoch) -> str:
    return f"{told.stage}/{told.network}/" if told.network else f"{told.stage}/"

"""The fitting of many models by method name at once."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from unbag.bags import Bags
from unbag.methods.choosing import choose_method
from unbag.methods.consistency import calibrate
from unbag.methods.crossfit import CrossFit
from unbag.methods.jobs import Fit, Job, prepare
from unbag.methods.registry import get_method
from unbag.training import PRECISIONS, Outcome, Replica, resolve_device, train
from unbag.training.checkpoint import Checkpoint, fingerprint
from unbag.validation import check_choice, invalid

__all__ = ["fit_many"]


def fit_many(
    jobs: Sequence[Job],
    *,
    device: str | torch.device = "auto",
    precision: str = "float32",
    test_every: int = 1,
    verbose: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    on_finish: Callable[[dict[int, Fit]], None] | None = None,
) -> list[Fit]:
    """Fit many models at once; MLPs of one architecture, batch size and row shape form a stack.

    The result of a job does not depend on the other jobs, but for rounding. One that diverges is
    reported in its ``outcome`` while the others go on.

    Parameters
    ----------
    jobs : sequence of Job
    device : str, default="auto"
    precision : {"float32", "tf32", "bf16", "float64"}
    test_every : int, default=1
        Epochs between two tests on labelled rows, for jobs that have some.
    verbose : bool, default=False
        Show a progress bar.
    checkpoint : path, optional
        A folder from which a run that was killed goes on.
    checkpoint_seconds : float, default=30
        Time between two checkpoints.
    on_finish : callable, optional
        Called as each stack ends, with its fits by position in ``jobs``, and once for all jobs of
        crossfit. It is then its business to keep them: their checkpoints are deleted.

    Returns
    -------
    list of Fit
        In the order of ``jobs``.

    Examples
    --------
    >>> import numpy as np, unbag
    >>> from unbag.methods import Job, fit_many
    >>> X, y = np.eye(4).repeat(50, 0)[:, :3], np.repeat([0, 0, 1, 1], 50)
    >>> bags = unbag.make_bags(X, y, [[0.9, 0.1], [0.2, 0.8]], random_state=0)
    >>> fits = fit_many([Job(bags, method=m, epochs=3) for m in ("unbiased", "prop")])
    >>> [fit.outcome.stop_reason for fit in fits]
    ['all 3 epochs were run', 'all 3 epochs were run']
    """
    if isinstance(jobs, Job):
        raise invalid("jobs", "a sequence of Job", "one Job", "put it in a list.")
    check_choice("precision", precision, PRECISIONS)
    jobs = [_resolve(job) for job in jobs]
    methods = [get_method(job.method) for job in jobs]
    options: dict[str, Any] = {
        "device": device,
        "precision": precision,
        "test_every": test_every,
        "verbose": verbose,
        "checkpoint_seconds": checkpoint_seconds,
    }
    plain = [i for i, method in enumerate(methods) if not method.is_procedure]
    prepared = {i: prepare(jobs[i], precision) for i in plain}
    procedures = {
        i: CrossFit(jobs[i], precision) for i, method in enumerate(methods) if method.is_procedure
    }

    def add_priors(outcomes: dict[int, Outcome]) -> dict[int, Fit]:
        """Outcomes by position among the plain jobs to fits by position among all."""
        made = {}
        for i, outcome in outcomes.items():
            replica, priors = prepared[plain[i]]
            calibration = None
            if replica.pseudo_labels is not None and not outcome.diverged:
                calibration, said = calibrate(replica, outcome, priors[0])
                outcome = replace(outcome, stop_reason=f"{outcome.stop_reason}; {said}")
            made[plain[i]] = Fit(outcome, *priors, calibration)
        return made

    fits: dict[int, Fit] = {}
    if plain:
        outcomes = train(
            [replica for replica, _ in prepared.values()],
            checkpoint=checkpoint,
            on_finish=None if on_finish is None else lambda ended: on_finish(add_priors(ended)),
            **options,
        )
        fits = add_priors(dict(enumerate(outcomes)))
    if procedures:
        folder = None
        if checkpoint is not None:
            starts = [replica for p in procedures.values() for replica in p.start()]
            name = fingerprint(starts, precision, resolve_device(device))[:24]
            folder = Checkpoint(checkpoint, name).path.with_suffix("")
        fits |= _run(procedures, {**options, "checkpoint": folder})
        if on_finish is not None:
            on_finish({i: fits[i] for i in procedures})
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
    return [fits[i] for i in range(len(jobs))]


def _resolve(job: Any) -> Job:
    """Check a job and choose its method, where that is left open."""
    if not isinstance(job, Job) or not isinstance(job.bags, Bags):
        kind = type(job.bags).__name__ if isinstance(job, Job) else type(job).__name__
        raise invalid("jobs", "Job(bags, ...) with bags of type Bags", kind)
    if not get_method(job.method).chosen:
        return job
    get_method(job.method).check_hyperparameters(job.hyperparameters)
    choice = choose_method(
        job.bags,
        model=job.model,
        one_training=job.patience is not None,
        own_loss=job.loss != "cross-entropy",
    )
    return replace(job, method=choice.method)


def _run(procedures: dict[int, CrossFit], options: dict[str, Any]) -> dict[int, Fit]:
    """Take every procedure through its stages; those of all jobs are trained together."""

    def stage(label: str, wanted: dict[int, list[Replica]]) -> dict[int, list[Outcome]]:
        """Train what several jobs want, and hand each its outcomes."""
        replicas = [replica for own in wanted.values() for replica in own]
        if not replicas:
            return {}
        outcomes = iter(train(replicas, label=label, **options))
        return {i: [next(outcomes) for _ in own] for i, own in wanted.items()}

    for i, ended in stage("start", {i: p.start() for i, p in procedures.items()}).items():
        procedures[i].take_start(ended)
    number = 1
    while running := {i: p for i, p in procedures.items() if not p.ended}:
        label = f"round {number}"
        for i, ended in stage(label, {i: p.round() for i, p in running.items()}).items():
            procedures[i].take_round(ended)
        number += 1
    # One that diverged is told by its outcome, as in a method of one training.
    fits = {i: p.finish(p.failed) for i, p in procedures.items() if p.failed is not None}
    last = stage("last", {i: [p.last()] for i, p in procedures.items() if i not in fits})
    return fits | {i: procedures[i].finish(ended[0]) for i, ended in last.items()}

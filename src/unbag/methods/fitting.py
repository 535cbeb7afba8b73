"""Fit many models at once: the methods of all jobs go through their trainings in step."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from threadpoolctl import threadpool_limits

from unbag.bags import Bags
from unbag.callbacks import Callback, check_callbacks
from unbag.deadline import Deadline
from unbag.methods.auto import Auto
from unbag.methods.base import Method, Task, Trainings
from unbag.methods.elsewhere import fit_elsewhere
from unbag.methods.job import Job
from unbag.methods.registry import get_method
from unbag.methods.telling import Telling
from unbag.processes import Processes, current_processes
from unbag.progress import StageProgress
from unbag.training import PRECISIONS, Fit, Replica, train
from unbag.validation import check_choice, check_number, invalid

__all__ = ["check_job", "fit_many", "rehearse", "shortened"]

AnyJob = TypeVar("AnyJob", bound=Job)


def fit_many(
    jobs: Sequence[Job],
    *,
    device: str | torch.device = "auto",
    precision: str = "float32",
    test_every: int = 1,
    verbose: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    time_limit: float | Deadline | None = None,
    on_finish: Callable[[dict[int, Fit]], None] | None = None,
    executor: Executor | None = None,
    stack_size: int | None = None,
    callbacks: Sequence[Callback] | None = None,
) -> list[Fit]:
    """Fit many models at once; MLPs of one architecture, batch size and row shape form a stack.

    The result of a job does not depend on the other jobs, except for rounding. If a job diverges,
    its fit says so, and the other jobs go on.

    Where there is a group of processes of torch.distributed, they train together: all of them call
    this with the same arguments and get the same fits.

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
        Folder from which a killed run goes on.
    checkpoint_seconds : float, default=30
        Time between two checkpoints.
    time_limit : float or Deadline, optional
        Seconds after which all is to end with the best models so far: stages that need more time
        are left out, and trainings end early.
    on_finish : callable, optional
        Called with fits by position in ``jobs``: as each stack ends, if that ended all its jobs,
        and once at the end for the others. It must keep them: their checkpoints are deleted.
    executor : concurrent.futures.Executor, optional
        Trains the jobs: a ``ProcessPoolExecutor``, :func:`unbag.distributed.ray_executor`, that of
        Dask (``client.get_executor()``) or any other. Jobs are cut into parts, one per worker,
        which each trains as stacks on its own device. They are sent with their rows.
        ``checkpoint`` must then be a folder that all workers see; what is in it is not deleted.
    stack_size : int, optional
        Jobs that the executor is given at a time; by default as many as give each worker one part
        (one job at a time where the executor does not tell how many workers it has).
    callbacks : sequence of unbag.callbacks.Callback, optional
        Told of every epoch, stage and end; with an executor of ends alone.

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
    >>> [fit.stop_reason for fit in fits]
    ['All 3 epochs were run.', 'All 3 epochs were run.']
    """
    if isinstance(jobs, Job):
        raise invalid("jobs", "a sequence of Job", "one Job", "put it in a list.")
    check_choice("precision", precision, PRECISIONS)
    processes = current_processes()
    telling = Telling(check_callbacks(callbacks) if processes.is_first else ())
    if executor is not None:
        if processes.size > 1:
            got = f"one in a group of {processes.size} processes"
            raise invalid("executor", "left out where processes train together", got)
        for job in jobs:
            check_job(job)
        sent: dict[str, Any] = {"device": device, "precision": precision, "test_every": test_every}
        sent |= {"checkpoint": checkpoint, "checkpoint_seconds": checkpoint_seconds}
        sent["time_limit"] = time_limit.left if isinstance(time_limit, Deadline) else time_limit

        def end(fits: dict[int, Fit]) -> None:
            telling.end_jobs(fits)
            if on_finish is not None:
                on_finish(fits)

        return fit_elsewhere(fit_many, jobs, executor, stack_size, end, verbose, **sent)
    verbose = verbose and processes.is_first
    deadline = time_limit if isinstance(time_limit, Deadline) else _deadline(time_limit)
    deadline.agree = processes.agree
    options: dict[str, Any] = {
        "deadline": deadline,
        "device": device,
        "precision": precision,
        "test_every": test_every,
        "verbose": verbose,
        "checkpoint": checkpoint,
        "checkpoint_seconds": checkpoint_seconds,
    }
    with processes.together():
        return _fit_together(jobs, options, processes, on_finish, telling)


def _fit_together(
    jobs: Sequence[Job],
    options: dict[str, Any],
    processes: Processes,
    on_finish: Callable[[dict[int, Fit]], None] | None,
    telling: Telling,
) -> list[Fit]:
    deadline = options["deadline"]
    running = [_Running(job, method) for job, method in map(check_job, jobs)]
    report = _Report(running, on_finish if processes.is_first else None, telling)
    while waiting := [i for i, job in enumerate(running) if job.fit is None]:
        for i in waiting:
            tell = partial(telling.end_task, i)
            _run_tasks(running[i], options["verbose"], deadline, processes, tell)
        waiting = [i for i in waiting if running[i].fit is None]
        owners = [i for i in waiting for _ in running[i].wanted]
        replicas = [replica for i in waiting for replica in running[i].wanted]
        if replicas:
            report.begin_stage(owners)
            telling.begin_stage(owners, replicas)
            with deadline.stage():
                train(replicas, on_finish=report.end_stack, on_epoch=telling.on_epoch, **options)
        telling.end_jobs({i: job.fit for i, job in enumerate(running) if job.fit is not None})
    report.end()
    return [job.fit for job in running if job.fit is not None]


def check_job(job: Job) -> tuple[Job, Method]:
    """Check a job before anything is trained, and resolve its method."""
    if not isinstance(job, Job) or not isinstance(job.bags, Bags):
        kind = type(job.bags).__name__ if isinstance(job, Job) else type(job).__name__
        raise invalid("jobs", "Job(bags, ...) with bags of type Bags", kind)
    method = get_method(job.method)
    job.check()
    used = method.choose(job)[0] if isinstance(method, Auto) else method
    if job.labels is not None and not used.takes_labels:
        remedy = "crossfit and tables take labels."
        raise invalid("labels", f"left out with method={used.name!r}", "some", remedy)
    method.check(job)
    return job, method


def rehearse(job: Job) -> None:
    """Check a job up to where its training would start."""
    _, method = check_job(job)
    next(method.fit(job))


def shortened(job: AnyJob, share: float) -> AnyJob:
    """Return the job with a share of its usual training, for a first look at a trial."""
    return cast(AnyJob, get_method(job.method).shorten(job, share))


def _deadline(time_limit: float | None) -> Deadline:
    if time_limit is None:
        return Deadline()
    check_number("time_limit", time_limit, low=0, low_open=True)
    return Deadline(time_limit)


def _run_tasks(
    job: "_Running",
    verbose: bool,
    deadline: Deadline,
    processes: Processes,
    tell: Callable[[str, float], None],
) -> None:
    """Do what a job wants, until it wants replicas that there is time for, or has ended."""
    while job.fit is None:
        if job.wanted and any(deadline.has_time_for(r.time_needed) for r in job.wanted):
            return
        if job.wanted:
            job.receive([None] * len(job.wanted))
        results: list[Any] = []
        for task in job.tasks:
            if not deadline.has_time_for(task.time_needed):
                results.append(None)
                continue
            # Products of small matrices are slower on several threads, which wait for each other.
            began = time.monotonic()
            bar = StageProgress(task.stage, verbose, task.times, task.place, deadline.left)
            with deadline.stage(), bar, threadpool_limits(1):
                results.append(processes.once(task.run))
            tell(task.stage, time.monotonic() - began)
        if results:
            job.receive(results)


class _Running:
    """A running job: what it wants done next, and its fit once it has ended."""

    def __init__(self, job: Job, method: Method) -> None:
        self.method = method
        self.fit: Fit | None = None
        self.wanted: list[Replica] = []
        self.tasks: list[Task] = []
        self._trainings: Trainings = method.fit(job)
        self._go_on(None)

    def receive(self, results: list[Any]) -> None:
        """Hand over the fits of the replicas, or the results of the tasks, that were wanted."""
        self._go_on(results)

    def _go_on(self, results: list[Any] | None) -> None:
        """Run the method until it wants something done, or ends."""
        self.wanted, self.tasks = [], []
        while self.fit is None and not (self.wanted or self.tasks):
            try:
                wanted = next(self._trainings) if results is None else self._trainings.send(results)
                self.wanted = [item for item in wanted if isinstance(item, Replica)]
                self.tasks = [item for item in wanted if isinstance(item, Task)]
            except StopIteration as end:
                fit: Fit = end.value
                name, settings = self.method.name, self.method.settings
                self.fit = fit if fit.method else replace(fit, method=name, settings=settings)
            results = []


class _Report:
    """Hands fits to their jobs as stacks end, and those of ended jobs to the caller.

    Jobs are reported with their first stack, when that ended all of them, and else at the end of
    all. So a run that is started again without the jobs that were reported finds the checkpoints of
    the others: their stacks have the same members.
    """

    def __init__(
        self,
        running: list[_Running],
        on_finish: Callable[[dict[int, Fit]], None] | None,
        telling: Telling,
    ) -> None:
        self._running = running
        self._telling = telling
        self._on_finish = on_finish
        self._unreported = set(range(len(running)))
        self._held: list[Callable[[], None]] = []  # delete checkpoints that are still needed
        self._in_held: set[int] = set()  # jobs that these are of
        self._owners: list[int] = []
        self._received: dict[int, Fit] = {}

    def begin_stage(self, owners: list[int]) -> None:
        """Note which job wants each of the replicas that are trained next."""
        self._owners, self._received = owners, {}

    def end_stack(self, ended: dict[int, Fit], delete_checkpoint: Callable[[], None]) -> None:
        """Let each job whose replicas have all ended go on to what it wants next."""
        self._received |= ended
        self._telling.end_stack(ended)
        jobs = {self._owners[place] for place in ended}
        for i in sorted(jobs):
            places = [place for place, owner in enumerate(self._owners) if owner == i]
            if all(place in self._received for place in places):
                self._running[i].receive([self._received[place] for place in places])
        self._held.append(delete_checkpoint)
        if jobs & self._in_held or any(self._running[i].fit is None for i in jobs):
            self._in_held |= jobs
        else:
            self._hand_over(jobs, [self._held.pop()])

    def end(self) -> None:
        """Report the jobs that are left."""
        self._hand_over(set(self._unreported), self._held)

    def _hand_over(self, jobs: set[int], checkpoints: list[Callable[[], None]]) -> None:
        if self._on_finish is None or not jobs:
            return
        self._on_finish({i: fit for i in sorted(jobs) if (fit := self._running[i].fit) is not None})
        self._unreported -= jobs
        for delete in checkpoints:
            delete()

"""Many jobs by an executor: they are cut into stacks, which others train."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from typing import Any

from unbag.methods.job import Job
from unbag.progress import RowProgress
from unbag.training import Fit
from unbag.validation import check_number, invalid

__all__ = ["fit_elsewhere"]


def fit_elsewhere(
    fit_here: Callable[..., list[Fit]],
    jobs: Sequence[Job],
    executor: Executor,
    stack_size: int | None,
    on_finish: Callable[[dict[int, Fit]], None] | None,
    verbose: bool,
    **options: Any,
) -> list[Fit]:
    """Let an executor call ``fit_here`` with parts of the jobs; return the fits in their order.

    An error of one part gives up those that have not begun, and is raised.
    """
    if not isinstance(executor, Executor):
        allowed = "an executor of concurrent.futures, such as unbag.distributed.ray_executor()"
        raise invalid("executor", allowed, type(executor).__name__)
    parts = _cut(jobs, executor, stack_size)
    futures = {}
    fits: dict[int, Fit] = {}
    try:
        for part in parts:
            future = executor.submit(fit_here, [jobs[i] for i in part], **options)
            futures[future] = part
        with RowProgress("fitting", verbose) as progress:
            for future in as_completed(futures):
                ended = dict(zip(futures[future], future.result(), strict=True))
                fits |= ended
                progress(len(fits), len(jobs))
                if on_finish is not None:
                    on_finish(dict(sorted(ended.items())))
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [fits[i] for i in range(len(jobs))]


def _cut(jobs: Sequence[Job], executor: Executor, stack_size: int | None) -> list[list[int]]:
    """Deal jobs out to the workers, each as many of every kind, so that parts take equally long.

    A worker that gets more than fits its device cuts again.
    """
    if stack_size is None:
        workers = getattr(executor, "_max_workers", len(jobs))  # an executor may not tell
    else:
        check_number("stack_size", stack_size, low=1, integer=True)
        workers = -(-len(jobs) // stack_size)
    alike = sorted(range(len(jobs)), key=lambda i: _kind(jobs[i]))
    count = max(1, min(len(jobs), workers or os.cpu_count() or 1))
    return [sorted(alike[part::count]) for part in range(count) if alike[part::count]]


def _kind(job: Job) -> str:
    method = job.method if isinstance(job.method, str) else job.method.name
    model = job.model if isinstance(job.model, str) else type(job.model).__name__
    return f"{model} {sorted(job.model_options.items())} {job.batch_size} {method} {job.epochs}"

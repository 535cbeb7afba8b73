"""Cases of a check by several processes, until a time limit."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

Task = tuple[Callable[..., Any], tuple[Any, ...]]
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def results_of(
    tasks: Sequence[Task], processes: int = 1, seconds: float = 0.0
) -> Iterator[tuple[int, Any]]:
    """Yield the position of a task and what it gives, as they end.

    Parameters
    ----------
    tasks : sequence of (function, arguments)
        Of several processes, functions and arguments are pickled.
    processes : int
        With 1, tasks are done here, one after another; of more, each computes on one thread.
    seconds : float
        After this time no task is begun, and those of other processes are given up; 0 for no limit.
    """
    end = time.monotonic() + seconds if seconds else float("inf")
    if processes == 1:
        for i, (function, arguments) in enumerate(tasks):
            if time.monotonic() > end:
                return
            yield i, function(*arguments)
        return
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))  # processes started from here have these
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        position: dict[Future[Any], int] = {
            pool.submit(function, *arguments): i for i, (function, arguments) in enumerate(tasks)
        }
        waiting = set(position)
        while waiting:
            left = None if end == float("inf") else max(0.0, end - time.monotonic())
            ended, waiting = wait(waiting, left, FIRST_COMPLETED)
            if not ended:
                return
            for future in ended:
                yield position[future], future.result()
    finally:
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()

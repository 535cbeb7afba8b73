"""Executors of clusters, for ``fit_many(executor=...)``."""

from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from typing import Any, TypeVar

from unbag.validation import check_number, import_optional

__all__ = ["RayExecutor", "ray_executor"]

_T = TypeVar("_T")


def ray_executor(
    address: str | None = None,
    *,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    max_workers: int | None = None,
    **task_options: Any,
) -> "RayExecutor":
    """Give the workers of a Ray cluster as an executor of ``concurrent.futures`` (extra ``ray``).

    If this process is connected to a cluster, that one is used; else it connects, and the end of
    the executor disconnects it again.

    Parameters
    ----------
    address : str, optional
        Of the cluster, such as ``"auto"`` or ``"ray://head:10001"``; by default the one in the
        environment variable RAY_ADDRESS, or a new one on this machine.
    num_cpus, num_gpus : float
        What a task takes; by default one core, and one GPU where the cluster has some.
    max_workers : int, optional
        Tasks at a time, by which jobs are cut into stacks; by default as many as the cluster has
        room for now.
    **task_options
        More options of Ray's tasks, such as ``runtime_env``, ``resources`` or ``max_retries``.

    Examples
    --------
    .. code-block:: python

       with unbag.distributed.ray_executor() as executor:
           fits = unbag.methods.fit_many(jobs, executor=executor)
    """
    check_number("num_cpus", num_cpus, low=0)
    if max_workers is not None:
        check_number("max_workers", max_workers, low=1, integer=True)
    ray: Any = import_optional("ray", "ray")
    is_new = not ray.is_initialized()
    if is_new:
        ray.init(address, log_to_driver=False)
    has = ray.cluster_resources()
    if num_gpus is None:
        num_gpus = 1 if has.get("GPU", 0) >= 1 else 0
    check_number("num_gpus", num_gpus, low=0)
    room = [
        has.get(name, 0) / needed
        for name, needed in (("CPU", num_cpus), ("GPU", num_gpus))
        if needed > 0
    ]
    workers = max_workers or max(1, int(min(room, default=1)))
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, **task_options}
    return RayExecutor(ray, options, workers, is_new)


class RayExecutor(Executor):
    """The workers of a Ray cluster; see :func:`ray_executor`."""

    def __init__(
        self, ray: Any, options: dict[str, Any], max_workers: int, disconnects: bool
    ) -> None:
        self._ray = ray
        self._task = ray.remote(_call).options(**options)
        self._max_workers = max_workers
        self._disconnects = disconnects
        self._futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Call a function on a worker."""
        future: Future[_T] = self._task.remote(fn, args, kwargs).future()
        self._futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for what was submitted, and disconnect if this executor has connected."""
        for future in self._futures if cancel_futures else ():
            future.cancel()
        if wait:
            _wait(self._futures)
        if self._disconnects:
            self._ray.shutdown()


_wait = wait  # the parameter of shutdown has its name


def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)

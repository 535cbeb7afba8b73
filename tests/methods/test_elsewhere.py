"""Jobs that an executor trains: the same fits, in the same order."""

import pickle
from concurrent.futures import Executor, Future

import pytest
import torch
from small_jobs import make

import unbag
from unbag.exceptions import InvalidInputError
from unbag.methods import Job, fit_many

BAGS = make()


class Pickling(Executor):
    """Works at once, on what would be sent to another process."""

    def __init__(self, workers=None):
        self.tasks = []
        if workers is not None:
            self._max_workers = workers

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        fn, args, kwargs = pickle.loads(pickle.dumps((fn, args, kwargs)))
        self.tasks.append(args[0])
        try:
            future.set_result(pickle.loads(pickle.dumps(fn(*args, **kwargs))))
        except BaseException as error:  # noqa: BLE001 - what an executor does
            future.set_exception(error)
        return future


def jobs_of(count=7):
    methods = ("prop", "u-prr", "unbiased")
    return [Job(BAGS, methods[i % 3], seed=i, epochs=2, batch_size=64) for i in range(count)]


@pytest.mark.parametrize(
    ("workers", "stack_size", "sizes"),
    [(2, None, [4, 3]), (10, None, [1] * 7), (None, None, [1] * 7), (2, 3, [3, 2, 2])],
)
def test_the_fits_are_those_of_this_process(workers, stack_size, sizes):
    executor, seen = Pickling(workers), {}
    options = {"precision": "float64", "on_finish": seen.update}
    fits = fit_many(jobs_of(), executor=executor, stack_size=stack_size, **options)
    here = fit_many(jobs_of(), precision="float64")
    assert [len(task) for task in executor.tasks] == sizes
    for i, (one, other) in enumerate(zip(fits, here, strict=True)):
        assert (one.method, one.n_epochs) == (other.method, other.n_epochs)
        for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        assert seen[i] is one


def test_parts_have_as_many_of_every_kind():
    executor = Pickling(2)
    fit_many(jobs_of(6), executor=executor)
    for task in executor.tasks:
        assert sorted(job.method for job in task) == ["prop", "u-prr", "unbiased"]


def test_without_jobs_nothing_is_sent():
    executor = Pickling(2)
    assert fit_many([], executor=executor) == []
    assert executor.tasks == []


def test_rows_are_sent_once_with_a_part():
    executor = Pickling(1)
    fit_many(jobs_of(), executor=executor)
    (task,) = executor.tasks
    assert len({id(job.bags.source) for job in task}) == 1


def test_what_is_refused():
    with pytest.raises(InvalidInputError, match=r"executor must be an executor of concurrent\.fut"):
        fit_many(jobs_of(), executor="ray")
    with pytest.raises(InvalidInputError, match="stack_size must be a whole number of at least 1"):
        fit_many(jobs_of(), executor=Pickling(), stack_size=0)
    executor = Pickling()
    with pytest.raises(InvalidInputError, match="seed must be"):
        fit_many([*jobs_of(), Job(BAGS, seed=-1)], executor=executor)
    assert not executor.tasks


def test_an_error_elsewhere_is_raised_here():
    class Failing(Pickling):
        def submit(self, fn, /, *args, **kwargs):
            del fn
            return super().submit(_fail, *args, **kwargs)

    with pytest.raises(RuntimeError, match="lost its disk"):
        fit_many(jobs_of(), executor=Failing(2))


def _fail(*_, **__):
    raise RuntimeError("the worker lost its disk")


def test_without_ray(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(unbag.exceptions.MissingDependencyError, match=r"'unbag\[ray\]'"):
        unbag.distributed.ray_executor()

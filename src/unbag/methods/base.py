"""What a method is: settings, and the trainings it takes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from unbag.progress import StageTimes
from unbag.training import Fit, Replica

if TYPE_CHECKING:
    from unbag.methods.job import Job

__all__ = ["Method", "Task", "Trainings"]


@dataclass(frozen=True)
class Task:
    """Work that no network does, such as growing trees; the driver runs it and shows progress.

    Of several processes that fit a model together, the first one does it, and the others are sent
    the result. So it must be picklable, and what else the work changes is known to later work only.

    Parameters
    ----------
    stage : str
        What the work is, for the progress bar.
    run : callable
        Does the work and returns the result.
    time_needed : float
        With a time limit the task is left out, and its result is None, where less time is left
        than this many times the longest stage so far; 0 for one that must be done.
    times : StageTimes, optional
        Times of all stages of the training, from which progress tells the time left.
    place : int
        The place of this one among them.
    """

    stage: str
    run: Callable[[], Any]
    time_needed: float = 0.0
    times: StageTimes | None = None
    place: int = 0


# Yields what to do next, replicas to train or tasks; receives the fits of the replicas, or the
# results of the tasks; and returns the fit of the job.
Trainings = Generator[list[Replica] | list[Task], list[Any], Fit]


@dataclass(frozen=True)
class Method(ABC):
    """A recipe for a model: its settings are the fields, its trainings come from ``fit``.

    A subclass is a frozen dataclass with ``name`` and ``summary``. An object of it can be given to
    :class:`unbag.UnbagClassifier` at once. Its name is known there, to :func:`get_method` and to
    the command line once the class is registered: in ``unbag.methods.registry``, or by your
    package under the entry point group ``unbag.methods``.

    Attributes
    ----------
    name : str
        The name that users give.
    summary : str
        What the method does, in one line.
    needs_rank : bool
        Whether Θ must have full column rank.
    is_single : bool
        Whether the method trains once. Only such a method can stop early, or go on from the
        network of the last fit.
    takes_labels : bool
        Whether the method learns from labelled rows beside bags.

    Examples
    --------
    A method that trains twice, the second time on more epochs:

    >>> import numpy as np, unbag
    >>> from dataclasses import replace
    >>> from unbag.methods import Job, fit_many
    >>> from unbag.objectives import Proportion
    >>> @dataclass(frozen=True)
    ... class Twice(Method):
    ...     name = "twice"
    ...     summary = "prop, and again for longer"
    ...     factor: int = 2
    ...     def fit(self, job):
    ...         first = job.replica(job.objective(Proportion), epochs=2)
    ...         yield [first]
    ...         (fit,) = yield [replace(first, epochs=2 * self.factor)]
    ...         return fit
    >>> X, y = np.eye(4).repeat(50, 0)[:, :3], np.repeat([0, 0, 1, 1], 50)
    >>> bags = unbag.make_bags(X, y, [[0.9, 0.1], [0.2, 0.8]], random_state=0)
    >>> (fit,) = fit_many([Job(bags, Twice(factor=3))])
    >>> fit.method, fit.settings, fit.n_epochs
    ('twice', {'factor': 3}, 6)
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    needs_rank: ClassVar[bool] = False
    is_single: ClassVar[bool] = False
    takes_labels: ClassVar[bool] = False

    @property
    def settings(self) -> dict[str, Any]:
        """Names and values of the settings."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check(self, job: "Job") -> None:
        """Refuse a job that this method cannot do, before anything is trained."""
        del job  # most methods do any

    def epochs(self, job: "Job") -> int:
        """Return the number of epochs that ``epochs=None`` stands for."""
        return job.usual_epochs

    def shorten(self, job: "Job", share: float) -> "Job":
        """Return the job with a share of its epochs, at least one, for a first look at a trial."""
        whole = self.epochs(job) if job.epochs is None else job.epochs
        return replace(job, method=self, epochs=max(1, round(share * whole)))

    @abstractmethod
    def fit(self, job: "Job") -> Trainings:
        """Yield the replicas to train next, receive their fits, and return the fit of the job.

        Stages of all jobs that run together are trained together, so that replicas of several jobs
        form stacks. A fit that diverged ends the job: return it.
        """

"""A time limit, and what still fits in it."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Deadline"]


class Deadline:
    """The time at which work is to end; what takes it looks here whether to go on.

    Parameters
    ----------
    seconds : float, default=inf
        From now.
    clock : callable
        Gives the time in seconds.
    agree : callable, optional
        Makes an answer that of all processes that share the work.

    Examples
    --------
    >>> time_now = iter([0, 0, 4, 4, 4])
    >>> deadline = Deadline(10, clock=lambda: next(time_now))
    >>> with deadline.stage():  # takes 4 s
    ...     pass
    >>> deadline.has_time_for(1), deadline.has_time_for(2)
    (True, False)
    """

    def __init__(
        self,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        agree: Callable[[bool], bool] = bool,
    ) -> None:
        self.clock = clock
        self.agree = agree
        self._end = clock() + seconds
        self._longest = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self._end - self.clock())

    def part(self, share: float) -> "Deadline":
        """Return the deadline of work that may take a share of the time left."""
        return Deadline(share * self.left, self.clock, self.agree)

    @contextmanager
    def stage(self) -> Iterator[None]:
        """Measure a stage of the work."""
        start = self.clock()
        yield
        self._longest = max(self._longest, self.clock() - start)

    def has_time_for(self, stages: float) -> bool:
        """Whether so many stages fit, each as long as the longest so far."""
        return self._end == math.inf or self.agree(stages * self._longest <= self.left)

"""Progress with the time left, on standard error: bars, or lines if it is no terminal."""

import datetime
import logging
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

__all__ = ["DownloadProgress", "RowProgress", "StageProgress", "StageTimes", "TrainingProgress"]


_LOG = logging.getLogger("unbag")
_EVERY = 60.0  # seconds between lines where there is no terminal


class _Clock:
    """When the last line was printed: one time for all steps, since many are shorter than that."""

    told: float | None = None

    @classmethod
    def until_next(cls) -> float:
        """Seconds until the next line; the first step of the process starts the clock."""
        if cls.told is None:
            cls.told = time.monotonic()
        return cls.told + _EVERY - time.monotonic()


class _Bar:
    """One step: a progress bar on a terminal, and one line per minute where there is none.

    What it took is logged. It is silent when it is not to be visible.
    """

    def __init__(
        self,
        title: str,
        *columns: ProgressColumn,
        visible: bool,
        transient: bool = False,
        ahead: float = 0.0,
    ) -> None:
        self._ahead = ahead
        console = Console(stderr=True)
        is_shown = console.is_terminal or console.is_jupyter
        self._title, self._lines = title, visible and not is_shown
        self._started = time.monotonic()
        self._ended, self._teller = threading.Event(), threading.Thread(target=self._tell)
        self._teller.daemon = True
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *columns,
            console=console,
            disable=not (visible and is_shown),
            transient=transient,
        )

    def __enter__(self) -> Self:
        if not self._bar.disable:  # old versions of rich print an empty line else
            self._bar.start()
        if self._lines:
            self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:
            self._bar.stop()
        self._ended.set()
        if self._lines:
            self._teller.join()
        _LOG.info("%s: %s", self._title, _duration(time.monotonic() - self._started))

    def _tell(self) -> None:
        """Print a line once a minute, also while the step does one long thing."""
        while not self._ended.wait(max(0.0, _Clock.until_next())):
            if _Clock.until_next() <= 0:
                _Clock.told = time.monotonic()
                print(self._line(), file=sys.stderr, flush=True)  # noqa: T201 - a bar in words

    def _line(self) -> str:
        """Say how far the step is."""
        taken = time.monotonic() - self._started
        task = self._bar.tasks[-1] if self._bar.tasks else None
        if task is None or not (task.total and task.completed):
            return f"{self._title}: {_duration(taken)} so far"
        done = task.completed / task.total
        left = _duration(taken * (1 / done - 1 + self._ahead / done))
        most = "at most about " if self._ahead else ""
        return f"{self._title}: {done:.0%}, {_duration(taken)} so far, {most}{left} left"


def _duration(seconds: float) -> str:
    """Say a time in words.

    Examples
    --------
    >>> [_duration(seconds) for seconds in (0.4, 65, 7300)]
    ['0.4 s', '1 min 5 s', '2 h 1 min']
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, over = divmod(minutes, 60)
    return f"{hours} h {over} min" if hours else f"{minutes} min {rest} s"


class RowProgress(_Bar):
    """Rows done; called with their number and the number of all rows (None where not known).

    Parameters
    ----------
    title : str
    visible : bool
    """

    def __init__(self, title: str, visible: bool) -> None:
        columns = (MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"))
        super().__init__(title, *columns, TimeRemainingColumn(), visible=visible, transient=True)
        self._task = self._bar.add_task(title, total=None)

    def __call__(self, done: int, total: int | None) -> None:
        """Tell how many rows are done."""
        self._bar.update(self._task, completed=done, total=total)


class TimeLeft(NamedTuple):
    """Seconds that are left, and whether they are a guess on the high side."""

    seconds: float
    is_bound: bool

    def __str__(self) -> str:
        """Say it in words.

        Examples
        --------
        >>> str(TimeLeft(125, is_bound=True)), str(TimeLeft(125, is_bound=False))
        ('at most about 2 min 5 s left', 'about 2 min 5 s left')
        """
        return f"{'at most ' * self.is_bound}about {_duration(self.seconds)} left"


class StageTimes:
    """How long the stages of one training took so far, and how long all that are left will take.

    A stage takes as long as the last one of its kind. If there was none yet, its cost tells how
    long it takes at most beside the kinds that are known.

    Parameters
    ----------
    kinds : sequence of str
        The kind of every planned stage, in order.
    costs : mapping of str to float
        How long a stage of each kind takes, at most, in units of any one of them.

    Examples
    --------
    >>> times = StageTimes(["linear", "forest", "forest"], {"linear": 1, "forest": 10})
    >>> times.left(0, 3.0) is None  # nothing is known yet
    True
    >>> times.end(0, 4.0)
    >>> times.left(1, 10.0)  # 40 + 40 - 10
    TimeLeft(seconds=70.0, is_bound=True)
    >>> times.end(1, 25.0)
    >>> times.left(2, 10.0)
    TimeLeft(seconds=15.0, is_bound=False)
    """

    def __init__(self, kinds: Sequence[str], costs: Mapping[str, float]) -> None:
        self._kinds = kinds
        self._costs = costs
        self._took: dict[str, float] = {}

    def end(self, place: int, seconds: float) -> None:
        """Note how long the stage at this place of the plan took."""
        self._took[self._kinds[place]] = seconds

    def left(self, place: int, elapsed: float) -> TimeLeft | None:
        """Return what is left from a stage on that has taken some seconds so far, if any is known.

        A stage that takes longer than it should makes later ones of its kind longer too.
        """
        if not self._took:
            return None
        unit = max(seconds / self._costs[kind] for kind, seconds in self._took.items())
        ahead = self._kinds[place:]
        times = {kind: self._took.get(kind, unit * self._costs[kind]) for kind in ahead}
        times[ahead[0]] = max(times[ahead[0]], elapsed)
        seconds = sum(times[kind] for kind in ahead) - elapsed
        return TimeLeft(seconds, not set(ahead) <= set(self._took))


class _StagesRemaining(ProgressColumn):
    """The time left of all stages, while one runs."""

    max_refresh = 0.5

    def __init__(self, stage: "StageProgress") -> None:
        super().__init__()
        self._stage = stage

    def render(self, task: Task) -> Text:
        """Write it in words; nothing once the stage has ended."""
        left = None if task.finished_time is not None else self._stage.left(task.elapsed or 0.0)
        return Text(str(left or ""), style="progress.remaining")


class StageProgress(_Bar):
    """One step of unknown length: the time that it has taken so far, and the time left of all.

    Parameters
    ----------
    title : str
    visible : bool
    times : StageTimes, optional
        Those of all steps; it is told how long this one took.
    place : int, default=0
        The place of this step among them.
    limit : float, default=inf
        Seconds after which all ends in any case.
    """

    def __init__(
        self,
        title: str,
        visible: bool,
        times: StageTimes | None = None,
        place: int = 0,
        limit: float = math.inf,
    ) -> None:
        self._times, self._place, self._limit = times, place, limit
        super().__init__(title, TimeElapsedColumn(), _StagesRemaining(self), visible=visible)
        self._task = self._bar.add_task(title, total=None)

    def __exit__(self, *error: object) -> None:
        taken = time.monotonic() - self._started
        if self._times is not None and error[0] is None:
            self._times.end(self._place, taken)
        self._bar.update(self._task, total=1, completed=1)
        super().__exit__(*error)

    def left(self, elapsed: float) -> TimeLeft | None:
        """Return the time left of this step and all later ones, where it is known."""
        left = None if self._times is None else self._times.left(self._place, elapsed)
        if left is None:
            return None
        return left._replace(seconds=min(left.seconds, max(0.0, self._limit - elapsed)))

    def _line(self) -> str:
        taken = time.monotonic() - self._started
        left = self.left(taken)
        return f"{self._title}: {_duration(taken)} so far" + (f", {left}" if left else "")


class _AllRemaining(ProgressColumn):
    """The time left of a step and of those after it."""

    max_refresh = 0.5

    def __init__(self, ahead: float) -> None:
        super().__init__()
        self._ahead = ahead

    def render(self, task: Task) -> Text:
        """Write it as rich writes the time left of one step."""
        if task.time_remaining is None:
            return Text("-:--:--", style="progress.remaining")
        whole = (task.elapsed or 0.0) + task.time_remaining
        left = datetime.timedelta(seconds=round(task.time_remaining + self._ahead * whole))
        return Text(str(left), style="progress.remaining")


class TrainingProgress(_Bar):
    """Finished epochs of all models together.

    Parameters
    ----------
    total : int
        Models × epochs.
    visible : bool
    label : str, default="training"
        What is trained.
    ahead : float, default=0.0
        How much longer than this step all later ones take, at most: the time left is that of all.
    """

    def __init__(
        self, total: int, visible: bool, label: str = "training", ahead: float = 0.0
    ) -> None:
        super().__init__(
            label,
            MofNCompleteColumn(),
            TextColumn("model-epochs"),
            TimeElapsedColumn(),
            TextColumn("left at most" if ahead else "left"),
            _AllRemaining(ahead),
            TextColumn("{task.fields[note]}"),
            visible=visible,
            ahead=ahead,
        )
        self._task = self._bar.add_task(label, total=total, note="")

    def advance(self, model_epochs: int, note: str = "") -> None:
        """Count finished model-epochs."""
        self._bar.update(self._task, advance=model_epochs, note=note)


class DownloadProgress(_Bar):
    """Bytes of one file after another, where standard error is a terminal.

    ``total``, ``update``, ``reset`` and ``close`` are what pooch expects of a progress bar.

    Parameters
    ----------
    visible : bool
    """

    def __init__(self, visible: bool) -> None:
        columns = (DownloadColumn(), TransferSpeedColumn(), TextColumn("left"))
        visible = visible and Console(stderr=True).is_terminal
        super().__init__("download", *columns, TimeRemainingColumn(), visible=visible)

    def start(self, file: str) -> None:
        """Begin the bar of another file; its size is not yet known."""
        self._task = self._bar.add_task(file, total=None)

    @property
    def total(self) -> float | None:
        """Bytes to come, or None where the server does not say."""
        return self._bar.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._bar.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        """Count bytes that came."""
        self._bar.update(self._task, advance=size)

    def reset(self) -> None:
        """Count from zero again."""
        self._bar.update(self._task, completed=0)

    def close(self) -> None:
        """End the bar of this file."""
        self._bar.stop_task(self._task)

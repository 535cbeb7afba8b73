"""Progress bars with the time left, on standard error."""

from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

__all__ = ["DownloadProgress", "RowProgress", "StageProgress", "TrainingProgress"]


class _Bar:
    """A progress bar as a context manager; silent when it is not to be visible."""

    def __init__(self, *columns: ProgressColumn, visible: bool, transient: bool = False) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *columns,
            console=Console(stderr=True),
            disable=not visible,
            transient=transient,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class RowProgress(_Bar):
    """Rows done; called with their number and the number of all rows (None where not known).

    Parameters
    ----------
    title : str
    visible : bool
    """

    def __init__(self, title: str, visible: bool) -> None:
        columns = (MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"))
        super().__init__(*columns, TimeRemainingColumn(), visible=visible, transient=True)
        self._task = self._bar.add_task(title, total=None)

    def __call__(self, done: int, total: int | None) -> None:
        """Tell how many rows are done."""
        self._bar.update(self._task, completed=done, total=total)


class StageProgress(_Bar):
    """One step of unknown length, with the time that it has taken so far.

    Parameters
    ----------
    title : str
    visible : bool
    """

    def __init__(self, title: str, visible: bool) -> None:
        super().__init__(TimeElapsedColumn(), visible=visible)
        self._bar.add_task(title, total=None)


class TrainingProgress(_Bar):
    """Finished epochs of all models together.

    Parameters
    ----------
    total : int
        Models × epochs.
    visible : bool
    label : str, default="training"
        What is trained.
    """

    def __init__(self, total: int, visible: bool, label: str = "training") -> None:
        super().__init__(
            MofNCompleteColumn(),
            TextColumn("model-epochs"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            visible=visible,
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
        super().__init__(*columns, TimeRemainingColumn(), visible=visible)

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

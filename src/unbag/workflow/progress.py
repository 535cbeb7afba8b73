"""A progress bar of rows with the time left."""

from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["RowProgress"]


class RowProgress:
    """Shows rows done on standard error; silent when not wanted.

    It is called with the rows done and the rows in all (None where not known).

    Parameters
    ----------
    title : str
    visible : bool
    """

    def __init__(self, title: str, visible: bool) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not visible,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        """Tell how many rows are done."""
        self._bar.update(self._task, completed=done, total=total)

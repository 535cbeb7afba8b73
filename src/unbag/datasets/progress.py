"""A progress bar of a download with the time left."""

from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

__all__ = ["DownloadProgress"]


class DownloadProgress:
    """One bar a file on standard error, where that is a terminal; silent when not wanted.

    ``total``, ``update``, ``reset`` and ``close`` are what pooch expects of a progress bar.

    Parameters
    ----------
    visible : bool
    """

    def __init__(self, visible: bool) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not (visible and console.is_terminal),
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

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

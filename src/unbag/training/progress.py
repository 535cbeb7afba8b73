"""A progress bar of models × epochs with the time left."""

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

__all__ = ["TrainingProgress"]


class TrainingProgress:
    """Counts finished model-epochs on standard error; silent when not wanted.

    Parameters
    ----------
    total : int
        Models × epochs.
    visible : bool
    label : str, default="training"
        What is trained.
    """

    def __init__(self, total: int, visible: bool, label: str = "training") -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("model-epochs"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            disable=not visible,
        )
        self._task = self._bar.add_task(label, total=total, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, model_epochs: int, note: str = "") -> None:
        """Count finished model-epochs."""
        self._bar.update(self._task, advance=model_epochs, note=note)

"""What was recorded in every epoch of a stack, on the CPU."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["History"]

_PREFIX = "history."  # of its tensors in a checkpoint


class History:
    """Columns of (epochs, R, ...) each, filled epoch by epoch.

    They are made for all epochs at once. Tensors of single epochs would be scattered among the
    large ones of a step, so that memory could never be given back.

    Parameters
    ----------
    epochs : int
        The most epochs.

    Attributes
    ----------
    n_epochs : int
        Epochs in it.
    """

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs
        self._columns: dict[str, Tensor] = {}
        self.n_epochs = 0

    def write(self, epoch: int, row: dict[str, Tensor]) -> None:
        """Write the values (R, ...) of an epoch, counted from 0."""
        for name, value in row.items():
            if name not in self._columns:
                shape = (self._epochs, *value.shape)
                self._columns[name] = torch.empty(shape, dtype=value.dtype)
            self._columns[name][epoch].copy_(value)
        self.n_epochs = epoch + 1

    def of(self, replica: int, n_epochs: int, n_bags: int) -> dict[str, NDArray[np.float64]]:
        """Columns of one replica, of its epochs and bags."""
        columns = {"epoch": np.arange(1, n_epochs + 1, dtype=np.float64)}
        for name, values in self._columns.items():
            column = values[:n_epochs, replica].to(torch.float64, copy=True).numpy()
            columns[name] = column[:, :n_bags] if column.ndim == 3 else column
        return columns

    def last(self, replica: int) -> dict[str, float]:
        """Numbers of the last epoch of one replica, without those that are no number."""
        values = {
            name: column[self.n_epochs - 1, replica].item()
            for name, column in self._columns.items()
            if column.ndim == 2
        }
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def describe_last(self) -> str:
        """Say how the last epoch went, in the mean of the replicas."""
        last = self.n_epochs - 1
        if "test_error" in self._columns:
            return f"test error {self._columns['test_error'][last].nanmean():.2%}"
        return f"objective {self._columns['objective'][last].mean():.4f}"

    def tensors(self) -> dict[str, Tensor]:
        """Give its tensors for a checkpoint."""
        return {f"{_PREFIX}{k}": v[: self.n_epochs].clone() for k, v in self._columns.items()}

    def restore(self, tensors: dict[str, Tensor], n_epochs: int) -> None:
        """Take over the tensors of a checkpoint, whose other names do not matter."""
        saved = {k.removeprefix(_PREFIX): v for k, v in tensors.items() if k.startswith(_PREFIX)}
        for epoch in range(n_epochs):
            self.write(epoch, {name: values[epoch] for name, values in saved.items()})

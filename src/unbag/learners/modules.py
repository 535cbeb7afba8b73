"""What learners become: modules from rows to log-probabilities."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unbag.trees import UNSEEN, log_chances, logit_columns

__all__ = ["ACTIVATIONS", "Layers", "LearnerModel", "Scaled"]

_Classes = NDArray[np.int64]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "logistic": torch.sigmoid,
    "relu": torch.relu,
    "tanh": torch.tanh,
}


class LearnerModel(nn.Module):
    """A fitted classifier of any library as a module; it can predict, but not be saved.

    Parameters
    ----------
    learner : classifier
        Fitted to the classes 0, 1, ...
    classes : integer array
        Which of the classes 0 to K−1 these are.
    n_classes : int
        K.
    """

    def __init__(self, learner: Any, classes: _Classes, n_classes: int) -> None:
        super().__init__()
        self.learner = learner
        self.classes = classes
        self.n_classes = n_classes

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, d)."""
        chances = np.zeros((len(x), self.n_classes))
        if len(x):
            chances[:, self.classes] = self.learner.predict_proba(x.cpu().numpy())
        return log_chances(torch.as_tensor(chances, device=x.device))


class Layers(nn.Module):
    """Linear layers with one activation between them; with a single layer, a linear classifier.

    Parameters
    ----------
    widths : sequence of int
        Numbers that go into each layer, and K.
    activation : str
        A key of ``ACTIVATIONS``.
    """

    def __init__(self, widths: Sequence[int], activation: str) -> None:
        super().__init__()
        self.hidden = list(widths[1:-1])
        self.activation = activation
        self.layers = nn.ModuleList(
            nn.Linear(width, after, dtype=torch.float64)
            for width, after in itertools.pairwise(widths)
        )

    @classmethod
    def of(
        cls,
        matrices: Sequence[NDArray[Any]],
        offsets: Sequence[NDArray[Any]],
        activation: str,
        classes: _Classes,
        n_classes: int,
    ) -> "Layers":
        """Take over matrices (in, out) and offsets; the last give a logit per known class."""
        columns = logit_columns(classes) if matrices[-1].shape[1] == 1 else classes
        place = np.eye(n_classes)[columns]
        unseen = np.full(n_classes, UNSEEN)
        unseen[classes] = 0.0
        matrices = [*matrices[:-1], matrices[-1] @ place]
        offsets = [*offsets[:-1], offsets[-1] @ place + unseen]
        module = cls([len(matrices[0]), *(matrix.shape[1] for matrix in matrices)], activation)
        with torch.no_grad():
            for layer, matrix, offset in zip(module.layers, matrices, offsets, strict=True):
                layer.weight.copy_(torch.as_tensor(matrix.T))  # type: ignore[operator]
                layer.bias.copy_(torch.as_tensor(offset))  # type: ignore[operator]
        return module

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, d)."""
        *hidden, last = self.layers
        for layer in hidden:
            x = ACTIVATIONS[self.activation](layer(x))
        return log_chances(torch.softmax(last(x), -1))

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments of empty layers of the same form, but for numbers that go in and K."""
        return {"hidden": self.hidden, "activation": self.activation}

    @classmethod
    def of_sizes(
        cls, n_columns: int, n_classes: int, hidden: Sequence[int], activation: str
    ) -> "Layers":
        """Make empty layers of these sizes, whose tensors are then filled."""
        return cls([n_columns, *hidden, n_classes], activation)


class Scaled(nn.Module):
    """A model of columns that are shifted and scaled, as by the scalers of scikit-learn.

    Parameters
    ----------
    n_columns : int
    inner : nn.Module
    """

    center: Tensor
    factor: Tensor

    def __init__(self, n_columns: int, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("center", torch.zeros(n_columns, dtype=torch.float64))
        self.register_buffer("factor", torch.ones(n_columns, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, d)."""
        out: Tensor = self.inner((x - self.center) * self.factor)
        return out

"""Multilayer perceptrons."""

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from unbag.validation import check_number

__all__ = ["MLP", "MLP_DEFAULTS"]

MLP_DEFAULTS: dict[str, Any] = {"depth": 3, "width": 300, "dropout": 0.0}


class MLP(nn.Module):
    """Fully connected network: blocks of Linear, ReLU, BatchNorm, then a Linear output.

    Parameters
    ----------
    n_features : int
        Numbers in a row; rows of any shape are flattened.
    n_classes : int
        K.
    depth : int, default=3
        Number of Linear layers; 1 is a linear model. The paper uses 3 and 5.
    width : int, default=300
        Units of each hidden layer.
    dropout : float in [0, 1), default=0.0
        Share of hidden units dropped after each block.

    Examples
    --------
    >>> MLP(16, 10, depth=3)(torch.zeros(2, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        depth: int = 3,
        width: int = 300,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_number("depth", depth, low=1, integer=True)
        check_number("width", width, low=1, integer=True)
        check_number("dropout", dropout, low=0, high=1, high_open=True)
        self.dropout = dropout
        sizes = [n_features, *[width] * (depth - 1), n_classes]
        pairs = list(itertools.pairwise(sizes))
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for _, b in pairs[:-1])

    @property
    def architecture(self) -> tuple[object, ...]:
        """What two MLPs must share to be trained in one stack (dropout may differ)."""
        return ("MLP", *(tuple(layer.weight.shape) for layer in self.blocks()[0]))

    def blocks(self) -> tuple[list[nn.Linear], list[nn.BatchNorm1d]]:
        """Linear layers and normalisations, in order."""
        linears = [m for m in self.linears if isinstance(m, nn.Linear)]
        return linears, [m for m in self.norms if isinstance(m, nn.BatchNorm1d)]

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, K) of rows (n, ...)."""
        x = x.flatten(1)
        for linear, norm in zip(self.linears[:-1], self.norms, strict=True):
            x = norm(torch.relu(linear(x)))
            x = nn.functional.dropout(x, self.dropout, self.training)
        out: Tensor = self.linears[-1](x)
        return out

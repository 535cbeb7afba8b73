"""What methods that train on labels of their own making share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unbag.bags import Bags
from unbag.models import ResNet20

__all__ = ["has_mirror_images", "optimizer_of", "row_ratios"]

_COLOURS = 3


def row_ratios(bags: Bags, pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """θ_mk / p_k for the bag m of every row: (n, K)."""
    ratios = bags.priors.values / np.where(pooled > 0, pooled, 1)
    return np.asarray(ratios[bags.bag_index])


def has_mirror_images(row_shape: tuple[int, ...]) -> bool:
    """Whether rows may be mirrored, left for right: colour images, but not letters or tables.

    Examples
    --------
    >>> has_mirror_images((3, 32, 32)), has_mirror_images((1, 28, 28)), has_mirror_images((16,))
    (True, False, False)
    """
    return len(row_shape) == 3 and row_shape[0] == _COLOURS


def optimizer_of(module: nn.Module, *, learning_rate: float, shrinkage: float) -> dict[str, Any]:
    """Choose settings of a replica: gradient descent with momentum for a residual network.

    Parameters
    ----------
    module : nn.Module
    learning_rate, shrinkage : float
        Of Adam, which trains every other network.
    """
    if isinstance(module, ResNet20):
        return {"optimizer": "sgd", "learning_rate": 0.1, "shrinkage": 5e-3}
    return {"optimizer": "adam", "learning_rate": learning_rate, "shrinkage": shrinkage}

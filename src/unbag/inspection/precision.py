"""How well the accuracy could be known without labels, for a model that is not trained yet."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["even_confusion", "relative_sensitivity"]

Floats = NDArray[np.float64]


def even_confusion(n_classes: int, accuracy: float) -> Floats:
    """Confusion matrix (K, K) of a model that is right at one rate and errs evenly.

    Examples
    --------
    >>> even_confusion(3, 0.9)
    array([[0.9 , 0.05, 0.05],
           [0.05, 0.9 , 0.05],
           [0.05, 0.05, 0.9 ]])
    """
    confusion = np.full((n_classes, n_classes), (1 - accuracy) / (n_classes - 1))
    np.fill_diagonal(confusion, accuracy)
    return confusion


def relative_sensitivity(weights: Floats, theta: Floats, rate: float) -> float:
    r"""Deviation of the label-free accuracy where every share is off by a relative error.

    An error :math:`d\Theta` moves the estimate of a good model by
    :math:`dA = -\operatorname{tr}(\Pi\Theta^\dagger d\Theta) = -\sum_{mk} W_{mk} d\theta_{mk}`,
    to first order. With independent relative errors of standard deviation ``rate``, rows scaled
    back to sum 1, its standard deviation is

    .. math:: \text{rate} \cdot \Bigl(\sum_{mk} \theta_{mk}^2
              \bigl(W_{mk} - \textstyle\sum_j \theta_{mj} W_{mj}\bigr)^2\Bigr)^{1/2}.

    Examples
    --------
    >>> relative_sensitivity(np.eye(2) / 2, np.eye(2), 0.01)  # pure bags stay pure
    0.0
    """
    centred = weights - (theta * weights).sum(1, keepdims=True)
    return float(rate * np.sqrt(((theta * centred) ** 2).sum()))

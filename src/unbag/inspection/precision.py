"""How well the accuracy could be known without labels: from Θ, bag sizes and prior errors."""

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "accuracy_variances",
    "error_moments",
    "relative_sensitivity",
    "share_sensitivity",
    "sized_weights",
]

Floats = NDArray[np.float64]


def sized_weights(theta: Floats, sizes: Floats, test_prior: Floats) -> Floats:
    r"""Weigh predicted shares so that they add up to the accuracy, large bags more than small.

    .. math:: W = (\Pi L)^\top, \qquad L = (\Theta^\top N \Theta)^{-1} \Theta^\top N

    with N the diagonal matrix of bag sizes and :math:`L\Theta = I`. Returns (M, K) weights.

    Examples
    --------
    >>> sized_weights(np.eye(2), np.array([10.0, 30.0]), np.array([0.25, 0.75]))
    array([[0.25, 0.  ],
           [0.  , 0.75]])
    """
    root = np.sqrt(sizes)  # (M,)
    left = np.linalg.pinv(root[:, None] * theta) * root  # (K, M)
    weights: Floats = (test_prior[:, None] * left).T
    return weights


def accuracy_variances(
    weights: Floats, theta: Floats, sizes: Floats, accuracy: float
) -> tuple[float, float]:
    r"""Variance of the label-free accuracy of a model that is right at a given rate.

    The estimate is :math:`\sum_m \operatorname{mean}_{i \in m} W_{m\hat{y}_i}`. Let C (K×K) be
    the model's confusion, here ``accuracy`` on the diagonal and equal errors elsewhere, and
    :math:`V = \Theta C` its predicted shares. For rows drawn freely the variance is

    .. math:: \sum_m \frac{1}{n_m} \Bigl(\sum_k V_{mk} W_{mk}^2
              - \bigl(\sum_k V_{mk} W_{mk}\bigr)^2\Bigr)

    and for bags whose class counts are exact only the classes' own variances are left,

    .. math:: \sum_m \frac{1}{n_m} \sum_j \theta_{mj} \Bigl(\sum_k C_{jk} W_{mk}^2
              - \bigl(\sum_k C_{jk} W_{mk}\bigr)^2\Bigr).

    Returns
    -------
    The two variances, the second never larger than the first.

    Examples
    --------
    Pure bags: the variance of a share, 0.9 · 0.1 / n.

    >>> free, exact = accuracy_variances(np.eye(2) / 2, np.eye(2), np.array([50.0, 50.0]), 0.9)
    >>> round(free, 6), round(exact, 6)
    (0.0009, 0.0009)
    """
    n_classes = theta.shape[1]
    confusion = np.full((n_classes, n_classes), (1 - accuracy) / (n_classes - 1))
    np.fill_diagonal(confusion, accuracy)
    mean, square = weights @ confusion.T, weights**2 @ confusion.T  # (M, K) given the true class
    within = (theta * (square - mean**2)).sum(1)  # (M,)
    between = (theta * mean**2).sum(1) - (theta * mean).sum(1) ** 2
    return float(((within + between) / sizes).sum()), float((within / sizes).sum())


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


def share_sensitivity(weights: Floats, errors: Floats) -> float:
    r"""Deviation of the label-free accuracy from the standard errors s of the shares.

    :math:`dA = -\sum_{mk} W_{mk} d\theta_{mk}` as in :func:`relative_sensitivity`. The errors of
    a bag add up to 0; they are taken as independent but for that, and scaled so that their sizes
    stay those given. With :math:`q_{mk} = s_{mk}^2 / \sum_j s_{mj}^2` and
    :math:`\bar{W}_m = \sum_k q_{mk} W_{mk}`,

    .. math:: \operatorname{Var}(dA) = \sum_m \Bigl(1 - \sum_k q_{mk}^2\Bigr)^{-1}
              \sum_k s_{mk}^2 (W_{mk} - \bar{W}_m)^2.

    That is exact for two classes, and for shares counted in a sample if they are equal. In a bag
    either no share or at least two must have an error.

    Examples
    --------
    >>> round(share_sensitivity(np.eye(2) / 2, np.full((2, 2), 0.02)), 6)
    0.014142
    """
    q, variances = error_moments(errors)
    centred = weights - (q * weights).sum(1, keepdims=True)
    return float(np.sqrt((variances * centred**2).sum()))


def error_moments(errors: Floats) -> tuple[Floats, Floats]:
    """(M, K) q and s²/(1 − Σ_k q²) of :func:`share_sensitivity`; zeros for bags without errors."""
    square = errors**2
    total = square.sum(1, keepdims=True)
    q = square / np.where(total > 0, total, 1)
    spread = 1 - (q**2).sum(1, keepdims=True)  # (M, 1), positive where two shares have errors
    return q, square / np.where(total > 0, spread, 1)

"""What methods that train on labels of their own making share."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from unbag.bags import Bags

__all__ = [
    "balanced_posterior",
    "has_mirror_images",
    "row_ratios",
]

_Floats = NDArray[np.float64]
_COLOURS = 3
_FITTING_STEPS = 50
_TRUST = 30  # rows at which the shares of a bag count half
_SMALLEST = 1e-30


def row_ratios(bags: Bags, pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """θ_mk / p_k for the bag m of every row: (n, K)."""
    ratios = bags.priors.values / np.where(pooled > 0, pooled, 1)
    return np.asarray(ratios[bags.bag_index])


def balanced_posterior(
    log_eta: _Floats,
    bag_index: NDArray[np.int64],
    theta: _Floats,
    pooled: _Floats,
    weight: _Floats | None = None,
    *,
    balanced: bool = True,
) -> NDArray[np.float32]:
    r"""Posterior of every row given its bag, whose mean over the bag is the bag's shares.

    The factors :math:`c_{mk} = (\theta_{mk}/p_k) \, g_{mk}^{n_m / (n_m + 30)}`, with g found by
    iterative proportional fitting. Shares of a few rows differ from those of the bag that they
    were drawn from, so small bags are balanced in part.

    Parameters
    ----------
    log_eta : array of shape (n, K)
        Log-probabilities under the pooled prior.
    bag_index : integer array of shape (n,)
    theta : array of shape (M, K)
    pooled : array of shape (K,)
    weight : array of shape (n,), optional
    balanced : bool, default=True
        Otherwise g = 1.

    Examples
    --------
    >>> eta = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    >>> theta, bag_index = np.array([[0.5, 0.5]]), np.zeros(4, int)
    >>> balanced_posterior(np.log(eta), bag_index, theta, theta[0]).mean(0).round(2)
    array([0.59, 0.41], dtype=float32)
    """
    m, k = theta.shape
    if weight is not None:
        weight = weight / weight.mean()
    counts = np.bincount(bag_index, weights=weight, minlength=m)[:, None]
    ratio = np.where(pooled > 0, theta / np.where(pooled > 0, pooled, 1), 0.0)
    trust = counts / (counts + _TRUST)
    gain = np.ones_like(theta)

    def posterior(factors: _Floats) -> _Floats:
        with np.errstate(divide="ignore"):  # −inf for a class that the bag lacks
            joint = log_eta + np.log(factors)[bag_index]
        return np.asarray(np.exp(log_softmax(joint, axis=1)))

    def bag_means(q: _Floats) -> _Floats:
        q = q if weight is None else q * weight[:, None]
        sums = [np.bincount(bag_index, weights=q[:, c], minlength=m) for c in range(k)]
        return np.asarray(np.stack(sums, 1) / np.maximum(counts, _SMALLEST))

    for _ in range(_FITTING_STEPS if balanced else 0):
        mean = bag_means(posterior(ratio * gain))
        step = np.where((theta > 0) & (counts > 0), theta / np.maximum(mean, 1e-9), 1.0)
        gain = np.clip(gain * step, 1e-4, 1e4)
        if np.abs(mean - theta)[counts[:, 0] > 0].max() < 1e-4:
            break
    return posterior(ratio * gain**trust).astype(np.float32)


def has_mirror_images(row_shape: tuple[int, ...]) -> bool:
    """Whether rows may be mirrored, left for right: colour images, but not letters or tables.

    Examples
    --------
    >>> has_mirror_images((3, 32, 32)), has_mirror_images((1, 28, 28)), has_mirror_images((16,))
    (True, False, False)
    """
    return len(row_shape) == 3 and row_shape[0] == _COLOURS

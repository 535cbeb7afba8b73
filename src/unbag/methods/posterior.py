"""Posteriors of rows given their bags, and how well they explain the bags of rows kept out."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from unbag.bags import Bags
from unbag.evaluation.likelihood import log_mixture
from unbag.methods.noisy_shares import NoisyShares, share_ratios
from unbag.methods.sizes import SMALLEST_SHARE

__all__ = ["balanced_posterior", "describe_gains", "log_gains", "row_ratios"]

_Floats = NDArray[np.float64]
_FITTING_STEPS, _CLOSE, _LARGEST_FACTOR = 50, 1e-4, 1e4
HALF_TRUSTED_ROWS = 30.0  # at which the shares of a bag count half


def row_ratios(bags: Bags, pooled: NDArray[np.float64]) -> NDArray[np.float64]:
    """θ_mk / p_k for the bag m of every row: (n, K)."""
    return _ratios(bags.priors.values, pooled)[bags.bag_index]


def _ratios(theta: _Floats, pooled: _Floats) -> _Floats:
    """θ / p: (M, K). A class that is in no bag has 0."""
    return np.asarray(theta / np.where(pooled > 0, pooled, 1))


def balanced_posterior(
    log_eta: _Floats,
    bag_index: NDArray[np.int64],
    theta: _Floats,
    pooled: _Floats,
    weight: _Floats | None = None,
    *,
    balanced: bool = True,
    half_trusted_rows: float = HALF_TRUSTED_ROWS,
    noisy: NoisyShares | None = None,
) -> NDArray[np.float32]:
    r"""Posterior of every row given its bag, whose mean over the bag is the bag's shares.

    The factors :math:`c_{mk} = (\theta_{mk}/p_k) \, g_{mk}^{n_m / (n_m + 30)}`, with g found by
    iterative proportional fitting. Shares of a few rows differ from those of the bag that they
    were drawn from, so small bags are balanced in part. Where shares are not exact, those of
    :func:`share_ratios` take their place, and the exponent is :math:`n_m / (n_m (1 + e_m) + 30)`.

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
    half_trusted_rows : float, default=30
        Rows at which the shares of a bag count half; 0 where shares were counted in these rows.
    noisy : NoisyShares, optional
        How far the shares bind; None where they are exact.

    Examples
    --------
    >>> eta = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    >>> theta, bag_index = np.array([[0.5, 0.5]]), np.zeros(4, int)
    >>> balanced_posterior(np.log(eta), bag_index, theta, theta[0]).mean(0).round(2)
    array([0.59, 0.41], dtype=float32)
    """
    m = len(theta)
    weight = np.ones(len(log_eta)) if weight is None else weight / weight.mean()
    counts = np.bincount(bag_index, weights=weight, minlength=m)[:, None]
    ratio = _ratios(theta, pooled)
    if noisy is not None:
        theta, ratio = share_ratios(noisy, log_eta, bag_index, theta, pooled, weight)
    gain = np.ones_like(theta)
    if balanced:
        ends = np.cumsum(np.bincount(bag_index, minlength=m))
        parts = np.split(np.argsort(bag_index, kind="stable"), ends[:-1])
        for bag in np.flatnonzero(counts[:, 0]):
            part = weight[parts[bag]] / counts[bag]
            gain[bag] = _fit_gain(log_eta[parts[bag]], part, ratio[bag], theta[bag])
    free = half_trusted_rows + (0 if noisy is None else counts * noisy.excess[:, None])
    trust = counts / np.maximum(counts + free, np.finfo(float).tiny)
    with np.errstate(divide="ignore"):  # −inf for a class that the bag lacks
        joint = log_eta + np.log(ratio * gain**trust)[bag_index]
    return np.asarray(np.exp(log_softmax(joint, axis=1)), dtype=np.float32)


def _fit_gain(log_eta: _Floats, part: _Floats, ratio: _Floats, theta: _Floats) -> _Floats:
    """Factors of one bag with which the mean posterior of its rows equals its shares: (K,).

    ``part`` is the share of each row in that mean.
    """
    possible = ratio > 0
    log_eta = np.where(possible, log_eta, -np.inf)
    eta = np.exp(log_eta - log_eta.max(1, keepdims=True))
    gain = np.ones_like(theta)
    for _ in range(_FITTING_STEPS):
        factors = ratio * gain
        mean = factors * ((part / (eta @ factors)) @ eta)
        if np.abs(mean - theta).max() < _CLOSE:
            break
        step = np.where(possible, theta / np.maximum(mean, SMALLEST_SHARE), 1.0)
        gain = np.clip(gain * step, 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
    return gain


def log_gains(log_eta: _Floats, ratios: _Floats) -> _Floats:
    """Logarithm of how much likelier the bag of every row is than by its size: (n,).

    ``log_eta`` are log-probabilities under the pooled prior, ``ratios`` those of
    :func:`row_ratios`.
    """
    return np.asarray(log_mixture(torch.from_numpy(ratios), torch.from_numpy(np.exp(log_eta))))


def describe_gains(gains: _Floats) -> str:
    """Say how much more often than by chance the right bag is named; one gain per row.

    Examples
    --------
    >>> text = describe_gains(np.log([1.5, 1.6, 1.4, 1.5]))
    >>> text.startswith("On 4 rows that it was not trained on, it names the right bag 1.50 times")
    True
    >>> text.partition(" as often as ")[2]
    'chance (95% interval 1.43 to 1.57).'
    """
    margin = 1.96 * gains.std() / np.sqrt(len(gains))
    middle, low, high = np.exp(gains.mean() + np.array([0, -margin, margin]))
    return (
        f"On {len(gains):,} rows that it was not trained on, it names the right bag {middle:.2f} "
        f"times as often as chance (95% interval {low:.2f} to {high:.2f})."
    )

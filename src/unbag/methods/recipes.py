"""What methods that train on labels of their own making share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import nn

from unbag.bags import Bags
from unbag.models import ResNet20

__all__ = [
    "DESCENT",
    "DESCENT_BATCH",
    "balanced_posterior",
    "descends",
    "has_mirror_images",
    "likelihood_gain",
    "log_gains",
    "row_ratios",
    "soft_batch",
    "soft_decay",
    "soft_epochs",
]

_Floats = NDArray[np.float64]
# With momentum, this shrinkage is a weight decay of 5e-4.
DESCENT: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.1, "shrinkage": 5e-3}
DESCENT_BATCH = 128
_ENOUGH_ROWS = 10_000
_SOFT_STEPS, _FEW_EPOCHS, _MANY_EPOCHS = 1400, 12, 150
_DECAY_ROWS, _MOST_DECAY = 280.0, 0.01
_LEAST_BATCH, _MOST_BATCH, _MANY_BATCHES = 32, 512, 7
_COLOURS = 3
_FITTING_STEPS, _CLOSE = 50, 1e-4
_TRUST = 30  # rows at which the shares of a bag count half


def descends(module: nn.Module, n_rows: int, learning_rate: float | None) -> bool:
    """Whether a network learns labels by gradient descent with momentum, and not by Adam.

    Residual networks end at smaller errors then; but in few steps, as small datasets have, they
    learn nothing.
    """
    return isinstance(module, ResNet20) and learning_rate is None and n_rows >= _ENOUGH_ROWS


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
    m = len(theta)
    weight = np.ones(len(log_eta)) if weight is None else weight / weight.mean()
    counts = np.bincount(bag_index, weights=weight, minlength=m)[:, None]
    ratio = np.where(pooled > 0, theta / np.where(pooled > 0, pooled, 1), 0.0)
    gain = np.ones_like(theta)
    if balanced:
        ends = np.cumsum(np.bincount(bag_index, minlength=m))
        parts = np.split(np.argsort(bag_index, kind="stable"), ends[:-1])
        for bag in np.flatnonzero(counts[:, 0]):
            own = weight[parts[bag]] / counts[bag]
            gain[bag] = _fit_gain(log_eta[parts[bag]], own, ratio[bag], theta[bag])
    trust = counts / (counts + _TRUST)
    with np.errstate(divide="ignore"):  # −inf for a class that the bag lacks
        joint = log_eta + np.log(ratio * gain**trust)[bag_index]
    return np.asarray(np.exp(log_softmax(joint, axis=1)), dtype=np.float32)


def _fit_gain(log_eta: _Floats, part: _Floats, ratio: _Floats, theta: _Floats) -> _Floats:
    """Factors of one bag that make the mean posterior of its rows its shares: (K,).

    ``part`` is the share of each row in that mean.
    """
    there = ratio > 0
    known = np.where(there, log_eta, -np.inf)
    eta = np.exp(known - known.max(1, keepdims=True))
    gain = np.ones_like(theta)
    for _ in range(_FITTING_STEPS):
        factors = ratio * gain
        mean = factors * ((part / (eta @ factors)) @ eta)
        if np.abs(mean - theta).max() < _CLOSE:
            break
        step = np.where(there, theta / np.maximum(mean, 1e-9), 1.0)
        gain = np.clip(gain * step, 1e-4, 1e4)
    return gain


def has_mirror_images(row_shape: tuple[int, ...]) -> bool:
    """Whether rows may be mirrored, left for right: colour images, but not letters or tables.

    Examples
    --------
    >>> has_mirror_images((3, 32, 32)), has_mirror_images((1, 28, 28)), has_mirror_images((16,))
    (True, False, False)
    """
    return len(row_shape) == 3 and row_shape[0] == _COLOURS


def log_gains(log_eta: _Floats, ratios: _Floats) -> _Floats:
    """Logarithm of how much likelier than by its size the bag of every row is: (n,).

    ``log_eta`` are log-probabilities under the pooled prior, ``ratios`` those of
    :func:`row_ratios`.
    """
    return np.asarray(np.log(np.maximum((ratios * np.exp(log_eta)).sum(1), 1e-12)))


def likelihood_gain(gains: _Floats) -> str:
    """Say how much likelier than by chance bags are; gains are logarithms, one a row.

    Examples
    --------
    >>> likelihood_gain(np.log([1.5, 1.6, 1.4, 1.5]))
    'bags of 4 rows kept out are 1.50 times as likely as by chance (1.43 to 1.57)'
    """
    margin = 1.96 * gains.std() / np.sqrt(len(gains))
    middle, low, high = np.exp(gains.mean() + np.array([0, -margin, margin]))
    text = f"bags of {len(gains):,} rows kept out are {middle:.2f} times as likely as by chance"
    return f"{text} ({low:.2f} to {high:.2f})"


def soft_batch(n_rows: int, n_trained: int) -> int:
    """Batch size on soft labels: a tenth of all rows, but 32 to 512.

    Where the rows that are trained on, ``n_trained``, make few of these, they are divided equally.

    Examples
    --------
    >>> soft_batch(7_480, 5_386), soft_batch(60_000, 60_000), soft_batch(150, 100)
    (512, 512, 33)
    """
    target = int(np.clip(n_rows // 10, _LEAST_BATCH, _MOST_BATCH))
    if n_trained >= _MANY_BATCHES * target:
        return target
    return max(1, n_trained // max(1, round(n_trained / target)))


def soft_epochs(n_rows: int) -> int:
    """Epochs on soft labels: 1,400 steps, but 12 to 150 epochs.

    Examples
    --------
    >>> soft_epochs(1000), soft_epochs(7_480), soft_epochs(60_000)
    (140, 100, 12)
    """
    steps = max(1, n_rows // soft_batch(n_rows, n_rows))
    return int(np.clip(_SOFT_STEPS // steps, _FEW_EPOCHS, _MANY_EPOCHS))


def soft_decay(n_rows: int) -> float:
    """Weight decay of an MLP of several layers on soft labels: (280 / n)^1.5, but 0.01 at most.

    Examples
    --------
    >>> soft_decay(1000), round(soft_decay(7_480), 5), round(soft_decay(60_000), 5)
    (0.01, 0.00724, 0.00032)
    """
    return float(min(_MOST_DECAY, (_DECAY_ROWS / n_rows) ** 1.5))

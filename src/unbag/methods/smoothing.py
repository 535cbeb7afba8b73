"""How far rows are moved where networks that learn soft labels are smoothed, and whether at all."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from unbag.bags import Bags

__all__ = ["SMOOTHING", "Smoothing", "mean_gap", "spread"]

SMOOTHING = 0.2  # share of their spread that rows are moved by, where nothing is given
_LEAST_NUMBERS = 64  # rows of fewer do not gain
_SAMPLE, _SAMPLE_NUMBERS = 10_000, 30_000_000  # rows, and numbers in all of them


class Smoothing:
    """The radius of one job.

    The first round is without it. Where it is not given, networks of the second are on trial: if
    they make the bags of rows that were kept out less likely, it is given up.

    Parameters
    ----------
    share : float or None
        Of the spread of rows. None is the usual one, for bags that are fit for it.
    bags : Bags
    layered : bool
        Whether networks are MLPs, with hidden layers.
    whole : bool
        Whether bags are so small that they are trained on as a whole.

    Attributes
    ----------
    radius : float
        0 where networks are not smoothed.
    confirmed : bool
        Whether the radius was given, or has passed its trial.

    Examples
    --------
    >>> bags = Bags(np.eye(80), np.arange(80) % 2, np.array([[0.8, 0.2], [0.3, 0.7]]))
    >>> usual = Smoothing(None, bags, layered=True, whole=False)
    >>> round(usual.radius, 2), usual.last
    (0.2, 0.0)
    >>> usual.confirm()
    >>> round(usual.last, 2)
    0.2
    """

    def __init__(self, share: float | None, bags: Bags, *, layered: bool, whole: bool) -> None:
        self.confirmed = share is not None
        if share is None:
            fit = layered and not whole and math.prod(bags.row_shape) >= _LEAST_NUMBERS
            share = SMOOTHING if fit else 0.0
        self.radius = float(share) * spread(bags) if share else 0.0

    @property
    def on_trial(self) -> bool:
        """Whether networks are smoothed that may turn out worse for it."""
        return self.radius > 0 and not self.confirmed

    @property
    def last(self) -> float:
        """Radius of the last network."""
        return self.radius if self.confirmed else 0.0

    def look_at(self, bags: Bags, targets: NDArray[np.float32]) -> None:
        """Give it up if classes are closer than it, by their first soft labels (n, K)."""
        if not self.radius <= mean_gap(bags, targets):  # also where that is not a number
            self.give_up()

    def confirm(self) -> None:
        """Take it for the last network."""
        self.confirmed = True

    def give_up(self) -> None:
        """Smooth no more networks."""
        self.radius = 0.0


def spread(bags: Bags) -> float:
    """Root of the mean squared distance of rows from their mean; of 10,000 rows at most.

    Bytes count as networks see them, divided by 255.

    Examples
    --------
    >>> spread(Bags([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]], [0, 0, 1, 1], np.eye(2)))
    1.4142135623730951
    """
    x = _numbers(bags, _some(bags))
    return float((x - x.mean(0)).square().sum(1).mean().sqrt())


def mean_gap(bags: Bags, targets: NDArray[np.float32]) -> float:
    r"""Distance of the mean of a class from the nearest mean of another, the mean over classes.

    .. math:: \frac1K \sum_k \min_{l \ne k} \sqrt{\Bigl(\|\mu_k - \mu_l\|^2 -
        s^2 \sum_i \bigl(q_{ik}/n_k - q_{il}/n_l\bigr)^2\Bigr)_+}

    with means μ and numbers n of rows by soft labels q, and the spread s: less what the means would
    differ by if classes were alike. Of 10,000 rows at most.

    Parameters
    ----------
    bags : Bags
    targets : array of shape (n, K)
        Soft labels.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]]).repeat(500, 0)
    >>> bags = Bags(X, np.arange(2000) % 2, np.full((2, 2), 0.5))
    >>> round(mean_gap(bags, np.eye(2).repeat(1000, 0)), 1)
    9.0
    """
    some = _some(bags)
    x, q = _numbers(bags, some), torch.from_numpy(np.asarray(targets)[some]).double()
    counts = q.sum(0)
    there = counts > 1
    if int(there.sum()) < 2:
        return 0.0
    parts = q[:, there] / counts[there]  # of every row in a mean
    means = parts.T @ x
    variance = (x - x.mean(0)).square().sum(1).mean()
    noise = variance * torch.cdist(parts.T, parts.T).square()
    squares = torch.cdist(means, means).square() - noise
    squares.fill_diagonal_(math.inf)
    return float(squares.amin(1).clamp(min=0).sqrt().mean())


def _some(bags: Bags) -> NDArray[np.int64]:
    rows = np.arange(bags.n_rows)
    most = min(_SAMPLE, max(1, _SAMPLE_NUMBERS // math.prod(bags.row_shape)))
    if len(rows) > most:
        rows = np.random.default_rng(0).choice(rows, most, replace=False)
    return rows


def _numbers(bags: Bags, rows: NDArray[np.int64]) -> torch.Tensor:
    """Rows as networks see them, flattened."""
    x = torch.as_tensor(bags.take(rows).X)
    return x.flatten(1).cpu().double() / (255 if x.dtype == torch.uint8 else 1)

"""How far rows are moved in adversarial smoothing on soft labels, and whether at all."""

import math

import numpy as np
import torch

from unbag.bags import Bags

__all__ = ["USUAL_SHARE", "Smoothing", "principal_deviation", "spread"]

USUAL_SHARE = 0.2  # of their spread that rows are moved by, where nothing is given
_POWER_STEPS = 30
_SAMPLE_NUMBERS = 7_840_000  # those of 10,000 images of 28 × 28


class Smoothing:
    """The radius of one job: how far its rows are moved.

    The first round is not smoothed. If no share is given, only images are: an image that is moved a
    little still shows the same, but in a table a small step may lead to another class. The radius
    must not exceed the standard deviation of rows in their principal direction: images that are
    moved further than rows differ in any direction pass for images of another class. And the
    second round is a trial: smoothing ends if it makes the bags of rows kept out less likely.

    Parameters
    ----------
    share : float or None
        Share of the spread of rows. None means the usual share, for images and if ``applies``.
    bags : Bags
    applies : bool
        Whether network and bags are of the kind that gains: MLPs with hidden layers, and bags that
        are not kept whole in batches.

    Attributes
    ----------
    radius : float
        0 if networks are not smoothed.
    is_confirmed : bool
        Whether the radius was given, or has passed its trial.

    Examples
    --------
    >>> X = np.outer(np.arange(81), np.ones(64)).reshape(81, 8, 8)  # along one line
    >>> bags = Bags(X, np.arange(81) % 2, np.array([[0.8, 0.2], [0.3, 0.7]]))
    >>> usual = Smoothing(None, bags, applies=True)
    >>> round(spread(bags), 1), round(usual.radius, 1), usual.final_radius
    (187.0, 37.4, 0.0)
    >>> usual.confirm()
    >>> round(usual.final_radius, 1)
    37.4
    """

    def __init__(self, share: float | None, bags: Bags, *, applies: bool) -> None:
        self.is_confirmed = share is not None
        if share is None:
            share = USUAL_SHARE if len(bags.row_shape) > 1 and applies else 0.0
        self.radius = float(share) * spread(bags) if share else 0.0
        # Also where that is not a number, since distances overflow.
        if self.is_on_trial and not self.radius <= principal_deviation(bags):
            self.give_up()

    @property
    def is_on_trial(self) -> bool:
        """Whether networks are smoothed, and the trial has not ended."""
        return self.radius > 0 and not self.is_confirmed

    @property
    def final_radius(self) -> float:
        """Radius of the last network."""
        return self.radius if self.is_confirmed else 0.0

    def confirm(self) -> None:
        """Smooth the last network too."""
        self.is_confirmed = True

    def give_up(self) -> None:
        """Smooth no more networks."""
        self.radius = 0.0


def spread(bags: Bags) -> float:
    """Root of the mean squared distance of rows from their mean, from a sample of large data.

    Bytes are divided by 255, as for the networks.

    Examples
    --------
    >>> corners = [[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]]
    >>> round(spread(Bags(corners, [0, 0, 1, 1], np.eye(2))), 4)
    1.4142
    """
    return float(_centred(bags).square().sum(1).mean().sqrt())


def principal_deviation(bags: Bags) -> float:
    """Compute the standard deviation of rows along the direction in which they differ most.

    By power iteration, from a sample of large data.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)) * [1.0, 5.0, 2.0]
    >>> round(principal_deviation(Bags(X, np.arange(1000) % 2, np.eye(2))), 1)
    4.8
    """
    x = _centred(bags)
    direction = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(0)).to(x)
    for _ in range(_POWER_STEPS):
        direction = x.T @ (x @ direction)
        direction = direction / direction.norm().clamp(min=1e-300)
    return float((x @ direction).square().mean().sqrt())


def _centred(bags: Bags) -> torch.Tensor:
    """Take some rows as networks see them, flattened, less their mean."""
    rows = np.arange(bags.n_rows)
    most = max(1, _SAMPLE_NUMBERS // math.prod(bags.row_shape))
    if len(rows) > most:
        rows = np.random.default_rng(0).choice(rows, most, replace=False)
    x = torch.as_tensor(bags.take(rows).X)
    x = x.flatten(1).cpu().double() / (255 if x.dtype == torch.uint8 else 1)
    return x - x.mean(0)

"""Judge rounds by the bags of rows that no round was trained on."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from unbag.evaluation import likeliest_temperature
from unbag.methods.posterior import log_gains
from unbag.methods.regimes import Regime

__all__ = ["KeptOut"]

_Floats = NDArray[np.float64]


@dataclass
class KeptOut:
    """Rows that no network of the rounds was trained on, and the likelihood of their bags.

    Only these rows are fair: every other row has influenced the soft labels of the other folds.

    Parameters
    ----------
    ratios : array of shape (n', K)
        θ_mk / p_k for the bag m of every such row.
    regime : Regime
        When a round counts as worse.

    Attributes
    ----------
    reference : array of shape (n',)
        Losses of the round that later rounds are compared with.

    Examples
    --------
    >>> rows = KeptOut(np.array([[1.8, 0.2], [0.2, 1.8]]))
    >>> right, wrong = np.log([[0.9, 0.1], [0.1, 0.9]]), np.log([[0.1, 0.9], [0.9, 0.1]])
    >>> rows.accept(rows.losses(right), 0)
    >>> rows.is_worse(rows.losses(wrong), 1), rows.is_worse(rows.losses(right), 1)
    (True, False)
    """

    ratios: _Floats
    regime: Regime = field(default_factory=Regime)
    reference: _Floats = field(default_factory=lambda: np.empty(0))

    def temperature(self, log_eta: _Floats) -> float:
        """Temperature at which the bags are likeliest, given log-probabilities (n', K)."""
        ratios = torch.from_numpy(self.ratios)
        return float(likeliest_temperature(torch.from_numpy(log_eta), ratios))

    def losses(self, log_eta: _Floats) -> _Floats:
        """Negative logarithm of how much likelier the bags are than by their sizes: (n',)."""
        return -log_gains(log_eta, self.ratios)

    def is_worse(self, losses: _Floats, n_accepted: int) -> bool:
        """Whether the bags are less likely, beyond noise, than in the round compared with.

        ``n_accepted`` is the number of rounds before this one.
        """
        increase = losses - self.reference
        error = increase.std() / np.sqrt(len(increase))
        gain = max(0.0, -self.reference.mean()) if n_accepted == 1 else 0.0
        allowed = self.regime.early_loss * gain + self.regime.standard_errors * error
        return bool(increase.mean() > allowed)

    def accept(self, losses: _Floats, n_accepted: int) -> None:
        """Accept a round; later rounds are compared with it, or with the best since the second."""
        falls_back = n_accepted > 1 and losses.mean() > self.reference.mean()
        if not (self.regime.keeps_best and falls_back):
            self.reference = losses

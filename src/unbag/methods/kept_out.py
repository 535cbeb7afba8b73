"""What the bags of rows that were kept out of all rounds say of a round."""

import numpy as np
import torch
from numpy.typing import NDArray

from unbag.methods.recipes import log_gains
from unbag.training.temperature import likeliest_temperature

__all__ = ["KeptOut"]

_Floats = NDArray[np.float64]
# By how many standard errors a round may be worse; the latter where priors say little.
_ERRORS, _FAINT_ERRORS = 1.0, 3.0
# What the second round may lose of the gain of the first, likewise.
_SLACK, _FAINT_SLACK = 0.01, 0.05


class KeptOut:
    """Rows that no network of the rounds was trained on, and the likelihood of their bags.

    Only these are fair: any other row has shaped the soft labels of the other folds by its own.

    Parameters
    ----------
    ratios : array of shape (n', K)
        θ_mk / p_k for the bag m of every such row.
    faint : bool
        Whether priors say little.

    Attributes
    ----------
    reference : array of shape (n',)
        Losses of the round that others are compared with.

    Examples
    --------
    >>> rows = KeptOut(np.array([[1.8, 0.2], [0.2, 1.8]]), faint=False)
    >>> right, wrong = np.log([[0.9, 0.1], [0.1, 0.9]]), np.log([[0.1, 0.9], [0.9, 0.1]])
    >>> rows.compare_with(rows.losses(right), 0)
    >>> rows.worse(rows.losses(wrong), 1), rows.worse(rows.losses(right), 1)
    (True, False)
    """

    def __init__(self, ratios: _Floats, *, faint: bool) -> None:
        self.ratios = ratios
        self.faint = faint
        self.reference: _Floats = np.empty(0)

    def temperature(self, log_eta: _Floats) -> float:
        """Temperature at which the bags are likeliest, given log-probabilities (n', K)."""
        ratios = torch.from_numpy(self.ratios)
        return float(likeliest_temperature(torch.from_numpy(log_eta), ratios))

    def losses(self, log_eta: _Floats) -> _Floats:
        """−log of what the bags are likelier than by their sizes: (n',)."""
        return -log_gains(log_eta, self.ratios)

    def worse(self, losses: _Floats, rounds: int) -> bool:
        """Whether bags are less likely, beyond noise, than in the round compared with.

        ``rounds`` are those accepted before. The first has all its labels from the start, which
        knows these bags a little, so that the second may lose a part of what it gained over
        chance.
        """
        more = losses - self.reference
        error = more.std() / np.sqrt(len(more))
        errors, slack = (_FAINT_ERRORS, _FAINT_SLACK) if self.faint else (_ERRORS, _SLACK)
        gain = max(0.0, -self.reference.mean()) if rounds == 1 else 0.0
        return bool(more.mean() > slack * gain + errors * error)

    def compare_with(self, losses: _Floats, rounds: int) -> None:
        """Compare further rounds with this, or where priors say little the best since the second.

        ``rounds`` are those accepted before.
        """
        if not (self.faint and rounds > 1 and losses.mean() > self.reference.mean()):
            self.reference = losses

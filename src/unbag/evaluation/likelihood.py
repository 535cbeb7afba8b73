r"""The bag likelihood: a score of probabilities that needs no labels.

For a row x the chance to lie in bag m, among n rows of which n_m are in bag m, is

.. math::
    P(m \mid x) = \frac{n_m}{n} \cdot
    \frac{\sum_k \theta_{mk} \, \eta_k(x) / o_k}{\sum_k p_k \, \eta_k(x) / o_k}

with the probabilities η under the output prior o and the pooled prior p. On held-out rows its mean
negative logarithm is a proper score of η, never negative, and cross-entropy when Θ = I.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unbag.evaluation.probabilities import check_probabilities
from unbag.priors import ClassPriors, check_test_prior
from unbag.validation import invalid

__all__ = ["HeldOutLikelihood", "bag_log_loss", "log_mixture"]

_Floats = NDArray[np.float64]
_SMALLEST = 1e-12
_ALL = slice(None)


def bag_log_loss(
    probabilities: Any, bag_ids: Any, *, priors: Any, output_prior: Any = None
) -> float:
    """Mean negative log-likelihood of the rows' bags; smaller is better.

    Parameters
    ----------
    probabilities : array of shape (n, K)
        Columns in the order of the classes of ``priors``.
    bag_ids : array of shape (n,)
    priors : ClassPriors, array, dict or DataFrame
    output_prior : array of shape (K,) or dict, optional
        The class shares under which the probabilities hold; by default the pooled prior of the
        rows.

    Examples
    --------
    >>> eta = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> round(bag_log_loss(eta, [0, 1], priors=np.eye(2)), 4)  # cross-entropy
    0.1643
    """
    likelihood = HeldOutLikelihood(probabilities, bag_ids, priors, output_prior)
    return float(likelihood.loss(likelihood.log_eta))


def log_mixture(ratios: torch.Tensor, eta: torch.Tensor) -> torch.Tensor:
    """Logarithm of Σ_k r_k η_k for every row: (..., n, K) to (..., n).

    With r = θ_m / p and probabilities η under the pooled prior p it tells how much likelier the bag
    of a row is than by its size: it is log(P(m | x) n / n_m).
    """
    return torch.log((ratios * eta).sum(-1).clamp_min(_SMALLEST))


class HeldOutLikelihood:
    """The bag likelihood of rows, with what it needs of their bags; inputs are checked."""

    def __init__(self, probabilities: Any, bag_ids: Any, priors: Any, output_prior: Any) -> None:
        table = ClassPriors.of(priors)
        bag_index = table.encode(bag_ids)
        if len(bag_index) == 0:
            raise invalid("bag_ids", "ids of at least one row", "none")
        eta = check_probabilities(probabilities, len(bag_index), table.n_classes)
        self._eta = eta
        counts = np.bincount(bag_index, minlength=table.n_bags)
        pooled = table.pooled(counts)
        output = pooled
        if output_prior is not None:
            output = check_test_prior(output_prior, table.classes, name="output_prior")
        inverse = np.where(output > 0, 1 / np.maximum(output, _SMALLEST), 0)
        self._bag_index = torch.from_numpy(bag_index)
        self._bag = torch.from_numpy(table.values * inverse)  # (M, K)
        self._pooled = torch.from_numpy(pooled * inverse)
        self._share = torch.from_numpy(np.log(counts / counts.sum() + 1e-300))  # (M,)

    @property
    def log_eta(self) -> torch.Tensor:
        """Log-probabilities of the rows, (n, K)."""
        return torch.from_numpy(np.log(np.maximum(self._eta, _SMALLEST)))

    def loss(self, log_eta: torch.Tensor, rows: slice = _ALL) -> torch.Tensor:
        """Mean of −log P(bag | x), or what some rows, whose ``log_eta`` is given, add to it."""
        eta, bag = torch.exp(log_eta), self._bag_index[rows]
        of_bag, of_all = log_mixture(self._bag[bag], eta), log_mixture(self._pooled, eta)
        return -(self._share[bag] + of_bag - of_all).sum() / len(self._bag_index)

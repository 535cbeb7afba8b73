r"""The bag likelihood: a score of probabilities that needs no labels, and calibration by it.

For a row x the chance to lie in bag m, among n rows of which n_m are in bag m, is

.. math::
    P(m \mid x) = \frac{n_m}{n} \cdot
    \frac{\sum_k \theta_{mk} \, \eta_k(x) / o_k}{\sum_k p_k \, \eta_k(x) / o_k}

with the probabilities η under the output prior o and the pooled prior p. On held-out rows its mean
negative logarithm is a proper score of η, never negative, and cross-entropy when Θ = I.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from unbag.evaluation.probabilities import check_probabilities
from unbag.priors import ClassPriors, check_test_prior
from unbag.validation import invalid

__all__ = ["Calibration", "bag_log_loss", "calibrate", "calibrate_log"]

_Floats = NDArray[np.float64]
_SMALLEST = 1e-12
_STARTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0)  # temperatures
# What is believed before any row is seen: deviations of the log-temperature and of a bias. Few
# rows, or priors that cannot tell classes apart, would otherwise give biases without bounds.
_LOG_TEMPERATURE, _BIAS = 2.0, 1.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """Temperature and class biases: η' ∝ exp(log η / temperature + bias).

    Attributes
    ----------
    temperature : float
        Above 1 for a model that is too sure of itself.
    biases : array of shape (K,)
        They sum to zero.
    """

    temperature: float
    biases: _Floats

    def apply(self, log_probabilities: _Floats) -> _Floats:
        """Calibrated log-probabilities (n, K)."""
        logits = log_probabilities / self.temperature + self.biases
        top = logits.max(1, keepdims=True)
        shifted = logits - top
        return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


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
    terms = _Terms(probabilities, bag_ids, priors, output_prior)
    return float(terms.loss(torch.from_numpy(terms.log_eta)))


def calibrate(
    probabilities: Any, bag_ids: Any, *, priors: Any, output_prior: Any = None
) -> Calibration:
    """Fit a temperature and class biases by the bag likelihood of held-out rows.

    Parameters are those of :func:`bag_log_loss`. The probabilities must come from a model that
    was not trained on these rows.
    """
    terms = _Terms(probabilities, bag_ids, priors, output_prior)
    return _fit(terms, torch.from_numpy(terms.log_eta))


def calibrate_log(
    log_probabilities: _Floats, bag_ids: Any, *, priors: Any, output_prior: Any = None
) -> Calibration:
    """Do as :func:`calibrate` with log-probabilities, of which no small one is rounded to zero."""
    terms = _Terms(np.exp(log_probabilities), bag_ids, priors, output_prior)
    return _fit(terms, torch.from_numpy(np.maximum(log_probabilities, -1e4)))


def _fit(terms: "_Terms", log_eta: torch.Tensor) -> Calibration:
    k = log_eta.shape[1]

    def objective(parameters: _Floats) -> tuple[float, _Floats]:
        variables = torch.tensor(parameters, requires_grad=True)
        biases = variables[1:] - variables[1:].mean()
        logits = log_eta * torch.exp(-variables[0]) + biases
        belief = (variables[0] / _LOG_TEMPERATURE) ** 2 + ((biases / _BIAS) ** 2).sum()
        loss = terms.loss(torch.log_softmax(logits, -1)) + belief / (2 * len(log_eta))
        (gradient,) = torch.autograd.grad(loss, variables)
        return float(loss.detach()), gradient.numpy()

    # Probabilities of zero and one do not move with the temperature at first, so the search starts
    # from the best of several.
    starts = [np.concatenate([[np.log(t)], np.zeros(k)]) for t in _STARTS]
    start = min(starts, key=lambda parameters: objective(parameters)[0])
    bounds = [(-5.0, 8.0), *[(-20.0, 20.0)] * k]
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    biases = found.x[1:] - found.x[1:].mean()
    return Calibration(float(np.exp(found.x[0])), biases)


class _Terms:
    """Checked inputs of the bag likelihood."""

    def __init__(self, probabilities: Any, bag_ids: Any, priors: Any, output_prior: Any) -> None:
        table = ClassPriors.of(priors)
        bag_index = table.encode(bag_ids)
        if len(bag_index) == 0:
            raise invalid("bag_ids", "ids of at least one row", "none")
        eta = check_probabilities(probabilities, len(bag_index), table.n_classes)
        self.log_eta = np.log(np.maximum(eta, _SMALLEST))
        counts = np.bincount(bag_index, minlength=table.n_bags)
        pooled = table.pooled(counts)
        output = pooled
        if output_prior is not None:
            output = check_test_prior(output_prior, table.classes, name="output_prior")
        inverse = np.where(output > 0, 1 / np.maximum(output, _SMALLEST), 0)
        self._own = torch.from_numpy((table.values * inverse)[bag_index])  # (n, K)
        self._pooled = torch.from_numpy(pooled * inverse)
        self._share = torch.from_numpy(np.log(counts / counts.sum() + 1e-300)[bag_index])

    def loss(self, log_eta: torch.Tensor) -> torch.Tensor:
        """Mean of −log P(bag | x)."""
        eta = torch.exp(log_eta)
        own = torch.log((self._own * eta).sum(1).clamp_min(_SMALLEST))
        pooled = torch.log((self._pooled * eta).sum(1).clamp_min(_SMALLEST))
        return -(self._share + own - pooled).mean()

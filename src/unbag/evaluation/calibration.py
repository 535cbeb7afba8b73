r"""Temperatures and class biases, found by the bags of held-out rows instead of labels.

Both fits here maximise the bag likelihood (:mod:`unbag.evaluation.likelihood`). Few rows, or priors
that cannot tell classes apart, would leave the parameters without bounds, so each has a belief from
before any row is seen: a normal distribution of its logarithm or of itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from unbag.evaluation.likelihood import HeldOutLikelihood, log_mixture
from unbag.priors import ClassPriors, read_labels, with_labelled
from unbag.statistics import bag_sum

__all__ = [
    "Calibration",
    "calibrate",
    "calibrate_log",
    "likeliest_temperature",
    "likeliest_temperature_by_counts",
]

_Floats = NDArray[np.float64]
_STARTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0)  # temperatures
_LOG_TEMPERATURE, _BIAS = 2.0, 1.0  # deviations believed in by calibrate
_GRID = np.geomspace(0.4, 8, 40)
_PART = 1 << 18  # rows whose likelihood is computed at once
_ROUNDING = 1 / 12  # variance of what is left of a number that was rounded
_GRID_LOG_TEMPERATURE = 0.7  # the same, of likeliest_temperature


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


def calibrate(
    probabilities: Any, bag_ids: Any, *, priors: Any, output_prior: Any = None, labels: Any = None
) -> Calibration:
    """Fit a temperature and class biases by the bag likelihood of held-out rows.

    Parameters are those of :func:`unbag.bag_log_loss`, and ``labels``: the classes of rows where
    they are known, None or NaN elsewhere. Labelled rows are rows of bags of one class. The
    probabilities must come from a model that was not trained on these rows.
    """
    likelihood = _likelihood(probabilities, bag_ids, priors, output_prior, labels)
    return _fit(likelihood, likelihood.log_eta)


def calibrate_log(
    log_probabilities: _Floats,
    bag_ids: Any,
    *,
    priors: Any,
    output_prior: Any = None,
    labels: Any = None,
) -> Calibration:
    """Do as :func:`calibrate` with log-probabilities, of which no small one is rounded to zero."""
    chances = np.exp(log_probabilities)
    likelihood = _likelihood(chances, bag_ids, priors, output_prior, labels)
    return _fit(likelihood, torch.from_numpy(np.maximum(log_probabilities, -1e4)))


def _likelihood(
    chances: Any, bag_ids: Any, priors: Any, output_prior: Any, labels: Any
) -> HeldOutLikelihood:
    if labels is not None:
        table = ClassPriors.of(priors)
        bag_index = table.encode(bag_ids)
        codes = read_labels(labels, table, len(bag_index))
        if codes is not None:
            whole = np.bincount(bag_index, minlength=table.n_bags).astype(np.float64)
            of_rows = table.shares_of == "rows"
            priors, bag_index = with_labelled(table, bag_index, codes, whole if of_rows else None)
            bag_ids = priors.bag_ids[bag_index]
    return HeldOutLikelihood(chances, bag_ids, priors, output_prior)


def _fit(likelihood: HeldOutLikelihood, log_eta: Tensor) -> Calibration:
    k = log_eta.shape[1]

    def objective(parameters: _Floats) -> tuple[float, _Floats]:
        variables, value = torch.tensor(parameters, requires_grad=True), 0.0
        for start in range(0, len(log_eta), _PART):  # of many rows all at once take much memory
            rows = slice(start, start + _PART)
            biases = variables[1:] - variables[1:].mean()
            logits = log_eta[rows] * torch.exp(-variables[0]) + biases
            loss = likelihood.loss(torch.log_softmax(logits, -1), rows)
            if start == 0:
                belief = (variables[0] / _LOG_TEMPERATURE) ** 2 + ((biases / _BIAS) ** 2).sum()
                loss = loss + belief / (2 * len(log_eta))
            loss.backward()  # type: ignore[no-untyped-call]
            value += float(loss.detach())
        assert variables.grad is not None
        return value, variables.grad.numpy()

    # Probabilities of zero and one do not move with the temperature at first, so the search starts
    # from the best of several.
    starts = [np.concatenate([[np.log(t)], np.zeros(k)]) for t in _STARTS]
    start = min(starts, key=lambda parameters: objective(parameters)[0])
    bounds = [(-5.0, 8.0), *[(-20.0, 20.0)] * k]
    best = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return Calibration(float(np.exp(best[0])), best[1:] - best[1:].mean())


@torch.no_grad()
def likeliest_temperature(logits: Tensor, ratios: Tensor) -> Tensor:
    r"""Temperature at which the bags of rows are likeliest, of 40 between 0.4 and 8.

    .. math:: \min_T \; \frac1n \sum_i -\log \sum_k \frac{\theta_{m(i) k}}{p_k} \,
        \mathrm{softmax}_k(\mathrm{logits}_i / T) + \frac{(\log T / 0.7)^2}{2 n}

    It is :func:`calibrate` for a stack of networks on any device, of probabilities that hold under
    the pooled prior, and without class biases: few rows would leave them to chance, and balanced
    posteriors have no need of them.

    Parameters
    ----------
    logits : Tensor of shape (..., n, K)
        Of rows that the network was not trained on.
    ratios : Tensor of shape (..., n, K)
        θ_mk / p_k for the bag m of every row.

    Returns
    -------
    Tensor of shape (...)

    Examples
    --------
    >>> logits = torch.tensor([[4.0, 0.0]]).repeat(1000, 1)  # sure of class 0 in every row
    >>> ratios = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(500, 1)  # every other row is not
    >>> round(likeliest_temperature(logits, ratios).item(), 1)
    8.0
    """
    n = logits.shape[-2]
    losses = []
    for temperature in _GRID.tolist():
        belief = (np.log(temperature) / _GRID_LOG_TEMPERATURE) ** 2 / (2 * n)
        gain = log_mixture(ratios, torch.softmax(logits / temperature, -1))
        losses.append(belief - gain.mean(-1))
    best = torch.stack(losses).argmin(0)
    return torch.tensor(_GRID, dtype=logits.dtype, device=logits.device)[best]


def likeliest_temperature_by_counts(logits: Tensor, bag_index: Tensor, theta: Tensor) -> Tensor:
    r"""Temperature at which the class counts of whole bags are likeliest, of 40 between 0.4 and 8.

    .. math:: \min_T \; \frac12 \sum_{mk} \Bigl( \frac{(n_m \theta_{mk} - \mu_{mk})^2}{v_{mk}}
        + \log v_{mk} \Bigr) + \frac{(\log T / 0.7)^2}{2}, \qquad
        \mu_{mk} = \sum_{i \in m} q_{ik}, \quad
        v_{mk} = \sum_{i \in m} q_{ik} (1 - q_{ik}) + \frac1{12}

    with :math:`q_i = \mathrm{softmax}(\mathrm{logits}_i / T)`: counts of bags differ from what is
    predicted by as much as the predictions say themselves. In bags of few rows that says much more
    than :func:`likeliest_temperature`, which takes rows one by one.

    Parameters
    ----------
    logits : Tensor of shape (..., n, K)
        Of all rows of bags that the network was not trained on.
    bag_index : integer Tensor of shape (..., n)
        −1 for rows that do not count.
    theta : Tensor of shape (..., M, K)

    Returns
    -------
    Tensor of shape (...)

    Examples
    --------
    >>> logits = torch.tensor([[4.0, 0.0]]).repeat(100, 1)  # sure of class 0 in every row
    >>> bag_index, theta = torch.arange(100) // 10, torch.tensor([[0.7, 0.3]]).repeat(10, 1)
    >>> round(likeliest_temperature_by_counts(logits, bag_index, theta).item(), 1)
    4.0
    """
    n_bags = theta.shape[-2]
    index = torch.where(bag_index < 0, n_bags, bag_index)
    rows = bag_sum(torch.ones_like(logits[..., :1]), index, n_bags + 1)[..., :-1, :]
    losses = []
    for temperature in _GRID.tolist():
        q = torch.softmax(logits / temperature, -1)
        mean = bag_sum(q, index, n_bags + 1)[..., :-1, :]
        variance = bag_sum(q * (1 - q), index, n_bags + 1)[..., :-1, :] + _ROUNDING
        terms = ((rows * theta - mean).square() / variance + torch.log(variance)) / 2
        belief = (np.log(temperature) / _GRID_LOG_TEMPERATURE) ** 2 / 2
        losses.append((terms * (rows > 0)).sum((-2, -1)) + belief)
    best = torch.stack(losses).argmin(0)
    return torch.tensor(_GRID, dtype=logits.dtype, device=logits.device)[best]

"""The temperature of a network's probabilities, found without labels."""

import numpy as np
import torch
from torch import Tensor

__all__ = ["likeliest_temperature"]

_TEMPERATURES = np.geomspace(0.4, 8, 40)
_DEVIATION = 0.7  # of the logarithm of a temperature, as it is expected before a row is seen
_LEAST_CHANCE = 1e-12


@torch.no_grad()
def likeliest_temperature(logits: Tensor, ratios: Tensor) -> Tensor:
    r"""Temperature at which the bags of rows are likeliest, of 40 between 0.4 and 8.

    .. math:: \min_T \; \frac1n \sum_i -\log \sum_k \frac{\theta_{m(i) k}}{p_k} \,
        \mathrm{softmax}_k(\mathrm{logits}_i / T) + \frac{(\log T / 0.7)^2}{2 n}

    There are no class biases: few rows would leave them to chance, and balanced posteriors have
    no need of them.

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
    for temperature in _TEMPERATURES.tolist():
        chance = (ratios * torch.softmax(logits / temperature, -1)).sum(-1)
        expected = (np.log(temperature) / _DEVIATION) ** 2 / (2 * n)
        losses.append(-torch.log(chance.clamp_min(_LEAST_CHANCE)).mean(-1) + expected)
    best = torch.stack(losses).argmin(0)
    return torch.tensor(_TEMPERATURES, dtype=logits.dtype, device=logits.device)[best]

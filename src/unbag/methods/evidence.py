"""How much bags that were left out speak for each of several models."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

__all__ = ["evidence_weights"]

_Floats = NDArray[np.float64]
_DRAWS = 500


def evidence_weights(gains: _Floats, seed: int = 0) -> _Floats:
    r"""Weights of models by what they gained on parts of the data that they had not seen.

    .. math:: w_c = \operatorname{E}_u \frac{\exp \sum_m u_m g_{cm}}
        {\sum_j \exp \sum_m u_m g_{jm}}, \qquad u \sim M \cdot \mathrm{Dirichlet}(1, \dots, 1)

    These are the weights called pseudo-BMA+ (Yao, Vehtari, Simpson and Gelman, 2018). The
    Bayesian bootstrap over the parts m keeps a model from taking all the weight by chance: where
    few parts decide, weights stay near each other.

    Parameters
    ----------
    gains : array of shape (C, M)
        g, log-likelihood of part m by model c, up to a constant of the part.
    seed : int

    Returns
    -------
    array of shape (C,)

    Examples
    --------
    >>> one_part, many = np.array([[3.0], [0.0]]), np.tile([[3.0], [0.0]], 30)
    >>> evidence_weights(one_part).round(2), evidence_weights(many).round(2)
    (array([0.95, 0.05]), array([1., 0.]))
    >>> undecided = np.array([[3.0, -3.0] * 10, [0.0, 0.0] * 10])
    >>> evidence_weights(undecided).round(1)
    array([0.5, 0.5])
    """
    parts = gains.shape[1]
    draws = np.random.default_rng(seed).dirichlet(np.ones(parts), _DRAWS) * parts
    return np.asarray(softmax(draws @ gains.T, axis=1).mean(0))

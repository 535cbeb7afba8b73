"""How much bags that were left out speak for each of several models, and how far to trust one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

__all__ = ["Slope", "evidence_weights"]

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


@dataclass(frozen=True)
class Slope:
    r"""Slope of what was observed on what was predicted, with its standard error.

    Attributes
    ----------
    value, error : float
        The error is infinite where nothing was predicted or observed.
    """

    value: float
    error: float

    @classmethod
    def of(cls, observed: _Floats, predicted: _Floats, variance: _Floats) -> "Slope":
        r"""Slope through the origin, by weighted least squares.

        .. math:: b = \frac{\sum_m x_m \cdot y_m / v_m}{\sum_m \lVert x_m \rVert^2 / v_m},
            \qquad y_m = b \, x_m + \text{an error of variance } \sigma^2 v_m \text{ per number}

        Parameters
        ----------
        observed, predicted : arrays of shape (M, K)
            y and x, of which K−1 numbers per part are free.
        variance : array of shape (M,)
            v, up to a factor.

        Examples
        --------
        >>> x = np.array([[0.1, -0.1], [0.2, -0.2], [-0.3, 0.3]])
        >>> slope = Slope.of(0.8 * x, x, np.ones(3))
        >>> round(slope.value, 3), round(slope.error, 3), round(slope.trust, 3)
        (0.8, 0.0, 0.8)
        """
        free = observed.shape[0] * (observed.shape[1] - 1) - 1
        by_part = 1 / variance[:, None]
        square = float((by_part * predicted**2).sum())
        if free < 1 or square == 0:
            return cls(0.0, np.inf)
        value = float((by_part * predicted * observed).sum()) / square
        rest = float((by_part * (observed - value * predicted) ** 2).sum()) / free
        return cls(value, float(np.sqrt(rest / square)))

    @property
    def trust(self) -> float:
        """Mean of the slope given the data, between 0 and 1, if it was 1 ± 1 before.

        1 is a model whose predictions are right, 0 one that is no better than constant shares. So
        few parts, or parts that differ for other reasons, change little; many that agree decide.
        """
        if np.isinf(self.error):
            return 1.0
        return float(np.clip((self.error**2 + self.value) / (self.error**2 + 1), 0, 1))

    @property
    def is_positive(self) -> bool:
        """Whether the slope is above 0 by more than two standard errors."""
        return self.value > 2 * self.error

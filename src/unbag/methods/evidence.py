"""How much bags that were left out speak for each of several models, and how far to trust one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

__all__ = ["Slope", "evidence_weights", "stacking_weights"]

_Floats = NDArray[np.float64]
_DRAWS = 500
_SPREAD = 0.3  # of the weight of each model in a stack around the even one, before the data
_SMALLEST = 1e-12


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


def stacking_weights(log_p: _Floats, ratios: _Floats, shares: _Floats) -> _Floats:
    r"""Weights of models under which the bags of rows that they had not seen are likeliest.

    .. math:: \max_{a \ge 0} \; \sum_i \log \sum_k \frac{\theta_{m(i) k}}{p_k} q_{ik}
        - \frac{1}{2 s^2} \sum_l \left(a_l - \frac1L\right)^2, \qquad
        q_{ik} \propto p_k \prod_l \left(\frac{P_l(k \mid x_i)}{p_k}\right)^{a_l}

    The sum of a is free, so that a model is not preferred for how sure it is; the weights are a,
    divided by its sum, or even ones where a is 0. They are those of the best mixture, not of the
    best model (stacking, in Yao, Vehtari, Simpson and Gelman, 2018): one that is worse than another
    but errs elsewhere has weight too. Before the data, each is 1/L ± 0.3, so few rows leave them
    nearly even.

    Parameters
    ----------
    log_p : array of shape (L, n, K)
        Log-probabilities of rows by models that had not seen them, under the pooled prior.
    ratios : array of shape (n, K)
        θ / p of the bag of every row.
    shares : array of shape (K,)
        p.

    Returns
    -------
    array of shape (L,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y, bag = rng.integers(2, size=(2, 500))
    >>> theta, shares = np.array([[0.9, 0.1], [0.1, 0.9]]), np.full(2, 0.5)
    >>> y = np.where(rng.random(500) < 0.8, bag, y)
    >>> says = np.log(np.where(y[:, None] == [0, 1], 0.9, 0.1))
    >>> knows_some, knows_others = (np.where(half[:, None], says, np.log(0.5))
    ...                             for half in np.arange(500) % 2 == [[0], [1]])
    >>> nothing = np.full((500, 2), np.log(0.5))
    >>> models = np.stack([knows_some, knows_others, nothing])
    >>> stacking_weights(models, theta[bag] / shares, shares).round(1)
    array([0.4, 0.5, 0.1])
    """
    count, log_shares = len(log_p), np.log(shares)
    against_shares = log_p - log_shares
    log_ratios = np.log(np.maximum(ratios, _SMALLEST))
    even, precision = 1 / count, 1 / _SPREAD**2

    def loss(a: _Floats) -> tuple[float, _Floats]:
        log_q = log_softmax(np.tensordot(a, against_shares, 1) + log_shares, axis=1)  # (n, K)
        joint = log_ratios + log_q
        log_likelihood = logsumexp(joint, axis=1)
        up = np.exp(joint - log_likelihood[:, None]) - np.exp(log_q)
        gradient = precision * (a - even) - np.einsum("nk,lnk->l", up, against_shares)
        value = 0.5 * precision * ((a - even) ** 2).sum() - log_likelihood.sum()
        return float(value), gradient

    start, bounds = np.full(count, even), [(0, None)] * count
    a = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.asarray(a / a.sum() if a.sum() > _SMALLEST else start)


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

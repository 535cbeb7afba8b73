"""Shares that are not exact: what the rows of a bag say about them, and how far they bind."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from unbag.methods.sizes import SMALLEST_SHARE
from unbag.priors import ClassPriors

__all__ = ["NoisyShares", "share_ratios"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_STEPS, _CLOSE = 50, 1e-5


@dataclass(frozen=True, eq=False)
class NoisyShares:
    r"""Shares that bind the rows of their bags in part.

    The given shares θ of a bag have errors of covariance Σ. Where they are those of a population,
    those of the n rows differ from them by chance too, with the covariance S / n. In units of the
    latter the variance of both is

    .. math:: e = n \frac{\operatorname{tr} \Sigma}{\operatorname{tr} S} +
              [\text{shares of the population}], \qquad
              S = \operatorname{diag}(\theta) - \theta \theta^\top .

    A bag whose soft labels should have its shares is held to that by the part 1 / (1 + e). In a
    likelihood it counts for as many rows with exact shares as say as much: n / (1 + n tr Σ / tr S).

    Parameters
    ----------
    noise : array of shape (M,)
        tr Σ / tr S, 1 / r for shares counted in r rows.
    excess : array of shape (M,)
        e.
    gain : array of shape (M, K, K), optional
        Σ (Σ + S / n)⁺ of every bag; None where no share has an error.
    """

    noise: _Floats
    excess: _Floats
    gain: _Floats | None = None

    @classmethod
    def of(cls, priors: ClassPriors, counts: NDArray[np.int64]) -> "NoisyShares | None":
        """Take what is known of the shares of bags of n rows (M,); None where they are exact.

        Examples
        --------
        >>> from unbag.priors import ShareErrors
        >>> theta, counts = [[0.9, 0.1], [0.5, 0.5]], np.array([100, 100])
        >>> counted = ClassPriors(theta, errors=ShareErrors.from_rows([26, np.inf]))
        >>> noisy = NoisyShares.of(counted, counts)
        >>> noisy.excess, noisy.gain[0, 0].round(2), noisy.gain[1, 0]
        (array([4., 0.]), array([ 0.4, -0.4]), array([0., 0.]))
        >>> NoisyShares.of(ClassPriors(theta, shares_of="population"), counts).excess
        array([1., 1.])
        """
        theta, drawn = priors.values, float(priors.shares_of == "population")
        if priors.errors is None:
            if not drawn:
                return None
            return cls(np.zeros(len(theta)), np.ones(len(theta)))
        noise = 1 / priors.errors.equivalent_rows(theta)
        covariance = priors.errors.covariance
        chance = theta[:, :, None] * (np.eye(theta.shape[1]) - theta[:, None, :])  # (M, K, K)
        whole = covariance + chance / counts[:, None, None]
        gain = covariance @ np.linalg.pinv(whole, hermitian=True)
        return cls(noise, noise * counts + drawn, gain)


def share_ratios(
    noisy: NoisyShares,
    log_eta: _Floats,
    bag_index: _Ints,
    theta: _Floats,
    pooled: _Floats,
    weight: _Floats,
) -> tuple[_Floats, _Floats]:
    r"""Pull shares to what the rows of their bag and all bags together say.

    The mean posterior of a bag is a measurement of its shares with the noise of n rows, so that the
    mean of the shares is that of a Kalman filter,

    .. math:: \theta'_m = \theta_m + G_m (\bar{q}_m - \theta_m), \qquad
              q_{ik} \propto \eta_k(x_i) \, a_k \, \theta'_{mk} / p_k ,

    repeated as in EM since q depends on θ'. The shares of all rows together are known far better
    than those of a bag: the factors a, the same for all bags, keep the mean of all q at p. Without
    them a class that is predicted too often would gain in every round.

    Parameters
    ----------
    noisy : NoisyShares
    log_eta : array of shape (n, K)
        Log-probabilities under the pooled prior.
    bag_index, weight : arrays of shape (n,)
    theta : array of shape (M, K)
    pooled : array of shape (K,)

    Returns
    -------
    shares, ratios : arrays of shape (M, K)
        θ' and a θ' / p.

    Examples
    --------
    >>> from unbag.priors import ShareErrors
    >>> theta = np.full((2, 2), 0.5)
    >>> priors = ClassPriors(theta, errors=ShareErrors.from_rows(101))
    >>> classes = np.repeat([0, 1, 0, 1], [80, 20, 20, 80])
    >>> rows = np.log([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]])[classes], np.repeat([0, 1], 100)
    >>> noisy = NoisyShares.of(priors, np.array([100, 100]))
    >>> share_ratios(noisy, *rows, theta, theta[0], np.ones(200))[0].round(2)
    array([[0.65, 0.35],
           [0.35, 0.65]])
    """
    n, m = len(bag_index), len(theta)
    sizes = np.bincount(bag_index, weight, m)
    part = weight / sizes[bag_index]
    mean = csr_matrix((part, (bag_index, np.arange(n))), (m, n))
    possible = theta > 0
    log_eta = np.where(possible[bag_index], log_eta, -np.inf)
    eta = np.exp(log_eta - log_eta.max(1, keepdims=True))
    known = np.where(pooled > 0, pooled, 1)
    shares, common = theta, np.ones(theta.shape[1])
    for _ in range(_STEPS):
        posterior = eta * (common * shares / known)[bag_index]
        posterior /= posterior.sum(1, keepdims=True)
        of_bags = mean @ posterior  # (M, K)
        all_rows = sizes @ of_bags / sizes.sum()
        step = np.where(pooled > 0, pooled / np.maximum(all_rows, SMALLEST_SHARE), 1)
        moved = theta
        if noisy.gain is not None:
            moved = theta + (noisy.gain @ (of_bags - theta)[:, :, None])[:, :, 0]
            moved = np.where(possible, np.maximum(moved, SMALLEST_SHARE), 0)
            moved /= moved.sum(1, keepdims=True)
        change = max(np.abs(moved - shares).max(), np.abs(step - 1).max())
        shares, common = moved, common * step
        if change < _CLOSE:
            break
    return shares, common * shares / known

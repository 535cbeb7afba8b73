r"""Shares that have errors, updated by what was predicted in their bags.

Where shares :math:`\hat\theta_m` are off by :math:`e_m`, a regression of the predictions
:math:`V_m` on them is drawn towards no contrast between bags. With a confusion matrix C the
residual :math:`r_m = V_m - \hat\theta_m C` has the covariance

.. math:: \Omega_m = S_m / n_m + C^\top \Sigma_m C

of the predictions and of the errors, and the shares given it are

.. math:: \tilde\theta_m = \hat\theta_m + \Sigma_m C \, \Omega_m^{-1} r_m, \qquad
          \operatorname{Var} \tilde\theta_m
          = \Sigma_m - \Sigma_m C \, \Omega_m^{-1} C^\top \Sigma_m .

Their errors are uncorrelated with the residuals. So they serve as instruments: the left inverse
:math:`(\tilde\Theta^\top N \hat\Theta)^{-1} \tilde\Theta^\top N` is not drawn anywhere
(Kleibergen, 2005, tests with the same moments).
"""

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.intervals import error_pattern
from unbag.evaluation.inverses import LeftInverse
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors

__all__ = ["update_inverse"]

_Floats = NDArray[np.float64]
_ROUNDS = 5
_RIDGE = 1e-9


def update_inverse(
    inverse: LeftInverse, priors: ClassPriors, sample: BagSample, shares: _Floats, total: _Floats
) -> LeftInverse:
    """Make a left inverse whose instruments are the updated shares; itself for exact shares.

    Parameters
    ----------
    inverse : LeftInverse
        Of the shares as they are.
    priors : ClassPriors
    sample : BagSample
    shares : array of shape (M, K)
        Of each bag that is predicted as each class.
    total : array of shape (K,)
        The same of all rows.
    """
    if priors.errors is None or priors.n_bags == priors.n_classes:
        return inverse
    # The errors of guesses are uncorrelated with the guesses, which serve as they are.
    known = ~priors.errors.is_guess[:, None, None]
    errors = np.where(known, priors.errors.covariance, 0.0)  # (M, K, K)
    updated = inverse
    for _ in range(_ROUNDS):
        raw = updated.confusion(shares)
        pattern = error_pattern(raw, sample.theta, sample.counts, total, updated.matrix)
        instruments, left = _update(
            raw, sample.prediction_covariance(pattern), errors, sample, shares
        )
        updated = inverse.with_instruments(instruments, left)
    return updated


def _update(
    confusion: _Floats, noise: _Floats, errors: _Floats, sample: BagSample, shares: _Floats
) -> tuple[_Floats, _Floats]:
    """Shares given the predictions (M, K), and the covariance that is left (M, K, K)."""
    moved = (errors @ confusion)[..., :-1]  # (M, K, K−1): predicted shares sum to 1
    covariance = noise[:, :-1, :-1] / sample.counts[:, None, None] + confusion[:, :-1].T @ moved
    scale = np.trace(covariance, axis1=1, axis2=2)[:, None, None]
    covariance = covariance + _RIDGE * scale * np.eye(covariance.shape[1])
    gain = np.swapaxes(np.linalg.solve(covariance, np.swapaxes(moved, 1, 2)), 1, 2)
    residual = (shares - sample.theta @ confusion)[:, :-1, None]
    return sample.theta + (gain @ residual)[..., 0], errors - gain @ np.swapaxes(moved, 1, 2)

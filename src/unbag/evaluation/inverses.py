"""From shares of predictions in bags to the confusion matrix: three left inverses of Θ.

The share of bag m predicted as class k has mean V = ΘC, with the confusion matrix C (true by
predicted class). Any matrix L with LΘ = I gives an unbiased estimate C = LV; where there are more
bags than classes they differ in variance.
"""

from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from unbag.priors import ClassPriors
from unbag.validation import check_choice, invalid

__all__ = ["INVERSES", "LeftInverse"]

INVERSES = ("size-weighted", "pseudo-inverse", "least-variance")
_LARGEST_SYSTEM = 2500  # unknowns of the least-variance estimate, K(K−1)
_RIDGE = 1e-6
_LEAST_SIGNAL = 0.1  # part of the sum of squares of shares that is taken as more than errors

_Floats = NDArray[np.float64]


class LeftInverse:
    r"""A left inverse of Θ, as an estimate of C and as weights of its functionals.

    - ``"pseudo-inverse"``: :math:`\Theta^\dagger`, the paper's; all bags count alike.
    - ``"size-weighted"``: :math:`(\Theta^\top N \Theta)^{-1} \Theta^\top N`, N the bag sizes.
    - ``"least-variance"``: generalised least squares with the covariance of the predictions; no
      unbiased linear estimate has a smaller variance where that covariance is right.

    For M = K all three are the same. Where shares have errors, bags with poor shares weigh less
    in the second: n_m becomes the harmonic sum of n_m and the rows in which the shares would have
    to be counted to be as far off. The third is then replaced by the second.

    Parameters
    ----------
    priors : ClassPriors
        Θ, of full column rank.
    counts : array of shape (M,)
        Rows of every bag.
    kind : str
        A key of ``INVERSES``.
    covariance : array of shape (M, K, K), optional
        Of the predicted class of a row of each bag; for ``"least-variance"`` only.
    excess : array of shape (M,), optional
        Variance of the shares of a bag by drift over that of one row: bags that drift weigh less.
    """

    def __init__(
        self,
        priors: ClassPriors,
        counts: _Floats,
        kind: str = "size-weighted",
        covariance: _Floats | None = None,
        excess: _Floats | None = None,
    ) -> None:
        check_choice("inverse", kind, INVERSES)
        theta = priors.values
        self.theta, self.counts = theta, np.asarray(counts, dtype=np.float64)
        if priors.errors is not None:
            kind = "size-weighted" if kind == "least-variance" else kind
            rows = priors.errors.equivalent_rows(theta)
            self.counts = 1 / (1 / self.counts + 1 / rows)
        if excess is not None:
            self.counts = 1 / (1 / self.counts + excess)
        m, k = theta.shape
        priors.check_rank()
        self.kind = "size-weighted" if m == k else kind
        if self.kind == "least-variance" and covariance is None:
            raise ValueError("the least-variance inverse needs a covariance")
        if self.kind == "least-variance" and k * (k - 1) > _LARGEST_SYSTEM:
            remedy = "use 'size-weighted'."
            raise invalid("inverse", "'least-variance' for at most 50 classes", f"{k}", remedy)
        self.covariance, self.instruments = covariance, theta

    def with_instruments(self, instruments: _Floats, covariance: _Floats) -> "LeftInverse":
        r"""Use instruments Z (M, K) in place of Θ: (ZᵀNΘ)⁻¹ZᵀN, also a left inverse.

        The instruments depend on the estimate that they serve. So the estimate differs from the
        truth by :math:`(Z^\top N Z - (1 - K/M) \sum_m n_m \operatorname{Var} Z_m)^{-1} Z^\top N`
        times the residuals: the signal in Z counts, not its errors. Weights of variances are those.

        Parameters
        ----------
        instruments : array of shape (M, K)
        covariance : array of shape (M, K, K)
            Of the errors of the instruments of each bag.
        """
        z = instruments
        n = np.ones(len(z)) if self.kind == "pseudo-inverse" else self.counts
        weighted = (z * n[:, None]).T  # (K, M)
        noise = np.einsum("m,mij->ij", n, covariance)
        other = copy(self)
        other.instruments = np.asarray(z)
        other.matrix = np.linalg.pinv(weighted @ self.theta) @ weighted
        # Directions of Z from the most of signal to the least, which is never taken as none.
        share, directions = eigh(noise, weighted @ z)
        gain = 1 / np.maximum(1 - (1 - z.shape[1] / len(z)) * share, _LEAST_SIGNAL)
        other.influence = (directions * gain) @ directions.T @ weighted
        return other

    @cached_property
    def influence(self) -> _Floats:
        """What L does to the residuals V − ΘC, shape (K, M), for variances."""
        return self.matrix

    @cached_property
    def matrix(self) -> _Floats:
        """L, shape (K, M), of the first two kinds."""
        m, k = self.theta.shape
        if self.kind == "pseudo-inverse" or m == k:  # sizes do not matter to the only inverse
            return np.asarray(np.linalg.pinv(self.theta))
        root = np.sqrt(self.counts)  # the normal equations would square the condition number
        return np.asarray(np.linalg.pinv(root[:, None] * self.theta) * root)

    @cached_property
    def _precision(self) -> _Floats:
        """n_m times the inverse covariance of all but the last class: (M, K−1, K−1)."""
        assert self.covariance is not None
        reduced = self.covariance[:, :-1, :-1]
        scale = np.trace(reduced, axis1=1, axis2=2)[:, None, None] / reduced.shape[1]
        ridge = np.maximum(_RIDGE * scale, 1e-12) * np.eye(reduced.shape[1])
        return self.counts[:, None, None] * np.linalg.inv(reduced + ridge)

    @cached_property
    def _inverse_information(self) -> _Floats:
        """Covariance of the estimate of C without its last column, (K(K−1), K(K−1))."""
        m, k = self.theta.shape
        pairs = (self.theta[:, :, None] * self.theta[:, None, :]).reshape(m, -1)
        information = (pairs.T @ self._precision.reshape(m, -1)).reshape(k, k, k - 1, k - 1)
        square = information.transpose(0, 2, 1, 3).reshape(k * (k - 1), -1)
        return np.asarray(np.linalg.inv(square))

    def confusion(self, shares: _Floats) -> _Floats:
        """Unbiased estimate of C (K, K) from the shares V (M, K) of predictions; rows sum to 1."""
        if self.kind != "least-variance":
            return np.asarray(self.matrix @ shares)
        k = self.theta.shape[1]
        right = self.theta.T @ (self._precision @ shares[:, :-1, None])[..., 0]
        first = (self._inverse_information @ right.ravel()).reshape(k, k - 1)
        return np.column_stack([first, 1 - first.sum(1)])

    def weights(self, gradient: _Floats) -> _Floats:
        """Weights W (..., M, K) of the shares for functionals of these gradients (..., K, K).

        The functional's estimate moves by Σ_mk W_mk dV_mk; a constant added to a row of W is
        without effect, since shares sum to 1.
        """
        if self.kind != "least-variance":
            return np.asarray(self.influence.T @ gradient)
        reduced = gradient[..., :-1] - gradient[..., -1:]
        flat = reduced.reshape(*gradient.shape[:-2], -1)
        multiplier = (flat @ self._inverse_information).reshape(reduced.shape)
        first = np.einsum("...mj,mjk->...mk", self.theta @ multiplier, self._precision)
        return np.concatenate([first, np.zeros((*first.shape[:-1], 1))], axis=-1)

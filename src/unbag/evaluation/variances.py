"""How much shares of predictions in bags vary: the one home of label-free variances."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unbag.priors import ClassPriors, ShareErrors, SharesOf

__all__ = ["BagSample", "class_noise"]

_Floats = NDArray[np.float64]


def class_noise(
    shares_of: SharesOf | None, counts: _Floats, held_out_share: float | _Floats | None = None
) -> _Floats:
    r"""Give the variance of the classes of each bag's rows, over that of rows drawn freely.

    It is 1 for rows drawn freely from a population that has the shares, and 0 where the shares are
    those of these very rows. Of bags of N rows which have the shares as wholes, n rows that were
    chosen at random have class counts with the variance of draws without replacement,

    .. math:: \frac{N - n}{N - 1}, \qquad N = \frac{n}{f}

    times that of free draws, where f is the share held out.

    Parameters
    ----------
    shares_of : {"rows", "population"} or None
        None counts as "population".
    counts : array of shape (M,)
        Rows of every bag, n.
    held_out_share : float or array of shape (M,), optional
        f, for "rows"; 1 by default.

    Returns
    -------
    array of shape (M,)

    Examples
    --------
    >>> class_noise("rows", np.array([50.0, 100.0]), 0.25).round(3)
    array([0.754, 0.752])
    """
    if shares_of != "rows":
        return np.ones(len(counts))
    whole = counts / (1.0 if held_out_share is None else held_out_share)
    return np.asarray((whole - counts) / np.where(whole > 1, whole - 1, 1))


@dataclass(frozen=True, eq=False)
class BagSample:
    r"""Sizes and class shares of bags, and how well the shares are those of the rows.

    The shares :math:`V_{mk}` of bag m predicted as class k have mean :math:`v = \Theta C`, with the
    confusion matrix C. They vary by the predictions of rows whose class is known, by the classes of
    the rows, and by errors of Θ.

    Parameters
    ----------
    theta : array of shape (M, K)
    counts : array of shape (M,)
        Rows of every bag, n.
    noise : array of shape (M,)
        What :func:`class_noise` gives.
    errors : ShareErrors, optional
    drift : float
        Standard deviation of the recall of a class between bags.
    directions : array of shape (K, K), optional
        How predictions of a class move with its recall, as :func:`drift_directions` gives it;
        needed with a drift.
    gathered : array of shape (M,), optional
        Variance of the drift of each bag over that of a bag whose rows are from one place: less
        than 1 for labelled rows that come from many bags.
    """

    theta: _Floats
    counts: _Floats
    noise: _Floats
    errors: ShareErrors | None = None
    drift: float = 0.0
    directions: _Floats | None = None
    gathered: _Floats | None = None

    @classmethod
    def of(
        cls,
        priors: ClassPriors,
        counts: NDArray[np.generic],
        held_out_share: float | _Floats | None = None,
    ) -> "BagSample":
        """Describe bags by what their shares are of and how far off they may be."""
        rows = np.asarray(counts, dtype=np.float64)
        return cls(
            priors.values, rows, class_noise(priors.shares_of, rows, held_out_share), priors.errors
        )

    def variance(self, weights: _Floats, confusion: _Floats) -> _Floats:
        r"""Variance of an estimate with weights W of the shares of predictions.

        .. math:: \sum_m \frac{1}{n_m} \Bigl( \sum_k v_{mk} W_{mk}^2
            - \sum_y \theta_{my} g_{my}^2 + u_m \bigl( \sum_y \theta_{my} g_{my}^2
            - (\sum_y \theta_{my} g_{my})^2 \bigr) \Bigr), \quad g = W C^\top

        with the class noise u. Errors dΘ of the priors move the estimate by
        :math:`-\sum_{my} g_{my} \, d\theta_{my}`; a drift adds :meth:`drift_variance`.

        Parameters
        ----------
        weights : array of shape (..., M, K)
        confusion : array of shape (..., K, K)

        Returns
        -------
        array of shape (...)
        """
        shares = self.theta @ confusion
        second = (shares * weights).sum(-1) ** 2
        gradient = None
        if self.errors is not None or (self.noise < 1).any():
            gradient = weights @ np.swapaxes(confusion, -1, -2)  # (..., M, K)
            by_class = (self.theta * gradient**2).sum(-1)
            second = self.noise * second + (1 - self.noise) * by_class
        within = np.maximum((shares * weights**2).sum(-1) - second, 0)
        total = (within / self.counts).sum(-1)
        if self.errors is not None and gradient is not None:
            total = total + self.errors.added_variance(gradient)
        return np.asarray(total + self.drift**2 * self.drift_variance(weights))

    def third_moment(self, weights: _Floats, confusion: _Floats) -> _Floats:
        r"""Third central moment of an estimate with weights W of the shares of predictions.

        .. math:: \sum_m \frac{1}{n_m^2} \Bigl( u_m \, \kappa_3(v_m)
            + (1 - u_m) \sum_y \theta_{my} \kappa_3(C_y) \Bigr)

        with the class noise u and the third central moment κ₃(p) of the weight of a prediction that
        is drawn by p. Errors of Θ and drift count as symmetric.

        Parameters
        ----------
        weights : array of shape (..., M, K)
        confusion : array of shape (..., K, K)

        Returns
        -------
        array of shape (...)
        """
        shares = self.theta @ confusion
        squares = weights * weights
        powers = (weights, squares, squares * weights)
        total = self.noise * _third(*((shares * power).sum(-1) for power in powers))
        if (self.noise < 1).any():
            by_class = np.swapaxes(confusion, -1, -2)
            of_class = _third(*(power @ by_class for power in powers))  # (..., M, K)
            total = total + (1 - self.noise) * (self.theta * of_class).sum(-1)
        return np.asarray((total / self.counts**2).sum(-1))

    def drift_variance(self, weights: _Floats) -> _Floats:
        r"""Variance of an estimate with weights W (..., M, K) by a drift of 1.

        .. math:: \sum_{my} c_m \theta_{my}^2 (W_m \cdot a_y)^2

        with the directions a and c from ``gathered`` or 1, for recalls that differ between bags
        independently.
        """
        if self.directions is None:
            return np.zeros(weights.shape[:-2])
        squares = (self.theta * (weights @ self.directions.T)) ** 2
        return np.asarray((squares * self.scattering[:, None]).sum((-2, -1)))

    @property
    def scattering(self) -> _Floats:
        """Give ``gathered``, or ones, (M,)."""
        return np.ones(len(self.theta)) if self.gathered is None else self.gathered

    def share_variance(self, columns: _Floats) -> _Floats:
        """Variance of the share of each bag that is predicted as one class.

        It is :meth:`variance` where only weights of that class are not zero, which then enter as
        Σ_m w_m² times this. The part of a drift is not in it: :meth:`drift_in_shares` gives it.

        Parameters
        ----------
        columns : array of shape (..., K)
            The column of the confusion matrix that belongs to the class.

        Returns
        -------
        array of shape (..., M)
        """
        mean = columns @ self.theta.T
        second = self.noise * mean**2 + (1 - self.noise) * (columns**2 @ self.theta.T)
        total = np.maximum(mean - second, 0) / self.counts
        return np.asarray(
            total if self.errors is None else total + self.errors.added_by_bag(columns)
        )

    def share_third_moment(self, columns: _Floats) -> _Floats:
        """Third central moment of the share of each bag that is predicted as one class.

        It is to :meth:`third_moment` what :meth:`share_variance` is to :meth:`variance`.

        Parameters
        ----------
        columns : array of shape (..., K)

        Returns
        -------
        array of shape (..., M)
        """
        mean = columns @ self.theta.T
        of_class = _third(columns, columns, columns) @ self.theta.T
        total = self.noise * _third(mean, mean, mean) + (1 - self.noise) * of_class
        return np.asarray(total / self.counts**2)

    def drift_in_shares(self) -> _Floats:
        """Variance by drift of the share of each bag that is predicted as each class, (M, K)."""
        if self.directions is None:
            return np.zeros_like(self.theta)
        by_bag = self.drift**2 * self.scattering[:, None]
        return np.asarray(by_bag * (self.theta**2 @ self.directions**2))

    def prediction_covariance(self, confusion: _Floats) -> _Floats:
        """Covariance of the predicted class, as indicators, of a row of each bag: (M, K, K)."""
        shares = self.theta @ confusion  # (M, K)
        diagonal = shares[:, :, None] * np.eye(shares.shape[1])
        pairs = shares[:, :, None] * shares[:, None, :]
        by_class = np.einsum("my,yj,yk->mjk", self.theta, confusion, confusion)
        noise = self.noise[:, None, None]
        return np.asarray(diagonal - noise * pairs - (1 - noise) * by_class)


def _third(first: _Floats, second: _Floats, third: _Floats) -> _Floats:
    """Third central moment, of the moments about 0."""
    return np.asarray(third - 3 * first * second + 2 * first * first * first)

r"""Whether probabilities mean what they say, without labels.

Take the rows whose probability of class k lies in a bin. The share :math:`a_m` of bag m that they
are has mean :math:`\sum_y \theta_{my} P(\text{bin} \mid y)`, so a left inverse L of Θ gives
:math:`P(\text{bin} \mid y)` as :math:`(L a)_y`, and

.. math::
    P(y = k \mid \text{bin}) =
    \frac{\pi_k \, (L a)_k}{\sum_y \pi_y \, (L a)_y}

is how often class k is true in the bin. For a calibrated model that is the mean probability there.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.evaluation.inverses import LeftInverse
from unbag.evaluation.probabilities import check_probabilities
from unbag.priors import ClassPriors, check_test_prior
from unbag.validation import check_number, invalid

__all__ = ["Reliability", "ReliabilityCurve", "binned", "reliability_diagram"]

N_BINS = 10

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Predicted probability against estimated frequency, bin by bin.

    Attributes
    ----------
    rows : integer array of shape (B,)
        Rows in every bin; without any, the other numbers of the bin are NaN.
    share : array of shape (B,)
        Estimated share of the bin under the test prior.
    predicted : array of shape (B,)
        Mean probability in the bin.
    frequency : array of shape (B,)
        Estimate of how often it comes true. It is not clipped: by chance it may leave [0, 1].
    error : array of shape (B,)
        Standard error of the frequency.
    """

    rows: NDArray[np.int64]
    share: _Floats
    predicted: _Floats
    frequency: _Floats
    error: _Floats

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return vars(self)

    def interval(self, level: float = 0.95) -> tuple[_Floats, _Floats]:
        """Lower and upper ends (B,) of plain intervals of the frequency."""
        check_number("level", level, low=0, high=1, low_open=True, high_open=True)
        half = float(stats.norm.ppf(0.5 + level / 2)) * self.error
        return self.frequency - half, self.frequency + half


@dataclass(frozen=True, eq=False)
class Reliability:
    """Result of :func:`reliability_diagram`.

    Attributes
    ----------
    edges : array of shape (B + 1,)
        Of the bins; all but the last hold their lower edge and not their upper one.
    classes : array of shape (K,)
    overall : ReliabilityCurve
        Of the predicted class: the largest probability of a row, and how often that class is true.
    by_class : list of K ReliabilityCurve
    test_prior : array of shape (K,)
    """

    edges: _Floats
    classes: NDArray[Any]
    overall: ReliabilityCurve
    by_class: list[ReliabilityCurve]
    test_prior: _Floats

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return vars(self)


def reliability_diagram(
    probabilities: Any,
    bag_ids: Any,
    *,
    priors: Any,
    test_prior: Any = None,
    n_bins: int = N_BINS,
) -> Reliability:
    r"""Estimate without labels how often predicted probabilities come true.

    A frequency is a ratio of two estimates X and P of the chances of "bin, and the class is true"
    and of "bin", each linear in the shares of the bags. With weights :math:`u_m` and
    :math:`v_m` of these shares, its standard error is that of the linear part,

    .. math::
        \frac{1}{P^2} \sum_m \frac{1}{n_m} \operatorname{Var}_m
        \Bigl( \bigl( u_m - \tfrac{X}{P} v_m \bigr) \, [\text{row in bin}] \Bigr)

    for rows drawn freely, the variance in a bag taken from the shares ΘLa that fit all bags
    together. Where few rows lie in a bin, neither is to be trusted.

    Parameters
    ----------
    probabilities : array of shape (n, K)
        Of rows that the model was not trained on; columns in the order of the classes of
        ``priors``.
    bag_ids : array of shape (n,)
    priors : ClassPriors, array, dict or DataFrame
        Θ, of full column rank for the bags that have rows.
    test_prior : array of shape (K,) or dict, optional
        π, the class shares under which the probabilities hold; by default the pooled prior of
        these rows.
    n_bins : int, default=10
        Bins of equal width from 0 to 1.

    Returns
    -------
    Reliability

    Examples
    --------
    >>> eta = np.repeat([[0.8, 0.2], [0.2, 0.8]], 500, axis=0)  # 0.8 for one class
    >>> bag = np.tile([0, 0, 0, 1, 1], 200)
    >>> bag[500:] = 1 - bag[500:]  # 60% and 40% of the two bags get it
    >>> diagram = reliability_diagram(eta, bag, priors=[[0.8, 0.2], [0.2, 0.8]], n_bins=2)
    >>> diagram.overall.frequency.round(3), diagram.overall.error.round(3)  # true for 2 of 3
    (array([  nan, 0.667]), array([  nan, 0.026]))
    """
    table = ClassPriors.of(priors)
    bag_index = table.encode(bag_ids)
    if len(bag_index) == 0:
        raise invalid("bag_ids", "ids of at least one row", "none")
    check_number("n_bins", n_bins, low=1, high=1000, integer=True)
    chances = check_probabilities(probabilities, len(bag_index), table.n_classes)
    rest, bag_index, _ = table.with_rows(bag_index)
    pi = None if test_prior is None else check_test_prior(test_prior, table.classes)
    return binned(chances, bag_index, rest, pi, int(n_bins))


def binned(
    chances: _Floats,
    bag_index: NDArray[np.int64],
    priors: ClassPriors,
    test_prior: _Floats | None = None,
    n_bins: int = N_BINS,
) -> Reliability:
    """Make the diagram of checked probabilities (n, K) of rows of bags that all have some."""
    bags = _Bags(priors, bag_index, n_bins)
    pi = bags.pooled if test_prior is None else test_prior
    k = priors.n_classes
    return Reliability(
        edges=np.linspace(0, 1, n_bins + 1),
        classes=priors.classes,
        overall=bags.curve(chances.max(1), pi, list(range(k)), chances.argmax(1)),
        by_class=[bags.curve(chances[:, c], pi, [c], None) for c in range(k)],
        test_prior=pi,
    )


class _Bags:
    """Rows of bags that all have some, and a left inverse of their priors."""

    def __init__(self, priors: ClassPriors, bag_index: NDArray[np.int64], n_bins: int) -> None:
        self.theta, self.bag_index, self.n_bins = priors.values, bag_index, n_bins
        self.counts = np.bincount(bag_index, minlength=priors.n_bags).astype(np.float64)
        self.pooled = priors.pooled(self.counts)
        self.inverse = LeftInverse(priors, self.counts).matrix  # (K, M)

    def curve(
        self,
        values: _Floats,
        pi: _Floats,
        classes: list[int],
        which: NDArray[np.int64] | None,
    ) -> ReliabilityCurve:
        """Make the curve of a probability (n,) that one class is true.

        That class is the only one of ``classes``, or of these the one that ``which`` (n,) names
        for every row.
        """
        m, b = len(self.counts), self.n_bins
        bin_index = np.clip((values * b).astype(np.int64), 0, b - 1)
        cell = bin_index * m + self.bag_index
        sums = np.bincount(cell, weights=values, minlength=b * m).reshape(b, m)
        part = pi @ self.inverse  # (M,), v
        rows = np.bincount(cell, minlength=b * m).reshape(b, m)
        # (B,), P; with the pooled prior the plain share of the rows
        chance = (rows / self.counts) @ part
        occupied = (rows.sum(1) > 0) & (chance > 0)
        safe = np.where(occupied, chance, np.nan)

        cells = [cell] if which is None else _by_class(cell, which, classes)
        tables = []  # one class after another: all at once would not fit where they are many
        hits = np.zeros(b)
        for k, of_class in zip(classes, cells, strict=True):
            shares = np.bincount(of_class, minlength=b * m).reshape(b, m) / self.counts  # a
            bins = np.flatnonzero(shares.any(1))
            hit = pi[k] * self.inverse[k]  # (M,), u
            hits += shares @ hit
            tables.append((shares[bins], bins, hit))
        frequency = hits / safe
        mean, square = np.zeros((b, m)), np.zeros((b, m))
        for shares, bins, hit in tables:
            # Shares that fit all bags together: a bag of one row shows no variance of its own.
            fitted = np.clip(shares @ self.inverse.T, 0, 1) @ self.theta.T  # (B', M)
            influence = hit - frequency[bins, None] * part  # (B', M)
            mean[bins] += influence * fitted
            square[bins] += influence**2 * fitted
        spread = np.maximum(square - mean**2, 0)  # (B, M)
        return ReliabilityCurve(
            rows=rows.sum(1),
            share=np.where(occupied, chance, np.nan),
            predicted=(sums / self.counts) @ part / safe,
            frequency=frequency,
            error=np.sqrt((spread / self.counts).sum(1)) / safe,
        )


def _by_class(
    cell: NDArray[np.int64], which: NDArray[np.int64], classes: list[int]
) -> list[NDArray[np.int64]]:
    """Cells of the rows of each class."""
    order = np.argsort(which, kind="stable")
    limits = np.searchsorted(which[order], [*classes, len(classes)])
    return [cell[order[start:end]] for start, end in itertools.pairwise(limits)]

"""The accuracy without labels, as one number: what ``score`` gives and early stopping watches."""

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.core import Core
from unbag.evaluation.inverses import LeftInverse
from unbag.evaluation.metrics import OVERALL_METRICS
from unbag.evaluation.trust import beyond_limits_warning
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors

__all__ = ["accuracy_warning", "error_table", "label_free_accuracy"]

_Floats = NDArray[np.float64]


def label_free_accuracy(
    predicted: NDArray[np.int64],
    bag_index: NDArray[np.int64],
    priors: ClassPriors,
    test_prior: _Floats | None = None,
    sample_weight: _Floats | None = None,
) -> float:
    r"""Estimate the accuracy of predictions on rows whose labels nobody has.

    .. math:: A = \sum_k \pi_k \hat C_{kk}, \qquad \hat C = L V

    where :math:`V_{mk}` is the share of bag m predicted as class k and L the size-weighted
    :class:`LeftInverse` of Θ. It is the accuracy of :func:`unbag.evaluate` to the last digit. It is
    unbiased for rows that the model was not trained on, and it is not clipped: it may leave [0, 1]
    by chance. With Θ = I it is the plain accuracy. Where shares have errors, L is that of
    ``unbag.evaluation.updating``.

    Parameters
    ----------
    predicted : integer array of shape (n,)
        Predicted class of every row, 0 to K−1.
    bag_index : integer array of shape (n,)
        Bag of every row, 0 to M−1.
    priors : ClassPriors
        Θ. Bags without rows are left out of it; the rest must have full column rank.
    test_prior : array of shape (K,), optional
        π; by default the pooled prior of these rows.
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> priors = ClassPriors([[0.9, 0.1], [0.2, 0.8]])
    >>> predicted = np.array([0] * 9 + [1] + [0] * 2 + [1] * 8)
    >>> round(label_free_accuracy(predicted, np.repeat([0, 1], 10), priors), 6)
    1.0
    """
    present, table = _predictions_in_bags(predicted, bag_index, priors, sample_weight)
    counts, priors = table.sum(1), priors.subset(present)
    if priors.errors is not None:
        drawn = priors.with_errors(shares_of="population")  # as ``evaluate`` takes rows of arrays
        core = Core(table, drawn, BagSample.of(drawn, counts), test_prior)
        return float(OVERALL_METRICS["accuracy"].value(core.raw, core.pi))
    pi = priors.pooled(counts) if test_prior is None else test_prior
    confusion = LeftInverse(priors, counts).confusion(table / counts[:, None])
    return float(OVERALL_METRICS["accuracy"].value(confusion, pi))


def accuracy_warning(
    predicted: NDArray[np.int64],
    bag_index: NDArray[np.int64],
    priors: ClassPriors,
    test_prior: _Floats | None = None,
    sample_weight: _Floats | None = None,
) -> str | None:
    """Say what is wrong where the accuracy is outside [0, 1] by more than its error, else None.

    Parameters are those of :func:`label_free_accuracy`. The rows count as drawn freely. With
    weights w, the rows of a bag count as (Σw)² / Σw² rows.
    """
    present, table = _predictions_in_bags(predicted, bag_index, priors, sample_weight)
    counts = table.sum(1)
    if sample_weight is not None:
        squares = np.bincount(bag_index, weights=sample_weight**2, minlength=priors.n_bags)
        counts = counts**2 / squares[present]
    sample = BagSample.of(priors.subset(present).with_errors(shares_of="population"), counts)
    core = Core(table, priors.subset(present), sample, test_prior)
    accuracy = OVERALL_METRICS["accuracy"]
    value = float(accuracy.value(core.raw, core.pi))
    return beyond_limits_warning(value, core.errors_beyond_limits(accuracy))


def _predictions_in_bags(
    predicted: NDArray[np.int64],
    bag_index: NDArray[np.int64],
    priors: ClassPriors,
    sample_weight: _Floats | None,
) -> tuple[NDArray[np.bool_], _Floats]:
    """Which bags have rows, and the sums of weights of their rows predicted as each class."""
    m, k = priors.n_bags, priors.n_classes
    weight = np.ones(len(predicted)) if sample_weight is None else sample_weight
    table = np.bincount(bag_index * k + predicted, weights=weight, minlength=m * k).reshape(m, k)
    present = table.sum(1) > 0
    return present, table[present]


def error_table(
    counts: NDArray[np.int64],
    priors: ClassPriors,
    test_prior: _Floats | None = None,
) -> _Floats:
    r"""Tabulate what a row adds to the label-free error, by its bag and its predicted class.

    .. math:: E_{mk} = 1 - \frac{n}{n_m} W_{mk}, \quad W = (\Pi L)^\top, \qquad
        \frac{1}{n} \sum_i E_{m_i \hat{y}_i} = 1 - A

    with the accuracy A of :func:`label_free_accuracy`. For pure bags (Θ = I) and their pooled
    prior it is 0 where the predicted class is that of the bag, else 1: the plain error.

    Parameters
    ----------
    counts : integer array of shape (M,)
        Rows of every bag, n_m. Bags without rows are left out of Θ and have zeros in the table.
    priors : ClassPriors
    test_prior : array of shape (K,), optional
        π; by default the pooled prior of these rows.

    Examples
    --------
    >>> error_table(np.array([10, 30]), ClassPriors([[1.0, 0.0], [0.0, 1.0]]))
    array([[0., 1.],
           [1., 0.]])
    """
    present = counts > 0
    n, rest = counts[present].astype(np.float64), priors.subset(present)
    pi = rest.pooled(n) if test_prior is None else test_prior
    table = np.zeros((priors.n_bags, priors.n_classes))
    table[present] = 1 - n.sum() / n[:, None] * LeftInverse(rest, n).weights(np.diag(pi))
    return table

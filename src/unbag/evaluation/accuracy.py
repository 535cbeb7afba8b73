"""Evaluation without labels: from predictions, bags and priors alone."""

import numpy as np
from numpy.typing import NDArray

from unbag.priors import ClassPriors, risk_weights

__all__ = ["error_table", "label_free_accuracy"]


def label_free_accuracy(
    predicted: NDArray[np.int64],
    bag_index: NDArray[np.int64],
    priors: ClassPriors,
    test_prior: NDArray[np.float64] | None = None,
    sample_weight: NDArray[np.float64] | None = None,
) -> float:
    r"""Estimate the accuracy of predictions on rows whose labels nobody has.

    .. math:: A = \sum_{m,k} W_{mk} V_{mk}, \qquad W = (\Pi \Theta^\dagger)^\top

    where :math:`V_{mk}` is the share of bag m predicted as class k and :math:`\Pi` the diagonal
    matrix of the test prior. The estimate is unbiased for rows that the model was not trained on,
    and it is not clipped: it may leave [0, 1] by chance. With Θ = I it is the plain accuracy.

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
    m, k = priors.n_bags, priors.n_classes
    weight = np.ones(len(predicted)) if sample_weight is None else sample_weight
    cell = bag_index * k + predicted
    counts = np.bincount(cell, weights=weight, minlength=m * k).reshape(m, k)
    present = counts.sum(1) > 0
    counts, rest = counts[present], priors.subset(present)
    pi = rest.pooled(counts.sum(1)) if test_prior is None else test_prior
    shares = counts / counts.sum(1, keepdims=True)  # (M, K)
    return float((risk_weights(rest, pi, warn=False) * shares).sum())


def error_table(
    counts: NDArray[np.int64],
    priors: ClassPriors,
    test_prior: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    r"""Tabulate what a row adds to the label-free error, by its bag and its predicted class.

    .. math:: L_{mk} = 1 - \frac{n}{n_m} W_{mk}, \qquad \frac{1}{n} \sum_i L_{m_i \hat{y}_i} = 1 - A

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
    n, rest = counts[present], priors.subset(present)
    pi = rest.pooled(n) if test_prior is None else test_prior
    table = np.zeros((priors.n_bags, priors.n_classes))
    table[present] = 1 - n.sum() / n[:, None] * risk_weights(rest, pi, warn=False)
    return table

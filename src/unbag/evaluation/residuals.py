"""Whether bag means of features are mixes of class means: residuals of a weighted regression."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.priors import RANK_TOLERANCE, ClassPriors, SharesOf

__all__ = ["Residuals", "bag_features", "bag_means", "residual_test"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_OWN_ROWS = 5  # of a bag with a covariance of its rows; smaller bags take the pooled one
SHOWN_BAGS = 5


@dataclass(frozen=True)
class Residuals:
    """Result of :func:`residual_test`.

    Attributes
    ----------
    p_value
        Chance of a deviation this large if rows of a class are alike in all bags and the priors
        are right.
    statistic, expected
        T and its mean under that assumption.
    degrees
        Degrees of freedom of T: 2 (E T)² / Var T.
    deviation
        How far bag means are from mixes of class means, beyond chance: root mean square over
        rows and features, in standard deviations within bags.
    bags
        The bags that deviate most, worst first: id, and squared deviation over what chance
        gives, 1 on average.
    n_features, n_rows
        How many features and rows were used.
    shares_of
        What the shares were taken to be of, "rows" or "population".
    """

    p_value: float
    statistic: float
    expected: float
    degrees: float
    deviation: float
    bags: list[tuple[Any, float]]
    n_features: int
    n_rows: int
    shares_of: SharesOf


def residual_test(features: Floats, sizes: Ints, table: ClassPriors) -> Residuals:
    """Test whether means of whitened features, (n, d) bag by bag, are mixes of class means."""
    (n, d), n_bags = features.shape, len(sizes)
    means, covariances = _moments(features, sizes)  # (M, d), (M, d, d)
    root = np.sqrt(sizes)  # (M,)
    left, sigma, right = np.linalg.svd(root[:, None] * table.values, full_matrices=False)
    nonzero = sigma > RANK_TOLERANCE * sigma[0]
    left, sigma, right = left[:, nonzero], sigma[nonzero], right[nonzero]
    projector = np.eye(n_bags) - left @ left.T  # (M, M), R
    inverse = (right.T / sigma) @ left.T * root  # (K, M), from bag means to class means
    class_means = inverse @ means  # (K, d)

    shares_of: SharesOf = "population"
    if table.shares_of == "rows":
        within = _within_class_covariances(covariances, sizes, table, class_means, inverse)
        if within is not None:
            shares_of, covariances = "rows", within
    if table.errors is not None:
        apart = class_means - (table.errors.weights @ class_means)[:, None]  # (M, K, d)
        noise = np.einsum("mk,mki,mkj->mij", table.errors.variances, apart, apart)
        covariances = covariances + sizes[:, None, None] * noise

    traces = np.trace(covariances, axis1=1, axis2=2)  # (M,)
    flat = covariances.reshape(n_bags, -1)
    products = flat @ flat.T  # (M, M), tr(S_m S_l)
    # tr(S_m²) of an estimate is too large; unbiased for Gaussian features, never below a sphere's.
    freedom = np.maximum(sizes - 1, MIN_OWN_ROWS - 1)
    unbiased = (np.diag(products) - traces**2 / freedom) / (1 - 1 / freedom) / (1 + 2 / freedom)
    own_rows = sizes >= MIN_OWN_ROWS
    squares = np.where(own_rows, np.maximum(unbiased, traces**2 / d), np.diag(products))
    np.fill_diagonal(products, squares)

    scale, below = _whitening_cost(d, n_bags - len(sigma), n - n_bags)
    residuals = scale * ((projector @ (root[:, None] * means)) ** 2).sum(1)  # (M,)
    statistic, expected = float(residuals.sum()), float(np.diag(projector) @ traces)
    variance = float(2 * (projector**2 * products).sum())
    degrees = 2 * expected**2 / variance
    ratios = residuals / (projector**2 @ traces)
    worst = np.argsort(-ratios, kind="stable")[:SHOWN_BAGS]
    return Residuals(
        p_value=float(stats.f.sf(statistic / expected * below / (below - 2), degrees, below)),
        statistic=statistic,
        expected=expected,
        degrees=float(degrees),
        deviation=float(np.sqrt(max(0.0, statistic - expected) / (n * d))),
        bags=[(table.bag_ids[[m]].tolist()[0], float(ratios[m])) for m in worst],
        n_features=d,
        n_rows=n,
        shares_of=shares_of,
    )


def _whitening_cost(d: int, q: int, freedom: int) -> tuple[float, float]:
    """Make up for whitening d features by a covariance that is an estimate itself.

    T is then a Lawley-Hotelling trace of d×q normal residuals over a covariance with ν degrees
    of freedom: its mean is ν/(ν−d−1) times larger, and its tail is that of an F whose
    denominator has 4 + (dq+2)/(B−1) degrees, B = (ν+q−d−1)(ν−1) / ((ν−d−3)(ν−d)) (McKeon 1974).

    Returns
    -------
    The factor for T, and the degrees of the denominator.
    """
    b = (freedom + q - d - 1) * (freedom - 1) / ((freedom - d - 3) * (freedom - d))
    return (freedom - d - 1) / freedom, 4 + (d * q + 2) / (b - 1)


def bag_features(columns: Floats, sizes: Ints) -> Floats:
    """Rank (n, D) columns and whiten them within bags; (n, d ≤ D) features, rows bag by bag."""
    ranks: Floats = stats.rankdata(columns, axis=0) / len(columns)
    within = ranks - np.repeat(bag_means(ranks, sizes), sizes, axis=0)
    deviation = np.sqrt((within**2).mean(0))
    alive = deviation > 1e-9
    if not alive.any():
        return np.zeros((len(columns), 0))
    within, ranks = within[:, alive] / deviation[alive], ranks[:, alive] / deviation[alive]
    values, vectors = np.linalg.eigh(within.T @ within / (len(columns) - len(sizes)))
    kept = values > 1e-8 * values[-1]  # columns that follow from others add nothing
    features: Floats = (ranks - ranks.mean(0)) @ (vectors[:, kept] / np.sqrt(values[kept]))
    return features


def bag_means(rows: Floats, sizes: Ints) -> Floats:
    """Means (M, d) of rows that come bag by bag."""
    return np.asarray(np.add.reduceat(rows, np.cumsum(sizes) - sizes) / sizes[:, None])


def _moments(rows: Floats, sizes: Ints) -> tuple[Floats, Floats]:
    """Means (M, d) and covariances (M, d, d) of rows that come bag by bag."""
    n, d = rows.shape
    starts = np.cumsum(sizes) - sizes
    means = bag_means(rows, sizes)
    within = rows - np.repeat(means, sizes, axis=0)
    outer = (within[:, :, None] * within[:, None, :]).reshape(n, -1)
    sums = np.add.reduceat(outer, starts).reshape(-1, d, d)
    pooled = sums.sum(0) / (n - len(sizes))
    by_bag = sums / np.maximum(sizes - 1, 1)[:, None, None]
    return means, np.where((sizes >= MIN_OWN_ROWS)[:, None, None], by_bag, pooled)


def _within_class_covariances(
    covariances: Floats, sizes: Ints, table: ClassPriors, class_means: Floats, inverse: Floats
) -> Floats | None:
    r"""Subtract from the bags' covariances what lies between classes.

    With fitted class means :math:`\hat\mu = L\bar{x}`, the part between the classes of bag m is
    :math:`D_m = \hat\mu^\top(\operatorname{diag}\theta_m - \theta_m\theta_m^\top)\hat\mu`. Noise
    in the class means makes it too large on average, which is made up for by solving

    .. math:: \frac{n_m-1}{n_m} S_m - D_m = \frac{n_m-1}{n_m} E_m - \sum_l c_{ml} E_l, \qquad
              c_{ml} = \frac{1}{n_l} \Bigl(\sum_k \theta_{mk} L_{kl}^2
              - \bigl(\sum_k \theta_{mk} L_{kl}\bigr)^2\Bigr)

    for the covariances wanted, E (M, d, d). None where this is not possible: without full rank,
    or with class means so noisy that the correction is no small one.
    """
    theta, n_bags = table.values, len(sizes)
    if table.rank < table.n_classes:
        return None
    noise = (theta @ inverse**2 - (theta @ inverse) ** 2) / sizes  # (M, M), c
    if noise.sum(1).max() > 0.5:
        return None
    fitted = theta @ class_means  # (M, d)
    between = np.einsum("mk,ki,kj->mij", theta, class_means, class_means)
    between -= fitted[:, :, None] * fitted[:, None, :]
    share = np.maximum(sizes - 1, 1) / sizes  # (M,)
    known = (share[:, None, None] * covariances - between).reshape(n_bags, -1)
    within: Floats = np.linalg.solve(np.diag(share) - noise, known).reshape(covariances.shape)
    return within if (np.trace(within, axis1=1, axis2=2) > 0).all() else None

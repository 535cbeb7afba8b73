"""Whether the rows of a class look alike in all bags: bag means must be mixes of class means."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.priors import RANK_TOLERANCE, ClassPriors, ShareErrors, SharesOf, read_shares_of
from unbag.rows import Rows, check_rows
from unbag.validation import as_generator, invalid, warn_replaced

__all__ = [
    "AlikeTest",
    "alike_test",
    "as_numpy",
    "bag_features",
    "no_spare_bag",
    "residual_test",
    "run_test",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_ROWS = 20_000  # of more rows a sample is used, with an equal number per bag where possible
MAX_BAGS = 1_000  # of more bags, the largest are used
MAX_FEATURES = 20  # more columns are projected at random to this many
ROWS_PER_FEATURE = 10  # rows less bags that a feature needs, for its covariances
BLOCK = 256  # columns projected at a time, to copy little
MIN_OWN_ROWS = 5  # of a bag with a covariance of its rows; smaller bags take the pooled one
MIN_FREEDOM = 30  # rows less bags; with fewer nothing is tested
SHOWN_BAGS = 5


@dataclass(frozen=True)
class AlikeTest:
    """Result of :func:`alike_test`.

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
    sampling
        How the variance of bag means was taken, "iid" or "exact".
    """

    p_value: float
    statistic: float
    expected: float
    degrees: float
    deviation: float
    bags: list[tuple[Any, float]]
    n_features: int
    n_rows: int
    sampling: str


def alike_test(
    X: Any,
    bag_ids: Any,
    priors: Any,
    *,
    shares_of: SharesOf | None = None,
    random_state: Any = 0,
    sampling: str | None = None,
    prior_errors: Any = None,
) -> AlikeTest:
    r"""Test the assumption behind everything here: rows of a class look alike in all bags.

    Then the mean of any feature in bag m is :math:`\theta_m \cdot \mu`, with class means μ that
    do not depend on m; with more bags than rank(Θ) that can fail. Many columns are first mixed
    at random into d features (choosing principal components of the same rows would make the test
    too careful). Features are ranked over all rows, so that a few extreme values decide nothing
    (any function of a row would do), and whitened by the covariance within bags. With
    :math:`Y_m = \sqrt{n_m}\,\bar{x}_m` and R the projector on what :math:`\sqrt{N}\Theta` cannot
    reach,

    .. math:: T = \lVert R Y \rVert^2, \qquad
              \mathrm{E}\,T = \sum_m R_{mm} \operatorname{tr} S_m, \qquad
              \operatorname{Var} T = 2 \sum_{ml} R_{ml}^2 \operatorname{tr}(S_m S_l)

    where :math:`S_m` (d×d) is bag m's own covariance: bags of different mixes have different
    ones, and a pooled covariance would raise too many false alarms. The p-value is that of a
    scaled χ² with these two moments, corrected for whitening by an estimate, which turns it
    into an F.

    Where class counts are exact, bag means vary less, by the covariances within classes only, and
    the test for rows drawn at random is too careful. With ``shares_of="rows"`` the part between
    classes is estimated from the fitted class means and subtracted.

    Parameters
    ----------
    X
        (n, d) numeric rows or images.
    bag_ids
        (n,) bag of every row.
    priors
        Class priors Θ, anything that :meth:`ClassPriors.of` takes. What their errors add to the
        residuals raises no alarm.
    shares_of
        "population" for rows drawn at random from one with these shares, "rows" for shares of
        these very rows. The second needs full rank and not too noisy class means; otherwise the
        first is used, and the result says so.
    random_state
        Seed of the sample of rows and of the projection, where there are many.
    sampling, prior_errors
        Replaced by ``shares_of`` and by the ``errors`` of :class:`ClassPriors`.

    Returns
    -------
    AlikeTest

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> theta = np.array([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]])
    >>> bag = np.repeat([0, 1, 2], 200)
    >>> y = (rng.random(600) < theta[bag, 1]).astype(int)
    >>> X = rng.normal(size=(600, 4)) + y[:, None]
    >>> bool(alike_test(X, bag, theta).p_value > 0.05)
    True
    >>> X[bag == 1] += 1.0
    >>> alike_test(X, bag, theta).p_value < 1e-9
    True
    """
    table = ClassPriors.of(priors)
    rows, _ = check_rows(X)
    index = table.encode(bag_ids)
    if len(index) != len(rows):
        raise invalid("bag_ids", f"of length {len(rows)}, one for each row of X", len(index))
    table = table.with_errors(shares_of=read_shares_of(shares_of, sampling))
    drawn = "exact" if table.shares_of == "rows" else "iid"
    if prior_errors is not None:
        warn_replaced("prior_errors", "priors=ClassPriors.of(priors).with_errors(errors)")
        table = table.with_errors(prior_errors)
    result = run_test(rows, index, table, table.errors, drawn, random_state)
    if isinstance(result, str):
        raise invalid("X", "rows that can be tested", result)
    return result


def run_test(
    rows: Rows,
    bag_index: Ints,
    table: ClassPriors,
    errors: ShareErrors | None,
    sampling: str,
    random_state: Any = 0,
) -> AlikeTest | str:
    """Run the test of :func:`alike_test` on checked input, or say why it cannot be run."""
    sizes = np.bincount(bag_index, minlength=table.n_bags)
    kept = np.sort(np.argsort(-sizes, kind="stable")[:MAX_BAGS])  # (M',)
    kept = kept[sizes[kept] > 0]
    rest = table.subset(kept)
    if len(kept) <= rest.rank:
        return no_spare_bag(len(kept), rest.rank)
    rng = as_generator(random_state)
    chosen = _sample(bag_index, kept, rng)  # rows, bag by bag
    place = np.searchsorted(kept, bag_index[chosen])  # 0..M'-1, sorted
    n = np.bincount(place)
    if n.sum() - len(n) < MIN_FREEDOM:
        need = f"at least {MIN_FREEDOM} more than bags are needed"
        return f"{n.sum()} rows in {len(n)} bags are too few; {need}"
    most = min(MAX_FEATURES, (len(chosen) - len(n)) // ROWS_PER_FEATURE)
    features = bag_features(_columns(rows, chosen, most, rng), n)
    if features.shape[1] == 0:
        return "the rows do not differ within bags"
    kept_errors = None if errors is None else errors.subset(kept)
    return residual_test(features, n, rest, kept_errors, sampling)


def no_spare_bag(n_bags: int, rank: int) -> str:
    """Say why so few bags cannot be tested."""
    return (
        f"with {n_bags} bags and rank {rank} any bag means fit; more bags than the rank are needed"
    )


def residual_test(
    features: Floats, sizes: Ints, table: ClassPriors, errors: ShareErrors | None, sampling: str
) -> AlikeTest:
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

    if sampling == "exact":
        within = _within_class_covariances(covariances, sizes, table, class_means, inverse)
        sampling, covariances = ("iid", covariances) if within is None else ("exact", within)
    if errors is not None:
        apart = class_means - (errors.weights @ class_means)[:, None]  # (M, K, d)
        noise = np.einsum("mk,mki,mkj->mij", errors.variances, apart, apart)
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
    return AlikeTest(
        p_value=float(stats.f.sf(statistic / expected * below / (below - 2), degrees, below)),
        statistic=statistic,
        expected=expected,
        degrees=float(degrees),
        deviation=float(np.sqrt(max(0.0, statistic - expected) / (n * d))),
        bags=[(table.bag_ids[[m]].tolist()[0], float(ratios[m])) for m in worst],
        n_features=d,
        n_rows=n,
        sampling=sampling,
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
    means, _ = _moments(ranks, sizes, covariances=False)
    within = ranks - np.repeat(means, sizes, axis=0)
    deviation = np.sqrt((within**2).mean(0))
    alive = deviation > 1e-9
    if not alive.any():
        return np.zeros((len(columns), 0))
    within, ranks = within[:, alive] / deviation[alive], ranks[:, alive] / deviation[alive]
    values, vectors = np.linalg.eigh(within.T @ within / (len(columns) - len(sizes)))
    kept = values > 1e-8 * values[-1]  # columns that follow from others add nothing
    features: Floats = (ranks - ranks.mean(0)) @ (vectors[:, kept] / np.sqrt(values[kept]))
    return features


def _moments(
    rows: Floats, sizes: Ints, covariances: bool = True
) -> tuple[Floats, NDArray[np.float64]]:
    """Means (M, d) and covariances (M, d, d) of rows that come bag by bag."""
    n, d = rows.shape
    starts = np.cumsum(sizes) - sizes
    means = np.add.reduceat(rows, starts) / sizes[:, None]
    if not covariances:
        return means, np.zeros((0, d, d))
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


def _sample(bag_index: Ints, kept: Ints, rng: np.random.Generator) -> Ints:
    """Choose at most MAX_ROWS rows of the bags kept, bag by bag."""
    order = np.argsort(bag_index, kind="stable")
    order = order[np.isin(bag_index[order], kept)]
    if len(order) <= MAX_ROWS:
        return order
    order = rng.permutation(order)
    order = order[np.argsort(bag_index[order], kind="stable")]
    bag = bag_index[order]
    place = np.arange(len(bag)) - np.searchsorted(bag, bag)  # 0, 1, ... in each bag
    limit = np.sort(place)[MAX_ROWS]  # no more rows than MAX_ROWS have a smaller place
    chosen: Ints = order[place < limit]
    return chosen


def as_numpy(rows: Rows) -> NDArray[Any]:
    """Give rows as an array; numpy lacks some of torch's dtypes, so tensors become float32."""
    return rows if isinstance(rows, np.ndarray) else rows.detach().cpu().float().numpy()


def _columns(rows: Rows, chosen: Ints, most: int, rng: np.random.Generator) -> Floats:
    """(n, d) columns of the rows chosen, or that many random mixes of them where there are more."""
    flat = as_numpy(rows[chosen]).reshape(len(chosen), -1)
    if flat.shape[1] <= most:
        return flat.astype(np.float64)
    mixed = np.zeros((len(flat), most))
    for start in range(0, flat.shape[1], BLOCK):
        block = flat[:, start : start + BLOCK].astype(np.float64)
        block -= block.mean(0)
        deviation = block.std(0)
        block /= np.where(deviation > 0, deviation, 1)
        mixed += block @ rng.standard_normal((block.shape[1], most))
    return mixed

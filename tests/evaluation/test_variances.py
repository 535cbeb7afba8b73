"""Variances of shares of predictions, by formula and in simulations."""

import numpy as np
import pytest
from populations import draw_counts

from unbag.evaluation import LeftInverse
from unbag.evaluation.variances import BagSample, class_noise
from unbag.priors import SHARES_OF, ClassPriors, ShareErrors

CLASS_COUNTS = np.array(
    [[50, 30, 20], [200, 250, 50], [300, 300, 600], [10, 10, 60], [100, 50, 50], [10, 100, 10]]
)
SIZES = CLASS_COUNTS.sum(1)
PRIORS = ClassPriors(CLASS_COUNTS / SIZES[:, None])
THETA = PRIORS.values
CONFUSION = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.05, 0.05, 0.9]])
WEIGHTS = np.random.default_rng(0).normal(size=(5, 6, 3))


def sample(shares_of, held_out_share=None, errors=None):
    priors = PRIORS.with_errors(errors, shares_of)
    return BagSample.of(priors, SIZES, held_out_share)


def draw_parts(share, repeats, rng):
    """Predictions in parts of bags, drawn without replacement: (repeats, M, K), and their sizes."""
    parts = []
    sizes = np.rint(SIZES * share).astype(int)
    for counts, n in zip(CLASS_COUNTS, sizes, strict=True):
        classes = rng.multivariate_hypergeometric(counts, n, repeats)  # (repeats, K)
        parts.append(
            sum(rng.multinomial(classes[:, y], CONFUSION[y]) for y in range(len(CONFUSION)))
        )
    return np.stack(parts, axis=1), sizes


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_covariance_of_predictions(shares_of):
    rng = np.random.default_rng(0)
    covariance = sample(shares_of).prediction_covariance(CONFUSION)
    shares = draw_counts(THETA, SIZES, CONFUSION, shares_of, 20_000, rng) / SIZES[:, None]
    for m, size in enumerate(SIZES):
        measured = size * np.cov(shares[:, m].T)
        np.testing.assert_allclose(covariance[m], measured, atol=0.01)


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_variance_against_simulation(shares_of):
    """For weights of any functional, several at a time."""
    rng = np.random.default_rng(0)
    shares = draw_counts(THETA, SIZES, CONFUSION, shares_of, 6000, rng) / SIZES[:, None]
    measured = np.einsum("fmk,rmk->fr", WEIGHTS, shares).var(1)
    np.testing.assert_allclose(sample(shares_of).variance(WEIGHTS, CONFUSION), measured, rtol=0.08)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_parts_of_exact_bags_against_simulation(share):
    rng = np.random.default_rng(0)
    tables, sizes = draw_parts(share, 6000, rng)
    shares = tables / sizes[:, None]
    part = BagSample.of(PRIORS.with_errors(shares_of="rows"), sizes, sizes / SIZES)
    measured = np.einsum("fmk,rmk->fr", WEIGHTS, shares).var(1)
    np.testing.assert_allclose(part.variance(WEIGHTS, CONFUSION), measured, rtol=0.08)
    for m, n in enumerate(sizes):
        covariance = part.prediction_covariance(CONFUSION)[m]
        np.testing.assert_allclose(covariance, n * np.cov(shares[:, m].T), atol=0.02)


def test_class_noise_of_parts():
    """Between that of exact counts, for whole bags, and of free draws, for a part of nothing."""
    counts = np.array([1.0, 20.0, 50.0])
    np.testing.assert_array_equal(class_noise("population", counts), 1)
    np.testing.assert_array_equal(class_noise("rows", counts), 0)
    np.testing.assert_array_equal(class_noise("rows", counts, 1.0), 0)
    np.testing.assert_allclose(class_noise("rows", counts, 0.5), [1, 20 / 39, 50 / 99])
    by_bag = np.array([0.2, 1.0, 0.25])
    np.testing.assert_allclose(class_noise("rows", counts, by_bag), [1, 0, 150 / 199])
    np.testing.assert_allclose(class_noise("rows", counts, 1e-9), 1, atol=1e-8)


def test_exact_counts_vary_less_and_not_at_all_for_a_perfect_model():
    free, exact = (sample(s).variance(WEIGHTS, CONFUSION) for s in ("population", "rows"))
    assert (exact < free).all()
    np.testing.assert_allclose(sample("rows").variance(WEIGHTS, np.eye(3)), 0, atol=1e-15)
    assert (sample("population").variance(WEIGHTS, np.eye(3)) > 0).all()
    half = sample("rows", 0.5).variance(WEIGHTS, CONFUSION)
    assert ((exact < half) & (half < free)).all()


@pytest.mark.parametrize("held_out_share", [None, 0.3])
@pytest.mark.parametrize("shares_of", SHARES_OF)
@pytest.mark.parametrize("with_errors", [False, True])
def test_variance_of_one_column_is_the_general_one(shares_of, with_errors, held_out_share):
    rng = np.random.default_rng(0)
    errors = ShareErrors.of(rng.uniform(0, 0.03, THETA.shape)) if with_errors else None
    bags = sample(shares_of, held_out_share, errors)
    weights = np.zeros((6, 3))
    weights[:, 1] = rng.normal(size=6)
    expected = bags.variance(weights, CONFUSION)
    parts = bags.share_variance(CONFUSION[:, 1])
    assert (weights[:, 1] ** 2 * parts).sum() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_third_moments_against_simulation(shares_of):
    """Of few rows, where they matter, and of one column as of any weights."""
    rng = np.random.default_rng(1)
    few = np.maximum(SIZES // 10, 3)
    counts = np.array([rng.multinomial(n, t) for n, t in zip(few, THETA, strict=True)])
    theta = counts / few[:, None] if shares_of == "rows" else THETA
    bags = BagSample(theta, few.astype(float), class_noise(shares_of, few.astype(float)))
    confusion = np.array([[0.97, 0.02, 0.01], [0.05, 0.9, 0.05], [0.0, 0.02, 0.98]])
    drawn = draw_counts(theta, few, confusion, shares_of, 60_000, rng) / few[:, None]
    weights = np.zeros((2, 6, 3))
    weights[0, :, 1] = [2, -1, 2, 1, -0.5, 1]
    weights[1] = 5 * np.eye(3)[2] + WEIGHTS[0]
    values = np.einsum("fmk,rmk->fr", weights, drawn)
    measured = ((values - values.mean(1, keepdims=True)) ** 3).mean(1)
    found = bags.third_moment(weights, confusion)
    scale = values.std(1) ** 3
    np.testing.assert_allclose(found / scale, measured / scale, atol=0.04)
    assert np.abs(found / scale).max() > 0.1  # else this would prove little
    column = (weights[0, :, 1] ** 3 * bags.share_third_moment(confusion[:, 1])).sum()
    assert column == pytest.approx(found[0], rel=1e-10)


def test_variance_from_errors_of_the_priors_against_simulation():
    """Errors of equal size that add up to 0 in a bag, as those of shares must."""
    rng = np.random.default_rng(0)
    pi = np.array([0.3, 0.4, 0.3])
    shares, estimates = THETA @ CONFUSION, []
    for _ in range(3000):
        move = rng.normal(scale=0.004, size=THETA.shape)
        noisy = ClassPriors(THETA + move - move.mean(1, keepdims=True))
        estimates.append(pi @ np.diag(LeftInverse(noisy, SIZES).confusion(shares)))
    errors = ShareErrors.of(np.full(THETA.shape, 0.004 * (2 / 3) ** 0.5))
    weights = LeftInverse(PRIORS, SIZES).weights(np.diag(pi))
    with_errors, without = (
        sample("population", errors=e).variance(weights, CONFUSION) for e in (errors, None)
    )
    assert with_errors - without == pytest.approx(np.var(estimates), rel=0.1)

import numpy as np
import pytest
from populations import draw_counts

from unbag.evaluation import INVERSES, LeftInverse
from unbag.evaluation.variances import BagSample
from unbag.exceptions import InvalidInputError, RankError
from unbag.priors import SHARES_OF, ClassPriors, ShareErrors, asymmetric, symmetric

CONFUSION = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]])
SIZES = np.array([40, 400, 1200, 80, 200, 120])
CLASS_COUNTS = np.array(
    [[30, 5, 5], [100, 250, 50], [300, 300, 600], [10, 10, 60], [100, 50, 50], [10, 100, 10]]
)
THETA = CLASS_COUNTS / SIZES[:, None]
PRIORS = ClassPriors(THETA)


def make(kind, shares_of="population", priors=PRIORS, counts=SIZES, confusion=CONFUSION):
    covariance = BagSample.of(
        priors.with_errors(shares_of=shares_of), counts
    ).prediction_covariance(confusion)
    return LeftInverse(priors, counts, kind, covariance)


@pytest.mark.parametrize("kind", INVERSES[:2])
def test_they_are_left_inverses(kind):
    matrix = make(kind).matrix
    assert matrix.shape == (3, 6)
    np.testing.assert_allclose(matrix @ THETA, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(matrix.sum(1), 1)


def test_size_weighted_is_weighted_least_squares():
    N = np.diag(SIZES)
    expected = np.linalg.inv(THETA.T @ N @ THETA) @ THETA.T @ N
    np.testing.assert_allclose(make("size-weighted").matrix, expected, atol=1e-12)


def test_bags_that_drift_or_have_shares_with_errors_weigh_as_fewer_rows():
    excess = np.array([0.0, 0.01, 0.0, 0.1, 0.0, 0.002])
    rows = np.array([50, 1000, 30, 400, 90, 70])
    noisy = ClassPriors(THETA, errors=ShareErrors.from_rows(rows + 1))
    weights = 1 / (1 / SIZES + 1 / rows + excess)
    found = LeftInverse(noisy, SIZES, excess=excess).matrix
    np.testing.assert_allclose(found, LeftInverse(PRIORS, weights).matrix, rtol=1e-9)


def test_nearly_singular_priors_are_inverted_as_well_as_numbers_allow():
    """The normal equations would lose all digits here."""
    theta = np.vstack([symmetric(3, a=1e-8)] * 2)
    matrix = LeftInverse(ClassPriors(theta), np.array([5, 50, 500, 5, 5, 5])).matrix
    np.testing.assert_allclose(matrix @ theta, np.eye(3), atol=1e-5)


@pytest.mark.parametrize("kind", INVERSES)
@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_the_right_shares_give_the_right_confusion(kind, shares_of):
    """Unbiased whatever covariance is believed in, be it that of another confusion matrix."""
    believed = np.array([[0.5, 0.5, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    inverse = make(kind, shares_of, confusion=believed)
    np.testing.assert_allclose(inverse.confusion(THETA @ CONFUSION), CONFUSION, atol=1e-9)


@pytest.mark.parametrize("kind", INVERSES)
@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_weights_are_what_the_estimate_does_with_shares(kind, shares_of):
    rng = np.random.default_rng(0)
    inverse = make(kind, shares_of)
    gradients = rng.normal(size=(4, 3, 3))
    weights = inverse.weights(gradients)
    assert weights.shape == (4, 6, 3)
    one, other = rng.dirichlet(np.ones(3), (2, 6))
    change = inverse.confusion(one) - inverse.confusion(other)
    expected = (gradients * change).sum((1, 2))
    np.testing.assert_allclose((weights * (one - other)).sum((1, 2)), expected, atol=1e-9)
    np.testing.assert_allclose(inverse.weights(gradients[2]), weights[2])
    # ΘᵀW is the gradient, but for constants along its rows, which shares do not feel.
    rest = THETA.T @ weights - gradients
    np.testing.assert_allclose(rest - rest.mean(-1, keepdims=True), 0, atol=1e-9)


def test_all_are_the_same_for_as_many_bags_as_classes():
    priors = ClassPriors(asymmetric(3, 0))
    counts = np.array([10, 200, 30])
    shares = np.random.default_rng(0).dirichlet(np.ones(3), 3)
    expected = np.linalg.inv(priors.values) @ shares
    for kind in INVERSES:
        inverse = make(kind, priors=priors, counts=counts)
        assert inverse.kind == "size-weighted"
        np.testing.assert_allclose(inverse.confusion(shares), expected, atol=1e-10)


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_least_variance_has_the_smallest_variance_by_formula_and_in_simulation(shares_of):
    rng = np.random.default_rng(0)
    pi = np.array([0.3, 0.4, 0.3])
    tables = draw_counts(THETA, SIZES, CONFUSION, shares_of, 4000, rng)
    shares = tables / SIZES[:, None]
    by_formula, measured = {}, {}
    for kind in INVERSES:
        inverse = make(kind, shares_of)
        weights = inverse.weights(np.diag(pi))
        by_formula[kind] = float(
            BagSample.of(PRIORS.with_errors(shares_of=shares_of), SIZES).variance(
                weights, CONFUSION
            )
        )
        estimates = np.array([pi @ np.diag(inverse.confusion(v)) for v in shares[:500]])
        linear = (weights * shares).sum((1, 2))
        offset = estimates - linear[:500]
        np.testing.assert_allclose(offset, offset[0], atol=1e-9)
        everything = linear + offset[0]
        assert abs(everything.mean() - pi @ np.diag(CONFUSION)) < 4 * everything.std() / 4000**0.5
        measured[kind] = everything.var()
    # A variance of 4,000 draws has a relative error of about 2.2%.
    for kind in INVERSES:
        assert measured[kind] == pytest.approx(by_formula[kind], rel=0.1)
        assert by_formula["least-variance"] <= by_formula[kind] * (1 + 1e-4)
    assert by_formula["least-variance"] < 0.97 * by_formula["size-weighted"]
    assert by_formula["size-weighted"] < 0.8 * by_formula["pseudo-inverse"]


@pytest.mark.parametrize("kind", INVERSES)
def test_errors_of_the_priors_move_the_estimate_as_the_formula_says(kind):
    """d accuracy = −tr(Π L dΘ C), for a small error of the priors."""
    rng = np.random.default_rng(0)
    pi = np.array([0.3, 0.4, 0.3])
    shares = THETA @ CONFUSION
    step = rng.normal(size=THETA.shape)
    step -= THETA * step.sum(1, keepdims=True)  # shares still sum to 1
    inverse = make(kind)
    weights = inverse.weights(np.diag(pi))
    expected = -(weights * (step @ CONFUSION)).sum()
    if kind != "least-variance":
        trace = np.trace(np.diag(pi) @ inverse.matrix @ step @ CONFUSION)
        assert expected == pytest.approx(-trace)

    def accuracy(size):
        moved = ClassPriors(THETA + size * step)
        # The weighting by covariance stays; it does not matter to first order.
        estimate = LeftInverse(moved, SIZES, kind, inverse.covariance).confusion(shares)
        return pi @ np.diag(estimate)

    measured = (accuracy(1e-5) - accuracy(-1e-5)) / 2e-5
    assert measured == pytest.approx(expected, rel=1e-5)


def test_refusals():
    with pytest.raises(InvalidInputError, match="inverse must be one of 'size-weighted'"):
        LeftInverse(PRIORS, SIZES, "ridge")
    with pytest.raises(RankError, match=r"classes 1, 2 cannot be told apart"):
        LeftInverse(ClassPriors([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [0.4, 0.3, 0.3]]), SIZES[:3])
    many = ClassPriors(np.vstack([symmetric(51, a=0.5)] * 2))
    covariance = np.zeros((102, 51, 51))
    with pytest.raises(InvalidInputError, match="at most 50 classes, got 51; use 'size-weighted'"):
        LeftInverse(many, np.ones(102), "least-variance", covariance)

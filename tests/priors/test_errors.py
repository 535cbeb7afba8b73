"""Standard errors of shares: what they add to the variance of an estimate."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unbag.evaluation import evaluate_predictions
from unbag.exceptions import InvalidInputError
from unbag.fingerprint import fingerprint
from unbag.priors import ClassPriors, ShareErrors, match_bags

RNG = np.random.default_rng(0)
ERRORS = RNG.uniform(0.01, 0.05, (4, 3))
GRADIENTS = RNG.normal(size=(5, 4, 3))


def test_the_formula_row_by_row():
    errors = ShareErrors.of(ERRORS)
    for gradient, result in zip(GRADIENTS, errors.added_variance(GRADIENTS), strict=True):
        total = 0.0
        for covariance, g in zip(errors.covariance, gradient, strict=True):
            total += g @ covariance @ g
        assert result == pytest.approx(total)


def test_two_classes_are_exact():
    """One share moves by e, the other by −e."""
    errors = ShareErrors.of([[0.03, 0.03], [0.0, 0.0]])
    gradient = np.array([[2.0, -1.0], [5.0, 4.0]])
    assert errors.added_variance(gradient) == pytest.approx(0.03**2 * 9)
    np.testing.assert_array_equal(errors.weights, [[0.5, 0.5], [0, 0]])


def test_a_constant_added_to_a_bag_s_derivatives_changes_nothing():
    errors = ShareErrors.of(ERRORS)
    moved = GRADIENTS + np.arange(4)[:, None]
    np.testing.assert_allclose(errors.added_variance(moved), errors.added_variance(GRADIENTS))


def test_parts_of_bags_add_up():
    errors = ShareErrors.of(ERRORS)
    gradient = RNG.normal(size=(7, 3))
    parts = errors.added_by_bag(gradient)
    assert parts.shape == (7, 4)
    same = np.repeat(gradient[:, None], 4, axis=1)
    np.testing.assert_allclose(parts.sum(1), errors.added_variance(same))
    for m in range(4):
        alone = np.zeros((7, 4, 3))
        alone[:, m] = gradient
        np.testing.assert_allclose(parts[:, m], errors.added_variance(alone))
    kept = errors.subset([0, 2])
    np.testing.assert_allclose(kept.added_by_bag(gradient), parts[:, [0, 2]])


def test_evaluation_reads_them_as_the_inspection_does():
    table = ClassPriors([[0.8, 0.2], [0.3, 0.7]], ["n", "s"])
    predicted, bag = [0] * 70 + [1] * 30 + [0] * 40 + [1] * 60, ["n"] * 100 + ["s"] * 100
    forms = (
        [[0.02, 0.02], [0.05, 0.05]],
        {"s": [0.05, 0.05], "n": {1: 0.02, 0: 0.02}},
        pd.DataFrame([[0.05, 0.05], [0.02, 0.02]], index=["s", "n"], columns=[1, 0]),
    )
    reports = [
        evaluate_predictions(predicted, bag, priors=table.with_errors(form)) for form in forms
    ]
    plain = evaluate_predictions(predicted, bag, priors=table)
    for report in reports:
        assert report.interval == reports[0].interval
    assert np.diff(reports[0].interval) > 1.05 * np.diff(plain.interval)


TABLE = ClassPriors(
    [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]], ["n", "s", "e"], list("abc")
)
CELLS = [[0.01, 0.02, 0.03], [0.0, 0.0, 0.0], [0.04, 0.04, 0.0]]


@pytest.mark.parametrize(
    "given",
    [
        CELLS,
        np.array(CELLS),
        {"e": [0.04, 0.04, 0.0], "n": [0.01, 0.02, 0.03], "s": [0, 0, 0]},
        {
            "s": {"a": 0, "b": 0, "c": 0},
            "n": {"c": 0.03, "a": 0.01, "b": 0.02},
            "e": {"b": 0.04, "c": 0.0, "a": 0.04},
        },
        {bag: pd.Series(row, list("abc")) for bag, row in zip("nse", CELLS, strict=True)},
        pd.DataFrame(CELLS, list("nse"), list("abc")).iloc[::-1, [2, 0, 1]],
        pl.DataFrame(
            {
                "b": [0.0, 0.02, 0.04],
                "bag": ["s", "n", "e"],
                "a": [0.0, 0.01, 0.04],
                "c": [0.0, 0.03, 0.0],
            }
        ),
    ],
    ids=["list", "array", "dict", "dicts", "series", "pandas", "polars"],
)
def test_every_form_is_read_alike(given):
    assert TABLE.with_errors(given).errors == ShareErrors.of(CELLS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (CELLS[:2], r"errors must be of the priors' shape \(3, 3\), got \(2, 3\)"),
        (
            -np.array(CELLS),
            "errors must be finite and non-negative, at most 1e.09, got -0.01, -0.02",
        ),
        (np.full((3, 3), np.inf), "finite and non-negative, at most 1e.09, got inf"),
        (
            np.eye(3),
            "positive for no or several classes of a bag, got a single one in bag 'n', 's', 'e'",
        ),
        (0.1, "errors must be a 2-dimensional array"),
        (
            {"n": [0, 0, 0]},
            "given for every bag of the priors, got none for 's', 'e'; write a zero",
        ),
        (
            {"x": [0, 0, 0]},
            "keyed by the priors' bags, got unknown 'x'; errors lack 'n', 's', 'e'",
        ),
        ({bag: {"a": 0} for bag in "nse"}, "given for every class, got none for 'b', 'c'"),
        ({bag: {"x": 0} for bag in "nse"}, "keyed by the priors' classes, got unknown 'x'"),
        (
            pl.DataFrame({"a": [0.1]}),
            "a DataFrame with an index of bag ids or a column 'bag', got 'a'",
        ),
    ],
)
def test_what_cannot_be_errors_is_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        TABLE.with_errors(given)


def test_keys_are_matched_by_kind():
    table = ClassPriors(np.eye(2), [1, 2])
    assert match_bags("sizes", [2, 1], table).tolist() == [1, 0]
    with pytest.raises(InvalidInputError, match=r"priors have 1 \(int\), sizes have '1' \(str\)"):
        match_bags("sizes", ["1", "2"], table)


SHARES = np.array([[0.9, 0.05, 0.05], [0.2, 0.5, 0.3]])


def errors_of(given):
    return ClassPriors(SHARES, ["n", "s"], errors=given).errors


def test_shares_counted_in_a_sample_have_the_multinomial_covariance():
    errors = errors_of(ShareErrors.from_rows({"s": np.inf, "n": 51}))
    theta = SHARES[0]
    expected = (np.diag(theta) - np.outer(theta, theta)) / 50
    np.testing.assert_allclose(errors.covariance[0], expected)
    np.testing.assert_array_equal(errors.covariance[1], 0)
    np.testing.assert_allclose(errors.equivalent_rows(SHARES), [50, np.inf])


def test_standard_errors_alone_give_that_covariance_back():
    counted = errors_of(ShareErrors.from_rows([101, 31]))
    np.testing.assert_allclose(
        errors_of(counted.standard_errors).covariance, counted.covariance, rtol=2e-3, atol=1e-7
    )


def test_noise_that_was_added_and_divided_out_has_the_simulated_covariance():
    rng = np.random.default_rng(1)
    noisy = SHARES[0] + rng.laplace(0, 0.002, (200_000, 3))
    noisy /= noisy.sum(1, keepdims=True)
    errors = errors_of(ShareErrors.laplace([0.002, 0.0]))
    np.testing.assert_allclose(errors.covariance[0], np.cov(noisy.T), rtol=0.05, atol=1e-7)
    same = errors_of(ShareErrors.gaussian({"n": 2**0.5 * 0.002, "s": 0}))
    np.testing.assert_allclose(same.covariance, errors.covariance)


def test_intervals_are_of_a_multiple_of_the_standard_error():
    given = ShareErrors.from_intervals(SHARES - 0.0196, SHARES + 0.0196)
    np.testing.assert_allclose(errors_of(given).standard_errors, 0.01, rtol=1e-4)
    with pytest.raises(InvalidInputError, match="errors must be intervals with low <= high"):
        errors_of(ShareErrors.from_intervals(SHARES, SHARES - 0.01))


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.5, None])
def test_levels_lie_between_0_and_1(level):
    with pytest.raises(InvalidInputError, match="level must be a number"):
        ShareErrors.from_intervals(SHARES, SHARES, level)


@pytest.mark.parametrize("rows", [1, [50, 1], [50], {"n": 50}])
def test_rows_must_be_given_for_every_bag(rows):
    with pytest.raises(InvalidInputError, match="rows of the errors must be"):
        errors_of(ShareErrors.from_rows(rows))


def test_they_travel_with_the_shares():
    table = ClassPriors(
        SHARES, ["n", "s"], list("abc"), errors=ShareErrors.from_rows([50, 90]), shares_of="rows"
    )
    assert pickle.loads(pickle.dumps(table)).equals(table)
    assert ClassPriors.of(table).with_errors(shares_of="population").errors == table.errors
    kept = table.subset([False, True])
    assert kept.shares_of == "rows"
    np.testing.assert_array_equal(kept.errors.variances, SHARES[1:] / 89)
    turned = table.in_class_order([2, 0, 1])
    np.testing.assert_array_equal(turned.errors.variances, table.errors.variances[:, [2, 0, 1]])
    assert turned.in_class_order([1, 2, 0]).equals(table)
    for other in (
        ClassPriors(SHARES, ["n", "s"], list("abc"), shares_of="rows"),
        table.with_errors(shares_of="population"),
        table.with_errors(ShareErrors.from_rows(50)),
    ):
        assert not table.equals(other)
        assert fingerprint(table) != fingerprint(other)
    assert fingerprint(table) == fingerprint(table.with_errors())


def test_errors_of_zero_are_none():
    assert errors_of(np.zeros((2, 3))) is None


def test_shares_are_of_rows_or_of_a_population():
    with pytest.raises(InvalidInputError, match="shares_of must be one of 'rows', 'population'"):
        ClassPriors(SHARES, shares_of="census")


def test_the_old_argument_still_works_with_a_warning():
    predicted, bag = [0, 1] * 50, [0] * 60 + [1] * 40
    theta, errors = [[0.8, 0.2], [0.3, 0.7]], [[0.1, 0.1], [0.1, 0.1]]
    with pytest.warns(FutureWarning, match="prior_errors is replaced: use"):
        old = evaluate_predictions(predicted, bag, priors=theta, prior_errors=errors)
    new = evaluate_predictions(predicted, bag, priors=ClassPriors(theta, errors=errors))
    assert old.interval == new.interval


@pytest.mark.parametrize("error", [-0.1, np.nan, np.inf, 1e300])
def test_errors_of_impossible_sizes_are_refused(error):
    """Squares of the largest ones overflowed."""
    with pytest.raises(InvalidInputError, match="finite and non-negative, at most 1e"):
        ClassPriors([[0.5, 0.5]], errors=[[error, 0.1]])


def test_of_errors_that_no_independent_numbers_have_the_sum_is_kept():
    given = np.array([[0.3, 0.1, 0.1], [0.02, 0.5, 0.01], [0.1, 0.1, 0.1]])
    found = ShareErrors.of(given)
    np.testing.assert_allclose((found.standard_errors**2).sum(1), (given**2).sum(1))
    np.testing.assert_allclose(found.standard_errors[2], given[2])
    np.testing.assert_allclose(found.covariance.sum((1, 2)), 0, atol=1e-12)  # they sum to 1

"""Standard errors of shares: what they add to the variance of an estimate."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unbag.evaluation import evaluate_predictions
from unbag.exceptions import InvalidInputError
from unbag.priors import ClassPriors, PriorErrors, match_bags

RNG = np.random.default_rng(0)
ERRORS = RNG.uniform(0.01, 0.05, (4, 3))
GRADIENTS = RNG.normal(size=(5, 4, 3))


def test_the_formula_row_by_row():
    errors = PriorErrors(ERRORS)
    for gradient, result in zip(GRADIENTS, errors.added_variance(GRADIENTS), strict=True):
        total = 0.0
        for s, g in zip(ERRORS, gradient, strict=True):
            q = s**2 / (s**2).sum()
            total += (s**2 * (g - q @ g) ** 2).sum() / (1 - (q**2).sum())
        assert result == pytest.approx(total)


def test_two_classes_are_exact():
    """One share moves by e, the other by −e."""
    errors = PriorErrors([[0.03, 0.03], [0.0, 0.0]])
    gradient = np.array([[2.0, -1.0], [5.0, 4.0]])
    assert errors.added_variance(gradient) == pytest.approx(0.03**2 * 9)
    np.testing.assert_array_equal(errors.weights, [[0.5, 0.5], [0, 0]])


def test_a_constant_added_to_a_bag_s_derivatives_changes_nothing():
    errors = PriorErrors(ERRORS)
    moved = GRADIENTS + np.arange(4)[:, None]
    np.testing.assert_allclose(errors.added_variance(moved), errors.added_variance(GRADIENTS))


def test_parts_of_bags_add_up():
    errors = PriorErrors(ERRORS)
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
        evaluate_predictions(predicted, bag, priors=table, prior_errors=form) for form in forms
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
    np.testing.assert_array_equal(PriorErrors.read(given, TABLE).values, CELLS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (CELLS[:2], r"prior_errors must be of the priors' shape \(3, 3\), got \(2, 3\)"),
        (-np.array(CELLS), "prior_errors must be finite and non-negative, got -0.01, -0.02"),
        (np.full((3, 3), np.inf), "finite and non-negative, got inf"),
        (
            np.eye(3),
            "positive for no or several classes of a bag, got a single one in bag 'n', 's', 'e'",
        ),
        (0.1, "prior_errors must be a 2-dimensional array"),
        (
            {"n": [0, 0, 0]},
            "given for every bag of the priors, got none for 's', 'e'; write a zero",
        ),
        (
            {"x": [0, 0, 0]},
            "keyed by the priors' bags, got unknown 'x'; prior_errors lack 'n', 's', 'e'",
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
        PriorErrors.read(given, TABLE)


def test_keys_are_matched_by_kind():
    table = ClassPriors(np.eye(2), [1, 2])
    assert match_bags("sizes", [2, 1], table).tolist() == [1, 0]
    with pytest.raises(InvalidInputError, match=r"priors have 1 \(int\), sizes have '1' \(str\)"):
        match_bags("sizes", ["1", "2"], table)

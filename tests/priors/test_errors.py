"""Standard errors of shares: what they add to the variance of an estimate."""

import numpy as np
import pandas as pd
import pytest

from unbag.evaluation import evaluate_predictions
from unbag.priors import ClassPriors, PriorErrors

RNG = np.random.default_rng(0)
ERRORS = RNG.uniform(0.01, 0.05, (4, 3))
GRADIENTS = RNG.normal(size=(5, 4, 3))


def test_the_formula_row_by_row():
    errors = PriorErrors(ERRORS)
    for gradient, found in zip(GRADIENTS, errors.added_variance(GRADIENTS), strict=True):
        total = 0.0
        for s, g in zip(ERRORS, gradient, strict=True):
            q = s**2 / (s**2).sum()
            total += (s**2 * (g - q @ g) ** 2).sum() / (1 - (q**2).sum())
        assert found == pytest.approx(total)


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

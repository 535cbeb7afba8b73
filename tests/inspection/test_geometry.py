import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_bags import TABLE, quick, tables

from unbag.inspection import inspect
from unbag.inspection.geometry import hidden_directions
from unbag.priors import ClassPriors


@quick
@given(tables(full_rank=False), st.integers(1, 3))
def test_suggested_bags_show_what_was_hidden(case, n_merged):
    theta = case[0].copy()
    for k in range(min(n_merged, theta.shape[1] - 1)):  # classes that keep a fixed ratio
        both = theta[:, k] + theta[:, k + 1]
        theta[:, k], theta[:, k + 1] = 0.3 * both, 0.7 * both
    priors = ClassPriors(theta)
    directions, bags = hidden_directions(theta, priors.rank, theta.mean(0))
    assert len(directions) == len(bags) == priors.n_classes - priors.rank
    np.testing.assert_allclose(theta @ directions.T, 0, atol=1e-7)
    np.testing.assert_allclose(bags.sum(1), 1)
    assert ClassPriors(np.vstack([theta, bags])).rank == priors.n_classes


def test_equal_bags_are_harmless_with_full_rank_only():
    twice = {**TABLE, "again": TABLE["east"], "nearly": {"a": 0.395, "b": 0.4, "c": 0.205}}
    inspection = inspect(twice, 3000)
    assert inspection.verdict == "go"
    assert inspection.equal_bags == [["east", "again"]]
    assert inspection.near_bags == [["west", "nearly"]]
    assert "act as one larger bag. This does no harm." in inspection.notes[0]
    assert "nearly the same shares" in inspection.notes[1]
    lost = inspect({"x": TABLE["north"], "y": TABLE["south"], "z": TABLE["south"]}, 3000)
    assert lost.verdict == "stop"
    assert lost.notes[0] == "Bags 'y', 'z' have the same shares and act as one larger bag."


def test_near_collinear_bags_name_the_classes_and_a_bag_that_helps():
    theta = [[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [0.3, 0.352, 0.348]]
    inspection = inspect(theta, 10**9)
    assert inspection.verdict == "care"
    assert re.search("barely tell (1 from 2|2 from 1): the condition number", inspection.reasons[0])
    assert inspect([*theta, inspection.suggested_bags[0]], 10**9).condition_number < 10
    assert any("Training will be noisy" in reason for reason in inspection.reasons)
    flat = inspect([[0.5, 0.49, 0.01], [0.3, 0.68, 0.02], [0.6, 0.385, 0.015]], 10**9)
    assert flat.flat_classes == [2]
    assert any("differs by less than 2 points between bags" in reason for reason in flat.reasons)

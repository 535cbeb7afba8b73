"""Estimated shares and when they are not to be trusted."""

import math

import pytest

from unbag.evaluation import Estimate
from unbag.reporting.sources import number_part, share_part


@pytest.mark.parametrize(
    ("estimate", "trusted"),
    [
        (Estimate(0.9, 0.8, 0.95), True),
        (Estimate(1.0, 0.9, 1.0), True),
        (Estimate(1.02, 0.9, 1.0), True),  # 0.02 outside, standard error 0.061
        (Estimate(1.067, 0.9875, 1.0), False),  # 0.067 outside, standard error 0.041
        (Estimate(1.42, 1.3, 1.54), False),
        (Estimate(-0.02, 0.0, 0.1), True),
        (Estimate(-0.2, 0.0, 0.05), False),
        (Estimate(1.01), False),  # by how much it may be wrong is not known
        (Estimate(math.nan), True),  # of a class that is never predicted
    ],
)
def test_an_estimate_outside_by_more_than_its_error_is_not_trusted(estimate, trusted):
    assert share_part(estimate, 0.95)["trusted"] is trusted


def test_one_of_many_estimates_may_be_further_outside():
    estimate = Estimate(1.08, 0.97, 1.0)  # 1.4 standard errors outside
    assert not share_part(estimate, 0.95, among=1)["trusted"]
    assert share_part(estimate, 0.95, among=10)["trusted"]


def test_the_level_of_the_interval_counts():
    estimate = Estimate(1.05, 0.97, 1.0)
    assert not share_part(estimate, 0.95)["trusted"]
    assert share_part(estimate, 0.68)["trusted"]


def test_the_raw_number_is_kept():
    estimate = Estimate(1.067, 0.9875, 1.0)
    assert share_part(estimate, 0.95) == {
        "value": 1.067,
        "low": 0.9875,
        "high": 1.0,
        "trusted": False,
    }
    assert number_part(estimate) == {"value": 1.067, "low": 0.9875, "high": 1.0}
    assert share_part(None, 0.95) is number_part(None) is None

"""The demo must show what it says it shows."""

import pytest

from unbag.demo import run_demo


@pytest.mark.slow
def test_the_demo_shows_what_it_says():
    rows = {row.method: row for row in run_demo()}
    unbiased, regularized = rows["unbiased"], rows["u-prr"]
    assert unbiased.history["empirical_risk"][-1] < -50
    assert regularized.history["empirical_risk"][-1] > -10
    assert unbiased.test_error > 0.4
    assert regularized.test_error < 0.15
    assert regularized.test_error < regularized.best_test_error + 0.06
    for row in rows.values():
        assert abs(row.label_free_error - row.test_error) < 0.15

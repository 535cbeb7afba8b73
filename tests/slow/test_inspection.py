"""How often the tests of ``inspect`` raise an alarm, where they should and where not."""

import numpy as np
import pytest

from study.checks import inspection
from unbag.inspection import trivial_model
from unbag.priors import symmetric

pytestmark = pytest.mark.slow
REPEATS = 300
# Five percent over 300 repeats, three standard deviations to either side.
LOW, HIGH = 1.2, 8.8


@pytest.mark.parametrize("shape", inspection.SHAPES)
@pytest.mark.parametrize("skewed", [False, True])
def test_false_alarms_are_as_rare_as_they_claim(shape, skewed):
    free = inspection.rate(REPEATS, shape, 60, skewed=skewed, seed=10)
    assert LOW < free < HIGH
    counts = {"skewed": skewed, "exact": True}
    exact = inspection.rate(REPEATS, shape, 60, **counts, shares_of="rows", seed=11)
    assert LOW < exact < HIGH
    careful = inspection.rate(REPEATS, shape, 60, **counts, seed=12)
    assert careful < 5


def test_known_prior_errors_do_not_raise_false_alarms():
    assert inspection.noisy_rate(REPEATS, told=False) > 12
    assert LOW < inspection.noisy_rate(REPEATS, told=True) < HIGH


@pytest.mark.parametrize("shape", inspection.SHAPES)
def test_shifts_are_found_the_more_the_larger(shape):
    powers = [inspection.rate(100, shape, 300, skewed=False, shift=s) for s in (0.1, 0.25, 0.5)]
    assert powers[0] < powers[1] < powers[2]
    assert powers[2] > 90


@pytest.mark.parametrize("soft", [False, True])
def test_random_predictions_differ_between_bags_as_rarely_as_claimed(soft):
    rng, theta = np.random.default_rng(0), symmetric(3, 0.5)
    bag = np.repeat([0, 1, 2], 100)
    p_values = []
    for _ in range(REPEATS):
        rows = rng.dirichlet([2, 1, 1], len(bag))
        p_values.append(trivial_model(rows if soft else rows.argmax(1), bag, theta).p_value)
    assert LOW < 100 * np.mean(np.array(p_values) < 0.05) < HIGH

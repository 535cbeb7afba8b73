import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from small_bags import SIZES, TABLE, quick, rows_of, tables

from unbag.exceptions import InvalidInputError
from unbag.inspection import inspect
from unbag.priors import ClassPriors, symmetric


@quick
@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_bags_does_not_matter(case, random):
    theta, sizes = case
    assume(ClassPriors(theta).condition_number < 1e4)
    order = list(range(len(theta)))
    random.shuffle(order)
    one = inspect(ClassPriors(theta, range(len(theta))), sizes)
    other = inspect(ClassPriors(theta[order], order), sizes[order])
    for name in ("half_width", "half_width_exact", "relative_error_half_width", "inflation"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))
    assert (one.verdict, one.rank) == (other.verdict, other.rank)
    assert sorted(one.tiny_bags) == sorted(other.tiny_bags)
    assert [one.rows_needed[m] for m in order] == pytest.approx(other.rows_needed, abs=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": 5, "bag_ids": ["north"]}, "sizes must be left out where bag_ids are given"),
        ({"X": np.ones((2, 1))}, "X must be given together with bag_ids, got no bag_ids; give"),
        ({"sizes": [1, 2]}, "sizes must be 4 numbers, one for each bag, got 2"),
        ({"sizes": [1, 2, 3, -4]}, r"0 or more, got -4.0 for bag 'west'"),
        ({"sizes": [1, 2, 3, 0.5]}, "whole numbers of rows"),
        ({"sizes": [1, 2, 3, np.nan]}, "whole numbers of rows"),
        ({"sizes": 0}, "at least one row in all, got only zeros"),
        ({"sizes": "many"}, "sizes must be an array of numbers"),
        (
            {"sizes": {**SIZES, "up": 1}},
            "sizes must be keyed by the priors' bags, got unknown 'up'",
        ),
        ({"sizes": {"up": 1, "west": 2}}, "unknown 'up'; sizes lack 'north', 'south', 'east'"),
        ({"sizes": {"west": 2}}, "for every bag of the priors, got none for 'north', 'south', 'e"),
        ({"sizes": pd.Series([1, 2], ["west", "west"])}, "sizes must be all different"),
        ({"bag_ids": []}, "at least one row"),
        ({"bag_ids": ["north", None]}, "1 of 2 rows without one.*no rows: 'south', 'east', 'west'"),
        (
            {"bag_ids": ["north", "up"]},
            "unknown 'up'.*bags with priors but no rows: 'south', 'east', 'west'",
        ),
        ({"bag_ids": ["north"], "X": np.ones((2, 1))}, "bag_ids must be of length 2"),
        ({"bag_ids": ["north"], "X": [[np.nan]]}, "X must be finite"),
        ({"test_prior": [0.5, 0.5]}, "test_prior must be 3 shares"),
        ({"level": 1.0}, r"level must be a number in \(0, 1\)"),
        ({"shares_of": "free"}, "shares_of must be one of 'rows', 'population'"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        inspect(TABLE, **arguments)


def test_columns_that_name_the_bag_are_found():
    theta = symmetric(3, 0.5)
    X, bag = rows_of(theta, 60)
    frame = pd.DataFrame(X, columns=["w", "x", "y", "z"])
    frame["height"], frame["same"] = np.array([3.0, 5.0, 5.0])[bag], 1.0
    inspection = inspect(theta, X=frame, bag_ids=bag)
    assert inspection.bag_features == {"height": 1.0}
    assert any("Column 'height' tells which bag a row is in" in r for r in inspection.reasons)
    assert inspect(np.eye(3), X=frame, bag_ids=bag).bag_features == {}  # pure bags may have them
    assert inspect(theta, X=X[::60], bag_ids=bag[::60]).bag_features == {}  # too few to tell


def test_a_sample_of_rows_tests_the_assumption_and_sizes_count():
    rng = np.random.default_rng(0)
    theta = [[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]]
    ids = np.repeat([0, 1, 2], 100)
    sample = rng.normal(size=(300, 2))
    whole = inspect(theta, sizes=[5000, 4000, 3000])
    inspection = inspect(theta, sizes=[5000, 4000, 3000], X=sample, bag_ids=ids)
    assert inspection.half_width == whole.half_width
    assert inspection.n_rows == 12_000
    alone = inspect(theta, X=sample, bag_ids=ids)
    assert inspection.alike == alone.alike
    assert inspection.half_width < alone.half_width
    with pytest.raises(InvalidInputError, match="sizes must be at least as many rows"):
        inspect(theta, sizes=[99, 4000, 3000], X=sample, bag_ids=ids)

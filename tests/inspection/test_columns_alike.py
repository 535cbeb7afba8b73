"""Columns by themselves: those that differ between bags, and those that give the bag away."""

import numpy as np
import pandas as pd
import pytest

from unbag.exceptions import InvalidInputError
from unbag.inspection import alike_test, inspect
from unbag.inspection.columns import ColumnTest, combined

THETA = np.random.default_rng(0).dirichlet(np.ones(3), 8)
BAG = np.repeat(np.arange(8), 300)


def table(seed=0, n_noise=2, n_levels=60):
    """Numeric columns that follow the class, and a categorical one of many values."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([rng.choice(3, 300, p=row) for row in THETA])
    numeric = rng.normal(size=(len(y), n_noise)) + y[:, None]
    place = np.minimum(rng.geometric(0.1, len(y)) - 1, n_levels - 1)
    names = [f"x{j}" for j in range(n_noise)] + ["place"] * n_levels
    return numeric, np.eye(n_levels)[place], names


def test_a_column_is_found_that_a_mix_of_all_hides():
    numeric, place, names = table()
    numeric[BAG == 2, 1] += 0.7
    X = np.hstack([numeric, place])
    result = alike_test(X, BAG, THETA, columns=names)
    assert result.joint_p_value > 0.001
    assert result.p_value < 1e-5
    assert result.columns[0].column == "x1"
    assert 0.05 < result.columns[0].deviation < 0.4
    (reason,) = inspect(THETA, X=X, bag_ids=BAG, columns=names).reasons
    assert "Columns that differ, and by how many standard deviations: 'x1' (0." in reason


def test_features_of_one_column_count_as_one():
    numeric, place, names = table()
    frequent = np.eye(place.shape[1])[0]
    place[(BAG < 2) & (np.random.default_rng(1).random(len(BAG)) < 0.2)] = frequent
    result = alike_test(np.hstack([numeric, place]), BAG, THETA, columns=names)
    assert result.n_columns == 3
    assert [test.column for test in result.columns] == ["place"]


def test_false_alarms_of_both_tests_together():
    alarms = 0
    for seed in range(100):
        numeric, place, names = table(seed)
        X = np.hstack([numeric, place])
        alarms += alike_test(X, BAG, THETA, columns=names).p_value < 0.05
    assert alarms <= 11


def test_either_test_is_enough():
    calm, loud = ColumnTest("a", 1.0, 0.0), ColumnTest("b", 1e-9, 1.0)
    assert combined(0.001, [calm]) == pytest.approx(0.002)
    assert combined(1.0, [calm, loud]) == pytest.approx(2e-9)
    assert combined(1.0, [calm]) == 1


def test_near_copies_of_the_bag_are_found_by_name():
    numeric, place, names = table()
    rng = np.random.default_rng(2)
    hour = 24 * BAG + rng.uniform(0, 24, len(BAG))
    week = np.stack([np.sin(hour / 24), np.cos(hour)], axis=1)
    X = np.hstack([numeric, hour[:, None], week, place])
    names = [*names[:2], "time", "time", "time", *names[2:]]
    inspection = inspect(THETA, X=X, bag_ids=BAG, columns=names)
    assert list(inspection.bag_features) == ["time"]
    assert 0.98 < inspection.bag_features["time"] < 1
    assert any("Column 'time' tells which bag a row is in" in r for r in inspection.reasons)


def test_what_classes_explain_is_no_copy():
    theta = np.array([[0.99, 0.01], [0.01, 0.99], [0.99, 0.01]])
    bag = np.repeat([0, 1, 2], 400)
    y = (np.random.default_rng(0).random(1200) < theta[bag, 1]).astype(float)
    frame = pd.DataFrame({"class": y, "noise": np.random.default_rng(1).normal(size=1200)})
    assert inspect(theta, X=frame, bag_ids=bag).bag_features == {}


def test_images_have_no_columns_and_names_must_fit():
    numeric, _, _ = table(n_noise=16)
    result = alike_test(numeric.reshape(-1, 4, 4), BAG, THETA)
    assert result.n_columns == 0
    assert result.p_value == result.joint_p_value
    with pytest.raises(InvalidInputError, match="columns must be 16 names"):
        alike_test(numeric, BAG, THETA, columns=["a"])


def test_the_seed_decides_what_is_drawn():
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(4), 8000)
    X = rng.normal(size=(len(bag), 3))
    theta = [[0.8, 0.2], [0.3, 0.7], [0.5, 0.5], [0.6, 0.4]]
    one, same, other = (inspect(theta, X=X, bag_ids=bag, random_state=s) for s in (1, 1, 2))
    assert one.alike == same.alike != other.alike

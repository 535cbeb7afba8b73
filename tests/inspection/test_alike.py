import numpy as np
import pandas as pd
import pytest
import torch
from small_bags import rows_of

from unbag.evaluation import residuals, row_sample
from unbag.exceptions import InvalidInputError
from unbag.inspection import alike_test, inspect
from unbag.priors import ClassPriors, ShareErrors, non_square, symmetric


def test_shifted_bags_are_found_and_named():
    theta = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    X, bag = rows_of(theta, 600)
    assert inspect(theta, X=X, bag_ids=bag).alike.p_value > 0.05
    X[bag == 5] += [0.5, 0, 0, 0]
    inspection = inspect(theta, X=X, bag_ids=bag)
    assert inspection.verdict == "care"
    assert inspection.alike.p_value < 1e-4
    assert inspection.alike.bags[0][0] == 5
    assert 0.02 < inspection.alike.deviation < 0.2
    reason = next(r for r in inspection.reasons if "look alike" in r)
    assert "most in bag 5" in reason
    assert "the shares are wrong" in reason


def test_the_order_of_rows_and_growing_functions_of_columns_do_not_matter():
    theta = non_square(3, random_state=0)
    X, bag = rows_of(theta, 60)
    order = np.random.default_rng(1).permutation(len(X))
    p_value = alike_test(X, bag, theta).p_value
    assert alike_test(X[order], bag[order], theta).p_value == pytest.approx(p_value)
    assert alike_test(np.exp(3 * X), bag, theta).p_value == pytest.approx(p_value)
    named = ClassPriors(theta[::-1], [5, 4, 3, 2, 1, 0])
    assert alike_test(X, bag, named).p_value == pytest.approx(p_value)


@pytest.mark.parametrize("kind", ["array", "tensor", "image", "frame", "bytes"])
def test_rows_of_every_kind(kind):
    theta = non_square(3, random_state=0)
    X, bag = rows_of(theta, 60, n_features=16)
    arguments = {
        "array": X,
        "tensor": torch.tensor(X, dtype=torch.bfloat16, requires_grad=True),
        "image": X.reshape(-1, 1, 4, 4),
        "frame": pd.DataFrame(X),
        "bytes": np.clip(40 * X + 100, 0, 255).astype(np.uint8),
    }[kind]
    inspection = inspect(theta, X=arguments, bag_ids=bag)
    assert inspection.alike.n_features == 16
    assert inspection.alike.p_value > 0.01


def test_many_rows_columns_and_bags_are_sampled_the_same_way_each_time(monkeypatch):
    theta = non_square(3, random_state=0)
    X, bag = rows_of(theta, [40, 60, 80, 100, 120, 140], n_features=30)
    monkeypatch.setattr(row_sample, "MAX_ROWS", 400)
    one, two = (alike_test(X, bag, theta) for _ in range(2))
    assert one == two
    assert 380 <= one.n_rows <= 400
    assert one.n_features == 20
    assert alike_test(X, bag, theta, random_state=1) != one
    monkeypatch.setattr(row_sample, "MAX_BAGS", 5)
    assert 0 not in [bag for bag, _ in alike_test(X, bag, theta).bags]  # the smallest is left out


def test_what_cannot_be_tested_is_said():
    theta = symmetric(3, 0.5)
    X, bag = rows_of(theta, 60)
    inspection = inspect(theta, X=X, bag_ids=bag)
    assert inspection.alike is None
    assert "needs more than 3 bags with rows, and there are 3" in inspection.notes[-1]
    assert "needs more than" in inspect(theta, 60).notes[-1]
    with pytest.raises(InvalidInputError, match="needs more than"):
        alike_test(X, bag, theta)
    more = np.vstack([theta, [0.4, 0.4, 0.2]])
    with pytest.raises(InvalidInputError, match="at least 30 more rows than bags"):
        alike_test(X[:20], np.arange(20) % 4, more)
    with pytest.raises(InvalidInputError, match="do not differ within bags"):
        alike_test(np.ones((180, 2)), bag, np.full((3, 2), 0.5))
    with pytest.raises(InvalidInputError, match="bag_ids must be of length 180"):
        alike_test(X, bag[:-1], more)


def test_without_rank_the_columns_there_are_tested():
    theta = np.repeat([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]], 2, axis=0)
    X, bag = rows_of(theta, 60)
    assert alike_test(X, bag, theta, shares_of="rows").shares_of == "population"
    assert alike_test(X, bag, theta).p_value > 0.01
    X[bag == 2] += 1
    inspection = inspect(theta, X=X, bag_ids=bag, shares_of="rows")
    assert inspection.alike.p_value < 1e-6
    assert any("treats rows as drawn at random" in note for note in inspection.notes)


def test_known_errors_of_the_priors_are_no_alarm():
    true = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    X, bag = rows_of(true, 2000)
    wrong = np.random.default_rng(1).multinomial(100, true) / 100
    assert alike_test(X, bag, wrong).p_value < 1e-3
    told = ClassPriors(wrong, errors=ShareErrors.from_rows(100))
    assert 0.05 < alike_test(X, bag, told).joint_p_value < 0.999
    X[bag == 5] += 1
    assert alike_test(X, bag, told).p_value < 1e-3


def test_as_many_columns_as_features_are_not_mixed():
    theta = non_square(3, random_state=0)
    X, bag = rows_of(theta, 60, n_features=row_sample.MAX_FEATURES)
    one, other = (alike_test(X, bag, theta, random_state=seed) for seed in (0, 1))
    assert one == other
    wider = np.column_stack([X, X[:, :1]])
    assert alike_test(wider, bag, theta) != alike_test(wider, bag, theta, random_state=1)


def test_the_price_of_whitening_is_that_of_mckeon():
    d, q, freedom = 3, 4, 50
    b = (50 + 4 - 3 - 1) * (50 - 1) / ((50 - 3 - 3) * (50 - 3))
    factor, degrees = residuals._whitening_cost(d, q, freedom)
    assert factor == (50 - 3 - 1) / 50
    assert degrees == pytest.approx(4 + (3 * 4 + 2) / (b - 1))


def test_whitening_is_charged_by_features_spare_bags_and_rows(monkeypatch):
    charged = []
    cost = residuals._whitening_cost
    monkeypatch.setattr(residuals, "_whitening_cost", lambda *a: charged.append(a) or cost(*a))
    X, bag = rows_of(non_square(3, random_state=0), 60)
    alike_test(X, bag, non_square(3, random_state=0))
    assert charged == [(4, 6 - 3, 360 - 6), *4 * [(1, 6 - 3, 360 - 6)]]  # all, then each

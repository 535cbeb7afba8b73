import dataclasses
import datetime
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from study.checks.inspection import case_table
from unbag.evaluation import LeftInverse
from unbag.exceptions import InvalidInputError
from unbag.inspection import alike, alike_test, inspect, rules, trivial_model
from unbag.inspection.geometry import hidden_directions
from unbag.inspection.precision import relative_sensitivity
from unbag.priors import ClassPriors, PriorErrors, non_square, symmetric

quick = settings(deadline=None, max_examples=40)
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/inspect.md"
TABLE = {
    "north": {"a": 0.7, "b": 0.2, "c": 0.1},
    "south": {"a": 0.2, "b": 0.6, "c": 0.2},
    "east": {"a": 0.1, "b": 0.2, "c": 0.7},
    "west": {"a": 0.4, "b": 0.4, "c": 0.2},
}
THETA = ClassPriors.of(TABLE).values
SIZES = {"west": 400, "north": 100, "south": 200, "east": 300}
IN_ORDER = [100, 200, 300, 400]
Z = 1.959964


@st.composite
def tables(draw, full_rank=True):
    """Θ of random shape, and bag sizes."""
    n_classes = draw(st.integers(2, 5))
    n_bags = draw(st.integers(n_classes if full_rank else 1, 8))
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(n_classes), n_bags), rng.integers(1, 500, n_bags)


def rows_of(theta, size, seed=0, n_features=4):
    """Rows drawn freely: class k has the mean k."""
    rng = np.random.default_rng(seed)
    bag = np.repeat(np.arange(len(theta)), size)
    y = (rng.random(len(bag))[:, None] > theta.cumsum(1)[bag]).sum(1)
    return rng.normal(size=(len(bag), n_features)) + y[:, None], bag


# What depends on Θ alone


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


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0], [0.4, 0.6, 0.0]], "No bag contains class 2: add a bag"),
        (
            [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]],
            "2 bags for 3 classes: add at least 1 whose class shares differ",
        ),
        (
            [[0.4, 0.4, 0.2], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]],
            "Classes 0, 1 cannot be told apart: in every bag the share of 0 equals that of 1. Add "
            "a bag in which this is not so, such as 65% of 0, 15% of 1, 20% of 2. Or merge",
        ),
        ([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.4, 0.2, 0.4]], "share of 1 is 0.5 times that of 0"),
        ([[0.5, 0.2, 0.3], [0.3, 0.2, 0.5], [0.6, 0.2, 0.2]], "share of 1 is 0.2 in every bag"),
        ([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]], "the share of 0 is 0.5 in every bag"),
        (
            np.full((3, 4), 0.25),
            "In all, 3 more bags with different shares are needed; suggested_bags lists",
        ),
        (
            np.random.default_rng(0).dirichlet(np.ones(7), 6),
            "follows from the others in the same way",
        ),
    ],
)
def test_without_rank_it_stops_and_says_what_would_help(priors, message):
    found = inspect(priors, 1000)
    assert found.verdict == "stop"
    assert any(message in reason for reason in found.reasons), found.reasons
    assert "methods with risk weights cannot train" in found.reasons[-1]
    assert found.condition_number == np.inf
    assert found.half_width is found.rows_needed is found.inflation is None
    more = np.vstack([np.asarray(priors), found.suggested_bags])
    assert inspect(more, 1000).rank == len(found.classes)


def test_equal_bags_are_harmless_with_full_rank_only():
    twice = {**TABLE, "again": TABLE["east"], "nearly": {"a": 0.395, "b": 0.4, "c": 0.205}}
    found = inspect(twice, 3000)
    assert found.verdict == "go"
    assert found.equal_bags == [["east", "again"]]
    assert found.near_bags == [["west", "nearly"]]
    assert "act as one larger bag; harmless, as the rank is full." in found.notes[0]
    assert "nearly the same shares" in found.notes[1]
    lost = inspect({"x": TABLE["north"], "y": TABLE["south"], "z": TABLE["south"]}, 3000)
    assert lost.verdict == "stop"
    assert lost.notes[0] == "Bags 'y', 'z' have the same shares and act as one larger bag."


def test_near_collinear_bags_name_the_classes_and_a_bag_that_helps():
    theta = [[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [0.3, 0.352, 0.348]]
    found = inspect(theta, 10**9)
    assert found.verdict == "care"
    assert re.search("barely tell (1 from 2|2 from 1): the condition number", found.reasons[0])
    assert inspect([*theta, found.suggested_bags[0]], 10**9).condition_number < 10
    assert any("add up to" in reason for reason in found.reasons)
    flat = inspect([[0.5, 0.49, 0.01], [0.3, 0.68, 0.02], [0.6, 0.385, 0.015]], 10**9)
    assert flat.flat_classes == [2]
    assert any("differs by less than 2 points between bags" in reason for reason in flat.reasons)


# What depends on sizes


@quick
@given(tables())
def test_weights_turn_priors_into_the_test_prior(case):
    theta, sizes = case
    assume(ClassPriors(theta).condition_number < 1e4)
    pi = np.full(theta.shape[1], 1 / theta.shape[1])
    weights = LeftInverse(ClassPriors(theta), sizes).weights(np.diag(pi))
    np.testing.assert_allclose(weights.T @ theta, np.diag(pi), atol=1e-8)


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


@quick
@given(tables())
def test_four_times_the_rows_halve_the_interval(case):
    theta, sizes = case
    assume(ClassPriors(theta).condition_number < 1e4)
    one, four = inspect(theta, sizes), inspect(theta, 4 * sizes)
    assert four.half_width == pytest.approx(one.half_width / 2)
    assert four.half_width_exact == pytest.approx(one.half_width_exact / 2)
    assert one.half_width_exact <= one.half_width * (1 + 1e-9)
    assert four.rows_needed == pytest.approx(one.rows_needed, abs=2)


@pytest.mark.parametrize("exact", [False, True])
def test_the_foreseen_interval_is_that_of_simulated_models(exact):
    rng = np.random.default_rng(0)
    sizes, pi = np.array([100, 200, 300, 400]), np.array([0.2, 0.3, 0.5])
    weights = LeftInverse(ClassPriors(THETA), sizes).weights(np.diag(pi))
    confusion = np.full((3, 3), 0.05) + 0.85 * np.eye(3)
    repeats = 20_000
    estimates = np.zeros(repeats)
    for m, n in enumerate(sizes):
        if exact:
            counts = [
                rng.multinomial(round(n * t), c, repeats)
                for t, c in zip(THETA[m], confusion, strict=True)
            ]
            predicted = np.sum(counts, axis=0)
        else:
            predicted = rng.multinomial(n, THETA[m] @ confusion, repeats)
        estimates += predicted / n @ weights[m]
    assert estimates.mean() == pytest.approx(0.9, abs=0.01)
    found = inspect(TABLE, sizes, test_prior=pi)
    width = found.half_width_exact if exact else found.half_width
    assert width == pytest.approx(Z * estimates.std(), rel=0.03)
    assert inspect(TABLE, found.rows_needed, test_prior=pi).half_width == pytest.approx(
        0.01, rel=0.01
    )


def test_with_labels_it_is_the_interval_of_a_share():
    found = inspect(np.eye(4), 250)
    assert found.inflation == pytest.approx(1)
    assert found.half_width == found.half_width_exact
    assert found.half_width == pytest.approx(Z * np.sqrt(0.9 * 0.1 / 1000), rel=1e-6)
    assert found.relative_error_half_width == 0


def moved_accuracy(weights_of, theta, wrong):
    """Label-free accuracy of a perfect model where the priors are wrong."""
    return float((weights_of(wrong) * theta).sum())


@pytest.mark.parametrize("survey", [False, True])
def test_the_foreseen_effect_of_wrong_priors_is_the_simulated_one(survey):
    rng, pi = np.random.default_rng(1), np.array([0.3, 0.3, 0.4])

    def weights_of(theta):
        return LeftInverse(ClassPriors(theta), np.full(len(theta), 100.0)).weights(np.diag(pi))

    moves = []
    for _ in range(4000):
        if survey:
            wrong = rng.multinomial(2500, THETA) / 2500
        else:
            wrong = THETA * (1 + 0.01 * rng.standard_normal(THETA.shape))
            wrong /= wrong.sum(1, keepdims=True)
        moves.append(moved_accuracy(weights_of, THETA, wrong))
    if survey:  # errors of unequal shares are not exactly as assumed
        errors = PriorErrors(np.sqrt(THETA * (1 - THETA) / 2500))
        foreseen = errors.added_variance(weights_of(THETA)) ** 0.5
        assert foreseen == pytest.approx(np.std(moves), rel=0.2)
    else:
        foreseen = relative_sensitivity(weights_of(THETA), THETA, 0.01)
        assert foreseen == pytest.approx(np.std(moves), rel=0.05)


def test_two_classes_make_the_effect_of_prior_errors_exact():
    weights, errors = np.array([[0.9, -0.4], [-0.4, 0.9]]), np.array([[0.02, 0.02], [0.0, 0.0]])
    assert PriorErrors(errors).added_variance(weights) ** 0.5 == pytest.approx(0.02 * 1.3)
    assert PriorErrors(np.zeros((2, 2))).added_variance(weights) == 0


def test_prior_errors_bring_care_and_then_stop():
    def with_errors(size):
        return inspect(TABLE, 3000, prior_errors=np.full((4, 3), size))

    assert [with_errors(size).verdict for size in (0.005, 0.05, 0.2)] == ["go", "care", "stop"]
    care = with_errors(0.05)
    assert "standard errors of the shares move the estimated accuracy by ± 12" in care.reasons[0]
    twice = with_errors(0.1).prior_error_half_width
    assert twice == pytest.approx(2 * care.prior_error_half_width)


def test_few_rows_bring_care_and_then_stop():
    verdicts = [inspect(TABLE, size).verdict for size in (3000, 300, 12)]
    assert verdicts == ["go", "care", "stop"]
    assert "give ± 5 points" in inspect(TABLE, 300).reasons[0]
    exact = inspect(TABLE, 500, sampling="exact")
    assert (exact.verdict, inspect(TABLE, 500).verdict) == ("go", "care")
    assert sum(exact.rows_needed) < sum(inspect(TABLE, 500).rows_needed)


def test_tiny_dominating_and_empty_bags_and_rare_classes():
    found = inspect(TABLE, {"north": 9000, "south": 12, "east": 3000, "west": 2000})
    assert (found.tiny_bags, found.dominating_bag) == (["south"], "north")
    assert any("1 bag with fewer than 20 rows: 'south'. Merge" in r for r in found.reasons)
    assert any("'north' holds more than 50% of all rows" in r for r in found.reasons)
    many = np.tile(THETA, (10, 1))
    assert inspect(many, [12] + [3000] * 39).verdict == "go"  # one in forty does no harm

    empty = inspect(TABLE, {**SIZES, "north": 0})
    assert (empty.empty_bags, empty.n_bags, empty.rank) == (["north"], 3, 3)
    assert any(
        "1 bag with shares but without rows, left out here: 'north'" in r for r in empty.reasons
    )
    assert inspect(TABLE, [0, 0, 3, 4]).verdict == "stop"

    rare = inspect([[0.6, 0.399, 0.001], [0.3, 0.7, 0.0], [0.1, 0.8, 0.1]], [2000, 2000, 150])
    assert rare.rare_classes == [2]
    assert rare.thin_cells == 1
    assert any("fewer than 20 rows are expected of class 2" in r for r in rare.reasons)


# What comes in


@pytest.mark.parametrize(
    "sizes",
    [SIZES, pd.Series(SIZES), IN_ORDER, np.array(IN_ORDER, dtype=float), torch.tensor(IN_ORDER)],
    ids=["dict", "series", "list", "floats", "tensor"],
)
def test_every_source_of_sizes_gives_the_same(sizes):
    expected = inspect(TABLE, bag_ids=[bag for bag, n in SIZES.items() for _ in range(n)])
    assert inspect(TABLE, sizes) == expected
    assert expected.n_rows == 1000


ERRORS = np.arange(1, 13).reshape(4, 3) / 1000


@pytest.mark.parametrize(
    "errors",
    [
        pd.DataFrame(ERRORS, index=list(TABLE), columns=list("abc")).iloc[::-1, ::-1],
        pl.DataFrame({"bag": list(TABLE), "c": ERRORS[:, 2], "a": ERRORS[:, 0], "b": ERRORS[:, 1]}),
        dict(zip(reversed(TABLE), ERRORS[::-1], strict=True)),
        {
            bag: dict(zip("cba", row[::-1], strict=True))
            for bag, row in zip(TABLE, ERRORS, strict=True)
        },
        {bag: pd.Series(row, list("abc")) for bag, row in zip(TABLE, ERRORS, strict=True)},
    ],
    ids=["pandas", "polars", "dict", "dicts", "series"],
)
def test_every_source_of_prior_errors_gives_the_same(errors):
    expected = inspect(TABLE, prior_errors=ERRORS).prior_error_half_width
    assert inspect(TABLE, prior_errors=errors).prior_error_half_width == pytest.approx(expected)


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
        ({"sampling": "free"}, "sampling must be one of 'iid', 'exact'"),
        ({"prior_errors": [[0.1]]}, r"prior_errors must be of the priors' shape \(4, 3\)"),
        ({"prior_errors": np.full((4, 3), -0.1)}, "finite and non-negative"),
        ({"prior_errors": np.eye(4)[:, :3]}, "a single one in bag 'north', 'south', 'east'"),
        ({"prior_errors": {"up": [0.1] * 3}}, "keyed by the priors' bags, got unknown 'up'"),
        (
            {"prior_errors": {bag: {"a": 0.1} for bag in TABLE}},
            "prior_errors must be given for every class, got none for 'b', 'c'",
        ),
        ({"prior_errors": pl.DataFrame({"a": [0.1]})}, "a column 'bag'"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        inspect(TABLE, **arguments)


def test_ids_of_another_kind_are_hinted_at():
    with pytest.raises(InvalidInputError, match=r"sizes have '.' \(str\): convert one"):
        inspect(symmetric(2, 0.5), {"0": 5, "1": 5})
    with pytest.raises(InvalidInputError, match="priors must be of at least two classes"):
        inspect([[1.0], [1.0]])


# What goes out


def test_the_report_reads_well():
    text = str(inspect(TABLE, SIZES, prior_errors=np.full((4, 3), 0.01)))
    assert text.splitlines() == [
        "4 bags, 3 classes, 1,000 rows",
        "  rank of the shares       3 of 3",
        "  condition number         2.9",
        "  sum of absolute weights  2.8 (1 with labels)",
        "  accuracy without labels  ± 8.7 points (95% interval), ± 4.8 points if class counts are "
        "exact",
        "  rows for ± 1 point       75,155, 7,516 to 30,062 per bag",
        "  if shares are 1% off     ± 0.68 points",
        "  with the errors given    ± 2.5 points",
        "  - Even with all rows held out, the accuracy could be estimated to ± 8.7 points only. "
        "3 times as many rows, about 3,000, give ± 5 points. Bags whose shares differ more help "
        "as well.",
        "  note: It was not tested whether rows of a class look alike in all bags: no rows were "
        "given.",
        "verdict: care (it can work, within the limits above)",
    ]
    assert "verdict: stop" in str(inspect(np.full((3, 3), 1 / 3))).splitlines()[-1]


def test_everything_goes_into_json():
    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    priors = ClassPriors([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]], days)
    X, bag = rows_of(priors.values, 30)
    X[:, 0] = bag
    found = inspect(priors, X=X, bag_ids=np.array(days)[bag])
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["equal_bags"] == [["2024-01-01", "2024-01-03"]]
    assert plain["condition_number"] is None
    assert plain["verdict"] == "stop"
    assert plain["alike"]["n_rows"] == 90
    assert plain["bag_features"] == [0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.verdict = "go"


def test_without_sizes_what_needs_them_is_left_out_and_said():
    found = inspect(TABLE)
    assert found.n_rows is found.half_width is found.rows_needed is None
    assert found.inflation is not None
    assert found.verdict == "go"
    assert "Bag sizes are unknown" in found.notes[0]
    assert "rows unknown" in str(found)


# Rows


def test_shifted_bags_are_found_and_named():
    theta = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    X, bag = rows_of(theta, 600)
    assert inspect(theta, X=X, bag_ids=bag).alike.p_value > 0.05
    X[bag == 5] += [0.5, 0, 0, 0]
    found = inspect(theta, X=X, bag_ids=bag)
    assert found.verdict == "care"
    assert found.alike.p_value < 1e-4
    assert found.alike.bags[0][0] == 5
    assert 0.02 < found.alike.deviation < 0.2
    reason = next(r for r in found.reasons if "look alike" in r)
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
    given = {
        "array": X,
        "tensor": torch.tensor(X, dtype=torch.bfloat16, requires_grad=True),
        "image": X.reshape(-1, 1, 4, 4),
        "frame": pd.DataFrame(X),
        "bytes": np.clip(40 * X + 100, 0, 255).astype(np.uint8),
    }[kind]
    found = inspect(theta, X=given, bag_ids=bag)
    assert found.alike.n_features == 16
    assert found.alike.p_value > 0.01


def test_many_rows_columns_and_bags_are_sampled_the_same_way_each_time(monkeypatch):
    theta = non_square(3, random_state=0)
    X, bag = rows_of(theta, [40, 60, 80, 100, 120, 140], n_features=30)
    monkeypatch.setattr(alike, "MAX_ROWS", 400)
    one, two = (alike_test(X, bag, theta) for _ in range(2))
    assert one == two
    assert 380 <= one.n_rows <= 400
    assert one.n_features == 20
    assert alike_test(X, bag, theta, random_state=1) != one
    monkeypatch.setattr(alike, "MAX_BAGS", 5)
    assert 0 not in [bag for bag, _ in alike_test(X, bag, theta).bags]  # the smallest is left out


def test_what_cannot_be_tested_is_said():
    theta = symmetric(3, 0.5)
    X, bag = rows_of(theta, 60)
    found = inspect(theta, X=X, bag_ids=bag)
    assert found.alike is None
    assert "with 3 bags and rank 3 any bag means fit" in found.notes[-1]
    assert "any bag means fit" in inspect(theta, 60).notes[-1]
    with pytest.raises(InvalidInputError, match="any bag means fit"):
        alike_test(X, bag, theta)
    more = np.vstack([theta, [0.4, 0.4, 0.2]])
    with pytest.raises(InvalidInputError, match="at least 30 more than bags"):
        alike_test(X[:20], np.arange(20) % 4, more)
    with pytest.raises(InvalidInputError, match="do not differ within bags"):
        alike_test(np.ones((180, 2)), bag, np.full((3, 2), 0.5))
    with pytest.raises(InvalidInputError, match="bag_ids must be of length 180"):
        alike_test(X, bag[:-1], more)


def test_without_rank_the_columns_there_are_tested():
    theta = np.repeat([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]], 2, axis=0)
    X, bag = rows_of(theta, 60)
    assert alike_test(X, bag, theta, sampling="exact").sampling == "iid"
    assert alike_test(X, bag, theta).p_value > 0.01
    X[bag == 2] += 1
    found = inspect(theta, X=X, bag_ids=bag, sampling="exact")
    assert found.alike.p_value < 1e-6
    assert any("took rows as drawn at random" in note for note in found.notes)


def test_known_errors_of_the_priors_are_no_alarm():
    true = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    X, bag = rows_of(true, 2000)
    wrong = np.random.default_rng(1).multinomial(100, true) / 100
    assert alike_test(X, bag, wrong).p_value < 1e-3
    errors = np.sqrt(true * (1 - true) / 100)
    assert alike_test(X, bag, wrong, prior_errors=errors).p_value > 0.05


def test_columns_that_name_the_bag_are_found():
    theta = symmetric(3, 0.5)
    X, bag = rows_of(theta, 60)
    frame = pd.DataFrame(X, columns=["w", "x", "y", "z"])
    frame["height"], frame["same"] = np.array([3.0, 5.0, 5.0])[bag], 1.0
    found = inspect(theta, X=frame, bag_ids=bag)
    assert found.bag_features == ["height"]
    assert any("Column 'height' has one value in each bag" in r for r in found.reasons)
    assert inspect(np.eye(3), X=frame, bag_ids=bag).bag_features == []  # pure bags may have them
    assert inspect(theta, X=X[::60], bag_ids=bag[::60]).bag_features == []  # too few to tell


# Trivial models


def predictions(theta, accuracy, size=300, seed=0):
    rng = np.random.default_rng(seed)
    bag = np.repeat(np.arange(len(theta)), size)
    y = (rng.random(len(bag))[:, None] > theta.cumsum(1)[bag]).sum(1)
    wrong = rng.integers(0, theta.shape[1], len(y))
    return np.where(rng.random(len(y)) < accuracy, y, wrong), bag


def test_trivial_models_are_recognised():
    theta = symmetric(3, 0.5)
    good, bag = predictions(theta, 0.8)
    found = trivial_model(good, bag, theta)
    assert not found.trivial
    assert found.p_value < 1e-6
    assert found.slope == pytest.approx(0.8, abs=0.15)
    rng = np.random.default_rng(0)
    for bad in (np.full(len(good), 2), rng.permutation(good)):
        found = trivial_model(bad, bag, theta)
        assert found.trivial
        assert found.p_value > 0.05
        assert abs(found.slope) < 0.1
    nearly = np.where(np.arange(len(good)) % 120, 2, good)
    assert "Class 2 is predicted for 99" in trivial_model(nearly, bag, theta).reasons[0]


def test_trivial_probabilities_are_recognised():
    theta = symmetric(3, 0.5)
    good, bag = predictions(theta, 0.8)
    soft = 0.7 * np.eye(3)[good] + 0.1
    noise = np.random.default_rng(0).dirichlet(np.ones(3), len(good))
    assert not trivial_model(soft, bag, theta).trivial
    assert trivial_model(noise, bag, theta).trivial
    assert trivial_model(np.full((len(good), 3), 1 / 3), bag, theta).p_value == 1
    cheating = np.eye(3)[bag] * 0.4 + 0.2  # knows the bag, and nothing else
    assert trivial_model(cheating, bag, theta).p_value == 0


def test_differences_too_small_to_matter_are_trivial_in_any_number_of_rows():
    theta = symmetric(2, 0.8)
    predicted = np.r_[np.arange(100_000) < 51_000, np.arange(100_000) < 49_000].astype(int)
    found = trivial_model(predicted, np.repeat([1, 0], 100_000), theta)
    assert found.p_value < 1e-6
    assert found.trivial
    assert "hardly follow the priors" in found.reasons[0]


def test_equal_priors_do_not_make_a_model_trivial():
    predicted, bag = predictions(np.full((3, 2), 0.5), 0.9)
    found = trivial_model(predicted, bag, np.full((3, 2), 0.5))
    assert (found.slope, found.trivial) == (None, False)
    rare = trivial_model(np.zeros(200, dtype=int), np.repeat([0, 1], 100), [[0.999, 0.001]] * 2)
    assert not rare.trivial


@pytest.mark.parametrize(
    ("predicted", "bag_ids", "message"),
    [
        ([0, 5], [0, 1], "predictions must be classes of the priors, got unknown 5"),
        ([0, 1], [0, 0], "bag_ids must be of at least two bags, got 0"),
        ([0], [0, 1], "predictions must be of length 2"),
        ([[0.5, 0.5, 0.0]] * 2, [0, 1], r"of shape \(2, 2\), got shape \(2, 3\)"),
        ([[0.5, 0.6]] * 2, [0, 1], "the sum 1.1 in row 0; apply a softmax first"),
        ([[-0.5, 1.5]] * 2, [0, 1], "probabilities from 0 to 1, got negative"),
        ([[0.5, 0.5]] * 2, [0, 1], "at least 32 rows for 2 bags, got 2; give predicted classes"),
    ],
)
def test_bad_predictions_say_what_is_wrong(predicted, bag_ids, message):
    with pytest.raises(InvalidInputError, match=message):
        trivial_model(predicted, bag_ids, symmetric(2, 0.5))


# The page


def test_the_page_shows_the_cases_as_they_are():
    page = PAGE.read_text(encoding="utf-8")
    for line in case_table().splitlines():
        assert line in page


def test_the_page_lists_every_limit():
    page = PAGE.read_text(encoding="utf-8")
    source = Path(rules.__file__).read_text(encoding="utf-8")
    names = re.findall(r"^([A-Z_]+) = ", source, flags=re.MULTILINE)
    assert len(names) > 10
    for name in names:
        assert f"| `{name}` | {getattr(rules, name):g} |" in page


def test_a_sample_of_rows_tests_the_assumption_and_sizes_count():
    rng = np.random.default_rng(0)
    theta = [[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]]
    ids = np.repeat([0, 1, 2], 100)
    sample = rng.normal(size=(300, 2))
    whole = inspect(theta, sizes=[5000, 4000, 3000])
    found = inspect(theta, sizes=[5000, 4000, 3000], X=sample, bag_ids=ids)
    assert found.half_width == whole.half_width
    assert found.n_rows == 12_000
    alone = inspect(theta, X=sample, bag_ids=ids)
    assert found.alike == alone.alike
    assert found.half_width < alone.half_width
    with pytest.raises(InvalidInputError, match="sizes must be at least as many rows"):
        inspect(theta, sizes=[99, 4000, 3000], X=sample, bag_ids=ids)

"""The table of class priors: what it reads, refuses and matches."""

import copy
import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unbag.exceptions import InvalidInputError
from unbag.priors import (
    ClassPriors,
    read_labels,
)

quick = settings(deadline=None, max_examples=40)


TABLE = [[0.8, 0.2], [0.3, 0.7]]


@pytest.mark.parametrize(
    "source",
    [
        pd.DataFrame(TABLE, index=["a", "b"], columns=["no", "yes"]),
        pl.DataFrame({"no": [0.8, 0.3], "bag": ["a", "b"], "yes": [0.2, 0.7]}),
        {"a": {"no": 0.8, "yes": 0.2}, "b": {"yes": 0.7, "no": 0.3}},
        {"a": pd.Series({"no": 0.8, "yes": 0.2}), "b": pd.Series({"yes": 0.7, "no": 0.3})},
        ClassPriors(TABLE, ["a", "b"], ["no", "yes"]),
    ],
    ids=["pandas", "polars", "dicts", "series", "priors"],
)
def test_every_named_source_gives_the_same_table(source):
    priors = ClassPriors.of(source)
    np.testing.assert_allclose(priors.values, TABLE)
    assert priors.bag_ids.tolist() == ["a", "b"]
    assert priors.classes.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    "source",
    [TABLE, np.array(TABLE), torch.tensor(TABLE, requires_grad=True), {0: TABLE[0], 1: TABLE[1]}],
    ids=["list", "numpy", "torch", "dict"],
)
def test_unnamed_sources_get_numbers_as_names(source):
    priors = ClassPriors.of(source)
    np.testing.assert_allclose(priors.values, TABLE, rtol=1e-6)
    assert priors.bag_ids.tolist() == priors.classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([0.5, 0.5], "2-dimensional"),
        (np.empty((0, 2)), "at least one bag"),
        ({}, "2-dimensional"),
        ([["x", "y"]], "array of numbers"),
        ([[np.nan, 1.0]], "finite, got nan for bag 0 and class 0"),
        ([[0.5, 0.5], [np.inf, 0]], "finite, got inf for bag 1 and class 0"),
        ([[1.2, -0.2]], "non-negative, got -0.2 for bag 0 and class 1"),
        ([[0.5, 0.5], [0.5, 0.4]], "percent that sum to 100, or whole counts, got the sum 0.9 for"),
        ([[50, 50], [63.1, 40]], "got the sum 103.1 for bag 1"),
        ([[5, 4, 9], [3, 1, 4]], "classes only, without a total, got 2"),
        ({"a": {"x": 1.0}, "b": {"x": 0.5, "y": 0.5}}, "none for bag 'a' and class 'y'"),
        ({"a": [0.5, 0.5], "b": [1.0]}, "2 shares for every bag, got 1 for bag 'b'"),
        ({"a": 0.5}, "a list of shares for every bag, one per class, got 0.5 for bag 'a'"),
        (pl.DataFrame({"no": [0.5], "yes": [0.5]}), "bag ids and at least two classes, got only"),
        (pd.DataFrame({"bag": ["a"], "no": [1.0]}), "at least two classes, got only"),
        (pd.DataFrame(TABLE, index=["a", "a"]), "bag_ids must be all different, got 'a' more"),
        (pd.DataFrame(TABLE, columns=["x", "x"]), "classes must be all different"),
        (pd.DataFrame(TABLE, index=["a", None]), "none missing"),
        (
            pd.Series([0.2, 0.3], pd.MultiIndex.from_tuples([(1, 2), (1, 3)])),
            r"got the sum 0\.5 for bag 1",
        ),
    ],
)
def test_bad_priors_say_what_is_wrong(source, message):
    with pytest.raises(InvalidInputError, match=message):
        ClassPriors.of(source)


@pytest.mark.parametrize(
    "source", [pd.DataFrame(TABLE, index=["a", "b"]), {"a": TABLE[0], "b": TABLE[1]}]
)
def test_what_has_names_is_not_taken_for_an_array(source):
    with pytest.raises(InvalidInputError, match=r"dicts and tables are read by .*ClassPriors\.of"):
        ClassPriors(source)


def test_names_must_fit_the_table():
    with pytest.raises(InvalidInputError, match=r"bag_ids must be 2 ids.*got 3"):
        ClassPriors(TABLE, ["a", "b", "c"])
    with pytest.raises(InvalidInputError, match=r"classes must be 2 ids.*got 1"):
        ClassPriors(TABLE, classes=["x"])
    with pytest.raises(InvalidInputError, match="bag_ids must be a sequence"):
        ClassPriors(TABLE, "ab")


def test_counts_and_percentages_can_be_normalized():
    np.testing.assert_allclose(
        ClassPriors([[3, 1], [0, 5]], normalize=True).values[0], [0.75, 0.25]
    )
    with pytest.raises(InvalidInputError, match="only zeros for bag 'b'"):
        ClassPriors.of({"a": [1, 2], "b": [0, 0]}, normalize=True)


def test_priors_are_immutable_also_after_a_copy():
    priors = ClassPriors([[1 / 3, 2 / 3], [0.1, 0.9]], ["a", "b"])
    for other in (priors, copy.deepcopy(priors), pickle.loads(pickle.dumps(priors))):
        np.testing.assert_array_equal(other.values, priors.values)
        np.testing.assert_array_equal(other.encode(["b", "a"]), [1, 0])
        with pytest.raises(ValueError, match="read-only"):
            other.values[0, 0] = 1
        with pytest.raises(AttributeError):
            other.values = np.eye(2)


def test_priors_share_no_memory_with_the_arguments():
    values, ids = np.array(TABLE), np.array(["a", "b"])
    priors = ClassPriors(values, ids)
    values[0, 0], ids[0] = 0.0, "z"
    assert priors.values[0, 0] == 0.8
    assert priors.bag_ids[0] == "a"


@pytest.mark.parametrize(
    ("known", "rows"),
    [
        (["a", "b"], np.array(["b", "a"])),
        (["a", "b"], np.array(["b", "a"], dtype=object)),
        (["a", "b"], pd.Series(["b", "a"], dtype="category")),
        (["a", "b"], pl.Series(["b", "a"])),
        ([7, 9], np.array([9, 7], dtype=np.uint8)),
        ([7, 9], np.array([np.int64(9), 7], dtype=object)),
        ([7, 9], torch.tensor([9, 7])),
        ([True, False], [False, np.True_]),
        ([1, "a"], ["a", 1]),
        ([1, True], [True, 1]),
        (["2024-01-01", "2024-02-01"], ["2024-02-01", "2024-01-01"]),
    ],
)
def test_encode_matches_equal_ids_whatever_holds_them(known, rows):
    np.testing.assert_array_equal(ClassPriors(TABLE, known).encode(rows), [1, 0])


DAYS = ["2024-01-31", "2024-02-29"]


DATES = {
    "date": [datetime.date.fromisoformat(day) for day in DAYS],
    "datetime": [datetime.datetime.fromisoformat(day) for day in DAYS],
    "numpy days": np.array(DAYS, dtype="datetime64[D]"),
    "numpy ns": np.array(DAYS, dtype="datetime64[ns]"),
    "pandas index": pd.DatetimeIndex(DAYS),
    "pandas objects": [pd.Timestamp(day) for day in DAYS],
    "polars": pl.Series([datetime.date.fromisoformat(day) for day in DAYS]),
}


@pytest.mark.parametrize("known", DATES.values(), ids=DATES)
@pytest.mark.parametrize("rows", DATES.values(), ids=DATES)
def test_dates_match_when_they_are_the_same_instant(known, rows):
    np.testing.assert_array_equal(ClassPriors(TABLE, known).encode(rows), [0, 1])


def test_dates_with_a_time_zone_match_by_instant_and_not_naive_ones():
    utc = pd.DatetimeIndex(DAYS, tz="UTC")
    priors = ClassPriors(TABLE, utc)
    np.testing.assert_array_equal(priors.encode(utc.tz_convert("Asia/Tokyo")), [0, 1])
    with pytest.raises(InvalidInputError, match="unknown"):
        priors.subset([0, 1]).encode(DATES["date"])


@pytest.mark.parametrize(
    ("known", "rows", "hint"),
    [
        ([0, 1], ["0", "1"], r"the priors have 0 \(int\), the rows have '0' \(str\)"),
        (["0", "1"], [0, 1], r"the priors have '0' \(str\), the rows have 0 \(int\)"),
        ([0, 1], [False, True], r"the priors have 0 \(int\), the rows have False \(bool\)"),
        ([False, True], [0, 1], r"the priors have False \(bool\), the rows have 0 \(int\)"),
        ([0, 1], np.array([1.0, 1.0]), r"the priors have 1 \(int\), the rows have 1.0 \(float\)"),
        (["a", "b"], ["a "], r"the priors have 'a' \(str\), the rows have 'a ' \(str\)"),
        (DATES["date"], DAYS, r"\(date\), the rows have '2024-01-31' \(str\)"),
        (["a", "b"], list("xyzuvw"), "got unknown 'x', .* and 1 more; the priors have 'a', 'b'"),
    ],
)
def test_unknown_ids_are_listed_with_a_hint(known, rows, hint):
    with pytest.raises(InvalidInputError, match=hint):
        ClassPriors(TABLE, known).encode(rows)


@pytest.mark.parametrize(
    ("known", "rows"),
    [
        (["a", "b"], ["a", None, None]),
        (["a", "b"], pd.Series(["a", pd.NA, pd.NA], dtype="string")),
        ([0, 1], np.array([0, np.nan, np.nan])),
        ([0, 1], pd.Series([0, pd.NA, pd.NA], dtype="Int64")),
        ([0, 1], pl.Series([0, None, None])),
        (DATES["date"], np.array([*DAYS, "NaT", "NaT"], dtype="datetime64[D]")[1:]),
        (DATES["date"], [pd.Timestamp(DAYS[0]), pd.NaT, pd.NaT]),
    ],
)
def test_rows_without_an_id_are_counted(known, rows):
    with pytest.raises(InvalidInputError, match="got 2 of 3 rows without one"):
        ClassPriors(TABLE, known).encode(rows)


@pytest.mark.parametrize("rows", [[[1], [2]], [{}], np.zeros((2, 1)), 3, "ab"])
def test_what_cannot_be_ids_is_refused(rows):
    with pytest.raises(InvalidInputError, match="bag_ids must be"):
        ClassPriors(TABLE).encode(rows)


@given(st.lists(st.sampled_from([0, 1, "0", "1", True, False, "x"]), max_size=30))
@quick
def test_encode_is_the_plain_lookup(rows):
    known = [0, 1, "0", "1", True, False, "x"]
    codes = ClassPriors(np.full((7, 1), 1.0), known).encode(rows)
    expected = [[(type(k), k) for k in known].index((type(row), row)) for row in rows]
    assert codes.dtype == np.int64
    assert codes.tolist() == expected


def test_subset_and_pooled():
    priors = ClassPriors([[1, 0], [0.5, 0.5], [0.2, 0.8]], ["a", "b", "c"])
    part = priors.subset([True, False, True])
    np.testing.assert_array_equal(part.encode(["c", "a"]), [1, 0])
    np.testing.assert_allclose(part.pooled([1.5, 0.5]), [0.8, 0.2])
    for counts in ([1, 2, 3], [0, 0], [-1, 2], [np.nan, 1]):
        with pytest.raises(InvalidInputError, match="counts must be"):
            part.pooled(counts)


@pytest.mark.parametrize(
    ("table", "groups"),
    [
        (np.eye(3), []),
        ([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4], [0.9, 0.05, 0.05]], [("y", "z")]),
        ([[0.5, 0.5, 0], [0.2, 0.8, 0], [0.1, 0.9, 0]], [("z",)]),
        ([[0.5, 0.2, 0.3], [0.1, 0.7, 0.2]], [("x", "y", "z")]),
    ],
)
def test_inseparable_classes_are_grouped(table, groups):
    priors = ClassPriors(table, classes=["x", "y", "z"])
    assert priors.inseparable_classes() == groups
    assert (priors.rank == 3) == (not groups)
    assert np.isfinite(priors.condition_number) == (not groups)


def test_two_groups_of_inseparable_classes_stay_apart():
    pairs = np.repeat([[0.4, 0.1], [0.1, 0.4], [0.3, 0.2], [0.25, 0.25]], 2, axis=1)
    assert ClassPriors(pairs).inseparable_classes() == [(0, 1), (2, 3)]


@pytest.mark.parametrize("row", [[0.5, []], [0.5, [0.5]], [0.5, 0.5j], [0.5, 10**400]])
def test_rows_that_are_no_numbers(row):
    for priors in ({"a": row}, [row]):
        with pytest.raises(InvalidInputError, match=r"priors must be .*, got "):
            ClassPriors.of(priors)


def test_the_condition_number_is_the_quotient_of_the_largest_and_smallest_singular_value():
    theta = [[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]]
    assert ClassPriors(theta).condition_number == pytest.approx(np.linalg.cond(theta))


@pytest.mark.parametrize(("apart", "rank"), [(1e-9, 2), (1e-11, 1)])
def test_many_bags_that_hardly_differ_do_not_tell_classes_apart(apart, rank):
    """The singular values are compared with the largest, which grows with the bags."""
    n = 10_000
    theta = np.full((n, 2), 0.5)
    theta += apart * np.where(np.arange(n) % 2, 1, -1)[:, None] * [1, -1]
    assert ClassPriors(theta).rank == rank


def test_an_empty_bag_counts_for_nothing_in_the_mixture():
    priors = ClassPriors([[0.9, 0.1], [0.2, 0.8]])
    np.testing.assert_array_equal(priors.pooled([0, 10]), [0.2, 0.8])


def test_a_class_may_be_called_total_where_it_is_none():
    names = ["total", "part", "none"]
    shares = pd.DataFrame([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3]], ["a", "b"], names)
    assert ClassPriors.of(shares).classes.tolist() == names
    counts = pd.DataFrame([[5, 2, 3], [4, 3, 1]], ["a", "b"], names)
    with pytest.raises(InvalidInputError, match="without a total, got 'total', the sum of all oth"):
        ClassPriors.of(counts)


def test_rows_that_are_right_but_for_the_last_bit_stay_as_they_are():
    shares = np.array([[0.7, 0.2, 0.1]])
    assert shares.sum() != 1
    np.testing.assert_array_equal(ClassPriors(shares).values, shares)


def test_labels_that_became_floats_by_a_missing_one_are_whole_numbers_again():
    table = ClassPriors([[0.5, 0.5]], classes=[3, 7])
    assert read_labels(np.array([7.0, np.nan, 3.0]), table, 3).tolist() == [1, -1, 0]
    with pytest.raises(InvalidInputError, match=r"unknown 3\.5"):
        read_labels(np.array([7.0, np.nan, 3.5]), table, 3)

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy import sparse

from unbag.bags import Bags, make_bags
from unbag.exceptions import InvalidInputError, MissingBagsWarning
from unbag.fingerprint import fingerprint
from unbag.priors import ClassPriors, asymmetric

quick = settings(deadline=None, max_examples=40)
THETA = [[0.8, 0.2], [0.3, 0.7]]


def labelled(n_classes=3, per_class=100):
    """Rows that hold their own number, so that a drawn row tells where it comes from."""
    n = n_classes * per_class
    y = np.random.default_rng(0).permutation(np.arange(n) % n_classes)
    return np.arange(n, dtype=np.float64)[:, None], y


@pytest.mark.parametrize(
    ("X", "dtype"),
    [
        (np.zeros((2, 3), np.uint8), np.uint8),
        (np.zeros((2, 3), bool), np.float32),
        (np.array([[1, 2.5], [3, 4]], dtype=object), np.float64),
        (torch.zeros(2, 1, 4, 4, dtype=torch.bfloat16), torch.bfloat16),
        (torch.zeros(2, 3, dtype=torch.bool), torch.float32),
        (pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}), np.float64),
        (pd.DataFrame({"a": [True, False], "b": [0.5, 1.5]}), np.float64),
        (pd.DataFrame({"a": [1, 2], "b": [1, 2]}, dtype="Int64"), np.float64),
        (pl.DataFrame({"a": [1, 2], "b": [True, False]}), None),
    ],
)
def test_rows_keep_their_kind(X, dtype):
    bags = Bags(X, [0, 1], THETA)
    assert len(bags) == 2
    assert bags.row_shape == tuple(X.shape[1:])
    assert isinstance(bags.X, torch.Tensor) == isinstance(X, torch.Tensor)
    assert dtype is None or bags.X.dtype == dtype
    assert bags.feature_names == (("a", "b") if hasattr(X, "columns") else None)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([1.0, 2.0], r"reshape\(-1, 1\)"),
        (np.zeros((0, 2)), "shape"),
        ([["x"], ["y"]], "real numbers"),
        (np.array([[object()], [None]]), "array of numbers"),
        (np.zeros((2, 2), complex), "real numbers"),
        (torch.zeros(2, 2, dtype=torch.complex64), "real numbers"),
        ([[1, 2], [np.nan, np.inf]], "2 NaN or infinite values, the first in row 1, column 0"),
        (torch.tensor([[1, 2], [3, np.inf]]), "1 NaN .* row 1, column 1"),
        (np.zeros((3, 2)), "bag_ids must be of length 3.*got length 2"),
    ],
)
def test_bad_rows_say_what_is_wrong(X, message):
    with pytest.raises(InvalidInputError, match=message):
        Bags(X, [0, 1], THETA)


def test_sparse_rows_become_dense():
    np.testing.assert_array_equal(Bags(sparse.eye_array(2), [0, 1], THETA).X, np.eye(2))


def test_misfitting_names_and_labels_are_refused():
    with pytest.raises(InvalidInputError, match="feature_names must be 2 names"):
        Bags(np.zeros((2, 2)), [0, 1], THETA, feature_names=["a"])
    with pytest.raises(InvalidInputError, match="labels must be of length 2"):
        Bags(np.zeros((2, 2)), [0, 1], THETA, labels=[0])


def test_ids_are_matched_to_priors_and_never_guessed():
    priors = {"b": [0.8, 0.2], "a": [0.3, 0.7]}
    bags = Bags([[1], [2], [3]], ["a", "b", "a"], priors)
    assert bags.bag_index.tolist() == [1, 0, 1]
    assert bags.bag_ids.tolist() == ["a", "b", "a"]
    assert bags.counts.tolist() == [1, 2]
    np.testing.assert_allclose(bags.pooled_prior, [1.4 / 3, 1.6 / 3])
    with pytest.raises(InvalidInputError, match="unknown 'c'"):
        Bags([[1], [2]], ["a", "c"], priors)


def test_bags_without_rows_warn_once_and_can_be_left_out():
    priors = ClassPriors([[1, 0], [0.5, 0.5], [0, 1]], ["a", "b", "c"])
    with pytest.warns(MissingBagsWarning, match="1 of 3 bags .* no rows: 'b'") as caught:
        bags = Bags([[1], [2], [3]], ["c", "a", "c"], priors, labels=[1, 0, 1])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        present = bags.present()
        assert present.take([0]).priors.n_bags == 2
    assert present.priors.bag_ids.tolist() == ["a", "c"]
    assert present.bag_ids.tolist() == bags.bag_ids.tolist()
    assert present.present() is present


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_selections_share_the_source(convert):
    X = convert(np.arange(12.0).reshape(6, 2))
    bags = Bags(X, [0, 1, 0, 1, 0, 1], THETA, labels=list("abcdef"))
    nested = bags.take([5, 3, 1, 0]).take(np.array([True, False, False, True]))
    assert nested.source is bags.source
    assert np.asarray(nested.X)[:, 0].tolist() == [10, 0]
    assert nested.labels.tolist() == ["f", "a"]
    assert nested.bag_index.tolist() == [1, 0]
    with pytest.raises(InvalidInputError, match="at least one row"):
        bags.take([])


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, "image", torch.float32, torch.bfloat16])
def test_row_identity_is_content(dtype):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (200, 6))
    _, expected = np.unique(values, axis=0, return_inverse=True)
    if dtype == "image":
        X = values.reshape(200, 1, 2, 3)
    elif isinstance(dtype, torch.dtype):
        X = torch.as_tensor(values).to(dtype)
    else:
        X = np.asfortranarray(values.astype(dtype))
    bags = Bags(X, np.arange(200) % 2, THETA)
    for part, truth in ((bags, expected), (bags.take([3, 3, 7, 9]), expected[[3, 3, 7, 9]])):
        identity = part.row_identity()
        same = identity[:, None] == identity
        np.testing.assert_array_equal(same, truth[:, None] == truth)


def test_rows_that_differ_in_a_sign_are_two_records():
    bags = Bags([[1.0, 2.0], [-1.0, -2.0], [1.0, 2.0]], [0, 1, 1], THETA)
    assert bags.row_identity().tolist() == [0, 1, 0]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.floats(0.05, 0.95),
    st.integers(2, 400),
    st.integers(0, 10**6),
)
@quick
def test_split_keeps_records_together_and_every_bag_in_training(sizes, test_size, values, seed):
    index = np.repeat(np.arange(len(sizes)), sizes)
    X = np.random.default_rng(seed).integers(0, values, (len(index), 1))
    bags = Bags(X, index, np.eye(len(sizes)))
    try:
        train, test = bags.train_test_split(test_size, random_state=seed)
    except InvalidInputError:
        reject()  # tiny bags, or nothing but repeats
    assert not set(train.X[:, 0]) & set(test.X[:, 0])
    np.testing.assert_array_equal(train.counts + test.counts, bags.counts)
    assert (train.counts > 0).all()
    again = bags.train_test_split(test_size, random_state=seed)[1]
    np.testing.assert_array_equal(again.rows, test.rows)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=6), st.floats(0.1, 0.9))
@quick
def test_split_of_distinct_rows_is_exact_in_every_bag(sizes, test_size):
    sizes = np.array([*sizes, 20])
    index = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    bags = Bags(np.arange(len(index))[:, None], index, np.eye(len(sizes)))
    _, test = bags.train_test_split(test_size, random_state=1)
    np.testing.assert_array_equal(test.counts, np.minimum(np.rint(test_size * sizes), sizes - 1))


def test_a_split_does_not_depend_on_the_rows_sorted_at_a_time(monkeypatch):
    rng = np.random.default_rng(0)
    bags = Bags(rng.integers(0, 900, (700, 1)), rng.integers(0, 3, 700), np.eye(3))
    whole = bags.train_test_split(0.3, random_state=0)[1]
    monkeypatch.setattr("unbag.bags._PART", 16)
    parts = bags.train_test_split(0.3, random_state=0)[1]
    np.testing.assert_array_equal(parts.rows, whole.rows)


def test_split_of_overlapping_bags_stays_near_test_size():
    X, y = labelled(per_class=1000)
    bags = make_bags(X, y, asymmetric(3, random_state=0), random_state=0)
    assert len(np.unique(bags.rows)) < len(bags)
    _, test = bags.train_test_split(0.25, random_state=0)
    np.testing.assert_allclose(test.counts / bags.counts, 0.25, atol=0.01)


def test_a_bag_whose_only_record_is_dealt_out_gets_it_back():
    bags = Bags([[0.0], [1.0], [0.0]], ["a", "a", "b"], {"a": [0.5, 0.5], "b": [0.1, 0.9]})
    train, test = bags.train_test_split(0.6, random_state=0)
    assert train.bag_ids.tolist() == ["a", "b"]
    assert train.X.tolist() == [[0.0], [0.0]]
    assert test.X.tolist() == [[1.0]]


def test_columns_of_text_are_encoded_and_their_encoding_kept():
    frame = pd.DataFrame({"city": ["Oulu", "Turku"] * 4, "age": range(8)})
    priors = {"a": [0.5, 0.5], "b": [0.1, 0.9]}
    bags = Bags(frame, ["a", "b", "b", "a"] * 2, priors)
    assert bags.encoding.columns == ("city", "age")
    assert bags.feature_names == bags.encoding.feature_names
    np.testing.assert_array_equal(bags.X, bags.encoding.transform(frame))
    again = Bags(bags.X, bags.bag_ids, priors, encoding=bags.encoding)
    assert again.encoding is bags.encoding
    drawn = make_bags(frame, [0, 1] * 4, [[0.5, 0.5], [0.25, 0.75]], sizes=4, random_state=0)
    assert drawn.encoding.columns == ("city", "age")


def test_split_follows_the_seed():
    """Distinct and repeated rows alike."""
    X = np.r_[np.arange(200), np.arange(150, 200)].astype(float)[:, None]
    bags = Bags(X, np.r_[np.arange(200) % 2, np.ones(50, int)], [[0.8, 0.2], [0.3, 0.7]])

    def chosen(seed):
        test = bags.train_test_split(0.3, random_state=seed)[1].X[:, 0]
        return frozenset(test.tolist())

    assert chosen(0) == chosen(0)
    assert chosen(3) == chosen(np.random.default_rng(3))
    sets = [chosen(seed) for seed in range(4)]
    assert len(set(sets)) == 4
    repeated = {frozenset(v for v in s if v >= 150) for s in sets}
    single = {frozenset(v for v in s if v < 150) for s in sets}
    assert min(len(repeated), len(single)) == 4


def test_every_row_may_be_split_off():
    """The choice is by chance: over many seeds all rows are chosen about as often."""
    bags = Bags(np.arange(40.0)[:, None], np.repeat([0, 1], 20), [[0.8, 0.2], [0.3, 0.7]])
    counts = np.zeros(40)
    for seed in range(200):
        counts[bags.train_test_split(0.25, random_state=seed)[1].rows] += 1
    assert counts.sum() == 200 * 10
    assert counts.min() > 25
    assert counts.max() < 80


def test_selections_know_how_many_rows_their_bags_had():
    bags = Bags(np.arange(9.0)[:, None], [0, 0, 0, 0, 1, 1, 2, 2, 2], np.eye(3))
    train, test = bags.train_test_split(0.5, random_state=0)
    for part in (bags, train, test, train.with_priors(np.eye(3)), train.with_rows(train.X)):
        assert part.whole_counts.tolist() == [4, 2, 3]
    some = bags.take([0, 6])
    assert some.whole_counts.tolist() == [4, 2, 3]
    assert some.present().whole_counts.tolist() == [4, 3]
    drawn = make_bags(np.arange(40.0)[:, None], np.repeat([0, 1], 20), np.eye(2), sizes=[5, 7])
    assert drawn.whole_counts.tolist() == [5, 7]
    assert drawn.take([0, 1]).whole_counts.tolist() == [5, 7]


def test_split_needs_rows_to_spare():
    bags = Bags([[1], [2]], [0, 1], THETA)
    with pytest.raises(InvalidInputError, match="spare a test row"):
        bags.train_test_split()
    for test_size in (0, 1, 0.0, 1.5, "x"):
        with pytest.raises(InvalidInputError, match=r"test_size must be a number in \(0, 1\)"):
            bags.train_test_split(test_size)


@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from(["exact", "iid"]),
    st.integers(0, 10**6),
)
@quick
def test_drawn_bags_keep_their_promises(sizes, disjoint, sampling, seed):
    X, y = labelled()
    theta = np.random.default_rng(seed).dirichlet(np.ones(3), len(sizes))
    options = {"disjoint": disjoint, "sampling": sampling, "random_state": seed}
    bags = make_bags(X, y, theta, sizes=sizes, **options)
    assert bags.counts.tolist() == sizes
    assert (np.diff(bags.bag_index) >= 0).all()
    np.testing.assert_array_equal(bags.labels, y[bags.X[:, 0].astype(int)])
    for m, size in enumerate(sizes):
        mine = bags.bag_index == m
        assert len(np.unique(bags.rows[mine])) == size
        drawn = np.bincount(bags.labels[mine], minlength=3)
        assert sampling == "iid" or (np.abs(drawn - size * theta[m]) < 1).all()
    assert not disjoint or len(np.unique(bags.rows)) == len(bags)
    np.testing.assert_array_equal(make_bags(X, y, theta, sizes=sizes, **options).rows, bags.rows)


def test_default_sizes_share_the_rows_out_and_classes_are_mixed():
    X, y = labelled()
    bags = make_bags(X, y, asymmetric(3, random_state=0), random_state=0)
    assert bags.counts.tolist() == [100, 100, 100]
    assert bags.source is X
    assert (np.diff(bags.labels[:100]) != 0).sum() > 10


def test_as_many_bags_as_rows_are_drawn_by_default():
    assert make_bags(np.eye(2), np.array([0, 1]), np.eye(2)).counts.tolist() == [1, 1]


def test_the_largest_remainders_of_each_bag_are_rounded_up():
    X, y = labelled(3, 200)
    theta = [[0.51, 0.27, 0.22], [0.12, 0.45, 0.43], [0.24, 0.19, 0.57]]
    labels = make_bags(X, y, theta, sizes=10).labels.reshape(3, 10)
    counts = [np.bincount(bag, minlength=3).tolist() for bag in labels]
    assert counts == [[5, 3, 2], [1, 5, 4], [2, 2, 6]]


def test_largest_remainder_survives_rounding_errors():
    X, y = labelled(2, 200)
    labels = make_bags(X, y, [[0.29, 0.71], [0.57, 0.43]], sizes=100).labels
    assert (labels[:100] == 0).sum() == 29
    assert (labels[100:] == 0).sum() == 57


def test_iid_counts_vary_around_the_shares():
    X, y = labelled(2, 2000)
    bags = make_bags(X, y, [[0.3, 0.7]] * 200, sizes=50, sampling="iid", random_state=0)
    counts = bags.labels.reshape(200, 50).sum(axis=1)
    assert abs(counts.mean() - 35) < 1
    assert abs(counts.var() - 50 * 0.3 * 0.7) < 3


def test_classes_are_matched_by_name():
    X, y = labelled(2)
    priors = pd.DataFrame(THETA, index=["a", "b"], columns=["yes", "no"])
    bags = make_bags(X, np.array(["no", "yes"])[y], priors, sizes=10)
    assert (bags.labels[:10] == "yes").sum() == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": 500}, "bag 0, which needs 400 rows of class 0 where there are 100: 300 too few"),
        (
            {"sizes": 100, "disjoint": True},
            "bag 1, which needs 30 rows of class 0 where there are 20: 10",
        ),
        ({"sizes": [10, 0]}, "whole numbers of at least 1, got 10, 0"),
        ({"sizes": [1, 2, 3]}, "one number or 2"),
        ({"sizes": 2.5}, "whole numbers"),
        ({"sampling": "other"}, "sampling must be one of 'exact', 'iid'"),
        ({"y": np.arange(200) % 2 + 1}, "unknown 2; the priors have the classes 0, 1; to name"),
        ({"y": np.array(["x", "y"] * 100)}, "unknown 'x', 'y'; .*DataFrame"),
        ({"y": np.array(["0", "1"] * 100)}, r"the priors have 0 \(int\), y has '0' \(str\)"),
        ({"y": [0, 1]}, "y must be of length 200"),
    ],
)
def test_what_cannot_be_drawn_is_explained(options, message):
    X, y = labelled(2)
    with pytest.raises(InvalidInputError, match=message):
        make_bags(X, options.pop("y", y), THETA, **options)


def test_repr_tells_the_sizes():
    bags = Bags(np.zeros((3, 2)), [0, 1, 1], THETA)
    assert repr(bags) == (
        "Bags(3 rows of shape (2,), 2 bags, 2 classes, bag sizes 1 to 2, median 1.5)"
    )


def test_other_priors_of_the_same_bags():
    bags = make_bags(np.eye(20), np.repeat([0, 1], 10), [[0.7, 0.3], [0.3, 0.7]], random_state=0)
    noisy = ClassPriors([[0.6, 0.4], [0.3, 0.7]])
    other = bags.with_priors(noisy)
    np.testing.assert_array_equal(other.priors.values, noisy.values)
    np.testing.assert_array_equal(other.bag_index, bags.bag_index)
    assert other.source is bags.source
    assert bags.priors.values[0, 0] == 0.7
    with pytest.raises(InvalidInputError, match=r"priors must be a table of the bag_ids 0, 1"):
        bags.with_priors(np.full((3, 2), 0.5))
    with pytest.raises(InvalidInputError, match=r"priors must be a table of the classes 0, 1"):
        bags.with_priors(np.full((2, 4), 0.25))


def test_the_fingerprint_is_that_of_the_rows_their_bags_and_the_shares():
    X, other = np.eye(4), np.eye(4)[::-1]
    ids, shares = np.array([0, 1, 0, 1]), np.array(THETA)
    same = fingerprint(Bags(X, ids, shares))
    assert fingerprint(Bags(X.copy(), ids.tolist(), THETA)) == same
    others = [
        Bags(other, ids, shares),
        Bags(X, 1 - ids, shares),
        Bags(X, ids, shares[::-1]),
        Bags(X, ids, shares[:, ::-1]),
        Bags(X, ids, shares).train_test_split(0.5, random_state=0)[0],
    ]
    assert len({same, *map(fingerprint, others)}) == 1 + len(others)


def test_a_class_may_be_called_as_the_column_of_rows_is():
    frame = Bags(np.eye(2), ["a", "b"], ClassPriors(THETA, ["a", "b"], ["rows", "bag"])).to_frame()
    assert frame.columns.tolist() == ["rows", "rows", "bag"]
    assert frame.iloc[0].tolist() == [1, 0.8, 0.2]


@pytest.mark.parametrize("seed", range(5))
def test_of_records_that_occur_twice_the_share_is_tested_that_was_asked_for(seed):
    record = np.repeat(np.arange(20.0), 2)[:, None]
    train, test = Bags(record, np.arange(40) % 2, THETA).train_test_split(0.5, random_state=seed)
    assert len(np.unique(np.asarray(test.X))) == len(np.unique(np.asarray(train.X))) == 10

"""Which rows are the same record."""

import numpy as np
import pytest
import torch

from unbag.identity import SKETCH_SIZE, hash_rows, identify, share_known, sketch

TYPES = [np.uint8, np.int16, np.int64, np.float32, np.float64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 3)])
def test_equal_rows_have_equal_numbers(dtype, shape):
    rng = np.random.default_rng(0)
    distinct = np.unique(rng.integers(0, 100, (20, *shape, 2)), axis=0).astype(dtype)
    pick = rng.integers(0, len(distinct), 200)
    numbers = identify(distinct[pick])
    same = pick[:, None] == pick
    assert ((numbers[:, None] == numbers) == same).all()
    assert numbers[0] == 0
    assert numbers.max() + 1 == len(np.unique(pick))
    hashes = hash_rows(distinct[pick])
    assert hashes.dtype == np.uint64
    assert ((hashes[:, None] == hashes) == same).all()


def test_order_in_memory_and_libraries_do_not_matter():
    rows = np.random.default_rng(0).integers(0, 3, (40, 4)).astype(np.float32)
    expected = identify(rows)
    assert (identify(np.asfortranarray(rows)) == expected).all()
    assert (identify(torch.from_numpy(rows)) == expected).all()
    assert (identify(torch.from_numpy(rows).bfloat16()) == expected).all()
    assert (identify(rows[:, ::-1]) == expected).all()  # the same rows are equal, read backwards


def test_hashes_are_those_of_the_numbers_whatever_their_type():
    rows = np.random.default_rng(0).integers(0, 100, (50, 6))
    expected = hash_rows(rows)
    for dtype in TYPES:
        assert (hash_rows(rows.astype(dtype)) == expected).all()
    assert (hash_rows(torch.from_numpy(rows)) == expected).all()
    assert (hash_rows(torch.from_numpy(rows).float().requires_grad_()) == expected).all()
    assert (hash_rows(rows.reshape(50, 2, 3)) == expected).all()
    assert (hash_rows(rows[::-1])[::-1] == expected).all()
    assert hash_rows(np.array([[0.0, 1.0]])) == hash_rows(np.array([[-0.0, 1.0]]))


def test_hashes_do_not_depend_on_how_many_rows_are_hashed_at_a_time(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(100, 7))
    expected = hash_rows(rows)
    monkeypatch.setattr("unbag.identity._CHUNK", 30)
    assert (hash_rows(rows) == expected).all()


@pytest.mark.parametrize("kind", ["binary", "one number", "permuted", "tiny"])
def test_hashes_of_many_rows_differ(kind):
    """Of rows that a weak hash confuses: few values, or the same ones in other places."""
    rng = np.random.default_rng(0)
    rows = {
        "binary": np.unique(rng.integers(0, 2, (200_000, 60)).astype(np.uint8), axis=0),
        "one number": np.arange(200_000)[:, None],
        "permuted": np.unique(np.argsort(rng.random((100_000, 12)), axis=1), axis=0),
        "tiny": 1 + np.arange(200_000)[:, None] * [1e-15, 0],
    }[kind]
    if kind == "tiny":
        rows = np.unique(rows, axis=0)
    assert len(np.unique(hash_rows(rows))) == len(rows)


def test_a_sketch_of_few_rows_holds_them_all():
    rows = np.random.default_rng(0).normal(size=(500, 3))
    kept = sketch(hash_rows(rows[[*range(400), *range(100)]]))
    assert len(kept) == 400
    assert (np.diff(kept) > 0).all()
    assert share_known(hash_rows(rows), kept) == 0.8
    assert share_known(hash_rows(rows[400:]), kept) == 0


@pytest.mark.parametrize("kind", ["numbers", "bytes"])
def test_a_sketch_of_many_rows_estimates_the_share(kind):
    rng = np.random.default_rng(0)
    n = 10 * SKETCH_SIZE
    if kind == "numbers":
        rows = rng.normal(size=(n + 100_000, 2))
    else:
        rows = rng.integers(0, 256, (n + 100_000, 16), dtype=np.uint8)
    hashes = hash_rows(rows)
    kept = sketch(hashes[:n])
    assert len(kept) == SKETCH_SIZE
    assert share_known(hashes[:n], kept) == 1
    assert share_known(hashes[n:], kept) == 0
    # About 10,000 of them are looked at: a standard error of 0.005.
    assert abs(share_known(hashes[n - 50_000 : n + 50_000], kept) - 0.5) < 0.025


def test_a_full_sketch_says_nothing_of_larger_hashes():
    known = np.arange(SKETCH_SIZE, dtype=np.uint64)
    assert share_known(np.array([SKETCH_SIZE + 5], np.uint64), known) == 0
    assert share_known(np.array([3, SKETCH_SIZE + 5], np.uint64), known) == 1

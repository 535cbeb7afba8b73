import numpy as np
import pytest
import torch

from unbag.training.randomness import derive, permutation_keys, seed_keys, uniform

CPU = torch.device("cpu")


def test_keys_differ_by_seed():
    seeds = [*range(2000), 2**31, 2**32, 2**63, 2**64, 2**64 + 1]
    assert len(set(seed_keys(seeds, CPU).tolist())) == len(seeds)


def test_keys_differ_by_counter_and_by_its_position():
    keys = seed_keys([0, 1], CPU)
    derived = {tuple(derive(keys, a, b).tolist()): (a, b) for a in range(60) for b in range(60)}
    assert len(derived) == 3600  # (a, b) and (b, a) included
    flat = [key for pair in derived for key in pair]
    assert len(set(flat)) >= len(flat) - 2  # 7,200 of 2³² numbers: a collision has chance 0.6%
    assert not torch.equal(derive(keys, 3), derive(keys, 3, 0))


def test_a_counter_may_be_a_tensor():
    keys = seed_keys([5], CPU)
    counter = torch.tensor(7, dtype=torch.int32)
    assert torch.equal(derive(keys, counter, 2), derive(keys, 7, torch.tensor(2).int()))


def test_keys_do_not_depend_on_their_neighbours():
    together = seed_keys([3, 8, 21], CPU)
    alone = seed_keys([8], CPU)
    assert torch.equal(uniform(derive(together, 4), 5, 6)[1:2], uniform(derive(alone, 4), 5, 6))
    assert torch.equal(permutation_keys(together, 9)[1:2], permutation_keys(alone, 9))


def test_more_rows_and_columns_leave_the_others_unchanged():
    # Replicas of fewer rows or narrower layers are padded in a stack.
    keys = seed_keys([3], CPU)
    assert torch.equal(uniform(keys, 8, 6)[:, :5, :4], uniform(keys, 5, 4))
    assert torch.equal(permutation_keys(keys, 20)[:, :7], permutation_keys(keys, 7))


@pytest.fixture(scope="module")
def draws():
    keys = derive(seed_keys([0, 1], CPU), 100)
    steps = [uniform(derive(keys, step), 200, 250) for step in range(4)]
    return torch.stack(steps).double().numpy()  # (steps, R, rows, columns)


def test_uniform_range_mean_and_variance(draws):
    assert draws.min() >= 0
    assert draws.max() < 1
    n = draws.size
    assert abs(draws.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / n)
    assert abs(draws.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / n)


def test_uniform_fills_its_cells_evenly(draws):
    cells = 1000
    counts = np.bincount((draws.ravel() * cells).astype(int), minlength=cells)
    expected = draws.size / cells
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - (cells - 1)) < 5 * np.sqrt(2 * (cells - 1))
    low_bits = (draws.ravel() * 2**24).astype(int) % 256
    counts = np.bincount(low_bits, minlength=256)
    chi_square = ((counts - draws.size / 256) ** 2 / (draws.size / 256)).sum()
    assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)


@pytest.mark.parametrize("axis", [0, 1, 2, 3], ids=["steps", "replicas", "rows", "columns"])
@pytest.mark.parametrize("lag", [1, 2, 3])
def test_uniform_neighbours_are_uncorrelated(draws, axis, lag):
    if draws.shape[axis] <= lag:
        lag = 1
    centred = np.moveaxis(draws - 1 / 2, axis, 0)
    products = (centred[lag:] * centred[:-lag]).ravel()
    assert abs(products.mean()) < 5 / 12 / np.sqrt(products.size)


def test_row_and_column_means_are_even(draws):
    # A constant part shared by a row or a column would show as an excess variance of its means.
    for axis in (2, 3):
        means = draws.mean(axis=axis).ravel()
        z = (means - 1 / 2) / np.sqrt(1 / 12 / draws.shape[axis])
        assert abs(z.var() - 1) < 5 * np.sqrt(2 / z.size)


def test_a_dropout_mask_has_its_rate(draws):
    for rate in (0.1, 0.5, 0.9):
        assert abs((draws < rate).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / draws.size)


def test_permutation_keys_are_distinct_and_in_range():
    keys = permutation_keys(seed_keys([0, 1], CPU), 60_000)
    assert keys.dtype == torch.int64
    assert int(keys.min()) >= 0
    assert int(keys.max()) < 1 << 32
    for row in keys:  # one to one in the position
        assert len(torch.unique(row)) == 60_000


def test_orders_are_even():
    # Each of the 24 orders of four positions comes equally often.
    keys = permutation_keys(derive(seed_keys(list(range(4000)), CPU), 0, 1), 4)
    codes = keys.argsort(1) @ torch.tensor([64, 16, 4, 1])
    counts = torch.unique(codes, return_counts=True)[1].double()
    assert len(counts) == 24
    expected = 4000 / 24
    assert float(((counts - expected) ** 2 / expected).sum()) < 23 + 5 * np.sqrt(46)

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unbag.training import batches as module
from unbag.training.batches import (
    BATCHINGS,
    ShuffledBatches,
    StratifiedBatches,
    WholeBagBatches,
    expected_counts,
)
from unbag.training.randomness import seed_keys

CPU = torch.device("cpu")
quick = settings(deadline=None, max_examples=60)
every = pytest.mark.parametrize("kind", BATCHINGS.values())
sizes_of_bags = st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(sum)


def bag_index(*sizes, seed=0):
    """Rows of every replica in random order, padded with −1: shape (R, n)."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.repeat(np.arange(len(s)), s)) for s in sizes]
    table = np.full((len(rows), max(map(len, rows))), -1)
    for r, row in enumerate(rows):
        table[r, : len(row)] = row
    return torch.tensor(table)


def make(kind, *sizes, batch_size, seeds=None):
    keys = seed_keys(list(range(len(sizes))) if seeds is None else seeds, CPU)
    return kind(bag_index(*sizes), max(map(len, sizes)), batch_size, keys)


def plan(batches, epoch=0):
    """Positions of a whole epoch: shape (R, steps, B)."""
    return torch.cat(list(batches.epoch(epoch)), dim=1)


@every
@given(sizes=sizes_of_bags, batch_size=st.integers(1, 40), epoch=st.integers(0, 3))
@quick
def test_an_epoch_has_the_promised_shape(kind, sizes, batch_size, epoch):
    n = sum(sizes)
    batch_size = min(batch_size, n)
    batches = make(kind, sizes, batch_size=batch_size)
    positions = plan(batches, epoch)
    assert positions.shape == (1, n // batch_size, batch_size)
    assert batches.n_steps == n // batch_size
    assert int(positions.min()) >= 0
    assert int(positions.max()) < n


def test_shuffled_uses_every_row_at_most_once_an_epoch():
    positions = plan(make(ShuffledBatches, [30, 17, 5], batch_size=10))
    used = positions.flatten()
    assert len(used) == 50
    assert len(set(used.tolist())) == 50


def test_shuffled_leaves_out_other_rows_in_other_epochs():
    batches = make(ShuffledBatches, [53], batch_size=10)
    left_out = [set(range(53)) - set(plan(batches, e).flatten().tolist()) for e in range(5)]
    assert all(len(rows) == 3 for rows in left_out)
    assert len(set.union(*left_out)) > 5


@every
def test_epochs_differ_and_can_be_drawn_again(kind):
    batches = make(kind, [30, 20], batch_size=10)
    first = plan(batches, 0)
    assert not torch.equal(first, plan(batches, 1))
    assert torch.equal(first, plan(batches, 0))


@every
def test_seeds_differ(kind):
    one, other = plan(make(kind, [30, 20], [30, 20], batch_size=10, seeds=[1, 2]))
    assert not torch.equal(one, other)


@every
def test_padding_is_never_used_and_alone_equals_stacked(kind):
    """Other rows, other bags, other sizes beside a replica do not change its batches."""
    sizes = ([40, 2, 8], [13, 11, 9, 7, 5, 4, 2, 1], [51, 1])
    table = bag_index(*sizes)
    stacked = kind(table, 8, 25, seed_keys([5, 6, 7], CPU))
    for r, size in enumerate(sizes):
        rows = table[r : r + 1, : sum(size)]
        alone = kind(rows, len(size), 25, seed_keys([5 + r], CPU))
        for epoch in range(4):
            positions = plan(stacked, epoch)[r]
            assert torch.equal(positions, plan(alone, epoch)[0])
            assert bool((table[r][positions] >= 0).all())


@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30).filter(sum),
    batch_size=st.integers(1, 200),
)
@quick
def test_expected_counts(sizes, batch_size):
    size = np.array(sizes)
    batch_size = min(batch_size, size.sum())
    expected = expected_counts(size, batch_size)
    present = size > 0
    np.testing.assert_allclose(expected.sum(), batch_size)
    assert (expected[~present] == 0).all()
    if present.sum() > batch_size:
        np.testing.assert_allclose(expected, batch_size * size / size.sum())
    else:
        assert (expected[present] >= 1 - 1e-9).all()
        above = expected > 1 + 1e-9  # those keep their proportions
        ratio = expected[above] / size[above]
        np.testing.assert_allclose(ratio, ratio[:1].repeat(len(ratio)))
        assert (size[above] >= size[present & ~above].max(initial=0)).all()


@given(sizes=sizes_of_bags, batch_size=st.integers(1, 40), seed=st.integers(0, 99))
@quick
def test_stratified_counts(sizes, batch_size, seed):
    size = np.array(sizes)
    batch_size = min(batch_size, int(size.sum()))
    batches = make(StratifiedBatches, sizes, batch_size=batch_size, seeds=[seed])
    bags = batches.bag_index[0][plan(batches)[0]]  # (steps, B)
    expected = expected_counts(size, batch_size)
    nearest = expected.round()
    expected = np.where(np.abs(expected - nearest) < 1e-9, nearest, expected)
    for batch in bags.numpy():
        counts = np.bincount(batch, minlength=len(size))
        assert (counts >= np.floor(expected)).all()
        assert (counts <= np.ceil(expected)).all()
        if np.count_nonzero(size) <= batch_size:
            assert (counts[size > 0] >= 1).all()


@given(sizes=sizes_of_bags, batch_size=st.integers(1, 40), seed=st.integers(0, 99))
@quick
def test_stratified_uses_the_rows_of_a_bag_evenly(sizes, batch_size, seed):
    batch_size = min(batch_size, sum(sizes))
    batches = make(StratifiedBatches, sizes, batch_size=batch_size, seeds=[seed])
    use = np.bincount(plan(batches).flatten(), minlength=sum(sizes))
    for m in range(len(sizes)):
        of_bag = use[batches.bag_index[0].numpy() == m]
        assert len(of_bag) == 0 or of_bag.max() - of_bag.min() <= 1


def test_stratified_bags_of_equal_sizes_use_every_row_once():
    batches = make(StratifiedBatches, [20] * 5, batch_size=10)
    assert sorted(plan(batches).flatten().tolist()) == list(range(100))


@pytest.mark.parametrize(
    ("sizes", "batch_size"),
    [([5, 10, 20, 40, 80], 3), ([1] * 30, 7), ([90, 6, 3, 1], 2), ([300] + [2] * 40, 8)],
)
def test_presence_is_as_frequent_as_inclusion_says(sizes, batch_size):
    batches = make(StratifiedBatches, sizes, batch_size=batch_size)
    assert batches.inclusion is not None
    inclusion = batches.inclusion[0].numpy()
    np.testing.assert_allclose(inclusion, np.minimum(1, batch_size * np.array(sizes) / sum(sizes)))
    present, steps = np.zeros(len(sizes)), 0
    for epoch in range(-(-4000 // batches.n_steps)):
        bags = batches.bag_index[0][plan(batches, epoch)[0]]
        steps += len(bags)
        for batch in bags:
            present[torch.unique(batch)] += 1
    assert (present[inclusion == 1] == steps).all()
    error = np.sqrt(inclusion * (1 - inclusion) / steps)
    assert (np.abs(present / steps - inclusion) <= 5 * error).all()


def test_pairs_of_bags_meet_in_a_batch():
    # The order of bags is drawn anew each epoch, so no pair is kept apart for good.
    batches = make(StratifiedBatches, [10] * 8, batch_size=4)
    met = np.zeros((8, 8), bool)
    for epoch in range(60):
        for batch in batches.bag_index[0][plan(batches, epoch)[0]].numpy():
            met[np.ix_(batch, batch)] = True
    assert met.all()


def test_inclusion_is_none_where_all_are_sure():
    assert make(StratifiedBatches, [9500, 450, 50], batch_size=32).inclusion is None
    assert make(StratifiedBatches, [7] * 10, batch_size=10).inclusion is None
    assert make(ShuffledBatches, [1] * 30, batch_size=7).inclusion is None


@pytest.mark.parametrize("plan_size", [1, 40, 80])
def test_a_plan_in_pieces_is_the_plan_in_one(monkeypatch, plan_size):
    sizes = ([40, 3, 9, 1], [20, 20, 20])
    whole = plan(make(StratifiedBatches, *sizes, batch_size=6), 3)
    monkeypatch.setattr(module, "_PLAN_SIZE", plan_size)
    batches = make(StratifiedBatches, *sizes, batch_size=6)
    pieces = list(batches.epoch(3))
    assert len(pieces) > 1
    assert torch.equal(torch.cat(pieces, dim=1), whole)


@every
def test_one_batch_of_all_rows(kind):
    batches = make(kind, [1, 1, 5], batch_size=7)
    assert sorted(plan(batches)[0, 0].tolist()) == list(range(7))


# ---------------------------------------------------------------------------------- whole bags


def bags_of_batches(made, epoch=0):
    """Rows of every bag in every batch of the first replica: shape (steps, M)."""
    bags = made.bag_index[0][plan(made, epoch)[0]]
    return torch.stack([torch.bincount(b, minlength=made.n_bags) for b in bags])


def test_bags_of_one_size_are_never_cut():
    batches = make(WholeBagBatches, [8] * 50, batch_size=40)
    counts = bags_of_batches(batches)
    assert counts.shape == (10, 50)
    assert set(counts.unique().tolist()) == {0, 8}
    assert (counts.sum(0) == 8).all()
    np.testing.assert_allclose(batches.inclusion, np.full((1, 50), 0.1))


def test_a_bag_is_cut_at_the_edge_of_a_batch_only():
    sizes = [3, 10, 1, 7, 0, 5, 9, 2, 8, 6]
    batches = make(WholeBagBatches, sizes, batch_size=12)
    for epoch in range(20):
        counts = bags_of_batches(batches, epoch)
        cut = (counts > 0) & (counts < torch.tensor(sizes))
        assert (cut.sum(1) <= 2).all()
        assert (counts.sum(0) <= torch.tensor(sizes)).all()
        assert counts.sum() == 48


def test_the_chance_of_a_bag_to_be_in_a_batch():
    sizes = [0, *range(1, 30)]
    batches = make(WholeBagBatches, sizes, batch_size=48)
    n_epochs = 2000
    result = (
        sum((bags_of_batches(batches, e) > 0).double().mean(0) for e in range(n_epochs)) / n_epochs
    )
    expected = np.where(np.array(sizes) > 0, batches.inclusion[0], 0.0)
    np.testing.assert_allclose(result, expected, atol=0.01)
    assert result[-1] > 1.4 * result[1]


def test_rows_of_a_bag_are_in_random_order():
    batches = make(WholeBagBatches, [40] * 3, batch_size=30)
    first = plan(batches, 0)[0].flatten()
    for bag in range(3):
        of_bag = first[batches.bag_index[0][first] == bag]
        assert not torch.equal(of_bag, of_bag.sort().values)
        assert torch.equal(of_bag.sort().values, torch.where(batches.bag_index[0] == bag)[0])


def test_one_batch_of_some_bags_is_not_taken_for_all():
    batches = make(WholeBagBatches, [25] * 40, batch_size=525)
    assert batches.n_steps == 1
    np.testing.assert_allclose(batches.inclusion, 0.525)
    mixed = make(WholeBagBatches, [10] * 30 + [100] * 5, batch_size=512)
    result = sum((bags_of_batches(mixed, e) > 0).double()[0] for e in range(2000)) / 2000
    np.testing.assert_allclose(mixed.inclusion[0], result, atol=0.04)


def test_one_batch_of_all_bags_has_them_all():
    batches = make(WholeBagBatches, [4, 5, 6], batch_size=15)
    assert batches.inclusion is None
    assert bags_of_batches(batches).tolist() == [[4, 5, 6]]

"""Rows of bags, as many as tests of them need."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.residuals import Residuals, bag_features, residual_test
from unbag.identity import select
from unbag.priors import ClassPriors
from unbag.rows import Rows
from unbag.validation import as_generator

__all__ = ["MIN_FREEDOM", "SampledRows", "no_spare_bag"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_ROWS = 20_000  # of more rows a sample is used, with an equal number per bag where possible
MAX_BAGS = 1_000  # of more bags, the largest are used
MAX_FEATURES = 20  # more columns are projected at random to this many
ROWS_PER_FEATURE = 10  # rows less bags that a feature needs, for its covariances
BLOCK = 256  # columns projected at a time, to copy little
MIN_FREEDOM = 30  # rows less bags; with fewer nothing is tested


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Rows of bags, bag by bag: all of them, or as many as the tests need.

    Attributes
    ----------
    rows
        (n, ...) rows.
    sizes
        (M,) rows of each bag.
    table
        Class priors of these bags.
    rng
        For what is drawn at random.
    """

    rows: NDArray[Any]
    sizes: Ints
    table: ClassPriors
    rng: np.random.Generator

    @classmethod
    def draw(
        cls,
        rows: Rows,
        bag_index: Ints,
        table: ClassPriors,
        random_state: Any = 0,
        places: Ints | None = None,
    ) -> Self:
        """Draw rows of the largest bags.

        ``places`` (n,) are those of the rows among more of them, where only some have bags.
        """
        sizes = np.bincount(bag_index, minlength=table.n_bags)
        kept = np.sort(np.argsort(-sizes, kind="stable")[:MAX_BAGS])  # (M',)
        kept = kept[sizes[kept] > 0]
        rng = as_generator(random_state)
        chosen = _sample(bag_index, kept, rng)  # rows, bag by bag
        n = np.bincount(np.searchsorted(kept, bag_index[chosen]))
        drawn = select(rows, chosen if places is None else places[chosen])
        return cls(_as_numpy(drawn), n, table.subset(kept), rng)

    @property
    def most_features(self) -> int:
        """Features that these rows are enough for."""
        return min(MAX_FEATURES, (len(self.rows) - len(self.sizes)) // ROWS_PER_FEATURE)

    def residuals(self) -> Residuals | str:
        """Test all columns together, or say why they cannot be tested."""
        n_bags, n_rows = len(self.sizes), len(self.rows)
        if n_bags <= self.table.rank:
            return no_spare_bag(n_bags, self.table.rank)
        if n_rows - n_bags < MIN_FREEDOM:
            need = f"the test needs at least {MIN_FREEDOM} more rows than bags"
            return f"{n_rows} rows in {n_bags} bags are too few; {need}"
        features = bag_features(_columns(self.rows, self.most_features, self.rng), self.sizes)
        if features.shape[1] == 0:
            return "the rows do not differ within bags"
        return residual_test(features, self.sizes, self.table)


def no_spare_bag(n_bags: int, rank: int) -> str:
    """Say why so few bags cannot be tested."""
    return f"the test needs more than {rank} bags with rows, and there are {n_bags}"


def _sample(bag_index: Ints, kept: Ints, rng: np.random.Generator) -> Ints:
    """Choose at most MAX_ROWS rows of the bags kept, bag by bag."""
    order = np.argsort(bag_index, kind="stable")
    order = order[np.isin(bag_index[order], kept)]
    if len(order) <= MAX_ROWS:
        return order
    order = rng.permutation(order)
    order = order[np.argsort(bag_index[order], kind="stable")]
    bag = bag_index[order]
    place = np.arange(len(bag)) - np.searchsorted(bag, bag)  # 0, 1, ... in each bag
    limit = np.sort(place)[MAX_ROWS]  # no more rows than MAX_ROWS have a smaller place
    chosen: Ints = order[place < limit]
    return chosen


def _as_numpy(rows: Rows) -> NDArray[Any]:
    """Give rows as an array; numpy lacks some of torch's dtypes, so tensors become float32."""
    return rows if isinstance(rows, np.ndarray) else rows.detach().cpu().float().numpy()


def _columns(rows: NDArray[Any], most: int, rng: np.random.Generator) -> Floats:
    """(n, d) columns of the rows, or that many random mixes of them where there are more."""
    flat = rows.reshape(len(rows), -1)
    if flat.shape[1] <= most:
        return flat.astype(np.float64)
    mixed = np.zeros((len(flat), most))
    for start in range(0, flat.shape[1], BLOCK):
        block = flat[:, start : start + BLOCK].astype(np.float64)
        block -= block.mean(0)
        deviation = block.std(0)
        block /= np.where(deviation > 0, deviation, 1)
        mixed += block @ rng.standard_normal((block.shape[1], most))
    return mixed

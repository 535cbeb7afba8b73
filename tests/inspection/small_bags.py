"""Bags, their sizes and rows for the tests of the inspection."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from unbag.priors import ClassPriors

quick = settings(deadline=None, max_examples=40)
TABLE = {
    "north": {"a": 0.7, "b": 0.2, "c": 0.1},
    "south": {"a": 0.2, "b": 0.6, "c": 0.2},
    "east": {"a": 0.1, "b": 0.2, "c": 0.7},
    "west": {"a": 0.4, "b": 0.4, "c": 0.2},
}
THETA = ClassPriors.of(TABLE).values
SIZES = {"west": 400, "north": 100, "south": 200, "east": 300}


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

"""Bags of which some rows have labels, as methods train on them."""

import numpy as np
from numpy.typing import NDArray

from unbag.bags import Bags
from unbag.priors import read_labels, with_labelled

__all__ = ["read_labels", "with_labels"]


def with_labels(bags: Bags, labels: NDArray[np.int64]) -> Bags:
    """Move labelled rows to further bags, one per class, as :func:`with_labelled` does.

    Parameters
    ----------
    bags : Bags
    labels : integer array of shape (n,)
        Position of the class of every row, or -1.

    Examples
    --------
    >>> bags = Bags(np.zeros((4, 1)), ["a", "a", "a", "a"], {"a": [0.5, 0.5]})
    >>> known = with_labels(bags, np.array([-1, -1, 1, -1]))
    >>> known.bag_index, known.priors.values.round(2)
    (array([0, 0, 1, 0]), array([[0.67, 0.33],
           [0.  , 1.  ]]))
    """
    counts = bags.counts.astype(np.float64)
    whole = None if bags.priors.shares_of == "population" else counts
    moved = bags.take(np.arange(bags.n_rows))
    moved.priors, moved.bag_index = with_labelled(bags.priors, bags.bag_index, labels, whole)
    moved.whole_counts = moved.counts
    return moved.present()

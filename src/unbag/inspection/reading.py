"""Read what ``inspect`` takes besides Θ: bag sizes, and the bag of every row."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.ids import id_array
from unbag.priors import ClassPriors, match_bags
from unbag.validation import as_float_array, detached, invalid, shorten

__all__ = ["read_bag_index", "read_sizes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def read_sizes(sizes: Any, table: ClassPriors) -> Ints:
    """(M,) rows of every bag, from one number, an array in the order of the bags, or by id."""
    if hasattr(sizes, "keys"):
        keys = list(sizes.keys())
        order = match_bags("sizes", keys, table)
        numbers = np.asarray(list(sizes.values()) if isinstance(sizes, Mapping) else sizes)
        values = as_float_array("sizes", numbers, ndim=1)[order]
    else:
        array = np.asarray(detached("sizes", sizes))
        values = as_float_array("sizes", np.atleast_1d(array), ndim=1)
        if array.ndim == 0:
            values = np.repeat(values, table.n_bags)
        if len(values) != table.n_bags:
            raise invalid("sizes", f"{table.n_bags} numbers, one for each bag", len(values))
    whole = np.isfinite(values) & (values >= 0) & (values == np.rint(values))
    if not whole.all():
        bad = f"{shorten(values[~whole])} for bag {shorten(table.bag_ids[~whole])}"
        raise invalid("sizes", "whole numbers of rows, 0 or more", bad)
    if not values.any():
        raise invalid("sizes", "of at least one row in all", "only zeros")
    return values.astype(np.int64)


def read_bag_index(bag_ids: Any, table: ClassPriors) -> Ints:
    """(n,) bag of every row; an unknown id is an error that lists the bags without rows too."""
    ids = id_array("bag_ids", bag_ids)
    if len(ids) == 0:
        raise invalid("bag_ids", "given for at least one row", "none")
    try:
        return table.encode(ids)
    except InvalidInputError as error:
        seen = {value for value in ids.tolist() if isinstance(value, Hashable)}
        unused = [bag for bag in table.bag_ids.tolist() if bag not in seen]
        if not unused:
            raise
        message = f"{str(error).rstrip('.')}; bags with priors but no rows: {shorten(unused)}."
        raise InvalidInputError(message) from None

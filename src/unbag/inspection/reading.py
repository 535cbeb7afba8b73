"""Read bag sizes and standard errors of the shares for ``inspect``."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.ids import id_array, index_ids, match_ids
from unbag.priors import BAG_COLUMN, ClassPriors
from unbag.validation import as_float_array, detached, invalid, is_frame, shorten

__all__ = ["read_bag_index", "read_errors", "read_sizes"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def read_sizes(sizes: Any, table: ClassPriors) -> Ints:
    """(M,) rows of every bag, from one number, an array in the order of the bags, or by id."""
    if hasattr(sizes, "keys"):
        keys = list(sizes.keys())
        order = _match_all("sizes", keys, table)
        given = np.asarray(list(sizes.values()) if isinstance(sizes, Mapping) else sizes)
        values = as_float_array("sizes", given, ndim=1)[order]
    else:
        array = np.asarray(detached(sizes))
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


def read_errors(prior_errors: Any, table: ClassPriors) -> Floats:
    """(M, K) standard errors of the shares, from an array in the order of Θ, or by id."""
    given = prior_errors
    if is_frame(given):
        if hasattr(given, "index"):
            bags, cells = given.index, given
        else:
            if BAG_COLUMN not in given.columns:
                allowed = f"a DataFrame with an index of bag ids or a column {BAG_COLUMN!r}"
                raise invalid("prior_errors", allowed, shorten(given.columns))
            bags, cells = given[BAG_COLUMN], given.drop(BAG_COLUMN)
        order = _match_all("prior_errors", list(bags), table)
        columns = _match_classes(list(cells.columns), table)
        errors = as_float_array("prior_errors", cells.to_numpy(), ndim=2)[order][:, columns]
    elif isinstance(given, Mapping):
        order = _match_all("prior_errors", list(given), table)
        rows = [_read_row(list(given.values())[i], table) for i in order]
        errors = as_float_array("prior_errors", rows, ndim=2)
    else:
        errors = as_float_array("prior_errors", detached(given), ndim=2)
    if errors.shape != table.values.shape:
        raise invalid("prior_errors", f"of the priors' shape {table.values.shape}", errors.shape)
    if not (np.isfinite(errors).all() and (errors >= 0).all()):
        bad = errors[~(np.isfinite(errors) & (errors >= 0))]
        raise invalid("prior_errors", "finite and non-negative", shorten(bad))
    single = (errors > 0).sum(1) == 1
    if single.any():
        got = f"a single one in bag {shorten(table.bag_ids[single])}"
        remedy = "the shares of a bag sum to 1, so one of them cannot be wrong alone."
        raise invalid("prior_errors", "positive for no or several classes of a bag", got, remedy)
    return errors


def _read_row(row: Any, table: ClassPriors) -> Any:
    """Put the standard errors of one bag in the order of the classes."""
    if not hasattr(row, "keys"):
        return detached(row)
    values = list(row.values()) if isinstance(row, Mapping) else list(row)
    return [values[i] for i in _match_classes(list(row.keys()), table)]


def _match_all(name: str, keys: list[Any], table: ClassPriors) -> Ints:
    """Position of each bag among the keys; bags and keys must be the same."""
    ids = id_array(name, keys)
    given = index_ids(name, ids)
    absent = [bag for bag in table.bag_ids if not _has(given, bag)]
    lacking = f"{name} lack {shorten(absent)}." if absent else ""
    known = index_ids("priors", table.bag_ids)
    codes = match_ids(
        name, ids, known, source=f"{name} have", what="keyed by the priors' bags", remedy=lacking
    )
    if absent:
        got = f"none for {shorten(absent)}"
        raise invalid(name, "given for every bag of the priors", got, "write a zero as 0.")
    return np.argsort(codes)


def _match_classes(keys: list[Any], table: ClassPriors) -> Ints:
    """Position of each class among the keys."""
    ids = id_array("prior_errors", keys)
    given = index_ids("prior_errors", ids)
    known = index_ids("priors", table.classes)
    what = "keyed by the priors' classes"
    codes = match_ids("prior_errors", ids, known, source="prior_errors have", what=what)
    absent = [name for name in table.classes if not _has(given, name)]
    if absent:
        raise invalid("prior_errors", "given for every class", f"none for {shorten(absent)}")
    return np.argsort(codes)


def _has(index: dict[Any, int], value: Any) -> bool:
    """Whether an index of ids holds this one, by kind and value."""
    return next(iter(index_ids("ids", np.array([value])))) in index

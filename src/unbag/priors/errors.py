"""Standard errors of class priors: one way to give them, and what they do to an estimate."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.ids import id_array, index_ids, match_ids
from unbag.priors.table import BAG_COLUMN, ClassPriors
from unbag.validation import as_float_array, detached, invalid, is_frame, shorten

__all__ = ["PriorErrors", "match_bags"]

_Floats = NDArray[np.float64]


class PriorErrors:
    r"""Standard errors s of the shares Θ, and the variance that they add to an estimate.

    The errors of a bag add up to 0, since its shares sum to 1. They are taken as independent but
    for that, and scaled so that their sizes stay those given. An estimate that moves by
    :math:`\sum_{mk} g_{mk} \, d\theta_{mk}` then has the added variance

    .. math:: \sum_m \Bigl(1 - \sum_k q_{mk}^2\Bigr)^{-1}
              \sum_k s_{mk}^2 (g_{mk} - \bar{g}_m)^2, \qquad
              q_{mk} = \frac{s_{mk}^2}{\sum_j s_{mj}^2}, \quad
              \bar{g}_m = \sum_k q_{mk} g_{mk}.

    That is exact for two classes, and for shares counted in a sample if they are equal.

    Parameters
    ----------
    errors : array of shape (M, K)
        In a bag, either no share or at least two must have an error.

    Attributes
    ----------
    weights : array of shape (M, K)
        q; zeros for bags without errors.
    variances : array of shape (M, K)
        s² / (1 − Σ_k q²).

    Examples
    --------
    >>> errors = PriorErrors(np.full((2, 2), 0.02))
    >>> round(float(errors.added_variance(np.eye(2) / 2)) ** 0.5, 6)
    0.014142
    """

    weights: _Floats
    variances: _Floats

    def __init__(self, errors: ArrayLike) -> None:
        self.values = np.asarray(errors, dtype=np.float64)
        square = self.values**2
        total = square.sum(1, keepdims=True)
        self.weights = square / np.where(total > 0, total, 1)
        spread = 1 - (self.weights**2).sum(1, keepdims=True)  # (M, 1), above 0 with two errors
        self.variances = square / np.where(total > 0, spread, 1)

    @classmethod
    def read(cls, given: Any, table: ClassPriors) -> "PriorErrors":
        """Read standard errors from an (M, K) array in the order of Θ, or by bag and class.

        By bag and class are: a dict of bag id to errors, or to a dict of class to error; a pandas
        DataFrame (index = bag ids, columns = classes); a polars DataFrame with the bag ids in a
        column "bag".

        Examples
        --------
        >>> table = ClassPriors.of({"a": {"yes": 0.3, "no": 0.7}, "b": {"yes": 0.6, "no": 0.4}})
        >>> PriorErrors.read({"b": [0.02, 0.02], "a": [0.01, 0.01]}, table).values
        array([[0.01, 0.01],
               [0.02, 0.02]])
        """
        errors = _read_cells(given, table)
        shape = table.values.shape
        if errors.shape != shape:
            raise invalid("prior_errors", f"of the priors' shape {shape}", errors.shape)
        if not (np.isfinite(errors).all() and (errors >= 0).all()):
            bad = errors[~(np.isfinite(errors) & (errors >= 0))]
            raise invalid("prior_errors", "finite and non-negative", shorten(bad))
        single = (errors > 0).sum(1) == 1
        if single.any():
            got = f"a single one in bag {shorten(table.bag_ids[single])}"
            remedy = "the shares of a bag sum to 1, so one cannot be off alone."
            allowed = "positive for no or several classes of a bag"
            raise invalid("prior_errors", allowed, got, remedy)
        return cls(errors)

    def subset(self, bags: ArrayLike) -> "PriorErrors":
        """Keep some bags, by mask or by index."""
        return PriorErrors(self.values[np.asarray(bags)])

    def added_variance(self, gradient: _Floats) -> _Floats:
        """Variance from these errors of an estimate with derivatives g (..., M, K) by Θ."""
        mean = (self.weights * gradient).sum(-1, keepdims=True)
        return np.asarray((self.variances * (gradient - mean) ** 2).sum((-2, -1)))

    def added_by_bag(self, gradient: _Floats) -> _Floats:
        """Give the part of every bag, (..., M), where the derivatives (..., K) are those of all."""
        mean, total = gradient @ self.weights.T, self.variances.sum(1)  # (..., M), (M,)
        crossed, squared = gradient @ self.variances.T, gradient**2 @ self.variances.T
        return np.asarray(np.maximum(squared - 2 * mean * crossed + mean**2 * total, 0))


def match_bags(name: str, keys: list[Any], table: ClassPriors) -> NDArray[np.int64]:
    """Find where the entry of each bag is among the keys; bags and keys must be the same."""
    ids = id_array(name, keys)
    named = index_ids(name, ids)
    absent = [bag for bag in table.bag_ids if not _has(named, bag)]
    lacking = f"{name} lack {shorten(absent)}." if absent else ""
    known = index_ids("priors", table.bag_ids)
    codes = match_ids(
        name, ids, known, source=f"{name} have", what="keyed by the priors' bags", remedy=lacking
    )
    if absent:
        got = f"none for {shorten(absent)}"
        raise invalid(name, "given for every bag of the priors", got, "write a zero as 0.")
    return np.argsort(codes)


def _read_cells(given: Any, table: ClassPriors) -> _Floats:
    """Numbers of a table by bag and class, in the order of Θ."""
    if is_frame(given):
        if hasattr(given, "index"):
            bags, cells = given.index, given
        else:
            if BAG_COLUMN not in given.columns:
                allowed = f"a DataFrame with an index of bag ids or a column {BAG_COLUMN!r}"
                raise invalid("prior_errors", allowed, shorten(given.columns))
            bags, cells = given[BAG_COLUMN], given.drop(BAG_COLUMN)
        order = match_bags("prior_errors", list(bags), table)
        columns = _match_classes(list(cells.columns), table)
        return as_float_array("prior_errors", cells.to_numpy(), ndim=2)[order][:, columns]
    if isinstance(given, Mapping):
        order = match_bags("prior_errors", list(given), table)
        rows = [_read_row(list(given.values())[i], table) for i in order]
        return as_float_array("prior_errors", rows, ndim=2)
    return as_float_array("prior_errors", detached("prior_errors", given), ndim=2)


def _read_row(row: Any, table: ClassPriors) -> Any:
    """Put the standard errors of one bag in the order of the classes."""
    if not hasattr(row, "keys"):
        return detached("prior_errors", row)
    values = list(row.values()) if isinstance(row, Mapping) else list(row)
    return [values[i] for i in _match_classes(list(row.keys()), table)]


def _match_classes(keys: list[Any], table: ClassPriors) -> NDArray[np.int64]:
    """Find where the entry of each class is among the keys."""
    index_ids("prior_errors", id_array("prior_errors", keys))  # refuses repeated ones
    what, source = "keyed by the priors' classes", "prior_errors have"
    codes = table.encode_classes("prior_errors", keys, what=what, source=source)
    absent = np.delete(table.classes, codes)
    if len(absent):
        raise invalid("prior_errors", "given for every class", f"none for {shorten(absent)}")
    return np.argsort(codes)


def _has(index: dict[Any, int], value: Any) -> bool:
    """Whether an index of ids has this one, by kind and value."""
    return next(iter(index_ids("ids", np.array([value])))) in index

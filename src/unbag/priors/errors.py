"""Errors of class shares: one way to give them, and what they do to an estimate."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from unbag.ids import id_array, index_ids, match_ids
from unbag.validation import (
    as_float_array,
    check_choice,
    check_number,
    detached,
    invalid,
    is_frame,
    shorten,
    warn_replaced,
)

if TYPE_CHECKING:
    from unbag.priors.table import ClassPriors

__all__ = ["SHARES_OF", "GivenErrors", "ShareErrors", "SharesOf", "match_bags", "read_shares_of"]

BAG_COLUMN = "bag"  # where a DataFrame without an index keeps its bag ids
_LARGEST_ERROR = 1e9  # of a share; squares of far larger ones overflow
_STEPS, _LARGEST_PART = 200, 0.99  # of the iteration for v, and of a class in it
SharesOf = Literal["rows", "population"]
SHARES_OF: tuple[SharesOf, ...] = ("rows", "population")
_OLD_NAMES: dict[str, SharesOf] = {"iid": "population", "exact": "rows"}
_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ShareErrors:
    r"""How far the shares of each bag may be off.

    ``ClassPriors(..., errors=...)`` makes it. Give that one of: :meth:`from_rows`,
    :meth:`from_intervals`, :meth:`laplace`, :meth:`gaussian`, or standard errors by bag and class
    (an array, dict or DataFrame).

    The shares of a bag are seen as independent numbers with variances v, from which the excess of
    their sum over 1 is taken in the proportions t. To first order the covariance of the errors is

    .. math:: \Sigma = \operatorname{diag}(v) - v t^\top - t v^\top + \Bigl(\sum_k v_k\Bigr)
              t t^\top .

    With v = θ / n and t = θ it is that of shares counted in n rows.

    Attributes
    ----------
    variances : array of shape (M, K)
        v; zeros for bags whose shares are exact.
    weights : array of shape (M, K)
        t; each row sums to 1, or to 0 where shares are exact.
    guessed : bool array of shape (M,) or None
        Bags of which shares are not known: given is what to expect of them. A counted share is the
        true one plus an error; the true one is a guess plus an error (Berkson, 1950), and a
        regression on guesses is not drawn towards anything.

    Examples
    --------
    >>> from unbag.priors import ClassPriors
    >>> theta = [[0.9, 0.1], [0.5, 0.5]]
    >>> ClassPriors(theta, errors=ShareErrors.from_rows([101, 26])).errors.standard_errors
    array([[0.03, 0.03],
           [0.1 , 0.1 ]])
    >>> ClassPriors(theta, errors=[[0.02, 0.02], [0, 0]]).errors.standard_errors
    array([[0.02, 0.02],
           [0.  , 0.  ]])
    """

    variances: _Floats
    weights: _Floats
    guessed: NDArray[np.bool_] | None = None

    @staticmethod
    def from_rows(rows: Any) -> "GivenErrors":
        """Shares that were counted in random samples of this many rows.

        Parameters
        ----------
        rows : number, array of shape (M,), dict or Series by bag
            At least 2; ``numpy.inf`` for a bag whose shares are exact.
        """
        return GivenErrors("rows", rows)

    @staticmethod
    def from_intervals(low: Any, high: Any, level: float = 0.95) -> "GivenErrors":
        """Shares with an interval each; half its width is a multiple of the standard error.

        Parameters
        ----------
        low, high : array of shape (M, K), dict or DataFrame by bag and class
        level : float, default=0.95
        """
        check_number("level", level, low=0, high=1, low_open=True, high_open=True)
        return GivenErrors("intervals", low, high, level)

    @staticmethod
    def gaussian(scale: Any) -> "GivenErrors":
        """Shares to which normal noise of this standard deviation was added.

        Parameters
        ----------
        scale : number, array of shape (M,) or (M, K), dict or Series by bag
            In shares: noise that was added to counts is divided by the rows of the bag.
        """
        return GivenErrors("noise", scale)

    @staticmethod
    def laplace(scale: Any) -> "GivenErrors":
        """Shares to which Laplace noise of this scale b was added; its variance is 2b².

        Parameters
        ----------
        scale : number, array of shape (M,) or (M, K), dict or Series by bag
            In shares: for counts of a bag of N rows, published with noise of scale 1/ε, it is
            1/(εN).
        """
        return GivenErrors("noise", scale, factor=2.0)

    @classmethod
    def of(cls, standard_errors: ArrayLike) -> "ShareErrors":
        r"""Take standard errors s (M, K) alone.

        The errors are those of independent numbers whose sum is known:

        .. math:: s_k^2 = v_k (1 - t_k), \qquad t_k = \frac{v_k}{\sum_j v_j}

        which is so for shares counted in a sample. Where no v solves this, as one s² exceeds
        all others together, only their sum is kept.
        """
        square = np.asarray(standard_errors, dtype=np.float64) ** 2
        total = square.sum(1, keepdims=True)
        total = np.where(total > 0, total, 1)
        t = square / total
        for _ in range(_STEPS):
            v = square / (1 - np.minimum(t, _LARGEST_PART))
            t = v / np.maximum(v.sum(1, keepdims=True), total)
        t /= np.maximum(t.sum(1, keepdims=True), 1e-300)
        spread = 1 - (t**2).sum(1, keepdims=True)  # (M, 1)
        return cls(t * np.where(square.any(1, keepdims=True), total / spread, 0), t)

    @property
    def is_guess(self) -> NDArray[np.bool_]:
        """Give ``guessed``, or False for every bag, (M,)."""
        return np.zeros(len(self.variances), bool) if self.guessed is None else self.guessed

    @property
    def standard_errors(self) -> _Floats:
        """Standard error of each share, (M, K)."""
        v, t = self.variances, self.weights
        return np.asarray(np.sqrt(v * (1 - 2 * t) + v.sum(1, keepdims=True) * t**2))

    @property
    def covariance(self) -> _Floats:
        """Σ of each bag, (M, K, K)."""
        v, t = self.variances, self.weights
        crossed = v[:, :, None] * t[:, None, :]  # (M, K, K)
        pairs = v.sum(1)[:, None, None] * t[:, :, None] * t[:, None, :]
        return np.asarray(v[:, :, None] * np.eye(v.shape[1]) - crossed - crossed.mT + pairs)

    def equivalent_rows(self, shares: _Floats) -> _Floats:
        """Rows (M,) in which shares (M, K) would have to be counted to be as far off.

        It is infinite for bags whose shares are exact. In bag m, a Dirichlet distribution of
        parameters θ_mk times these rows says what the shares may be.
        """
        noise = (self.standard_errors**2).sum(1)
        spread = (shares * (1 - shares)).sum(1)
        # Shares of 0 and 1 with errors: as if one more row had been counted in each class.
        spread = np.maximum(spread, noise)
        return np.asarray(
            np.divide(spread, noise, out=np.full(len(noise), np.inf), where=noise > 0)
        )

    def subset(self, bags: ArrayLike) -> "ShareErrors":
        """Keep some bags, by mask or by index."""
        keep = np.asarray(bags)
        guessed = None if self.guessed is None else self.guessed[keep]
        return ShareErrors(self.variances[keep], self.weights[keep], guessed)

    def in_class_order(self, order: ArrayLike) -> "ShareErrors":
        """Put the classes in another order, by index."""
        k = np.asarray(order)
        return ShareErrors(self.variances[:, k], self.weights[:, k], self.guessed)

    def added_variance(self, gradient: _Floats) -> _Floats:
        r"""Variance from these errors of an estimate with derivatives g (..., M, K) by Θ.

        .. math:: \sum_m \sum_k v_{mk} (g_{mk} - \bar{g}_m)^2, \qquad
                  \bar{g}_m = \sum_k t_{mk} g_{mk}
        """
        mean = (self.weights * gradient).sum(-1, keepdims=True)
        return np.asarray((self.variances * (gradient - mean) ** 2).sum((-2, -1)))

    def added_by_bag(self, gradient: _Floats) -> _Floats:
        """Give the part of every bag, (..., M), where the derivatives (..., K) are those of all."""
        mean, total = gradient @ self.weights.T, self.variances.sum(1)  # (..., M), (M,)
        crossed, squared = gradient @ self.variances.T, gradient**2 @ self.variances.T
        return np.asarray(np.maximum(squared - 2 * mean * crossed + mean**2 * total, 0))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShareErrors):
            return NotImplemented
        pairs = (
            (self.variances, other.variances),
            (self.weights, other.weights),
            (self.is_guess, other.is_guess),
        )
        return all(np.array_equal(a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # equal by value, of arrays


@dataclass(frozen=True, eq=False)
class GivenErrors:
    """Errors of shares as a user gives them, before they are matched to the bags and classes."""

    kind: str  # "cells", "intervals", "rows", "noise" or "guessed"
    values: Any
    high: Any = None
    level: float = 0.95
    factor: float = 1.0  # variance of the noise over its squared scale
    beside: "GivenErrors | None" = None  # those of shares that were known

    def bind(self, table: "ClassPriors") -> ShareErrors:
        """Match them to Θ, strictly by id."""
        if self.kind == "guessed":  # standard errors of shares that were not known
            bags = np.asarray(self.values.any(1))
            if self.beside is None:
                return replace(ShareErrors.of(self.values), guessed=bags)
            told = self.beside.bind(table)
            both = ShareErrors.of(np.hypot(told.standard_errors, self.values))
            return ShareErrors(
                np.where(bags[:, None], both.variances, told.variances),
                np.where(bags[:, None], both.weights, told.weights),
                bags,
            )
        if self.kind == "rows":
            rows = _by_bag("rows of the errors", self.values, table)
            if not (rows >= 2).all():
                few = shorten(rows[~(rows >= 2)])
                raise invalid("rows of the errors", "at least 2 per bag", few)
            # The divisor n - 1 makes the variances unbiased.
            return ShareErrors(table.values / (rows[:, None] - 1), table.values.copy())
        if self.kind == "noise":
            scale = self.values
            is_cells = np.ndim(scale) == 2 or is_frame(scale)
            scale = read_cells(scale, table) if is_cells else _by_bag("errors", scale, table)
            scale = _check_sizes(
                scale if is_cells else np.repeat(scale[:, None], table.n_classes, 1)
            )
            return ShareErrors(self.factor * scale**2, table.values.copy())
        errors = read_cells(self.values, table)
        if self.kind == "intervals":
            low, errors = errors, read_cells(self.high, table) - errors
            errors = errors / (2 * float(stats.norm.ppf(0.5 + self.level / 2)))
            if not (errors >= 0).all():
                raise invalid("errors", "intervals with low <= high", shorten(low[~(errors >= 0)]))
        return _from_standard_errors(_check_sizes(errors), table)


def _from_standard_errors(errors: _Floats, table: "ClassPriors") -> ShareErrors:
    single = (errors > 0).sum(1) == 1
    if single.any():
        got = f"a single one in bag {shorten(table.bag_ids[single])}"
        remedy = "the shares of a bag sum to 1, so one cannot be off alone."
        raise invalid("errors", "positive for no or several classes of a bag", got, remedy)
    return ShareErrors.of(errors)


def _check_sizes(errors: _Floats) -> _Floats:
    right = (errors >= 0) & (errors <= _LARGEST_ERROR)
    if not right.all():
        allowed = f"finite and non-negative, at most {_LARGEST_ERROR:g}"
        raise invalid("errors", allowed, shorten(errors[~right]))
    return errors


def read_shares_of(shares_of: SharesOf | None, sampling: str | None) -> SharesOf | None:
    """Read what shares are of from the argument, or from the one that it replaced."""
    if sampling is None:
        return shares_of
    check_choice("sampling", sampling, _OLD_NAMES)
    warn_replaced(f"sampling={sampling!r}", f"shares_of={_OLD_NAMES[sampling]!r}")
    return _OLD_NAMES[sampling]


def match_bags(name: str, keys: list[Any], table: "ClassPriors") -> NDArray[np.int64]:
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


def _by_bag(name: str, given: Any, table: "ClassPriors") -> _Floats:
    """(M,) numbers, from one for all, an array in the order of the bags, or by id."""
    if hasattr(given, "keys"):
        order = match_bags(name, list(given.keys()), table)
        numbers = list(given.values()) if isinstance(given, Mapping) else given
        return as_float_array(name, np.asarray(numbers), ndim=1)[order]
    array = np.asarray(detached(name, given))
    values = as_float_array(name, np.atleast_1d(array), ndim=1)
    if array.ndim and len(values) != table.n_bags:
        raise invalid(name, f"{table.n_bags} numbers, one for each bag", len(values))
    return np.broadcast_to(values, (table.n_bags,)).copy()


def read_cells(given: Any, table: "ClassPriors") -> _Floats:
    """Numbers of a table by bag and class, in the order of Θ.

    By bag and class are: a dict of bag id to numbers, or to a dict of class to number; a pandas
    DataFrame (index = bag ids, columns = classes); a polars DataFrame with the bag ids in a column
    "bag".
    """
    if is_frame(given):
        if hasattr(given, "index"):
            bags, cells = given.index, given
        else:
            if BAG_COLUMN not in given.columns:
                allowed = f"a DataFrame with an index of bag ids or a column {BAG_COLUMN!r}"
                raise invalid("errors", allowed, shorten(given.columns))
            bags, cells = given[BAG_COLUMN], given.drop(BAG_COLUMN)
        order = match_bags("errors", list(bags), table)
        columns = _match_classes(list(cells.columns), table)
        return as_float_array("errors", cells.to_numpy(), ndim=2)[order][:, columns]
    if isinstance(given, Mapping):
        order = match_bags("errors", list(given), table)
        rows = [_read_row(list(given.values())[i], table) for i in order]
        cells = as_float_array("errors", rows, ndim=2)
    else:
        cells = as_float_array("errors", detached("errors", given), ndim=2)
    if cells.shape != table.values.shape:
        raise invalid("errors", f"of the priors' shape {table.values.shape}", cells.shape)
    return cells


def _read_row(row: Any, table: "ClassPriors") -> Any:
    """Put the standard errors of one bag in the order of the classes."""
    if not hasattr(row, "keys"):
        return detached("errors", row)
    values = list(row.values()) if isinstance(row, Mapping) else list(row)
    return [values[i] for i in _match_classes(list(row.keys()), table)]


def _match_classes(keys: list[Any], table: "ClassPriors") -> NDArray[np.int64]:
    """Find where the entry of each class is among the keys."""
    index_ids("errors", id_array("errors", keys))  # refuses repeated ones
    what, source = "keyed by the priors' classes", "errors have"
    codes = table.encode_classes("errors", keys, what=what, source=source)
    absent = np.delete(table.classes, codes)
    if len(absent):
        raise invalid("errors", "given for every class", f"none for {shorten(absent)}")
    return np.argsort(codes)


def _has(index: dict[Any, int], value: Any) -> bool:
    """Whether an index of ids has this one, by kind and value."""
    return next(iter(index_ids("ids", np.array([value])))) in index

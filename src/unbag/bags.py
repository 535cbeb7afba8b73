"""Bags: rows, the bag of each row, and the class priors of every bag; drawing them from labels."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.drawing import draw_shares
from unbag.exceptions import MissingBagsWarning
from unbag.identity import identify, select
from unbag.ids import id_array
from unbag.priors import ClassPriors
from unbag.rows import Rows, check_rows
from unbag.summary import Shown, Summary
from unbag.validation import as_generator, check_choice, check_number, invalid, is_table, shorten

__all__ = ["Bags", "make_bags"]

_PART = 1 << 20  # rows that are sorted at a time


class Bags(Shown):
    """Rows with their bags and the class priors of these bags.

    Parameters
    ----------
    X
        n rows: an array or tensor of shape (n, d), images (n, H, W) or (n, C, H, W), or a table of
        pandas, polars or Arrow. The dtype is kept, except that bool becomes float32. Arrays of
        numbers are not copied, so they may be memory-mapped and larger than memory. Tables with
        other values than numbers are encoded like files; a column of the bag ids is left out.
    bag_ids
        (n,) bag id of every row. An id without class shares is an error.
    priors
        Class priors Θ, anything that :meth:`ClassPriors.of` takes. A bag without rows is kept,
        with one warning; see :meth:`present`.
    labels
        (n,) true classes where known, for scoring only.
    feature_names
        Names of the columns; those of a DataFrame by default.
    encoding
        How the columns of a table became X, where they did before.

    Attributes
    ----------
    source, rows
        The array that holds the rows, and which of its rows these are (None for all). Selections
        share their source, so that many Bags over one dataset cost one copy of it.
    bag_index
        (n,) int64, the position of every row's bag in ``priors``.
    whole_counts
        (M,) rows that every bag had before any were selected or split off. So a part knows which
        share of each bag it is.

    Examples
    --------
    >>> Bags([[0.1], [0.5], [0.7]], ["a", "a", "b"], {"a": [0.2, 0.8], "b": [0.6, 0.4]})
    Bags(3 rows of shape (1,), 2 bags, 2 classes, bag sizes 1 to 2, median 1.5)
    """

    source: Rows
    rows: NDArray[np.int64] | None
    bag_index: NDArray[np.int64]
    whole_counts: NDArray[np.int64]
    priors: ClassPriors
    labels: NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    encoding: Any

    def __init__(
        self,
        X: Any,
        bag_ids: Any,
        priors: Any,
        *,
        labels: Any = None,
        feature_names: Sequence[str] | None = None,
        encoding: Any = None,
    ) -> None:
        self.source, self.feature_names, learned = _rows_of(X, bag_ids, feature_names)
        self.encoding = learned or encoding
        self.rows = None
        self.priors = ClassPriors.of(priors)
        self.bag_index = self.priors.encode(bag_ids)
        self.labels = None if labels is None else id_array("labels", labels)
        _check_length("bag_ids", self.bag_index, len(self.source))
        _check_length("labels", self.labels, len(self.source))
        self.whole_counts = self.counts
        empty = self.priors.bag_ids[self.counts == 0]
        if len(empty):
            message = f"{len(empty)} of {self.priors.n_bags} bags with class shares have no rows: "
            warnings.warn(message + shorten(empty), MissingBagsWarning, stacklevel=2)

    @classmethod
    def _view(cls, **fields: Any) -> "Bags":
        """Make Bags of fields that have been checked already."""
        view = cls.__new__(cls)
        vars(view).update(fields)
        return view

    def _with(self, **changed: Any) -> "Bags":
        """Make Bags with other fields, which have been checked already."""
        return self._view(**{name: getattr(self, name) for name in Bags.__annotations__} | changed)

    def _fingerprint_parts(self) -> list[Any]:
        return [self.source, self.rows, self.bag_index, self.priors]

    @cached_property
    def X(self) -> Rows:  # noqa: N802 - the field's own name
        """(n, ...) rows."""
        return self.source if self.rows is None else select(self.source, self.rows)

    @property
    def bag_ids(self) -> NDArray[Any]:
        """(n,) bag id of every row."""
        ids: NDArray[Any] = self.priors.bag_ids[self.bag_index]
        return ids

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(M,) rows of every bag, n_m."""
        return np.bincount(self.bag_index, minlength=self.priors.n_bags)

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return len(self.bag_index)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.source.shape[1:])

    @property
    def pooled_prior(self) -> NDArray[np.float64]:
        """(K,) class shares of all rows together, p = Σ_m (n_m/n) θ_m."""
        return self.priors.pooled(self.counts)

    def take(self, indices: ArrayLike) -> "Bags":
        """Select rows by index or mask, without copying the source."""
        index = np.asarray(indices)
        if index.dtype == bool and index.shape == self.bag_index.shape:
            chosen = np.flatnonzero(index)
        else:
            chosen = np.arange(self.n_rows)[index if index.size else slice(0)]  # [] has no dtype
        if len(chosen) == 0:
            raise invalid("indices", "a choice of at least one row", "none")
        return self._with(
            rows=chosen if self.rows is None else self.rows[chosen],
            bag_index=self.bag_index[chosen],
            labels=None if self.labels is None else self.labels[chosen],
        )

    def present(self) -> "Bags":
        """Leave out the priors of bags that have no rows."""
        here = self.counts > 0
        if here.all():
            return self
        return self._with(
            bag_index=(np.cumsum(here) - 1)[self.bag_index],
            whole_counts=self.whole_counts[here],
            priors=self.priors.subset(here),
        )

    def with_priors(self, priors: Any) -> "Bags":
        """Keep the rows and bags, but take other class priors of the same bags and classes."""
        other = ClassPriors.of(priors)
        for name in ("bag_ids", "classes"):
            known, other_names = getattr(self.priors, name), getattr(other, name)
            if list(known) != list(other_names):
                allowed = f"a table of the {name} {shorten(known)}"
                raise invalid("priors", allowed, shorten(other_names))
        return self._with(priors=other)

    def with_rows(self, X: Rows) -> "Bags":
        """Keep the bags, but take other numbers (n, ...) for the rows, such as scaled ones."""
        if len(X) != self.n_rows:
            raise invalid("X", f"{self.n_rows} rows, as many as before", len(X))
        source, names = check_rows(X, self.feature_names)
        return self._with(source=source, feature_names=names, rows=None, encoding=None)

    def row_identity(self) -> NDArray[np.int64]:
        """Give every row a record number, (n,) int64: the same where the content is the same."""
        return identify(self.source, self.rows)

    def train_test_split(
        self, test_size: float = 0.25, random_state: Any = None
    ) -> tuple["Bags", "Bags"]:
        """Split every bag in the same proportion, with equal rows always on one side.

        Records that occur more than once, in whatever bags, are dealt out first; then each bag is
        filled up to ``round(test_size * n_m)`` test rows from those that occur once. Every bag
        keeps at least one training row. Both parts, train and test, are views of one source.
        """
        check_number("test_size", test_size, low=0, high=1, low_open=True, high_open=True)
        rng = as_generator(random_state)
        identity = self.row_identity()
        is_repeated = np.bincount(identity) > 1  # one flag per record
        records = rng.permutation(np.flatnonzero(is_repeated))
        in_test = np.zeros(len(is_repeated), dtype=bool)
        in_test[records[: round(test_size * len(records))]] = True
        # A bag that lost every row gets its first record back; no other bag loses by that.
        lost = (self._count(~in_test[identity]) == 0) & (self.counts > 0)  # (M,)
        if lost.any():
            present, first = np.unique(self.bag_index, return_index=True)
            in_test[identity[first[lost[present]]]] = False

        target = np.minimum(np.rint(test_size * self.counts), self.counts - 1)  # (M,)
        target -= self._count(in_test[identity])
        single = np.flatnonzero(~is_repeated[identity])
        rng.shuffle(single)
        passed = np.zeros_like(self.counts)  # rows of each bag in the parts before
        for start in range(0, len(single), _PART):
            part = single[start : start + _PART]
            part = part[np.argsort(self.bag_index[part], kind="stable")]  # bag by bag
            bag = self.bag_index[part]
            place = passed[bag] + np.arange(len(bag)) - np.searchsorted(bag, bag)  # 0, 1, ...
            in_test[identity[part[place < target[bag]]]] = True
            passed += np.bincount(bag, minlength=len(passed))
        del single  # of many rows this is much memory
        test = in_test[identity]  # (n,)
        if not test.any():
            remedy = "give larger bags or a larger test_size."
            raise invalid("bags", "large enough to spare a test row", repr(self), remedy)
        return self.take(~test), self.take(test)

    def _count(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(M,) rows of every bag that are in the mask."""
        return np.bincount(self.bag_index[mask], minlength=self.priors.n_bags)

    def __len__(self) -> int:
        return self.n_rows

    def summary(self) -> Summary:
        """Give the number of rows and the shares in percent of each bag."""
        shares = self.priors.summary()
        pairs = zip(shares.rows, self.counts.tolist(), strict=True)
        rows = [(bag, f"{count:,}", *rest) for (bag, *rest), count in pairs]
        title = f"{self.n_rows:,} rows in {self.priors.n_bags} bags; shares in percent"
        return Summary(title, ("bag", "rows", *shares.columns[1:]), rows, shares.sentences)

    def to_frame(self) -> Any:
        """Give a DataFrame of pandas, one row per bag: its rows, and the share of each class."""
        frame = self.priors.to_frame()
        frame.insert(0, "rows", self.counts, allow_duplicates=True)
        return frame

    def plot(self, ax: Any = None) -> Any:
        """Draw the shares of the bags, named with their rows, with matplotlib; return the axes."""
        bags = zip(self.priors.bag_ids.tolist(), self.counts.tolist(), strict=True)
        names = [f"{bag} ({count:,} rows)" for bag, count in bags]
        return draw_shares(self.priors.values, names, self.priors.classes.tolist(), ax)

    def __repr__(self) -> str:
        low, high, median = self.counts.min(), self.counts.max(), np.median(self.counts)
        return (
            f"Bags({self.n_rows} rows of shape {self.row_shape}, {self.priors.n_bags} bags, "
            f"{self.priors.n_classes} classes, bag sizes {low} to {high}, median {median:g})"
        )


def make_bags(
    X: Any,
    y: Any,
    priors: Any,
    *,
    sizes: int | Sequence[int] | None = None,
    disjoint: bool = False,
    sampling: str = "exact",
    random_state: Any = None,
) -> Bags:
    """Draw bags with given class priors from labelled rows, as the paper does.

    Parameters
    ----------
    X, y
        n rows and their classes.
    priors
        Class priors Θ; their classes must be those of ``y`` (0..K-1 for an array).
    sizes
        Rows per bag: one number, or one for each of the M bags; ``n // M`` by default.
    disjoint
        Whether no row may be in two bags. Otherwise bags are drawn independently of one another;
        inside a bag, a row never occurs twice.
    sampling
        "exact" gives bag m the class counts n_m θ_mk, rounded by largest remainder; "iid" draws
        them from the multinomial distribution.
    random_state
        Seed or generator of the draws.

    Returns
    -------
    Bags
        Bag after bag, shuffled within each; ``labels`` holds the classes, for scoring only.

    Examples
    --------
    >>> X, y = np.arange(20.0).reshape(10, 2), np.repeat([0, 1], 5)
    >>> bags = make_bags(X, y, [[0.8, 0.2], [0.2, 0.8]], random_state=0)
    >>> bags.bag_ids, bags.labels.sum()
    (array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]), np.int64(5))
    """
    check_choice("sampling", sampling, ("exact", "iid"))
    rng, table = as_generator(random_state), ClassPriors.of(priors)
    source, names, encoding = _rows_of(X, y, None)
    labels = id_array("y", y)
    _check_length("y", labels, len(source))
    remedy = (
        f"the priors have the classes {shorten(table.classes)}; to name them, give a DataFrame "
        "with one column per class, or ClassPriors(..., classes=...)."
    )
    label_index = table.encode_classes("y", labels, remedy=remedy)
    n_rows = _check_sizes(sizes, len(source), table.n_bags)  # (M,)
    if sampling == "exact":
        wanted = _largest_remainder(n_rows, table.values)  # (M, K)
    else:
        wanted = rng.multinomial(n_rows, table.values)
    available = np.bincount(label_index, minlength=table.n_classes)  # (K,)
    taken = (np.cumsum(wanted, axis=0) - wanted) if disjoint else np.zeros_like(wanted)  # (M, K)
    _check_supply(wanted, available - taken, table)

    # One shuffled pool of rows per class; disjoint bags cut consecutive pieces from it.
    order = rng.permutation(len(source))
    order = order[np.argsort(label_index[order], kind="stable")]
    pools = np.split(order, np.cumsum(available)[:-1])
    draws = [
        pools[k][taken[m, k] :][: wanted[m, k]]
        if disjoint
        else rng.choice(pools[k], wanted[m, k], replace=False)
        for m, k in np.argwhere(wanted)
    ]
    bag_index = np.repeat(np.arange(table.n_bags), n_rows)
    within = np.lexsort((rng.random(len(bag_index)), bag_index))  # hides the order of classes
    rows = np.concatenate(draws)[within]
    return Bags._view(
        source=source,
        rows=rows,
        bag_index=bag_index,
        whole_counts=n_rows,
        priors=table,
        labels=labels[rows],
        feature_names=names,
        encoding=encoding,
    )


def _rows_of(X: Any, ids: Any, feature_names: Sequence[str] | None) -> Any:
    """Rows, names of features and encoding; tables need pyarrow, arrays do not."""
    if not is_table(X):
        return *check_rows(X, feature_names), None
    from unbag.io.frames import rows_of

    return rows_of(X, ids, feature_names)


def _check_length(name: str, values: NDArray[Any] | None, n: int) -> None:
    if values is not None and len(values) != n:
        raise invalid(name, f"of length {n}, one for each row of X", f"length {len(values)}")


def _check_sizes(sizes: Any, n: int, n_bags: int) -> NDArray[np.int64]:
    """(M,) rows to draw for each bag."""
    if sizes is None:
        if n < n_bags:
            raise invalid("X", f"at least {n_bags} rows, one per bag", f"{n}", "give sizes.")
        sizes = n // n_bags
    counts = np.asarray(sizes)
    if counts.shape not in ((), (n_bags,)):
        raise invalid("sizes", f"one number or {n_bags}, one for each bag", f"{counts.shape}")
    if counts.dtype.kind not in "iu" or (counts < 1).any():
        raise invalid("sizes", "whole numbers of at least 1", shorten(counts.ravel()))
    return np.broadcast_to(counts, (n_bags,)).astype(np.int64)


def _largest_remainder(sizes: NDArray[np.int64], theta: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round n_m θ_mk to (M, K) whole counts whose rows sum to n_m, each off by less than 1."""
    exact = sizes[:, None] * theta
    counts = np.floor(exact).astype(np.int64)
    by_remainder = np.argsort(counts - exact, axis=1, kind="stable")
    place = np.argsort(by_remainder, axis=1)  # 0 for the largest remainder of the row
    counts += place < (sizes - counts.sum(axis=1))[:, None]
    return counts


def _check_supply(wanted: NDArray[Any], there: NDArray[Any], table: ClassPriors) -> None:
    """Refuse to draw more rows of a class than there are, naming the worst case."""
    short = wanted - there  # (M, K)
    m, k = np.unravel_index(short.argmax(), short.shape)
    if short[m, k] <= 0:
        return
    bag, name = shorten([table.bag_ids[m]]), shorten([table.classes[k]])
    got = (
        f"bag {bag}, which needs {wanted[m, k]} rows of class {name} where there are "
        f"{max(there[m, k], 0)}: {wanted[m, k] - max(there[m, k], 0)} too few"
    )
    raise invalid("sizes", "within the labelled rows", got, "ask for smaller sizes.")

"""The table of class priors Θ: the share of every class in every bag."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.drawing import draw_shares
from unbag.exceptions import RankError
from unbag.ids import IdIndex, check_length, id_array, index_ids, match_ids, natural_ids
from unbag.priors.errors import SHARES_OF, GivenErrors, ShareErrors, SharesOf
from unbag.priors.frames import read_frame
from unbag.priors.units import refuse_totals, tell_unit
from unbag.summary import Shown, Summary, data_frame
from unbag.validation import as_float_array, check_choice, detached, invalid, is_table, shorten

__all__ = ["RANK_TOLERANCE", "ClassPriors"]

SUM_TOLERANCE = 1e-6  # shares written with seven digits still pass
RANK_TOLERANCE = 1e-10  # relative to the largest singular value
MOST_CLASSES = 1000  # what is known of K classes takes K² numbers, and some of it K³ steps


@final
@dataclass(frozen=True, init=False, eq=False, repr=False, slots=True)
class ClassPriors(Shown):
    """The M×K table Θ: row m holds the class shares θ_m of bag m and sums to 1.

    Immutable. Bags and classes are known by id, and matched by it strictly: 1, "1" and True are
    three different ids.

    Parameters
    ----------
    values
        (M, K) shares; kept as a read-only array, like the ids.
    bag_ids
        M ids (str, int, bool or dates); 0..M-1 by default.
    classes
        K class names; 0..K-1 by default.
    normalize
        Divide every row by its sum, for counts and percentages.
    errors
        How far the shares may be off: the result of a constructor of :class:`ShareErrors`, or
        standard errors, as (M, K) in the order of ``values``, or by bag and class as a dict or
        DataFrame. None if the shares are exact.
    shares_of
        "rows" if the shares count the very rows of the bags, as in a census; "population" if
        they are those of a population of which the rows are a sample; None if nobody said it.
        Intervals take None as "population".

    Examples
    --------
    >>> priors = ClassPriors([[8, 2], [1, 3]], ["north", "south"], normalize=True)
    >>> priors.values
    array([[0.8 , 0.2 ],
           [0.25, 0.75]])
    >>> priors.encode(["south", "south", "north"])
    array([1, 1, 0])
    >>> priors.pooled([30, 10])
    array([0.6625, 0.3375])
    >>> counted = ClassPriors([[0.8, 0.2], [0.25, 0.75]], errors=ShareErrors.from_rows(101))
    >>> counted.errors.standard_errors.round(4)
    array([[0.04  , 0.04  ],
           [0.0433, 0.0433]])
    """

    values: NDArray[np.float64]
    bag_ids: NDArray[Any]
    classes: NDArray[Any]
    errors: ShareErrors | None
    shares_of: SharesOf | None
    _bag_index: IdIndex
    _class_index: IdIndex

    def __init__(
        self,
        values: ArrayLike,
        bag_ids: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        *,
        normalize: bool = False,
        errors: Any = None,
        shares_of: SharesOf | None = None,
    ) -> None:
        if isinstance(values, Mapping) or (bag_ids is None and is_table(values)):
            remedy = "dicts and tables are read by unbag.ClassPriors.of(priors)."
            raise invalid("priors", "an array of shares", f"a {type(values).__name__}", remedy)
        shares = as_float_array("priors", detached("priors", values), ndim=2)  # (M, K)
        if shares.size == 0:
            raise invalid("priors", "a table of at least one bag and one class", shares.shape)
        if (k := shares.shape[1]) > MOST_CLASSES:
            raise invalid("priors", f"shares of at most {MOST_CLASSES:,} classes", f"{k:,}")
        ids, index = _names("bag_ids", bag_ids, shares.shape[0])
        names, class_index = _names("classes", classes, shares.shape[1])
        shares = _check_shares(shares, ids, names, normalize)
        for field, array in (("values", shares), ("bag_ids", ids), ("classes", names)):
            array.flags.writeable = False
            object.__setattr__(self, field, array)  # the way into a frozen dataclass
        object.__setattr__(self, "_bag_index", index)
        object.__setattr__(self, "_class_index", class_index)
        if shares_of is not None:
            check_choice("shares_of", shares_of, SHARES_OF)
        object.__setattr__(self, "shares_of", shares_of)
        object.__setattr__(self, "errors", self._bind(errors))

    def _bind(self, errors: Any) -> ShareErrors | None:
        """Match errors to the bags and classes; none at all where every one is zero."""
        if errors is None:
            return None
        if not isinstance(errors, ShareErrors):
            given = errors if isinstance(errors, GivenErrors) else GivenErrors("cells", errors)
            errors = given.bind(self)
        for array in (errors.variances, errors.weights):
            if array.shape != self.values.shape:
                raise invalid("errors", f"of the priors' shape {self.values.shape}", array.shape)
            if not (np.isfinite(array).all() and (array >= 0).all()):
                raise invalid("errors", "finite and non-negative", "others")
            array.flags.writeable = False
        return errors if errors.variances.any() else None

    def _fingerprint_parts(self) -> list[Any]:
        return [self.values, self.bag_ids, self.classes, self.errors, self.shares_of]

    @classmethod
    def of(cls, priors: Any, *, normalize: bool = False) -> Self:
        """Read class priors from whatever holds them.

        That is ClassPriors (returned as they are); an (M, K) array, for bag ids 0..M-1; a dict of
        bag id to shares, or of bag id to a dict of class to share; a table of pandas (index = bag
        ids, columns = classes); or any table with a column of bag ids, of polars, Arrow or pandas,
        in the wide or the long form that :func:`unbag.io.read_priors` describes.

        The numbers may be shares, percent or counts, and rounded, as in a file. With ``normalize``
        every row is divided by its sum, whatever that is.

        Examples
        --------
        >>> ClassPriors.of({"a": {"yes": 30, "no": 70}, "b": {"yes": 60, "no": 40}}).values
        array([[0.3, 0.7],
               [0.6, 0.4]])
        """
        if isinstance(priors, cls):
            return priors
        if isinstance(priors, Mapping):
            values, classes = _read_mapping(priors)
            return cls._of_values(values, list(priors), classes, normalize)
        if getattr(getattr(priors, "index", None), "nlevels", 1) == 2:  # such as sizes of groups
            priors = priors.reset_index().set_axis(["bag", "class", "value"], axis=1)
        if not is_table(priors):
            return cls._of_values(priors, None, None, normalize)
        table = read_frame(priors, any_sums=normalize)
        return cls(**table.arguments())

    @classmethod
    def _of_values(
        cls, values: Any, bag_ids: Any, classes: list[Any] | None, normalize: bool
    ) -> Self:
        """Read numbers whose bags and classes are known, and tell what they are."""
        numbers = as_float_array("priors", detached("priors", values), ndim=2)  # (M, K)
        priors = cls(numbers, bag_ids, classes, normalize=True)
        if not normalize and np.abs(numbers.sum(axis=1) - 1).max() > SUM_TOLERANCE:
            ids = priors.bag_ids.tolist()
            refuse_totals(numbers, ids, priors.classes.tolist())
            tell_unit(numbers, ids, percent_signs=False)
        return priors

    @property
    def n_bags(self) -> int:
        """M."""
        return len(self.bag_ids)

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes)

    @property
    def rank(self) -> int:
        """Number of independent columns; K where every class can be told from the others."""
        sigma = np.linalg.svd(self.values, compute_uv=False)
        return int((sigma > RANK_TOLERANCE * sigma[0]).sum())

    @property
    def condition_number(self) -> float:
        """σ_max / σ_min of Θ: how much inverting it magnifies noise; inf without full rank."""
        sigma = np.linalg.svd(self.values, compute_uv=False)
        return float(sigma[0] / sigma[-1]) if self.rank == self.n_classes else np.inf

    def check_rank(self) -> None:
        """Raise a RankError that names the classes which Θ cannot tell apart, if there are any."""
        if self.rank == self.n_classes:
            return
        groups = self.inseparable_classes()
        faults = [f"classes {shorten(g)} cannot be told apart" for g in groups if len(g) > 1]
        faults += [f"class {shorten(g)} is in no bag" for g in groups if len(g) == 1]
        remedy = "add a bag in which their shares differ."
        if self.n_bags < self.n_classes:
            remedy = f"at least {self.n_classes} bags are needed, and there are {self.n_bags}."
        got = f"rank {self.rank}: {', '.join(faults)}"
        wanted = f"shares that tell all {self.n_classes} classes apart (rank {self.n_classes})"
        raise RankError(str(invalid("priors", wanted, got, remedy)))

    def inseparable_classes(self) -> list[tuple[Any, ...]]:
        """Group the classes that Θ cannot tell apart; empty where it has full column rank.

        Mass can move between two classes unseen where the projector P = N Nᵀ on the null space
        N of Θ has an entry for the pair; the groups are the connected parts of that graph. A
        group of one is a class that no bag contains.

        Examples
        --------
        >>> table = [[0.5, 0.25, 0.25], [0.1, 0.45, 0.45], [0.2, 0.4, 0.4]]
        >>> ClassPriors(table, classes=["a", "b", "c"]).inseparable_classes()
        [('b', 'c')]
        """
        # All of V is needed where M < K; otherwise the thin form spares an M×M matrix.
        wide = self.n_bags < self.n_classes
        right = np.linalg.svd(self.values, full_matrices=wide)[2]  # (K, K)
        null = right[self.rank :].T  # (K, K - rank)
        linked = np.abs(null @ null.T) > 1e-8  # (K, K)
        while (grown := linked.astype(float) @ linked > 0).sum() > linked.sum():
            linked = grown
        groups = {tuple(np.flatnonzero(row)): None for row in linked if row.any()}
        return [tuple(self.classes[list(group)].tolist()) for group in groups]

    def encode(self, bag_ids: Any) -> NDArray[np.int64]:
        """Find the bag_index (0..M-1) of every row from its bag id, strictly."""
        return match_ids("bag_ids", bag_ids, self._bag_index)

    def encode_classes(
        self,
        name: str,
        labels: Any,
        *,
        what: str = "classes of the priors",
        source: str = "",
        remedy: str = "",
    ) -> NDArray[np.int64]:
        """Find the position (0..K-1) of every label, strictly; see ``unbag.ids.match_ids``."""
        source = source or f"{name} has"
        return match_ids(name, labels, self._class_index, source=source, remedy=remedy, what=what)

    def with_rows(
        self, bag_index: NDArray[np.int64]
    ) -> tuple["ClassPriors", NDArray[np.int64], NDArray[np.bool_]]:
        """Keep the bags that rows are in; with the index of every row among these, and a mask.

        Examples
        --------
        >>> priors = ClassPriors(np.eye(3), ["a", "b", "c"])
        >>> rest, index, present = priors.with_rows(np.array([2, 0, 2]))
        >>> rest.bag_ids, index, present
        (array(['a', 'c'], dtype='<U1'), array([1, 0, 1]), array([ True, False,  True]))
        """
        present = np.bincount(bag_index, minlength=self.n_bags) > 0
        return self.subset(present), (np.cumsum(present) - 1)[bag_index], present

    def subset(self, bags: ArrayLike) -> "ClassPriors":
        """Keep some bags, by mask or by index."""
        keep = np.asarray(bags)
        errors = None if self.errors is None else self.errors.subset(keep)
        values, ids = self.values[keep], self.bag_ids[keep]
        return ClassPriors(values, ids, self.classes, errors=errors, shares_of=self.shares_of)

    def in_class_order(self, order: ArrayLike) -> "ClassPriors":
        """Put the classes in another order, by index."""
        k = np.asarray(order)
        errors = None if self.errors is None else self.errors.in_class_order(k)
        values, names = self.values[:, k], self.classes[k]
        return ClassPriors(values, self.bag_ids, names, errors=errors, shares_of=self.shares_of)

    def with_errors(self, errors: Any = None, shares_of: SharesOf | None = None) -> "ClassPriors":
        """Say how far the shares may be off, and of what they are; None leaves what is known."""
        return ClassPriors(
            self.values,
            self.bag_ids,
            self.classes,
            errors=self.errors if errors is None else errors,
            shares_of=self.shares_of if shares_of is None else shares_of,
        )

    def equals(self, other: "ClassPriors") -> bool:
        """Whether bags, classes, shares, their errors and what they are of are all the same."""
        arrays = ("values", "bag_ids", "classes")
        pairs = [(getattr(self, name), getattr(other, name)) for name in arrays]
        same = all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
        return same and self.errors == other.errors and self.shares_of == other.shares_of

    def pooled(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Mix the bags: p = Σ_m (n_m/n) θ_m, for (M,) counts or sums of row weights n_m."""
        sizes = as_float_array("counts", detached("counts", counts), ndim=1)
        if len(sizes) != self.n_bags:
            raise invalid("counts", f"{self.n_bags} numbers, one for each bag", len(sizes))
        if not (np.isfinite(sizes).all() and (sizes >= 0).all() and sizes.sum() > 0):
            raise invalid("counts", "non-negative and not all zero", shorten(sizes))
        pooled: NDArray[np.float64] = sizes @ self.values / sizes.sum()  # (K,)
        return pooled

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Copies and pickles go through the constructor, which makes their arrays read-only too.
        return _again, (self.values, self.bag_ids, self.classes, self.errors, self.shares_of)

    def summary(self) -> Summary:
        """Give the shares in percent, and how well they tell the classes apart."""
        title = f"Shares of {self.n_classes} classes in {self.n_bags} bags, in percent"
        shares = [
            (bag, *(f"{100 * share:.1f}" for share in row))
            for bag, row in zip(self.bag_ids.tolist(), self.values, strict=True)
        ]
        apart = (
            f"They tell all classes apart (condition number {self.condition_number:.2g})."
            if self.rank == self.n_classes
            else f"They cannot tell all classes apart: their rank is {self.rank}."
        )
        return Summary(title, ("bag", *map(str, self.classes.tolist())), shares, [apart])

    def to_frame(self) -> Any:
        """Give a DataFrame of pandas: one row per bag, one column per class."""
        shares = dict(zip(self.classes.tolist(), self.values.T, strict=True))
        return data_frame(shares, self.bag_ids, "bag")

    def plot(self, ax: Any = None) -> Any:
        """Draw the shares with matplotlib, one bar per bag; return the axes."""
        return draw_shares(self.values, self.bag_ids.tolist(), self.classes.tolist(), ax)

    def __repr__(self) -> str:
        return f"ClassPriors({self.n_bags} bags, {self.n_classes} classes)"


def _again(
    values: Any, bag_ids: Any, classes: Any, errors: Any, shares_of: SharesOf | None
) -> ClassPriors:
    return ClassPriors(values, bag_ids, classes, errors=errors, shares_of=shares_of)


def _names(name: str, given: Any, count: int) -> tuple[NDArray[Any], IdIndex]:
    """Check the names of an axis of Θ; return them and the position of each."""
    ids = np.arange(count) if given is None else id_array(name, given)
    if len(ids) != count:
        raise invalid(name, f"{count} ids, as the priors' shape tells", len(ids))
    check_length(name, ids)
    ids = natural_ids(ids).copy()
    return ids, index_ids(name, ids)


def _check_shares(
    shares: NDArray[np.float64], bag_ids: NDArray[Any], classes: NDArray[Any], normalize: bool
) -> NDArray[np.float64]:
    """Refuse what cannot be shares (or counts, with ``normalize``); return rows that sum to 1."""
    for bad, allowed in ((~np.isfinite(shares), "finite"), (shares < 0, "non-negative")):
        if bad.any():
            m, k = np.argwhere(bad)[0]
            where = f"for bag {shorten([bag_ids[m]])} and class {shorten([classes[k]])}"
            raise invalid("priors", allowed, f"{shares[m, k]:g} {where}")
    sums = shares.sum(axis=1)  # (M,)
    if normalize:
        if not sums.all():
            got = f"only zeros for bag {shorten(bag_ids[sums == 0])}"
            raise invalid("priors", "rows with a positive sum", got)
    elif (off := np.abs(sums - 1)).max() > SUM_TOLERANCE:
        m = int(off.argmax())
        remedy = "percent and counts are read by unbag.ClassPriors.of(priors)."
        got = f"the sum {sums[m]:.8g} for bag {shorten([bag_ids[m]])}"
        raise invalid("priors", "shares that sum to 1 in every bag", got, remedy)
    # Rows that are right but for the last bit stay as they are, so that a copy is an equal one.
    sums[np.abs(sums - 1) < 1e-12] = 1
    rows: NDArray[np.float64] = shares / sums[:, None]
    return rows


def _read_mapping(priors: Mapping[Any, Any]) -> tuple[list[Any], list[Any] | None]:
    """Rows of Θ, and the classes where the bags name them."""
    if not all(hasattr(row, "keys") for row in priors.values()):
        try:
            rows = [np.asarray(detached("priors", row)) for row in priors.values()]
        except ValueError as error:  # lists of different lengths in one another
            allowed = "a list of shares for every bag, one per class"
            raise invalid("priors", allowed, f"an error ({error})") from None
        for bag, row in zip(priors, rows, strict=True):
            if row.ndim != 1:
                got = f"{row.tolist()!r} for bag {shorten([bag])}"
                raise invalid("priors", "a list of shares for every bag, one per class", got)
            if len(row) != len(rows[0]):
                got = f"{len(row)} for bag {shorten([bag])}"
                raise invalid("priors", f"{len(rows[0])} shares for every bag", got)
        return rows, None
    classes = list(dict.fromkeys(name for row in priors.values() for name in row.keys()))  # noqa: SIM118
    for bag, row in priors.items():
        absent = [name for name in classes if name not in row]
        if absent:
            got = f"none for bag {shorten([bag])} and class {shorten(absent)}"
            raise invalid("priors", "a share for every class", got, "write a share of 0 as 0.")
    return [[row[name] for name in classes] for row in priors.values()], classes

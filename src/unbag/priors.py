"""Class priors Θ: the share of every class in every bag, and the risk weights that follow.

The generators make the settings of the paper; :func:`risk_weights` turns Θ and a test prior
into the weights W under which partial risks add up to the ordinary classification risk.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.exceptions import ConditioningWarning, RankError
from unbag.ids import IdIndex, id_array, index_ids, match_ids, natural_ids
from unbag.validation import (
    as_float_array,
    as_generator,
    check_number,
    detached,
    invalid,
    is_frame,
    shorten,
)

__all__ = [
    "ClassPriors",
    "asymmetric",
    "check_test_prior",
    "non_square",
    "perturb",
    "risk_weights",
    "symmetric",
]

SUM_TOLERANCE = 1e-6  # shares written with seven digits still pass
RANK_TOLERANCE = 1e-10  # relative to the largest singular value
ILL_CONDITIONED = 100.0
BAG_COLUMN = "bag"  # where a DataFrame without an index keeps its bag ids


@final
@dataclass(frozen=True, init=False, eq=False, repr=False, slots=True)
class ClassPriors:
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
    """

    values: NDArray[np.float64]
    bag_ids: NDArray[Any]
    classes: NDArray[Any]
    _bag_index: IdIndex

    def __init__(
        self,
        values: ArrayLike,
        bag_ids: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        *,
        normalize: bool = False,
    ) -> None:
        shares = as_float_array("priors", detached(values), ndim=2)  # (M, K)
        if shares.size == 0:
            raise invalid("priors", "a table of at least one bag and one class", shares.shape)
        ids, index = _names("bag_ids", bag_ids, shares.shape[0])
        names, _ = _names("classes", classes, shares.shape[1])
        shares = _check_shares(shares, ids, names, normalize)
        for field, array in (("values", shares), ("bag_ids", ids), ("classes", names)):
            array.flags.writeable = False
            object.__setattr__(self, field, array)  # the way into a frozen dataclass
        object.__setattr__(self, "_bag_index", index)

    def _fingerprint_parts(self) -> list[NDArray[Any]]:
        return [self.values, self.bag_ids, self.classes]

    @classmethod
    def of(cls, priors: Any, *, normalize: bool = False) -> Self:
        """Read class priors from whatever holds them.

        That is ClassPriors (returned as they are); an (M, K) array, for bag ids 0..M-1; a dict of
        bag id to shares, or of bag id to a dict of class to share; a pandas DataFrame (index = bag
        ids, columns = classes); or a polars DataFrame with the bag ids in a column "bag".

        Examples
        --------
        >>> ClassPriors.of({"a": {"yes": 0.3, "no": 0.7}, "b": {"yes": 0.6, "no": 0.4}})
        ClassPriors(2 bags, 2 classes)
        """
        if isinstance(priors, cls):
            return priors
        if isinstance(priors, Mapping):
            table, classes = _read_mapping(priors)
            return cls(table, list(priors), classes, normalize=normalize)
        if not is_frame(priors):
            return cls(priors, normalize=normalize)
        has_column = BAG_COLUMN in list(priors.columns)
        if hasattr(priors, "index"):
            if has_column:
                remedy = f"use priors.set_index({BAG_COLUMN!r})."
                raise invalid("priors", "indexed by bag id", f"a column {BAG_COLUMN!r}", remedy)
            return cls(priors.to_numpy(), priors.index, priors.columns, normalize=normalize)
        if not has_column:
            allowed = f"a DataFrame with an index of bag ids or a column {BAG_COLUMN!r}"
            raise invalid("priors", allowed, f"only the columns {shorten(priors.columns)}")
        shares = priors.drop(BAG_COLUMN)
        return cls(shares.to_numpy(), priors[BAG_COLUMN], shares.columns, normalize=normalize)

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

    def subset(self, bags: ArrayLike) -> "ClassPriors":
        """Keep some bags, by mask or by index."""
        keep = np.asarray(bags)
        return ClassPriors(self.values[keep], self.bag_ids[keep], self.classes)

    def pooled(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Mix the bags: p = Σ_m (n_m/n) θ_m, for (M,) counts or sums of row weights n_m."""
        sizes = as_float_array("counts", detached(counts), ndim=1)
        if len(sizes) != self.n_bags:
            raise invalid("counts", f"{self.n_bags} numbers, one for each bag", len(sizes))
        if not (np.isfinite(sizes).all() and (sizes >= 0).all() and sizes.sum() > 0):
            raise invalid("counts", "non-negative and not all zero", shorten(sizes))
        pooled: NDArray[np.float64] = sizes @ self.values / sizes.sum()  # (K,)
        return pooled

    def __reduce__(self) -> tuple[type["ClassPriors"], tuple[NDArray[Any], ...]]:
        # Copies and pickles go through the constructor, which makes their arrays read-only too.
        return ClassPriors, (self.values, self.bag_ids, self.classes)

    def __repr__(self) -> str:
        return f"ClassPriors({self.n_bags} bags, {self.n_classes} classes)"


def _names(name: str, given: Any, count: int) -> tuple[NDArray[Any], IdIndex]:
    """Check the names of an axis of Θ; return them and the position of each."""
    ids = np.arange(count) if given is None else natural_ids(id_array(name, given)).copy()
    if len(ids) != count:
        raise invalid(name, f"{count} ids, as the priors' shape tells", len(ids))
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
        remedy = "if these are counts, use unbag.ClassPriors.of(priors, normalize=True)."
        if np.abs(sums - 100).max() < 1:
            remedy = (
                "these look like percentages: divide them by 100, or use "
                "unbag.ClassPriors.of(priors, normalize=True)."
            )
        got = f"the sum {sums[m]:.8g} for bag {shorten([bag_ids[m]])}"
        raise invalid("priors", "shares that sum to 1 in every bag", got, remedy)
    # Rows that are right but for the last bit stay as they are, so that a copy is an equal one.
    sums[np.abs(sums - 1) < 1e-12] = 1
    rows: NDArray[np.float64] = shares / sums[:, None]
    return rows


def _read_mapping(priors: Mapping[Any, Any]) -> tuple[list[Any], list[Any] | None]:
    """Rows of Θ, and the classes where the bags name them."""
    if not all(hasattr(row, "keys") for row in priors.values()):
        rows = [np.asarray(detached(row)) for row in priors.values()]
        for bag, row in zip(priors, rows, strict=True):
            if row.ndim != 1:
                got = f"{row.tolist()!r} for bag {shorten([bag])}"
                raise invalid("priors", "a list of shares for every bag, one a class", got)
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


def symmetric(n_classes: int, a: float) -> NDArray[np.float64]:
    """Make K bags, each rich in its own class: Θ = a I + (1-a)/K.

    Examples
    --------
    >>> symmetric(2, a=0.5)
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    check_number("n_classes", n_classes, low=2, integer=True)
    check_number("a", a, low=0, high=1, low_open=True)
    theta: NDArray[np.float64] = a * np.eye(n_classes) + (1 - a) / n_classes
    return theta


def asymmetric(n_classes: int, random_state: Any = None) -> NDArray[np.float64]:
    """Make K bags whose off-diagonal shares are U[0, 1/K]; the diagonal takes the rest.

    Examples
    --------
    >>> asymmetric(3, random_state=0).round(2)
    array([[0.9 , 0.09, 0.01],
           [0.01, 0.69, 0.3 ],
           [0.2 , 0.24, 0.55]])
    """
    check_number("n_classes", n_classes, low=2, integer=True)
    theta = as_generator(random_state).uniform(0, 1 / n_classes, (n_classes, n_classes))
    np.fill_diagonal(theta, 0)
    np.fill_diagonal(theta, 1 - theta.sum(axis=1))
    return theta


def non_square(n_classes: int, random_state: Any = None) -> NDArray[np.float64]:
    """Stack two :func:`asymmetric` tables: M = 2K bags."""
    rng = as_generator(random_state)
    return np.vstack([asymmetric(n_classes, rng), asymmetric(n_classes, rng)])


@overload
def perturb(
    theta: ClassPriors | Mapping[Any, Any], rate: float, random_state: Any = None
) -> ClassPriors: ...
@overload
def perturb(theta: ArrayLike, rate: float, random_state: Any = None) -> NDArray[np.float64]: ...
def perturb(theta: Any, rate: float, random_state: Any = None) -> Any:
    """Make priors inaccurate: every share times 1 + rate or 1 - rate, each sign at random.

    The largest share of a row takes up the difference, so that the row still sums to 1. An (M, K)
    array gives an array; what has bag ids (see :meth:`ClassPriors.of`) gives ClassPriors with
    the same ids.

    Examples
    --------
    >>> perturb([[0.5, 0.3, 0.2]], rate=0.1, random_state=0).round(3)
    array([[0.45, 0.33, 0.22]])
    """
    check_number("rate", rate, low=0, high=1, high_open=True)
    table = ClassPriors.of(theta)
    signs = as_generator(random_state).choice([-1.0, 1.0], table.values.shape)
    noisy = table.values * (1 + rate * signs)
    rows, largest = np.arange(table.n_bags), table.values.argmax(axis=1)
    noisy[rows, largest] += 1 - noisy.sum(axis=1)
    if (noisy < 0).any():
        m = np.argwhere(noisy < 0)[0, 0]
        got = f"{rate}, which makes a share of bag {shorten([table.bag_ids[m]])} negative"
        raise invalid("rate", "small enough for the row's largest share", got, "lower it.")
    if isinstance(theta, ClassPriors | Mapping) or is_frame(theta):
        return ClassPriors(noisy, table.bag_ids, table.classes)
    return noisy


def check_test_prior(
    test_prior: Any, classes: NDArray[Any], name: str = "test_prior"
) -> NDArray[np.float64]:
    """Check a test prior π: K shares in the order of the classes, or keyed by class.

    A dict or a pandas Series is matched by name, strictly, and put in the order of ``classes``.
    ``name`` is what messages call it.

    Examples
    --------
    >>> check_test_prior({"no": 0.9, "yes": 0.1}, np.array(["yes", "no"]))
    array([0.1, 0.9])
    """
    if hasattr(test_prior, "keys"):
        names = list(test_prior.keys())
        known = index_ids("classes", classes)
        order = match_ids(name, names, known, source=f"{name} has", what="keyed by class")
        absent = np.delete(classes, order)
        if len(absent):
            raise invalid(name, "a share for every class", f"none for {shorten(absent)}")
        test_prior = [test_prior[names[i]] for i in np.argsort(order)]
    shares = as_float_array(name, detached(test_prior), ndim=1)
    if len(shares) != len(classes):
        raise invalid(name, f"{len(classes)} shares, one for each class", len(shares))
    if not (np.isfinite(shares).all() and (shares >= 0).all()):
        raise invalid(name, "finite and non-negative", shorten(shares))
    total = float(shares.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise invalid(name, "shares that sum to 1", f"the sum {total:.8g}")
    return shares / total


def risk_weights(theta: Any, test_prior: Any, *, warn: bool = True) -> NDArray[np.float64]:
    """Weigh the partial risks so that they add up to the classification risk.

    W = (Π Θ†)ᵀ with Π = diag(π), so that WᵀΘ = Π and the risk under the test prior π is
    Σ_mk W_mk R_mk, where R_mk is the mean loss of bag m if all its rows were class k.

    Parameters
    ----------
    theta
        Class priors Θ, anything that :meth:`ClassPriors.of` takes.
    test_prior
        Class shares π where the classifier will be used: K numbers, or a dict keyed by class.
    warn
        Warn where Θ is so ill-conditioned that the weights magnify noise.

    Returns
    -------
    (M, K) weights W.

    Raises
    ------
    RankError
        If Θ cannot tell some classes apart.

    Examples
    --------
    >>> risk_weights(symmetric(2, a=0.5), [0.5, 0.5])
    array([[ 0.75, -0.25],
           [-0.25,  0.75]])
    """
    table = ClassPriors.of(theta)
    pi = check_test_prior(test_prior, table.classes)  # (K,)
    if table.rank < table.n_classes:
        raise _rank_error(table)
    weights: NDArray[np.float64] = np.linalg.pinv(table.values).T * pi  # (M, K)
    condition = table.condition_number
    if warn and condition > ILL_CONDITIONED:
        message = (
            f"the class priors barely tell some classes apart: condition number {condition:.3g}, "
            f"sum of absolute risk weights {np.abs(weights).sum():.3g}; expect noisy estimates."
        )
        warnings.warn(message, ConditioningWarning, stacklevel=2)
    return weights


def _rank_error(table: ClassPriors) -> RankError:
    groups = table.inseparable_classes()
    faults = [f"classes {shorten(g)} cannot be told apart" for g in groups if len(g) > 1]
    faults += [f"class {shorten(g)} is in no bag" for g in groups if len(g) == 1]
    remedy = "add a bag in which their shares differ."
    if table.n_bags < table.n_classes:
        remedy = f"at least {table.n_classes} bags are needed, there are {table.n_bags}."
    got = f"rank {table.rank}: {', '.join(faults)}"
    return RankError(str(invalid("priors", f"of rank {table.n_classes}", got, remedy)))

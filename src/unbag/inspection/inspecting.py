"""``inspect``: facts from shares, bag sizes and rows, then the verdict."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.inverses import LeftInverse
from unbag.evaluation.row_sample import no_spare_bag
from unbag.evaluation.variances import BagSample
from unbag.inspection import rules
from unbag.inspection.alike import (
    AlikeTest,
    RowSample,
    column_names,
)
from unbag.inspection.findings import Findings, Inspection
from unbag.inspection.geometry import (
    hidden_directions,
    same_bags,
    strongest_bag,
    weakest_direction,
)
from unbag.inspection.precision import even_confusion, relative_sensitivity
from unbag.inspection.reading import read_bag_index, read_sizes
from unbag.io.frames import rows_of
from unbag.priors import (
    SHARES_OF,
    ClassPriors,
    SharesOf,
    check_test_prior,
    priors_as_told,
    risk_weights,
)
from unbag.rows import Rows
from unbag.validation import check_number, invalid, shorten

__all__ = ["inspect"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def inspect(
    priors: Any,
    sizes: Any = None,
    *,
    X: Any = None,
    bag_ids: Any = None,
    test_prior: Any = None,
    shares_of: SharesOf | None = None,
    level: float = 0.95,
    columns: Any = None,
    random_state: Any = 0,
    sampling: str | None = None,
    prior_errors: Any = None,
) -> Inspection:
    """Check whether bags and their shares can work at all, before anything is trained.

    It answers these questions. Can every class be told from the others, and if not, which bag
    would help? How precisely could a model be evaluated without labels? How much do errors in the
    shares matter? With rows: do the rows of a class look alike in all bags, as everything here
    assumes?

    Parameters
    ----------
    priors
        Class priors Θ, anything that :meth:`ClassPriors.of` takes.
    sizes
        Rows of every bag: a number for all, M numbers in the order of the priors, or a dict or
        Series by bag id. Count the rows to be held out to foresee their evaluation.
    X
        (n, d) numeric rows or images; needs ``bag_ids``.
    bag_ids
        (n,) bag of every row of X, in place of ``sizes``; or together with them, where X is a
        sample of the rows: it then serves the test of the assumption alone.
    test_prior
        Class shares π where the classifier will be used; the pooled prior by default.
    shares_of
        "rows" where the shares are those of these very rows, as in a census or from
        :func:`unbag.make_bags`; "population" where rows were drawn from a population with these
        shares. By default as the priors say, else "population".
    level
        Of the intervals.
    columns
        (d,) the column of a table that each feature of X comes from, where several are one, as
        those of a categorical column; by default every feature is a column.
    random_state
        Seed of what is drawn of many rows and columns for the test.
    sampling, prior_errors
        Replaced by ``shares_of`` and by the ``errors`` of :class:`ClassPriors`.

    Returns
    -------
    Inspection
        Print it to read it; ``verdict`` is "go", "care" or "stop".

    Examples
    --------
    >>> theta = {"a": [0.7, 0.2, 0.1], "b": [0.2, 0.6, 0.2], "c": [0.1, 0.2, 0.7]}
    >>> print(inspect({**theta, "d": [0.4, 0.4, 0.2]}, sizes=3000))
    4 bags, 3 classes, 12,000 rows
      classes the shares tell apart  3 of 3
      condition number (1 is best)   2.9
      noise of training (labels: 1)  2.8
      accuracy can be known to       ± 2.1 points (95%), ± 1.2 points if the shares count these rows
      rows needed for ± 1 point      54,696, 13,674 per bag
      error if shares are 1% off     ± 0.67 points
      note: It was not tested whether rows of a class look alike in all bags: no rows were given.
    verdict: go (nothing speaks against learning from these bags)
    >>> poor = inspect({"a": [0.6, 0.2, 0.2], "b": [0.2, 0.4, 0.4], "c": [0.4, 0.3, 0.3]})
    >>> poor.verdict, poor.rank
    ('stop', 2)
    >>> poor.reasons[0].split(". ")[0]
    'Classes 1, 2 cannot be told apart: in every bag the share of 1 equals that of 2'
    """
    table = priors_as_told(priors, shares_of, sampling, prior_errors)
    if table.n_classes < 2:
        raise invalid("priors", "of at least two classes", table.n_classes)
    check_number("level", level, low=0, high=1, low_open=True, high_open=True)
    rows, names, index, counts = _read_rows(sizes, X, bag_ids, table, columns)

    present = np.ones(table.n_bags, dtype=bool) if counts is None else counts > 0
    rest = table.subset(present)
    n = np.ones(rest.n_bags) if counts is None else counts[present].astype(np.float64)
    if index is not None:
        index = (np.cumsum(present) - 1)[index]
    pi = (
        rest.pooled(n) if test_prior is None else check_test_prior(test_prior, table.classes)
    )  # (K,)
    alike, untested, one_valued = _look_at_rows(rows, names, index, rest, random_state)
    findings = Findings(
        n_bags=rest.n_bags,
        n_classes=rest.n_classes,
        classes=rest.classes.tolist(),
        n_rows=None if counts is None else int(counts.sum()),
        shares_of=table.shares_of,
        level=float(level),
        test_prior=pi.tolist(),
        empty_bags=table.bag_ids[~present].tolist(),
        alike=alike,
        alike_untested=untested,
        bag_features=one_valued,
        **_geometry(rest, n),
        **_precision(rest, n, pi, level, known_sizes=counts is not None),
        **_sizes(rest, n, known=counts is not None),
    )
    verdict, reasons, notes = rules.judge(findings)
    return Inspection(**vars(findings), verdict=verdict, reasons=reasons, notes=notes)


def _read_rows(
    sizes: Any, X: Any, bag_ids: Any, table: ClassPriors, columns: Any
) -> tuple[Rows | None, Sequence[Any] | None, Ints | None, Ints | None]:
    """Rows, names of their columns, their bags, and bag sizes; each None where not given."""
    if sizes is not None and bag_ids is not None and X is None:
        remedy = "give one of the two, or the rows as X."
        raise invalid("sizes", "left out where bag_ids are given without X", "both", remedy)
    if X is not None and bag_ids is None:
        remedy = "give bag_ids, one for each row of X."
        raise invalid("X", "given together with bag_ids", "no bag_ids", remedy)
    if bag_ids is None:
        return None, None, None, None if sizes is None else read_sizes(sizes, table)
    index = read_bag_index(bag_ids, table)
    counts = np.bincount(index, minlength=table.n_bags)
    if X is None:
        return None, None, index, counts
    rows, features, encoding = rows_of(X, bag_ids)
    names = column_names(rows, features, encoding, columns)
    if len(index) != len(rows):
        raise invalid("bag_ids", f"of length {len(rows)}, one for each row of X", len(index))
    if sizes is not None:
        whole = read_sizes(sizes, table)
        if (counts > whole).any():
            got = f"fewer for {shorten(table.bag_ids[counts > whole])}"
            raise invalid("sizes", "at least as many rows of a bag as X has of it", got)
        counts = whole
    return rows, names, index, counts


def _geometry(table: ClassPriors, n: Floats) -> dict[str, Any]:
    """Rank, hidden directions, and classes and bags that do not differ."""
    theta, rank, pooled = table.values, table.rank, table.pooled(n)
    directions, bags = hidden_directions(theta, rank, pooled)
    if rank == table.n_classes:
        bags = strongest_bag(theta, pooled)[None]
    spread = np.ptp(theta, axis=0)  # (K,)
    empty = theta.max(axis=0) == 0
    constant = (spread <= rules.EQUAL_BAGS) & ~empty
    flat = (spread < rules.FLAT_RANGE) & ~empty & ~constant
    equal = same_bags(table, rules.EQUAL_BAGS)
    near = same_bags(table, rules.NEAR_BAGS)
    return {
        "rank": rank,
        "condition_number": table.condition_number,
        "hidden_directions": directions.tolist(),
        "weakest_direction": weakest_direction(theta).tolist(),
        "suggested_bags": bags.tolist(),
        "missing_classes": table.classes[empty].tolist(),
        "constant_classes": {int(k): float(theta[0, k]) for k in np.flatnonzero(constant)},
        "flat_classes": table.classes[flat].tolist(),
        "equal_bags": equal,
        "near_bags": [group for group in near if group not in equal],
    }


def _precision(
    table: ClassPriors,
    n: Floats,
    pi: Floats,
    level: float,
    *,
    known_sizes: bool,
) -> dict[str, Any]:
    """How precisely a model could be evaluated; None where Θ lacks rank."""
    precision: dict[str, Any] = dict.fromkeys(
        (
            "inflation",
            "half_width",
            "half_width_exact",
            "rows_needed",
            "relative_error_half_width",
            "prior_error_half_width",
        )
    )
    if table.rank < table.n_classes:
        return precision
    z = NormalDist().inv_cdf((1 + level) / 2)
    precision["inflation"] = float(np.abs(risk_weights(table, pi, warn=False)).sum())
    weights = LeftInverse(table, n).weights(np.diag(pi))  # (M, K)
    by_relative = relative_sensitivity(weights, table.values, rules.RELATIVE_ERROR)
    precision["relative_error_half_width"] = z * by_relative
    if table.errors is not None:
        precision["prior_error_half_width"] = z * float(table.errors.added_variance(weights)) ** 0.5
    if known_sizes:
        confusion = even_confusion(table.n_classes, rules.ASSUMED_ACCURACY)
        variances: dict[SharesOf, float] = {}
        for told in SHARES_OF:
            # Without errors of the shares, against which more rows do not help.
            plain = ClassPriors(table.values, shares_of=told)
            variances[told] = float(BagSample.of(plain, n).variance(weights, confusion))
        precision["half_width"] = z * variances["population"] ** 0.5
        precision["half_width_exact"] = z * variances["rows"] ** 0.5
        growth = (z / rules.TARGET_HALF_WIDTH) ** 2 * variances[table.shares_of or "population"]
        precision["rows_needed"] = np.ceil(n * growth).astype(int).tolist()
    return precision


def _sizes(table: ClassPriors, n: Floats, *, known: bool) -> dict[str, Any]:
    """Bags and classes with few rows or most of them."""
    expected = n[:, None] * table.values  # (M, K)
    largest = int(n.argmax())
    dominates = known and table.n_bags > 2 and n[largest] > rules.DOMINATING_SHARE * n.sum()
    rare = known & (expected.sum(0) < rules.RARE_CLASS) & (expected.sum(0) > 0)
    return {
        "tiny_bags": table.bag_ids[known & (n < rules.TINY_BAG)].tolist(),
        "rare_classes": table.classes[rare].tolist(),
        "dominating_bag": table.bag_ids[[largest]].tolist()[0] if dominates else None,
        "thin_cells": int((known & (expected > 0) & (expected < rules.THIN_CELL)).sum()),
    }


def _look_at_rows(
    rows: Rows | None,
    names: Sequence[Any] | None,
    index: Ints | None,
    table: ClassPriors,
    random_state: Any,
) -> tuple[AlikeTest | None, str | None, dict[Any, float]]:
    """Test whether classes look alike, or say why not; find columns that tell the bag."""
    if rows is None or index is None:
        if table.n_bags <= table.rank:
            return None, no_spare_bag(table.n_bags, table.rank), {}
        return None, "no rows were given", {}
    sample = RowSample.draw(rows, index, table, random_state)
    copies = sample.copies(names)
    result = sample.test(names)
    return (None, result, copies) if isinstance(result, str) else (result, None, copies)

"""Class priors of which some shares are known in part only."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from unbag.priors.errors import GivenErrors, SharesOf
from unbag.priors.partial import complete, from_ranges
from unbag.priors.table import ClassPriors
from unbag.validation import as_float_array, invalid, shorten

__all__ = ["partly_known"]


def partly_known(
    table: Mapping[Any, Mapping[Any, Any]], *, shares_of: SharesOf | None = None
) -> ClassPriors:
    """Make class priors of shares that are known in part.

    What is not known is guessed by the other bags, or is the middle of its range, and the errors
    of the result tell how far such a share may be off.

    Parameters
    ----------
    table : dict of bag id to dict of class to share
        A class that a bag lacks has an unknown share there: ``{}`` is a bag of which nothing is
        known. A key that is a tuple of classes has the sum of their shares, where the bag does not
        tell them apart. A value that is a pair is a range, from and to; a bag with one has a share
        or a range for every class.
    shares_of : {"rows", "population"}, optional
        As in :class:`ClassPriors`.

    Examples
    --------
    >>> priors = partly_known({
    ...     "north": {"a": 0.2, "b": 0.3, "c": 0.5},
    ...     "south": {"a": 0.1, "b": 0.4, "c": 0.5},
    ...     "east": {("a", "b"): 0.6, "c": 0.4},
    ...     "west": {},
    ...     "port": {"a": (0.1, 0.3), "b": (0.2, 0.4), "c": 0.5},
    ... })
    >>> priors.values.round(2)[2:]
    array([[0.2 , 0.4 , 0.4 ],
           [0.17, 0.33, 0.5 ],
           [0.2 , 0.3 , 0.5 ]])
    >>> priors.errors.standard_errors.round(2)[2:]
    array([[0.08, 0.08, 0.  ],
           [0.07, 0.07, 0.  ],
           [0.06, 0.06, 0.  ]])
    """
    if not isinstance(table, Mapping) or not all(isinstance(r, Mapping) for r in table.values()):
        raise invalid("table", "a dict of bag id to dict of class to share", repr(table))
    bags = list(table)
    keys = list(dict.fromkeys(key for row in table.values() for key in row))
    together = [key for key in keys if isinstance(key, tuple)]
    names = [key for key in keys if not isinstance(key, tuple)]
    classes = list(dict.fromkeys([*names, *(name for key in together for name in key)]))
    place = {name: k for k, name in enumerate(classes)}

    low = np.full((len(bags), len(classes)), np.nan)
    high = low.copy()
    for m, row in enumerate(table.values()):
        for key, given in row.items():
            if not isinstance(key, tuple):
                low[m, place[key]], high[m, place[key]] = _ends(given, bags[m], key)
    merged = []
    for key in together:
        sums = [row.get(key, np.nan) for row in table.values()]
        merged.append(([place[name] for name in key], as_float_array("priors", sums, ndim=1)))

    shares, errors = low.copy(), np.zeros_like(low)
    ranged = (low < high).any(1)
    if np.isnan(low[ranged]).any():
        lacking = [bags[m] for m in np.flatnonzero(ranged & np.isnan(low).any(1))]
        allowed = "a share or a range for every class of a bag that has ranges"
        raise invalid("priors", allowed, f"none for some of bag {shorten(lacking)}")
    if ranged.any():
        some = [bags[m] for m in np.flatnonzero(ranged)]
        shares[ranged], errors[ranged] = from_ranges(low[ranged], high[ranged], some)
    shares, guessed = complete(shares, bags, classes, merged)
    return ClassPriors(
        shares,
        bags,
        classes,
        errors=GivenErrors("guessed", errors + guessed),
        shares_of=shares_of,
    )


def _ends(given: Any, bag: Any, name: Any) -> tuple[float, float]:
    """Both ends of a range; twice the number where a share is known."""
    ends = np.ravel(np.asarray(given, dtype=object))
    try:
        low, high = float(ends[0]), float(ends[-1])
    except (TypeError, ValueError, IndexError):
        low = high = np.nan
    if len(ends) not in (1, 2) or not 0 <= low <= high <= 1:
        got = f"{given!r} for bag {shorten([bag])} and class {shorten([name])}"
        raise invalid("priors", "shares from 0 to 1, or pairs (low, high) of them", got)
    return low, high

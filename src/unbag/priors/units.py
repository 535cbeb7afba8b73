"""The unit of a table of class priors: shares, percent or counts, told from the sums of its rows.

Published figures are rounded, so a sum may be off: by half a unit of the last digit written, for
each of the K classes. Sums are allowed to be off by that much, but always by half a percent
(``ROUNDING``) and never by more than five (``MOST_ROUNDING``). Which unit is taken matters for the
notes only: shares are the values of a row divided by their sum in all three.
"""

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unbag.validation import invalid, shorten

__all__ = ["Unit", "refuse_totals", "tell_unit"]

Unit: TypeAlias = Literal["shares", "percent", "counts"]
ROUNDING = 0.005
MOST_ROUNDING = 0.05
UNNOTED = 1e-6  # sums that are off by less need no note, as in ClassPriors
TOTAL_NAMES = {"total", "totals", "grand total", "sum", "sums"}


def refuse_totals(values: NDArray[np.float64], bag_ids: list[Any], classes: list[Any]) -> None:
    """Refuse a column or a row that is the sum of all others: it is not a class or a bag.

    A column of another name is not suspected where the rows sum to 1 or 100 with it, and one bag
    alone proves nothing.

    Parameters
    ----------
    values
        (M, K) finite numbers.
    bag_ids, classes
        M and K names.
    """
    n_bags, n_classes = values.shape
    sums = values.sum(axis=1)  # (M,)
    innocent = n_bags < 2 or _near(values, 1).all() or _near(values, 100).all()
    for k in range(n_classes if n_classes > 2 else 0):
        named = _is_total(classes[k])
        close = np.isclose(2 * values[:, k], sums, rtol=ROUNDING if named else 1e-9, atol=0)
        if close.all() and sums.all() and (named or not innocent):
            remedy = "drop it from the file (or write shares, if it is a class)."
            got = f"{shorten([classes[k]])}, the sum of all others"
            raise invalid("classes", "classes only, without a total", got, remedy)
    totals = [bag for bag in bag_ids if _is_total(bag)]
    if n_bags > 2 and not totals and (values == np.round(values)).all():
        is_sum = (2 * values == values.sum(axis=0)).all(axis=1) & (sums > 0)
        totals = [bag_ids[m] for m in np.flatnonzero(is_sum)]
    if totals:
        remedy = "drop this row from the file (or rename it, if it is a bag)."
        raise invalid("bags", "bags only, without a total", shorten(totals), remedy)


def tell_unit(
    values: NDArray[np.float64], bag_ids: list[Any], *, percent_signs: bool
) -> tuple[Unit, list[str]]:
    """Tell shares, percent and counts apart; refuse what is none of them.

    Parameters
    ----------
    values
        (M, K) finite, non-negative numbers.
    bag_ids
        M names, for messages.
    percent_signs
        Whether the numbers are written with percent signs.

    Examples
    --------
    >>> tell_unit(np.array([[33.3, 66.6], [50.0, 50.0]]), ["a", "b"], percent_signs=False)[0]
    'percent'
    """
    sums = values.sum(axis=1)  # (M,)
    if not sums.all():
        zero = [bag_ids[m] for m in np.flatnonzero(sums == 0)]
        raise invalid("priors", "rows with a positive sum", f"only zeros for bag {shorten(zero)}")
    if not percent_signs and _near(values, 1).all():
        return "shares", _rounding_note(sums, 1, bag_ids)
    if _near(values, 100).all():
        signs = "has percent signs" if percent_signs else "sums to 100"
        note = f"Every row {signs}: the numbers are read as percent."
        return "percent", [note, *_rounding_note(sums, 100, bag_ids)]
    # Most rows at exactly 100 are percent with a mistake in the others, not counts.
    whole = (values == np.round(values)).all() and (sums == 100).mean() < 0.5
    if whole and not percent_signs:
        low, high = sums.min(), sums.max()
        shown = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        note = (
            f"All numbers are whole, and rows sum to {shown}: they are read as counts, "
            "and divided by the sum of their row."
        )
        return "counts", [note]
    if percent_signs:
        raise _wrong_sums(values, 100, "percent that sum to 100 in every bag", bag_ids)
    total = 100 if _near(values, 100).sum() > _near(values, 1).sum() else 1
    allowed = "shares that sum to 1 in every bag, percent that sum to 100, or whole counts"
    raise _wrong_sums(values, total, allowed, bag_ids)


def _near(values: NDArray[np.float64], total: float) -> NDArray[np.bool_]:
    """(M,) whether a row sums to ``total``, up to rounding."""
    exact = [np.allclose(values, np.round(values, d), rtol=0, atol=1e-9) for d in range(7)]
    digits = exact.index(True) if any(exact) else 7
    rounding = values.shape[1] * 0.5 * 10.0**-digits / total
    allowed = min(MOST_ROUNDING, max(ROUNDING, rounding)) * total
    near: NDArray[np.bool_] = np.abs(values.sum(axis=1) - total) <= allowed + 1e-9 * total
    return near


def _rounding_note(sums: NDArray[np.float64], total: float, bag_ids: list[Any]) -> list[str]:
    off = np.abs(sums - total)
    worst = int(off.argmax())
    if off[worst] <= UNNOTED * total:
        return []
    n_off = int((off > UNNOTED * total).sum())
    return [
        f"{n_off} of {len(sums)} rows do not sum to exactly {total}, as is usual for rounded "
        f"figures. They were divided by their sum. The furthest off is {sums[worst]:.6g}, for bag "
        f"{shorten([bag_ids[worst]])}."
    ]


def _wrong_sums(
    values: NDArray[np.float64], total: float, allowed: str, bag_ids: list[Any]
) -> Exception:
    wrong = np.flatnonzero(~_near(values, total))
    shown = [f"{values[m].sum():.6g} for bag {shorten([bag_ids[m]])}" for m in wrong[:5]]
    more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    remedy = (
        "correct these rows, leave out columns that are not classes, or divide counts by the sum "
        "of their row."
    )
    got = f"the sum {', '.join(shown)}{more}"
    return invalid("priors", allowed, got, remedy)


def _is_total(name: Any) -> bool:
    return isinstance(name, str) and name.strip().casefold() in TOTAL_NAMES

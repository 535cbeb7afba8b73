"""The rules of ``inspect``: when its verdict is go, care or stop, and what it then advises."""

from collections.abc import Sequence
from typing import Any

from unbag.inspection.findings import Findings, plain_number, points
from unbag.plain import p_text
from unbag.priors import ILL_CONDITIONED
from unbag.validation import shorten

__all__ = ["judge"]

# Stop. A rank below the number of classes is always a stop and needs no constant.
HOPELESS_HALF_WIDTH = 0.25  # an accuracy known to ± 25 points or worse tells nothing

# Care. The condition number of Θ has its limit in unbag.priors, where it raises a warning too.
WIDE_HALF_WIDTH = 0.05  # ± 5 points, from sampling or from errors in the priors
NARROWER = 0.01  # half-width that is gained at least where it is asked what shares are of
LARGE_INFLATION = 20.0  # Σ|W|: noise of partial risks is magnified up to this many times
FLAT_RANGE = 0.02  # a class whose share differs by less than 2 points over all bags
TINY_BAG = 20  # rows; the true shares of fewer are often far from the priors
TINY_SHARE = 0.05  # of the bags being tiny; fewer do no harm
RARE_CLASS = 20.0  # rows of a class expected in all bags together
DOMINATING_SHARE = 0.5  # of all rows in one of three or more bags
ALARM = 0.05  # p-value of the test that rows of a class look alike in all bags
NEAR_COPY = 0.9  # share of what classes leave of a column's variance that lies between bags

# Neither: limits of notes and of numbers that are printed.
NEAR_BAGS = 0.01  # bags whose shares all differ by at most one point are near-identical
EQUAL_BAGS = 1e-6  # and by no more than this, identical
THIN_CELL = 5.0  # expected rows of a class in a bag; with fewer the class is almost absent
RELATIVE_ERROR = 0.01  # the error in the shares whose effect is shown
SHOWN_COLUMNS = 5  # that differ between bags
TARGET_HALF_WIDTH = 0.01  # the printed number of rows is that for ± 1 point
ASSUMED_ACCURACY = 0.9  # of the model whose evaluation is predicted

# A model is trivial (trivial_model) by ALARM and these.
ONE_CLASS = 0.99  # of the rows predicted as one class, although its share is smaller
NO_SLOPE = 0.05  # how closely predicted shares follow the known ones; 1 for a perfect model


def judge(findings: Findings) -> tuple[str, list[str], list[str]]:
    """Turn the findings into a verdict.

    Returns
    -------
    The verdict ("go", "care" or "stop"), its reasons with what would help, and notes on what is
    harmless or was not checked.
    """
    stop, care = _rank_reasons(findings), _shape_reasons(findings)
    for reasons in (_width_reasons(findings), _error_reasons(findings)):
        stop += reasons[0]
        care += reasons[1]
    care += _size_reasons(findings) + _row_reasons(findings)
    verdict = "stop" if stop else "care" if care else "go"
    return verdict, stop + care, _notes(findings)


def _rank_reasons(f: Findings) -> list[str]:
    """Θ lacks rank: which classes cannot be told apart, and which bags would help."""
    lack = f.n_classes - f.rank
    if lack == 0:
        return []
    reasons = []
    if f.n_bags < f.n_classes:
        reasons.append(
            f"There are {f.n_bags} bags for {f.n_classes} classes: add at least "
            f"{f.n_classes - f.n_bags} whose class shares differ, or merge classes."
        )
    if f.missing_classes:
        reasons.append(
            f"No bag contains class {shorten(f.missing_classes)}: add a bag that does, or leave "
            "the class out."
        )
    shown = 0
    for direction, bag in zip(f.hidden_directions, f.suggested_bags, strict=True):
        involved = [c for c, v in zip(f.classes, direction, strict=True) if v]
        if len(involved) < 2 or shown == 2:
            continue
        shown += 1
        merge = " Or merge these classes." if len(involved) == 2 else ""
        reasons.append(
            f"Classes {shorten(involved)} cannot be told apart: {_equation(f, direction)}. Add a "
            f"bag in which this is not so, such as {_composition(f, bag)}.{merge}"
        )
    if lack > 1:
        reasons.append(
            f"In all, {lack} more bags with other shares are needed; suggested_bags lists some."
        )
    reasons.append(
        "Until then, methods with risk weights cannot be trained, and no model can be evaluated "
        "without labels. Other methods can be trained, but nobody can say whether their models "
        "confuse these classes."
    )
    return reasons


def _equation(f: Findings, direction: Sequence[float]) -> str:
    """Say in words what Θv = 0 means for the class of v that has the entry 1."""
    solved = _solved_class(f, direction)
    name = f.classes[solved]
    constant = f.constant_classes.get(solved)
    if constant is not None:
        return f"the share of {name!r} is {constant:.3g} in every bag"
    terms = [(c, -v) for c, v in zip(f.classes, direction, strict=True) if v and c != name]
    if len(terms) == 1:
        other, factor = terms[0]
        same = abs(factor - 1) < 1e-6
        times = "equals that" if same else f"is {factor:.3g} times that"
        return f"in every bag the share of {name!r} {times} of {other!r}"
    if len(terms) > 4:
        return f"in every bag the share of {name!r} is the same function of the other shares"
    shown = " ".join(f"{'+' if v > 0 else '−'} {abs(v):.3g} times {c!r}" for c, v in terms)
    return f"in every bag the share of {name!r} is {shown.removeprefix('+ ')}"


def _solved_class(f: Findings, direction: Sequence[float]) -> int:
    """Position of the class that the equation is solved for: a constant one where possible."""
    ones = [k for k, v in enumerate(direction) if abs(v - 1) < 1e-9]
    return next((k for k in ones if k in f.constant_classes), ones[0])


def _composition(f: Findings, shares: Sequence[float]) -> str:
    """Name the shares of a bag, the largest first where there are many classes."""
    pairs = list(zip(f.classes, shares, strict=True))
    if len(pairs) > 5:
        top = max(pairs, key=lambda pair: pair[1])
        return f"{100 * top[1]:.0f}% of {top[0]!r} and otherwise the shares of all bags together"
    return ", ".join(f"{100 * share:.0f}% of {name!r}" for name, share in pairs)


def _shape_reasons(f: Findings) -> list[str]:
    """Θ has full rank, but only just."""
    if f.rank < f.n_classes:
        return []
    reasons = []
    largest = max(abs(v) for v in f.weakest_direction)
    pairs = list(zip(f.classes, f.weakest_direction, strict=True))
    high = [c for c, v in pairs if v > 0.3 * largest]
    low = [c for c, v in pairs if v < -0.3 * largest]
    advice = f"Add bags whose shares differ more, such as {_composition(f, f.suggested_bags[0])}"
    if f.condition_number > ILL_CONDITIONED:
        reasons.append(
            f"The bags barely tell {shorten(high)} from {shorten(low) or 'the others'}: the "
            f"condition number is {plain_number(f.condition_number)}, which is above "
            f"{ILL_CONDITIONED:g}. {advice}."
        )
    if f.inflation is not None and f.inflation > LARGE_INFLATION:
        reasons.append(
            f"Training will be noisy: the noise is {plain_number(f.inflation)} (1 with labels), "
            f"which is above {LARGE_INFLATION:g}. {advice}."
        )
    if f.flat_classes:
        reasons.append(
            f"The share of class {shorten(f.flat_classes)} differs by less than "
            f"{100 * FLAT_RANGE:g} points between bags. Add a bag with clearly more or less of it."
        )
    return reasons


def _width_reasons(f: Findings) -> tuple[list[str], list[str]]:
    """Say if too few rows would leave the accuracy too uncertain."""
    width = f.half_width_exact if f.shares_of == "rows" else f.half_width
    if width is None or f.n_rows is None or width <= WIDE_HALF_WIDTH:
        return [], []
    factor = (width / WIDE_HALF_WIDTH) ** 2
    reason = (
        f"Even with all rows held out, the accuracy could only be estimated to {points(width)}. "
        f"For {points(WIDE_HALF_WIDTH)}, use {plain_number(factor)} times as many rows (about "
        f"{plain_number(factor * f.n_rows)}). Bags whose shares differ more help as well."
    )
    return ([reason], []) if width > HOPELESS_HALF_WIDTH else ([], [reason])


def _error_reasons(f: Findings) -> tuple[list[str], list[str]]:
    """Say if errors in the shares would leave the accuracy too uncertain."""
    stop: list[str] = []
    care: list[str] = []
    if f.relative_error_half_width is not None and f.relative_error_half_width > WIDE_HALF_WIDTH:
        care.append(
            f"If the shares are {100 * RELATIVE_ERROR:g}% off, the estimated accuracy is off by "
            f"{points(f.relative_error_half_width)}. Get more precise shares, or bags whose "
            "shares differ more."
        )
    width = f.prior_error_half_width
    if width is not None and width > WIDE_HALF_WIDTH:
        reason = (
            f"The errors of the shares put the estimated accuracy off by {points(width)}. "
            f"Make them {plain_number(width / WIDE_HALF_WIDTH)} times smaller; for that, a survey "
            f"needs a sample {plain_number((width / WIDE_HALF_WIDTH) ** 2)} times as large."
        )
        (stop if width > HOPELESS_HALF_WIDTH else care).append(reason)
    return stop, care


def _size_reasons(f: Findings) -> list[str]:
    """Bags that are empty, tiny or dominant, and rare classes."""
    reasons = []
    if f.empty_bags:
        reasons.append(
            f"{_count(f.empty_bags, 'bag')} with shares but without rows, which are left out here: "
            f"{shorten(f.empty_bags)}. Add rows, or drop the shares."
        )
    if len(f.tiny_bags) > TINY_SHARE * f.n_bags:
        reasons.append(
            f"{_count(f.tiny_bags, 'bag')} with fewer than {TINY_BAG} rows: "
            f"{shorten(f.tiny_bags)}. Merge each with a similar bag, weighting the shares by rows, "
            "or add rows."
        )
    if f.rare_classes:
        reasons.append(
            f"All bags together are expected to hold fewer than {RARE_CLASS:g} rows of class "
            f"{shorten(f.rare_classes)}. Add bags with a large share of it, or merge classes."
        )
    if f.dominating_bag is not None:
        reasons.append(
            f"Bag {f.dominating_bag!r} holds more than {100 * DOMINATING_SHARE:g}% of all rows. "
            "Add rows to the other bags; more rows in this one would help little."
        )
    return reasons


def _row_reasons(f: Findings) -> list[str]:
    """Say where the rows contradict the assumption."""
    reasons = []
    if f.alike is not None and f.alike.p_value < ALARM:
        worst = shorten([bag for bag, _ in f.alike.bags[:3]])
        off = ""
        if f.alike.joint_p_value < ALARM:
            by = f"{f.alike.deviation:.2g} standard deviations"
            off = f"; bag means are off by {by}, most in bag {worst}"
        columns = [f"{c.column!r} ({c.deviation:.2g})" for c in f.alike.columns[:SHOWN_COLUMNS]]
        more = len(f.alike.columns) - len(columns)
        and_more = f" and {more} more" if more > 0 else ""
        named = (
            f" Columns that differ, and by how many standard deviations: {', '.join(columns)}"
            f"{and_more}."
            if columns
            else ""
        )
        reasons.append(
            f"Rows of a class do not look alike in all bags, or the shares are wrong ("
            f"{p_text(f.alike.p_value)}{off}).{named} Check how these bags and their shares were "
            "collected, leave out columns that depend on the bag, or leave these bags out."
        )
    for column, share in f.bag_features.items():
        reasons.append(
            f"Column {column!r} tells which bag a row is in, not its class: {100 * share:.3g}% of "
            "its variance lies between bags. Leave it out."
        )
    return reasons


def _notes(f: Findings) -> list[str]:
    notes = []
    if f.equal_bags:
        harmless = " This does no harm." if f.rank == f.n_classes else ""
        notes.append(
            f"Bags {_groups(f.equal_bags)} have the same shares and act as one larger bag."
            f"{harmless}"
        )
    if f.near_bags:
        notes.append(
            f"Bags {_groups(f.near_bags)} have nearly the same shares. They add rows, but "
            "little that tells the classes apart."
        )
    if f.n_rows is None:
        notes.append(
            "Bag sizes are unknown. They are assumed to be equal, and checks that need rows are "
            "left out."
        )
    elif f.thin_cells:
        notes.append(
            f"In {f.thin_cells:,} of {f.n_bags * f.n_classes:,} pairs of bag and class, fewer than "
            f"{THIN_CELL:g} rows are expected. This does no harm."
        )
    wide, narrow = f.half_width or 0.0, f.half_width_exact or 0.0
    if f.shares_of is None and wide - narrow > NARROWER:
        notes.append(
            "Say what the shares describe (shares_of). If the rows are a sample of the population "
            f"that they describe, as is assumed here, the accuracy can be known to {points(wide)}; "
            f"if they count these very rows, to {points(narrow)}."
        )
    if f.alike_untested:
        notes.append(
            f"It was not tested whether rows of a class look alike in all bags: {f.alike_untested}."
        )
    elif f.alike and f.shares_of == "rows" and f.alike.shares_of == "population":
        notes.append(
            "The test of whether rows of a class look alike treats rows as drawn at random, since "
            "class means are too uncertain here. For shares that count these very rows it misses "
            "more differences than it would otherwise."
        )
    return notes


def _groups(groups: list[list[Any]]) -> str:
    more = f" (and {_count(groups[1:], 'more group')})" if len(groups) > 1 else ""
    return shorten(groups[0]) + more


def _count(items: Sequence[Any], noun: str) -> str:
    return f"{len(items)} {noun}{'s' if len(items) > 1 else ''}"

"""The figures of the page: parts of the content drawn by the charts. Templates call these."""

import itertools
from typing import Any

import numpy as np
from markupsafe import Markup

from unbag.reporting.charts import Line, Point, agreement_chart, line_chart, nice_limit
from unbag.reporting.formatting import inside, isolated, number, percent
from unbag.reporting.heat import heat_picture
from unbag.reporting.sources import Floats, Part

__all__ = [
    "confusion_picture",
    "error_curve",
    "largest",
    "partial_risk_curve",
    "priors_picture",
    "reliability_chart",
    "risk_curve",
    "shares_are_dots",
    "shares_chart",
    "trusted_errors",
]

_MOST_DOTS = 2000
_CELLS = 50  # per side, where dots are too many


def largest(shares: list[float], n: int) -> list[int]:
    """Positions of the n largest shares, the largest first.

    Examples
    --------
    >>> largest([0.2, 0.5, 0.3], 2)
    [1, 2]
    """
    return sorted(range(len(shares)), key=lambda k: -shares[k])[:n]


def priors_picture(part: Part) -> Markup:
    """Draw the known shares of many bags or classes, bags sorted by their largest class."""
    shares = np.array(part["shares"], dtype=np.float64)  # (M, K)
    order = np.lexsort((-shares.max(1), shares.argmax(1)))
    return heat_picture(
        np.sqrt(shares[order] / shares.max()),
        [part["bags"][m] for m in order],
        part["classes"],
        [("share", shares[order])],
        kinds=("bag", "class"),
        label="Known share of every class in every bag",
    )


def confusion_picture(part: Part) -> Markup:
    """Draw the confusion matrix of many classes."""
    raw = np.array(part["raw"], dtype=np.float64)
    shades = np.sqrt(np.clip(raw, 0, 1))
    layers: list[tuple[str, Any]] = [("estimate", raw)]
    if part["low"] is not None:
        layers += [("interval from", part["low"]), ("interval to", part["high"])]
        shades[np.array(part["low"], dtype=np.float64) <= 0] = 0  # cannot be told from 0
    return heat_picture(
        shades,
        part["classes"],
        part["classes"],
        layers,
        kinds=("true class", "predicted class"),
        label="Estimated confusion matrix",
        square=True,
    )


def shares_are_dots(priors: Part) -> bool:
    """Whether every class of every bag is drawn as a dot."""
    return len(priors["bags"]) * len(priors["classes"]) <= _MOST_DOTS


def shares_chart(part: Part, priors: Part) -> Markup:
    """Draw predicted against known shares: as dots, or counted in cells where they are many."""
    known = np.array(priors["shares"], dtype=np.float64)  # (M, K)
    predicted = np.array(part["predicted"], dtype=np.float64)  # None becomes NaN
    pairs = np.argwhere(~np.isnan(predicted))
    largest = max(known.max(), float(np.nanmax(predicted, initial=0)))
    limit = nice_limit(largest)
    label = "Predicted share against known share of every class in every bag"
    if not shares_are_dots(priors):
        return _density(known, predicted, limit, label)
    points = [
        Point(
            float(known[m, k]),
            float(predicted[m, k]),
            [
                f"bag {isolated(priors['bags'][m])}",
                f"class {isolated(priors['classes'][k])}",
                f"known {percent(float(known[m, k]))}",
                f"predicted {percent(float(predicted[m, k]))}",
                f"{number(priors['held_out_rows'][m])} held-out rows",
            ],
            kind="far" if part["beyond_chance"][m][k] else "",
        )
        for m, k in pairs
    ]
    return agreement_chart(points, label, "known share, %", "predicted share, %", limit=limit)


def _density(known: Floats, predicted: Floats, limit: float, label: str) -> Markup:
    seen = ~np.isnan(predicted)
    edges = np.linspace(0, limit, _CELLS + 1)
    counts = np.histogram2d(predicted[seen], known[seen], bins=(edges, edges))[0][::-1]
    ranges = [f"{100 * a:.1f} to {100 * b:.1f}%" for a, b in itertools.pairwise(edges)]
    picture = heat_picture(
        np.log1p(counts) / np.log1p(counts.max()),
        ranges[::-1],
        ranges,
        [("pairs of bag and class", counts)],
        kinds=("predicted share", "known share"),
        label=label,
        counts=True,
        square=True,
        over=Markup(
            '<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">'
            '<path class="diagonal" d="M0 100L100 0"/></svg>'
        ),
    )
    axis = Markup(
        '<div class="axis"><span>0</span><span>known share (upwards: predicted share)</span>'
        "<span>{}</span></div>"
    )
    return picture + axis.format(percent(limit, 0))


def trusted_errors(part: Part) -> list[float | None]:
    """Estimated error by epoch; None where it is outside [0, 1] by more than its half-width."""
    half = part["label_free_half_width"]
    if half is None:
        return list(part["label_free_error"])
    return [None if v is None or abs(v - inside(v)) > half else v for v in part["label_free_error"]]


def error_curve(part: Part) -> Markup:
    """Draw the error by epoch, inside 0 to 100%, where it is to be trusted."""
    lines = []
    values = [] if part["label_free_error"] is None else trusted_errors(part)
    if sum(v is not None for v in values) > 1:
        line = Line("error, estimated without labels", _cut(values), "a")
        half = part["label_free_half_width"]
        if half is not None:
            line.low = _cut([None if v is None else v - half for v in values])
            line.high = _cut([None if v is None else v + half for v in values])
            line.band = "its interval"
        lines.append(line)
    if part["test_error"] is not None:
        lines.append(Line("error, by labels", part["test_error"], "b"))
    if not lines:
        return Markup("")
    return line_chart(
        part["epoch"], lines, shares=True, label="Error by epoch", mark=_kept_epoch(part)
    )


def risk_curve(part: Part) -> Markup:
    """Draw what was minimised, and the empirical risk where it is known."""
    lines = [Line("objective", part["objective"], "a")]
    if part["empirical_risk"] is not None:
        lines.append(Line("empirical risk", part["empirical_risk"], "b"))
    return line_chart(part["epoch"], lines, label="Objective by epoch", mark=_kept_epoch(part))


def partial_risk_curve(part: Part) -> Markup:
    """Draw the partial risks: their mean, and from the smallest to the largest."""
    risks = part["partial_risks"]
    label, band = "mean, weighted by the shares", "smallest to largest"
    line = Line(label, risks["mean"], "c", risks["smallest"], risks["largest"], band)
    return line_chart(part["epoch"], [line], label="Partial risks by epoch", mark=_kept_epoch(part))


def _cut(values: list[float | None]) -> list[float | None]:
    return [None if v is None else inside(v) for v in values]


def _kept_epoch(part: Part) -> tuple[int, str] | None:
    return None if part["best_epoch"] is None else (part["best_epoch"], "kept epoch")


def reliability_chart(
    curve: Part, edges: list[float], label: str, *, small: bool = False
) -> Markup:
    """Draw predicted probability against estimated frequency, bin by bin."""
    points = []
    for b, frequency in enumerate(curve["frequency"]):
        if frequency is None:
            continue
        mean, error = curve["predicted"][b], curve["error"][b]
        if 4 * error >= 1:  # all from 0 to 100% is within the error
            continue
        lines = [
            f"probability {percent(edges[b], 0)} to {percent(edges[b + 1], 0)}",
            f"{number(curve['rows'][b])} rows",
            f"mean probability {percent(mean)}",
            f"estimated frequency {percent(frequency)} ± {100 * 2 * error:.1f} points",
        ]
        ends = frequency - 2 * error, frequency + 2 * error
        points.append(Point(mean, frequency, lines, *ends, weight=curve["share"][b]))
    titles = "predicted probability, %", "estimated frequency, %"
    return agreement_chart(points, label, *titles, small=small)

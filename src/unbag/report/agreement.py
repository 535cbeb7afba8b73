"""The charts of how predictions agree with what is known: shares of bags, probabilities."""

import itertools
from typing import Any

import numpy as np

from unbag.report.charts import nice_limit, reliability_chart, scatter
from unbag.report.heat import heat_picture
from unbag.report.markup import (
    details,
    escape,
    figure,
    isolated,
    missing,
    name,
    number,
    percent,
    section,
    table,
)

__all__ = ["bag_shares", "calibration"]

Part = dict[str, Any]
Grids = dict[str, Part]  # what pictures tell on hover, by key
_MOST_DOTS = 2000
_CELLS = 50  # a side, where dots are too many
_SMALL_CHARTS = 12


def bag_shares(part: Part, priors_part: Part, grids: Grids) -> str:
    """Draw the predicted against the known share of every class in every bag."""
    title = "Predicted against known shares"
    if "missing" in part:
        return section("shares", title, missing(part))
    known = np.array(priors_part["shares"], dtype=np.float64)
    predicted = np.array(part["predicted"], dtype=np.float64)  # None becomes NaN
    rows = priors_part["held_out_rows"]
    bags, classes = priors_part["bags"], priors_part["classes"]
    pairs = np.argwhere(~np.isnan(predicted))
    label = "Predicted share against known share of every class in every bag"
    caption = (
        f"On average the two differ by {100 * part['mean_gap']:.1f} points. A perfect classifier "
        "would lie on the diagonal up to chance; errors of the classifier draw dots away from it "
        "in all bags alike."
    )
    if len(pairs) <= _MOST_DOTS:
        points = [
            (
                float(known[i, j]),
                float(predicted[i, j]),
                [
                    f"bag {isolated(bags[i])}",
                    f"class {isolated(classes[j])}",
                    f"known {percent(float(known[i, j]))}",
                    f"predicted {percent(float(predicted[i, j]))}",
                    f"{number(rows[i])} held-out rows",
                ],
            )
            for i, j in pairs
        ]
        drawing = scatter(points, label, "known share, %", "predicted share, %")
        caption = f"One dot a bag and class. {caption}"
    else:
        drawing = _density(known, predicted, label, grids)
        caption = (
            "Each cell counts pairs of bag and class; the predicted share grows from bottom to "
            f"top, as the known share does from left to right. {caption}"
        )
    gaps = [
        [
            name(g["bag"]),
            name(g["class"]),
            percent(g["known"]),
            percent(g["predicted"]),
            number(g["rows"]),
        ]
        for g in part["largest_gaps"]
    ]
    head = ["bag", "class", "known", "predicted", "rows"]
    listed = ""
    if gaps:
        listed = figure(
            table(head, gaps, "Largest gaps", numbers=2),
            "The gaps that are largest against what chance would do with that many rows.",
            "Largest gaps",
        )
    return section("shares", title, f'<div class="two">{figure(drawing, caption)}{listed}</div>')


def _density(known: Any, predicted: Any, label: str, grids: Grids) -> str:
    """Count dots in cells, where they are too many to draw."""
    seen = ~np.isnan(predicted)
    limit = nice_limit(float(max(known[seen].max(), predicted[seen].max())))
    edges = np.linspace(0, limit, _CELLS + 1)
    counts = np.histogram2d(predicted[seen], known[seen], bins=(edges, edges))[0][::-1]
    ranges = [f"{100 * a:.1f} to {100 * b:.1f} %" for a, b in itertools.pairwise(edges)]
    layers = [
        {
            "label": "pairs of bag and class",
            "values": counts.astype(int).tolist(),
            "scale": 1,
            "unit": "",
        }
    ]
    drawing, grids["shares"] = heat_picture(
        "shares",
        np.log1p(counts) / np.log1p(counts.max()),
        ranges[::-1],
        ranges,
        layers,
        kinds=("predicted share", "known share"),
        label=label,
        square=True,
        over='<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="diagonal" d="M0 100L100 0"/></svg>',
    )
    ends = f"<span>0</span><span>known share</span><span>{percent(limit, 0)}</span>"
    return f'{drawing}<div class="axis">{ends}</div>'


def calibration(part: Part) -> str:
    """Draw how often probabilities come true, and tell temperature and biases."""
    parts = [f"<p>{_temperature(part)}</p>"]
    if part["biases"] is not None:
        rows = [[name(c), number(b)] for c, b in zip(part["classes"], part["biases"], strict=True)]
        parts.append(details("Class biases", table(["class", "bias"], rows, "Class biases")))
    found = part["reliability"]
    if "missing" in found:
        return section("calibration", "Calibration", *parts, missing(found))
    overall = found["overall"]
    label = "Reliability of the predicted class"
    parts.append(
        '<div class="two">'
        + figure(
            reliability_chart(_reliability_points(overall, found["edges"]), label),
            "Rows by the probability of their predicted class, and how often it is true, estimated "
            "without labels. Bars are two standard errors each way, larger dots hold more rows, "
            "hollow ones lie beyond the edge. On the diagonal, probabilities mean what they say.",
            label,
        )
        + figure(_reliability_table(overall, found["edges"]), title="The same in numbers")
        + "</div>"
    )
    curves = list(zip(part["classes"], found["by_class"], strict=True))
    charts = "".join(
        f"<figure><h4>{name(label, 22)}</h4>"
        + reliability_chart(
            _reliability_points(curve, found["edges"]), f"Reliability of class {label}", small=True
        )
        + "</figure>"
        for label, curve in curves[:_SMALL_CHARTS]
    )
    if len(curves) > _SMALL_CHARTS:
        charts += f"<p>The first {_SMALL_CHARTS} of {len(curves)} classes.</p>"
    parts.append(details("Every class", f'<div class="many">{charts}</div>'))
    return section("calibration", "Calibration", *parts)


def _temperature(part: Part) -> str:
    value = part["temperature"]
    if value is None:
        return "Probabilities were not calibrated: they are those of the network."
    meaning = "the network was too sure of itself" if value > 1 else "the network was too careful"
    if abs(value - 1) < 0.02:
        meaning = "the network was as sure as it should be"
    biases = ", and a bias for every class" if any(part["biases"]) else ""
    return (
        f"Probabilities were calibrated without labels: temperature <b>{number(value)}</b> "
        f"({meaning}){biases}."
    )


def _occupied(curve: Part) -> list[int]:
    return [i for i, f in enumerate(curve["frequency"]) if f is not None]


def _reliability_points(curve: Part, edges: list[float]) -> list[Any]:
    points = []
    for i in _occupied(curve):
        mean, found, error = curve["predicted"][i], curve["frequency"][i], curve["error"][i]
        low, high = found - 2 * error, found + 2 * error
        lines = [
            f"probability {percent(edges[i], 0)} to {percent(edges[i + 1], 0)}",
            f"{number(curve['rows'][i])} rows",
            f"mean probability {percent(mean)}",
            f"estimated frequency {percent(found)} ± {100 * 2 * error:.1f} points",
        ]
        points.append((min(max(mean, 0.0), 1.0), found, low, high, curve["share"][i], lines))
    return points


def _reliability_table(curve: Part, edges: list[float]) -> str:
    rows = [
        [
            escape(f"{percent(edges[i], 0)} to {percent(edges[i + 1], 0)}"),
            number(curve["rows"][i]),
            percent(curve["predicted"][i]),
            percent(curve["frequency"][i]),
            f"{100 * curve['error'][i]:.1f}",
        ]
        for i in _occupied(curve)
    ]
    head = ["probability", "rows", "mean", "frequency", "error, points"]
    return table(head, rows, "Reliability of the predicted class")

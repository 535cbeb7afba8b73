"""Charts as SVG: lines by epoch, dots against a diagonal, intervals. All texts are escaped."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from unbag.reporting.formatting import inside, number, percent

__all__ = [
    "Line",
    "Point",
    "agreement_chart",
    "evenly",
    "interval_bar",
    "legend",
    "line_chart",
    "nice_limit",
    "tip",
]

Numbers = Sequence[float | None]
_Points = Sequence[tuple[int, float]]  # positions of the epochs drawn, and where each lies
_Axis = Callable[[float], float]
_WIDE, _HIGH = 440, 280  # near the width of a phone, so that text stays readable there
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 40
_MOST_POINTS = 200
_SWATCHES = {
    "line a": '<path class="line a" d="M1 5H21"/>',
    "line b": '<path class="line b" d="M1 5H21"/>',
    "line c": '<path class="line c" d="M1 5H21"/>',
    "band a": '<rect class="band a" x="1" width="20" height="10"/>',
    "band c": '<rect class="band c" x="1" width="20" height="10"/>',
    "mark": '<path class="mark" d="M11 0V10"/>',
    "dot": '<circle class="dot" cx="11" cy="5" r="4"/>',
    "dot far": '<circle class="dot far" cx="11" cy="5" r="4"/>',
    "dot beyond": '<circle class="dot beyond" cx="11" cy="5" r="4"/>',
    "whisker": '<path class="whisker" d="M11 0V10"/>',
    "reach": '<path class="reach" d="M3 5H19"/>',
    "diagonal": '<path class="diagonal" d="M1 9L21 1"/>',
}


@dataclass
class Line:
    """One line of a chart.

    Parameters
    ----------
    label : str
    values : sequence of float or None
        None leaves a gap.
    kind : str
        CSS class: "a", "b" or "c".
    low, high : sequences, optional
        Ends of a band around it.
    band : str
        What the band is, for the legend; empty without one.
    """

    label: str
    values: Numbers
    kind: str
    low: Numbers = field(default_factory=list)
    high: Numbers = field(default_factory=list)
    band: str = ""


@dataclass
class Point:
    """A dot of a chart of shares, both from 0 to 1.

    Parameters
    ----------
    x, y : float
        Outside 0 to 1, the dot is drawn at the edge.
    lines : sequence of str
        Shown on hover.
    low, high : float, optional
        Ends of an interval of y.
    weight : float
        Share of the rows, for the size of the dot.
    kind : str
        More CSS classes, such as "far".
    """

    x: float
    y: float
    lines: Sequence[str]
    low: float | None = None
    high: float | None = None
    weight: float = 0.0
    kind: str = ""


def tip(*lines: str) -> Markup:
    """Make the attribute that shows these lines on hover."""
    return Markup('data-tip="{}"').format("\n".join(lines))


def legend(**keys: str) -> Markup:
    """Explain marks of a chart: ``legend(dot="a bag", line_a="objective")``."""
    return _legend([(kind.replace("_", " "), label) for kind, label in keys.items()])


def _legend(keys: Sequence[tuple[str, str]]) -> Markup:
    key = Markup('<span class="key"><svg viewBox="0 0 22 10" aria-hidden="true">{}</svg>{}</span>')
    shown = Markup("").join(key.format(Markup(_SWATCHES[kind]), label) for kind, label in keys)
    return Markup('<div class="legend">{}</div>').format(shown)


def line_chart(
    epochs: Sequence[int],
    lines: Sequence[Line],
    *,
    label: str,
    shares: bool = False,
    mark: tuple[int, str] | None = None,
) -> Markup:
    """Draw lines by epoch, with a legend; every epoch tells its values on hover.

    Parameters
    ----------
    epochs : sequence of int
        Of at least one.
    lines : sequence of Line
        With at least one number.
    label : str
        For those who hear the page.
    shares : bool
        Whether values are shares, written in percent.
    mark : (int, str), optional
        An epoch to mark, and why.
    """
    write = percent if shares else number
    every = [v for line in lines for part in (line.values, line.low, line.high) for v in part]
    known = [v for v in every if v is not None]
    ticks = _ticks(min(known), max(known))
    low, high = min(*known, *ticks), max(*known, *ticks)
    first, last = epochs[0], max(epochs[-1], epochs[0] + 1)

    def x(epoch: float) -> float:
        return _LEFT + (epoch - first) / (last - first) * (_WIDE - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HIGH - _BOTTOM - (value - low) / (high - low) * (_HIGH - _TOP - _BOTTOM)

    parts = []
    for tick in ticks:
        parts.append(f'<path class="rule" d="M{_LEFT} {y(tick):.1f}H{_WIDE - _RIGHT}"/>')
        shown = percent(tick, 0) if shares else number(tick)
        parts.append(f'<text class="y" x="{_LEFT - 6}" y="{y(tick) + 4:.1f}">{shown}</text>')
    parts += [
        f'<text class="x" x="{x(tick):.1f}" y="{_HIGH - _BOTTOM + 18}">{tick}</text>'
        for tick in _whole_ticks(first, last)
    ]
    middle = (_LEFT + _WIDE - _RIGHT) / 2
    parts.append(f'<text class="x title" x="{middle}" y="{_HIGH - 5}">epoch</text>')
    points = [(i, x(epochs[i])) for i in evenly(len(epochs), _MOST_POINTS)]
    parts += [_band(line, points, y) for line in lines if line.band]
    parts += [_path(line, points, y) for line in lines]
    keys = []
    for line in lines:
        keys.append((f"line {line.kind}", line.label))
        if line.band:
            keys.append((f"band {line.kind}", line.band))
    if mark is not None:
        at = f"{x(mark[0]):.1f}"
        parts.append(f'<path class="mark" d="M{at} {_TOP}V{_HIGH - _BOTTOM}"/>')
        keys.append(("mark", mark[1]))
    parts += _strips(epochs, lines, points, write, mark)
    return _legend(keys) + _svg(parts, label, _WIDE, _HIGH)


def _path(line: Line, points: _Points, y: _Axis) -> str:
    steps, pen = [], "M"
    for i, at in points:
        value = line.values[i]
        if value is None:
            pen = "M"
            continue
        steps.append(f"{pen}{at:.1f} {y(value):.1f}")
        pen = "L"
    return f'<path class="line {line.kind}" d="{"".join(steps)}"/>'


def _band(line: Line, points: _Points, y: _Axis) -> str:
    """Draw one polygon per run of epochs with a band."""
    polygons = []
    for known, run in itertools.groupby(points, lambda point: line.low[point[0]] is not None):
        if known:
            ends = [(at, y(line.low[i] or 0.0), y(line.high[i] or 0.0)) for i, at in run]
            upper = [f"{at:.1f} {high:.1f}" for at, _, high in ends]
            back = [f"{at:.1f} {low:.1f}" for at, low, _ in reversed(ends)]
            corners = " ".join(upper + back)
            polygons.append(f'<polygon class="band {line.kind}" points="{corners}"/>')
    return "".join(polygons)


def _strips(
    epochs: Sequence[int],
    lines: Sequence[Line],
    points: _Points,
    write: Callable[[float | None], str],
    mark: tuple[int, str] | None,
) -> list[str]:
    """Make one invisible strip per epoch, which tells its values."""
    edges = [(a + b) / 2 for (_, a), (_, b) in itertools.pairwise(points)]
    starts, ends = [_LEFT, *edges], [*edges, _WIDE - _RIGHT]
    strips = []
    for (i, _), start, end in zip(points, starts, ends, strict=True):
        texts = [f"epoch {epochs[i]}"]
        for line in lines:
            texts.append(f"{line.label}: {write(line.values[i])}")
            if line.band and line.low[i] is not None:
                texts.append(f"{line.band}: {write(line.low[i])} to {write(line.high[i])}")
        if mark is not None and mark[0] == epochs[i]:
            texts.append(mark[1])
        strips.append(
            f'<rect class="pt hit" x="{start:.1f}" y="{_TOP}" width="{max(end - start, 1):.1f}" '
            f'height="{_HIGH - _TOP - _BOTTOM}" {tip(*texts)}/>'
        )
    return strips


def _svg(parts: Sequence[str], label: str, wide: int, high: int, kind: str = "") -> Markup:
    """Put parts, which are markup with all texts escaped, into one drawing."""
    return Markup(
        '<svg class="chart {}" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="{}">{}</svg>'
    ).format(kind, wide, high, label, Markup("".join(parts)))


def evenly(n: int, most: int) -> list[int]:
    """Pick at most this many of n positions, evenly, with the first and the last.

    Examples
    --------
    >>> evenly(3, 5), evenly(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    return sorted({int(i) for i in np.linspace(0, n - 1, min(n, most)).round()})


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that cover a range, about five."""
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    start, stop = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.10g}") for i in range(start, stop + 1)]


def _whole_ticks(first: int, last: int) -> list[int]:
    inner = [int(t) for t in _ticks(first, last) if first <= t <= last and t == int(t)]
    return inner or [first, last]


def nice_limit(largest: float) -> float:
    """Round a share up to where an axis may end.

    Examples
    --------
    >>> nice_limit(0.53), nice_limit(0.97)
    (0.6, 1.0)
    """
    return min(1.0, _ticks(0, max(largest, 0.05))[-1])


def agreement_chart(
    points: Sequence[Point],
    label: str,
    x_title: str,
    y_title: str,
    *,
    limit: float = 1.0,
    small: bool = False,
) -> Markup:
    """Draw dots of two shares against the diagonal, from 0 to a limit.

    Parameters
    ----------
    points : sequence of Point
        A dot outside the chart is drawn hollow, at its edge.
    label : str
        For those who hear the page.
    x_title, y_title : str
    limit : float
        Where both axes end.
    small : bool
        Without titles, as one of many.
    """
    side = 200 if small else 420
    left, bottom = (30, 22) if small else (_LEFT, _BOTTOM)

    def x(value: float) -> float:
        return left + inside(value) / limit * (side - left - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (1 - inside(value) / limit) * (side - _TOP - bottom)

    parts = []
    for tick in (0.0, 0.5, 1.0) if small else _ticks(0, limit):
        shown = f"{100 * tick:.3g}"
        parts.append(f'<path class="rule" d="M{x(0):.1f} {y(tick):.1f}H{x(limit):.1f}"/>')
        parts.append(f'<text class="y" x="{x(0) - 5:.1f}" y="{y(tick) + 4:.1f}">{shown}</text>')
        parts.append(f'<text class="x" x="{x(tick):.1f}" y="{y(0) + 15:.1f}">{shown}</text>')
    parts.append(
        f'<path class="diagonal" d="M{x(0):.1f} {y(0):.1f}L{x(limit):.1f} {y(limit):.1f}"/>'
    )
    if not small:
        middle = (x(0) + x(limit)) / 2
        parts.append(f'<text class="x title" x="{middle:.1f}" y="{side - 5}">{x_title}</text>')
        parts.append(
            f'<text class="x title" transform="translate(13 {y(limit / 2):.1f}) rotate(-90)">'
            f"{y_title}</text>"
        )
    for point in points:
        at = x(point.x)
        if point.low is not None and point.high is not None:
            ends = f"M{at:.1f} {y(point.high):.1f}V{y(point.low):.1f}"
            parts.append(f'<path class="whisker" d="{ends}"/>')
        radius = (2 if small else 3.5) + (4 if small else 8) * math.sqrt(max(point.weight, 0))
        kind = f"{point.kind} beyond" if inside(point.y) != point.y else point.kind
        parts.append(
            f'<circle class="pt dot {kind}" cx="{at:.1f}" cy="{y(point.y):.1f}" '
            f'r="{radius:.1f}" {tip(*point.lines)}/>'
        )
    return _svg(parts, label, side, side, "square small" if small else "square")


def interval_bar(
    value: float | None,
    low: float | None,
    high: float | None,
    lines: Sequence[str],
    marker: float | None = None,
) -> Markup:
    """Draw a share with its interval on a line from 0 to 100%, and a marker to compare with."""

    def x(share: float) -> float:
        return 6 + 188 * inside(share)

    parts = ['<path class="track" d="M6 10H194"/>']
    if low is not None and high is not None:
        parts.append(f'<path class="reach" d="M{x(low):.1f} 10H{x(high):.1f}"/>')
    if marker is not None:
        parts.append(f'<path class="mark" d="M{x(marker):.1f} 2V18"/>')
    if value is not None:
        parts.append(f'<circle class="dot" cx="{x(value):.1f}" cy="10" r="4.5"/>')
    parts.append(f'<rect class="pt hit" width="200" height="20" {tip(*lines)}/>')
    return Markup(
        '<svg class="bar" viewBox="0 0 200 20" preserveAspectRatio="xMinYMid" aria-hidden="true">'
        "{}</svg>"
    ).format(Markup("".join(parts)))

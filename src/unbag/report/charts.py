"""Charts as SVG: lines by epoch, dots against a diagonal, intervals."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from unbag.report.markup import escape, number, percent, tip

__all__ = ["Line", "interval_bar", "line_chart", "nice_limit", "reliability_chart", "scatter"]

Numbers = Sequence[float | None]
_Points = Sequence[tuple[int, float]]  # positions of the epochs drawn, and where each lies
_WIDE, _HIGH = 440, 280  # near the width of a phone, so that text stays readable there
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 40
_MOST_POINTS = 200


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


def line_chart(
    epochs: Sequence[int],
    lines: Sequence[Line],
    *,
    label: str,
    shares: bool = False,
    mark: tuple[int, str] | None = None,
) -> str:
    """Draw lines by epoch, with a legend; every epoch tells its values on hover.

    Parameters
    ----------
    epochs : sequence of int
        Of at least one.
    lines : sequence of Line
    label : str
        For those who hear the page.
    shares : bool
        Whether values are written in percent.
    mark : (int, str), optional
        An epoch to mark, and why.
    """
    every = [v for line in lines for part in (line.values, line.low, line.high) for v in part]
    known = [v for v in every if v is not None]
    if not known:
        return '<p class="missing">There are no finite numbers to draw.</p>'
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
    points = [(i, x(epochs[i])) for i in _thin(len(epochs))]
    parts += [_band(line, points, y) for line in lines if line.band]
    parts += [_path(line, points, y) for line in lines]
    if mark is not None:
        at = f"{x(mark[0]):.1f}"
        parts.append(f'<path class="mark" d="M{at} {_TOP}V{_HIGH - _BOTTOM}"/>')
    parts += _hits(epochs, lines, points, percent if shares else number, mark)
    return f"{_legend(lines, mark)}{_svg(parts, label, _WIDE, _HIGH)}"


def _path(line: Line, points: _Points, y: Callable[[float], float]) -> str:
    drawn, pen = [], "M"
    for i, at in points:
        value = line.values[i]
        if value is None:
            pen = "M"
            continue
        drawn.append(f"{pen}{at:.1f} {y(value):.1f}")
        pen = "L"
    return f'<path class="line {line.kind}" d="{"".join(drawn)}"/>'


def _band(line: Line, points: _Points, y: Callable[[float], float]) -> str:
    ends = [(at, line.low[i], line.high[i]) for i, at in points]
    known = [(at, lo, hi) for at, lo, hi in ends if lo is not None and hi is not None]
    there = [f"{at:.1f} {y(hi):.1f}" for at, _, hi in known]
    back = [f"{at:.1f} {y(lo):.1f}" for at, lo, _ in reversed(known)]
    return f'<polygon class="band {line.kind}" points="{" ".join(there + back)}"/>'


def _hits(
    epochs: Sequence[int],
    lines: Sequence[Line],
    points: _Points,
    write: Callable[[float], str],
    mark: tuple[int, str] | None,
) -> list[str]:
    """Make one invisible strip an epoch, which tells its values."""
    edges = [(a + b) / 2 for (_, a), (_, b) in itertools.pairwise(points)]
    starts, ends = [_LEFT, *edges], [*edges, _WIDE - _RIGHT]
    found = []
    for (i, _), start, end in zip(points, starts, ends, strict=True):
        said = [f"epoch {epochs[i]}"]
        for line in lines:
            value = line.values[i]
            said.append(f"{line.label}: {'–' if value is None else write(value)}")
            reach = (line.low[i], line.high[i]) if line.band else (None, None)
            if reach[0] is not None and reach[1] is not None:
                said.append(f"{line.band}: {write(reach[0])} to {write(reach[1])}")
        if mark is not None and mark[0] == epochs[i]:
            said.append(mark[1])
        found.append(
            f'<rect class="pt hit" x="{start:.1f}" y="{_TOP}" width="{max(end - start, 1):.1f}" '
            f'height="{_HIGH - _TOP - _BOTTOM}" {tip(*said)}/>'
        )
    return found


def _legend(lines: Sequence[Line], mark: tuple[int, str] | None) -> str:
    def key(kind: str, label: str, shape: str) -> str:
        swatch = f'<svg viewBox="0 0 22 10" aria-hidden="true">{shape}</svg>'
        return f'<span class="key {kind}">{swatch}{escape(label)}</span>'

    keys = []
    for line in lines:
        stroke = f'<path class="line {line.kind}" d="M1 5H21"/>'
        keys.append(key(line.kind, line.label, stroke))
        if line.band:
            block = f'<rect class="band {line.kind}" x="1" y="0" width="20" height="10"/>'
            keys.append(key(line.kind, line.band, block))
    if mark is not None:
        keys.append(key("", mark[1], '<path class="mark" d="M11 0V10"/>'))
    return f'<div class="legend">{"".join(keys)}</div>'


def _svg(parts: Sequence[str], label: str, wide: int, high: int, kind: str = "") -> str:
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {wide} {high}" role="img" tabindex="0" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _thin(n: int) -> list[int]:
    """Pick at most so many points, evenly, the last among them."""
    if n <= _MOST_POINTS:
        return list(range(n))
    return sorted({int(i) for i in np.linspace(0, n - 1, _MOST_POINTS).round()})


def _ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers that cover a range."""
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / most
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


def _diagonal_frame(
    side: int, x_title: str, y_title: str, *, limit: float = 1.0, small: bool = False
) -> tuple[list[str], Callable[[float], float], Callable[[float], float]]:
    """Draw axes from 0 to a limit and the diagonal; returns them and where a share lies."""
    left, bottom = (30, 22) if small else (_LEFT, _BOTTOM)
    inner = side - left - _RIGHT

    def x(value: float) -> float:
        return left + value / limit * inner

    def y(value: float) -> float:
        return _TOP + (1 - value / limit) * (side - _TOP - bottom)

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
    return parts, x, y


def scatter(
    points: Sequence[tuple[float, float, Sequence[str]]], label: str, x_title: str, y_title: str
) -> str:
    """Draw dots (x, y, lines told on hover) against the diagonal, all shares."""
    side = 420
    largest = max((max(a, b) for a, b, _ in points), default=1.0)
    parts, x, y = _diagonal_frame(side, x_title, y_title, limit=nice_limit(largest))
    parts += [
        f'<circle class="pt dot" cx="{x(a):.1f}" cy="{y(b):.1f}" r="3.5" {tip(*lines)}/>'
        for a, b, lines in points
    ]
    return _svg(parts, label, side, side, "square")


def reliability_chart(
    points: Sequence[tuple[float, float, float, float, float, Sequence[str]]],
    label: str,
    *,
    small: bool = False,
) -> str:
    """Draw predicted probability against frequency, with intervals.

    A point is (predicted, frequency, low, high, share of rows, lines told on hover). What leaves
    the chart is drawn at its edge.
    """
    side = 200 if small else 420
    parts, x, y = _diagonal_frame(
        side, "predicted probability, %", "estimated frequency, %", small=small
    )

    def inside(value: float) -> float:
        return min(max(value, 0.0), 1.0)

    for predicted, frequency, low, high, share, lines in points:
        at, top, end = x(predicted), y(inside(high)), y(inside(low))
        radius = (2 if small else 3) + (4 if small else 8) * math.sqrt(max(share, 0))
        beyond = " beyond" if inside(frequency) != frequency else ""
        parts.append(f'<path class="whisker" d="M{at:.1f} {top:.1f}V{end:.1f}"/>')
        parts.append(
            f'<circle class="pt dot{beyond}" cx="{at:.1f}" cy="{y(inside(frequency)):.1f}" '
            f'r="{radius:.1f}" {tip(*lines)}/>'
        )
    return _svg(parts, label, side, side, "square small" if small else "square")


def interval_bar(
    value: float | None,
    low: float | None,
    high: float | None,
    lines: Sequence[str],
    marker: float | None = None,
) -> str:
    """Draw a share with its interval on a line from 0 to 100 %, and a marker to compare with."""

    def x(share: float) -> float:
        return 6 + 188 * min(max(share, 0.0), 1.0)

    parts = ['<path class="track" d="M6 10H194"/>']
    if low is not None and high is not None:
        parts.append(f'<path class="reach" d="M{x(low):.1f} 10H{x(high):.1f}"/>')
    if marker is not None:
        parts.append(f'<path class="mark" d="M{x(marker):.1f} 2V18"/>')
    if value is not None:
        parts.append(f'<circle class="dot" cx="{x(value):.1f}" cy="10" r="4.5"/>')
    parts.append(f'<rect class="pt hit" width="200" height="20" {tip(*lines)}/>')
    return (
        '<svg class="bar" viewBox="0 0 200 20" preserveAspectRatio="xMinYMid" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )

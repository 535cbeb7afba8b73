"""Small pieces of HTML; whatever came from data passes through :func:`escape` here."""

import html
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "definitions",
    "details",
    "escape",
    "figure",
    "isolated",
    "items",
    "level_text",
    "missing",
    "name",
    "number",
    "percent",
    "range_text",
    "scroll",
    "section",
    "short",
    "table",
    "tip",
]

_ISOLATE, _POP = "\u2068", "\u2069"
_SPACE = "\xa0"  # at which no line breaks
_LONGEST = 2000  # of a text in full


def escape(value: Any) -> str:
    """Text or an attribute's value; nothing in it is markup any more."""
    return html.escape(str(value), quote=True)


def short(text: str, limit: int) -> str:
    """Cut a text that is longer than ``limit``.

    Examples
    --------
    >>> short("north", 5), short("northern", 5)
    ('north', 'nort…')
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def isolated(text: str, limit: int = 60) -> str:
    """Put a name into a line of text: its direction does not reach the rest of the line."""
    return f"{_ISOLATE}{short(text, limit)}{_POP}"


def name(text: str, limit: int = 28) -> str:
    """Mark up a name from data; one that is cut tells the whole on hover."""
    if len(text) <= limit:
        return f"<bdi>{escape(text)}</bdi>"
    whole = escape(short(text, _LONGEST))
    return f'<bdi class="cut" data-tip="{whole}">{escape(short(text, limit))}</bdi>'


def tip(*lines: str) -> str:
    """Make the attribute that shows these lines on hover."""
    return f'data-tip="{escape(chr(10).join(lines))}"'


def percent(value: float | None, digits: int = 1) -> str:
    r"""Write a share in percent.

    Examples
    --------
    >>> percent(0.9312), percent(None)
    ('93.1\xa0%', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.{digits}f}{_SPACE}%".replace("-", "−")


def level_text(level: float) -> str:
    """Write the level of an interval in percent."""
    return f"{100 * level:g}{_SPACE}%"


def number(value: Any) -> str:
    """Write a number with four digits, or with thousands separators where it is whole."""
    if value is None:
        return "–"
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return shown.replace("-", "−")


def range_text(estimate: dict[str, Any] | None, *, share: bool = True) -> str:
    """Write the interval of an estimate."""
    if estimate is None or estimate["low"] is None or estimate["high"] is None:
        return "no interval"
    write = percent if share else number
    return f"{write(estimate['low'])} to {write(estimate['high'])}"


def section(key: str, title: str, *parts: str) -> str:
    """Put parts under a heading."""
    body = "\n".join(parts)
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">\n'
        f'<h2 id="{key}-title">{escape(title)}</h2>\n{body}\n</section>'
    )


def missing(part: dict[str, Any]) -> str:
    """Say why a part is not there."""
    return f'<p class="missing">{escape(part["missing"])}</p>'


def figure(drawing: str, caption: str = "", title: str = "", *, wide: bool = False) -> str:
    """Put a drawing into a box with a caption (HTML, both)."""
    kind = ' class="wide"' if wide else ""
    head = f"<h3>{escape(title)}</h3>" if title else ""
    foot = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure{kind}>{head}{drawing}{foot}</figure>"


def scroll(content: str, label: str) -> str:
    """Let wide or long content scroll inside its box."""
    return f'<div class="scroll" role="region" aria-label="{escape(label)}">{content}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str, numbers: int = 1) -> str:
    """Make a table in a scroll box (cells are HTML); columns from ``numbers`` on are numbers."""

    def cells(row: Sequence[str]) -> str:
        first = f'<th scope="row">{row[0]}</th>'
        rest = "".join(
            f'<td class="num">{c}</td>' if i >= numbers else f"<td>{c}</td>"
            for i, c in enumerate(row[1:], 1)
        )
        return f"<tr>{first}{rest}</tr>"

    heads = "".join(
        f'<th scope="col"{" class=num" if i >= numbers else ""}>{h}</th>'
        for i, h in enumerate(head)
    )
    body = "".join(cells(row) for row in rows)
    shown = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return scroll(shown, label)


def details(summary: str, body: str) -> str:
    """Fold a part away."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """List names with their values (HTML, both)."""
    shown = "".join(f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in pairs)
    return f"<dl>{shown}</dl>"


def items(texts: Iterable[str], kind: str = "") -> str:
    """List sentences."""
    shown = "".join(f'<li dir="auto">{escape(short(t, _LONGEST))}</li>' for t in texts)
    return f'<ul class="{kind}">{shown}</ul>' if kind else f"<ul>{shown}</ul>"

"""Heat maps: a table with numbers where it is small, else a picture with the same on hover."""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.report.markup import escape, isolated, name, scroll, tip

__all__ = ["LARGEST_TABLE", "heat_picture", "heat_table", "png"]

LARGEST_TABLE = (40, 20)  # rows and columns up to which numbers can be read
_LEVELS = 20
_INK = (29, 91, 169)
_NAMED_COLUMNS = 12

_Floats = NDArray[np.float64]


def heat_table(
    values: _Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    tips: Sequence[Sequence[Sequence[str]]],
    *,
    corner: str,
    label: str,
    extra: Mapping[str, Sequence[str]] | None = None,
    diagonal: bool = False,
) -> str:
    """Make a table of shares in percent, each cell shaded by its value.

    Parameters
    ----------
    values : array of shape (R, C)
    rows, columns : sequences of str
        Their names.
    tips : lists of shape (R, C) of lines
        Shown on hover, after the names of row and column.
    corner : str
        Says what rows and columns are.
    label : str
        For those who hear the page.
    extra : dict of str to R texts, optional
        More columns, at the right.
    diagonal : bool
        Frame the cells of equal row and column.
    """
    more = extra or {}
    upright = " upright" if len(columns) > 6 else ""
    # Cells of one width, whatever the names of the columns.
    width = (60 if more else 76) / len(columns)
    widths = f'<col><col span="{len(columns)}" width="{width:.2f}%">'
    head = "".join(
        f'<th scope="col"><span>{name(c, 22 if upright else 40)}</span></th>' for c in columns
    )
    head += "".join(f'<th scope="col" class="num">{escape(title)}</th>' for title in more)
    body = []
    for r, row in enumerate(rows):
        cells = []
        for c in range(len(columns)):
            level = round(_LEVELS * min(max(values[r, c], 0.0), 1.0))
            frame = " own" if diagonal and r == c else ""
            shown = f"{100 * values[r, c]:.0f}".replace("-", "−")
            cells.append(f'<td class="pt h{level}{frame}" {tip(*tips[r][c])}>{shown}</td>')
        rest = "".join(f'<td class="num">{escape(texts[r])}</td>' for texts in more.values())
        body.append(f'<tr><th scope="row">{name(row, 22)}</th>{"".join(cells)}{rest}</tr>')
    shown = (
        f'<table class="heat{upright}">{widths}<thead><tr><th scope="col">{escape(corner)}</th>'
        f"{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )
    box = scroll(shown, label)
    return box.replace(
        '<div class="scroll"', f'<div class="scroll chart" tabindex="0" data-wide="{len(columns)}"'
    )


def heat_picture(
    key: str,
    values: _Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    layers: Sequence[dict[str, Any]],
    *,
    kinds: tuple[str, str],
    label: str,
    square: bool = False,
    over: str = "",
) -> tuple[str, dict[str, Any]]:
    """Make a picture of one cell a pixel, and what the page needs to tell the cell on hover.

    Parameters
    ----------
    key : str
        Of the picture on the page.
    values : array of shape (R, C)
        Shades, from 0 to 1.
    rows, columns : sequences of str
    layers : list of dict
        ``label``, ``values`` (whole numbers, R lists of C), ``scale`` and ``unit``: on hover the
        value over the scale is shown, then the unit.
    kinds : (str, str)
        What rows and columns are.
    label : str
        For those who hear the page.
    square : bool
        As high as wide; else the height grows with the rows.
    over : str
        A drawing (SVG) over the picture.
    """
    tall = int(np.clip(16 * len(rows), 240, 640))
    kind = "grid chart square" if square else "grid chart"
    names = ""
    if len(columns) <= _NAMED_COLUMNS:
        shown = "".join(f"<span>{name(c, 22)}</span>" for c in columns)
        names = f'<div class="columns">{shown}</div>'
    picture = (
        f'{names}<div class="{kind}" tabindex="0" role="img" data-grid="{key}" '
        f'aria-label="{escape(label)}"><img alt="" height="{tall}" src="{png(values)}">{over}'
        '<span class="spot" hidden></span></div>'
    )
    content = {
        "rows": [isolated(r) for r in rows],
        "columns": [isolated(c) for c in columns],
        "kinds": list(kinds),
        "layers": list(layers),
    }
    return picture, content


def png(values: _Floats) -> str:
    """Draw shares (R, C) as a data address of a PNG: one colour, as opaque as the share is large.

    Examples
    --------
    >>> png(np.array([[0.0, 1.0]]))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    levels = np.rint(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8)
    high, wide = levels.shape
    lines = np.zeros((high, wide + 1), dtype=np.uint8)  # each starts with its filter, none
    lines[:, 1:] = levels
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(_INK) * 256),
        (b"tRNS", bytes(range(256))),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    encoded = base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode("ascii")
    return f"data:image/png;base64,{encoded}"

"""Tables too large to read, as pictures of one pixel per cell that tell the cell on hover."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from unbag.reporting.formatting import isolated, short

__all__ = ["Layer", "fits_a_table", "heat_picture", "png", "shade"]

_MOST_ROWS, _MOST_COLUMNS = 40, 20  # of a table in which numbers can be read
_LEVELS = 20
_INK = (29, 91, 169)
_NAMED_COLUMNS = 12

Floats = NDArray[np.float64]
Layer = tuple[str, ArrayLike]  # the text shown on hover, and its (R, C) shares; NaN for unknown


def fits_a_table(rows: int, columns: int) -> bool:
    """Whether a table of that size can be read cell by cell."""
    return rows <= _MOST_ROWS and columns <= _MOST_COLUMNS


def shade(share: float) -> int:
    """Level of the colour of a cell, from 0 to 20.

    Examples
    --------
    >>> shade(0.5), shade(-0.1), shade(1.2)
    (10, 0, 20)
    """
    return round(_LEVELS * min(max(share, 0.0), 1.0))


def heat_picture(
    shades: Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    layers: Sequence[Layer],
    *,
    kinds: tuple[str, str],
    label: str,
    counts: bool = False,
    square: bool = False,
    over: str = "",
) -> Markup:
    """Make a picture of one pixel per cell, and beside it, as JSON, what each cell tells on hover.

    Parameters
    ----------
    shades : array of shape (R, C)
        From 0 to 1.
    rows, columns : sequences of str
        Their names.
    layers : sequence of (str, array of shape (R, C))
        What the text of a cell gives: shares, or counts.
    kinds : (str, str)
        What rows and columns are.
    label : str
        For those who hear the page.
    counts : bool
        Whether the layers hold counts.
    square : bool
        As high as wide; else the height grows with the rows.
    over : Markup
        A drawing over the picture.
    """
    named = columns if len(columns) <= _NAMED_COLUMNS else ()
    cell_names = Markup("").join(
        Markup("<span><bdi>{}</bdi></span>").format(short(c, 22)) for c in named
    )
    content = {
        "rows": [isolated(r) for r in rows],
        "columns": [isolated(c) for c in columns],
        "kinds": list(kinds),
        "scale": 1 if counts else 10,
        "unit": "" if counts else "%",
        "layers": [
            {"label": what, "values": _whole(values, 1 if counts else 1000)}
            for what, values in layers
        ],
    }
    return Markup(
        '{names}<div class="grid chart{kind}" tabindex="0" role="img" aria-label="{label}">'
        '<img alt="" height="{high}" src="{source}">{over}<span class="spot" hidden></span>'
        '<script type="application/json">{content}</script></div>'
    ).format(
        names=Markup('<div class="columns">{}</div>').format(cell_names) if named else "",
        kind=" square" if square else "",
        label=label,
        high=int(np.clip(16 * len(rows), 240, 640)),
        source=png(shades),
        over=over,
        content=htmlsafe_json_dumps(content, separators=(",", ":"), allow_nan=False),
    )


def _whole(values: ArrayLike, scale: int) -> list[list[int | None]]:
    table = scale * np.array(values, dtype=np.float64)
    if scale > 1:  # shares, which are shown inside 0 to 100%
        table = np.clip(table, 0, scale)
    return [[None if np.isnan(v) else round(v) for v in row] for row in table.tolist()]


def png(shades: Floats) -> str:
    """Draw shades (R, C) as a data address of a PNG: one colour, the larger the more opaque.

    Examples
    --------
    >>> png(np.array([[0.0, 1.0]]))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    levels = np.rint(255 * np.clip(np.nan_to_num(shades), 0, 1)).astype(np.uint8)
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

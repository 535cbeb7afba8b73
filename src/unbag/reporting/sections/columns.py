"""Which columns the model uses."""

from unbag.reporting.sources import Part, Sources
from unbag.reporting.text import text

__all__ = ["columns"]

_MOST_COLUMNS = 15  # in the table


def columns(sources: Sources) -> Part | None:
    """Give the columns that tell most, as shares of what all columns together tell."""
    found = sources.importances
    if found is None:
        return None
    shown = zip(found.columns, found.increase, found.deviation, strict=True)
    scale = max(found.gain, 1e-12)
    return {
        "rows": found.n_rows,
        "number": len(found.columns),
        "gain": found.gain,
        "largest": [
            {
                "column": text(name),
                "share": min(max(value / scale, 0.0), 1.0),  # wrong values may cost more than all
                "deviation": deviation / scale,
            }
            for name, value, deviation in list(shown)[:_MOST_COLUMNS]
        ],
    }

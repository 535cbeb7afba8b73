"""Results that show themselves: as text, as HTML in a notebook, and as a table of pandas."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from unbag.validation import import_optional

__all__ = ["Shown", "Summary", "data_frame"]

Rows = Sequence[Sequence[object]]
_LONGEST_NUMBER = 24  # characters, with its unit
_MOST_ROWS = 60  # of a table; the first ones are shown, and how many were left out


@dataclass(frozen=True)
class Summary:
    """A titled table with sentences below it; print it, or let a notebook show it.

    Parameters
    ----------
    title : str
    columns : sequence of str
        Names of the columns; all but the first are aligned to the right.
    rows : sequence of rows
        What is in them, as it is to be shown.
    sentences : sequence of str
        What the reader must know besides.

    Examples
    --------
    >>> print(Summary("2 bags", ["bag", "rows"], [["north", 120], ["south", 80]], ["A note."]))
    2 bags
    bag    rows
    north   120
    south    80
    A note.
    """

    title: str
    columns: Sequence[str]
    rows: Rows
    sentences: Sequence[str] = ()

    def __str__(self) -> str:
        table = [tuple(self.columns), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
            for row in table
        ]
        return "\n".join([self.title, *lines, *self._all_sentences()])

    def _repr_html_(self) -> str:
        cells = self._cells()
        sides = [_side(column) for column in zip(*cells, strict=True)] or len(self.columns) * [""]
        sides[0] = "left"
        names = Markup("").join(map(_head, self.columns, sides))
        rows = Markup("").join(
            Markup("<tr>{}{}</tr>").format(
                _head(row[0], "left"), Markup("").join(map(_cell, row[1:], sides[1:]))
            )
            for row in cells
        )
        sentences = Markup("").join(Markup("<p>{}</p>").format(s) for s in self._all_sentences())
        return str(
            Markup(
                "<div><strong>{}</strong><table><thead><tr>{}</tr></thead><tbody>{}</tbody>"
                "</table>{}</div>"
            ).format(escape(self.title), names, rows, sentences)
        )

    def _cells(self) -> list[tuple[str, ...]]:
        return [tuple(map(str, row)) for row in self.rows[:_MOST_ROWS]]

    def _all_sentences(self) -> list[str]:
        more = len(self.rows) - _MOST_ROWS
        left_out = [f"{more:,} more rows are not shown; to_frame() has all."] if more > 0 else []
        return [*left_out, *self.sentences]


def _side(column: Sequence[str]) -> str:
    """Numbers stand at the right, long texts at the left."""
    return "left" if max(map(len, column)) > _LONGEST_NUMBER else "right"


def _head(text: str, side: str) -> Markup:
    return Markup('<th style="text-align: {}; padding: 0.2em 0.6em">{}</th>').format(side, text)


def _cell(text: str, side: str) -> Markup:
    return Markup('<td style="text-align: {}; padding: 0.2em 0.6em">{}</td>').format(side, text)


class Shown:
    """What every result offers: ``summary()``, and HTML in a notebook.

    A result also has ``to_frame()``, a DataFrame of pandas, and ``plot(ax=None)``, which draws it
    with matplotlib and returns the axes.
    """

    __slots__ = ()

    @abstractmethod
    def summary(self) -> Summary:
        """Give what there is to read; print it, or let a notebook show it."""

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def data_frame(columns: dict[Any, Any], index: Any = None, name: str | None = None) -> Any:
    """Make a DataFrame of pandas of columns by name; its index may be given, and named."""
    pandas = import_optional("pandas", "plot")
    return pandas.DataFrame(columns, None if index is None else pandas.Index(index, name=name))

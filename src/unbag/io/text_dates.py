"""Columns of text that may be dates."""

from collections.abc import Callable
from typing import Any

from unbag.io.column import Choice, ColumnFit, Learning
from unbag.io.column_types import TEXT_DATES, parse_dates
from unbag.io.numeric import Date

__all__ = ["learn_text"]


def learn_text(fit: ColumnFit, as_text: Callable[[ColumnFit], Learning]) -> Learning:
    """Learn a column of text: as dates where all values are of one form, else as text.

    Parameters
    ----------
    fit
        The column.
    as_text
        How text is learned that holds no dates.
    """
    text = _started(as_text(fit))
    dates: dict[str, Any] = {form: _started(Date.learn(fit)) for form in TEXT_DATES}
    while (array := (yield)) is not None:
        text.send(array)
        for form in list(dates):
            read = parse_dates(array, form)
            if read.null_count:
                del dates[form]
            else:
                dates[form].send(read)
    if len(dates) == 1:
        ((form, learning),) = dates.items()
        choice = _ended(learning)
        chosen = tuple(
            Date(c.column, c.mean, c.scale, c.cycles, c.zoned, form)
            for c in choice.columns
            if isinstance(c, Date)
        )
        note = f"Column {fit.column!r} is text that is read as dates, such as {form}."
        return Choice(chosen, choice.reason, note if chosen else "")
    choice = _ended(text)
    if dates:
        remedy = f"Column {fit.column!r} may be dates, {' or '.join(dates)}; it is read as text."
        return Choice(choice.columns, choice.reason, f"{remedy} {choice.note}".strip())
    return choice


def _started(learning: Learning) -> Learning:
    next(learning)
    return learning


def _ended(learning: Any) -> Choice:
    """Tell a column that all values are in, and take its choice."""
    try:
        learning.send(None)
    except StopIteration as end:
        choice: Choice = end.value
        return choice
    raise AssertionError("a column learns until it is told the end")

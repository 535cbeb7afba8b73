"""How the columns of a table become numbers; part of every model trained on a table."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.io.column_types import plain_type
from unbag.io.columns import Category, Encoder, encoder_from_dict
from unbag.io.summaries import summary_of
from unbag.io.tables import TableFiles, batch_rows_of
from unbag.validation import invalid, shorten

__all__ = ["Progress", "TableEncoding"]

Progress = Callable[[int, int | None], None]  # called with rows done, and rows in all if known

_MAX_FEATURES = 100_000
_FORMAT = 1
_CHUNK = 65_536  # rows encoded at a time, so that a column stays in the processor's cache


class TableEncoding:
    r"""How the columns of a table become numbers.

    ===================  =========================================================================
    column               features
    ===================  =========================================================================
    number               standardised over the training rows; decimals count as floats, durations
                         and times of day in seconds
    true or false        1 or 0
    text                 1 or 0 for every frequent value (at least 10 rows, fewer in tables under
                         1,000 rows, and at least one row in a thousand; at most 100 values); one
                         more feature for all other values
    date or time         days, standardised; sine and cosine of the year, the week and the day
                         where the rows span more than one of these and differ within it; in UTC
                         where there is a time zone
    missing values       the mean (0 for text), and a feature that tells where, if any were
                         missing in training
    ===================  =========================================================================

    Left out, with a reason: columns of one value, whole numbers that only number the rows, text
    that looks like ids or sentences, and types such as lists and bytes. Whole numbers that stand
    for categories stay numbers; make them text to have them as categories.

    Parameters
    ----------
    encoders
        One or more of every encoded column, in order.
    left_out
        Columns that are not encoded, with the reason.
    notes
        What a user should know, one sentence each.

    Attributes
    ----------
    columns
        Names of the columns that :meth:`transform` needs.
    text_columns
        Those among them that hold text: a CSV file must be read with ``TableFiles(paths,
        text=encoding.text_columns)``, or text such as "1" would be taken for a number.
    feature_names, n_features
        Names and number d of the features.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rows.csv")
    ...     _ = file.write_text("age,city\n30,Oulu\n50,Turku\n30,Turku\n50,Oulu\n")
    ...     table = TableFiles(file)
    ...     encoding = TableEncoding.fit(table)
    ...     X = encoding.transform(next(table.batches()))
    >>> encoding.feature_names
    ('age', 'city=Oulu', 'city=Turku')
    >>> X[:2]
    array([[-1.,  1.,  0.],
           [ 1.,  0.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        encoders: Sequence[Encoder],
        *,
        left_out: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.encoders = tuple(encoders)
        self.left_out = dict(left_out or {})
        self.notes = tuple(notes)
        self.columns = tuple(dict.fromkeys(encoder.column for encoder in self.encoders))
        self.text_columns = tuple(e.column for e in self.encoders if isinstance(e, Category))
        self.feature_names = tuple(
            name for encoder in self.encoders for name in encoder.feature_names
        )
        self.n_features = len(self.feature_names)

    def __repr__(self) -> str:
        return f"TableEncoding({len(self.columns)} columns, {self.n_features} features)"

    @classmethod
    def fit(
        cls,
        table: TableFiles,
        *,
        columns: Sequence[str] | None = None,
        leave_out: Collection[str] = (),
        progress: Progress | None = None,
    ) -> "TableEncoding":
        """Choose the encoding of a table in one pass over its rows.

        Parameters
        ----------
        table
            The training rows.
        columns
            Columns to use; one that cannot be encoded is an error. By default all that can.
        leave_out
            Columns not to use.
        progress
            Called with the rows done and the rows in all.
        """
        table.check_columns("leave_out", leave_out)
        if columns is not None:
            table.check_columns("columns", columns)
            if both := [name for name in columns if name in leave_out]:
                raise invalid("columns", "no columns to leave out", f"{shorten(both)} in both")
        names = table.schema.names if columns is None else list(columns)
        names = [name for name in names if name not in leave_out]
        if not names:
            remedy = f"the table has {shorten(table.schema.names, limit=20)}."
            got = f"none besides {shorten(sorted(leave_out), limit=20)}"
            raise invalid("columns", "at least one column to learn from", got, remedy)
        summaries = [
            summary_of(name, table.schema.field(name).type, columns is not None) for name in names
        ]
        done = 0
        for batch in table.batches(names, batch_rows=batch_rows_of(len(names))):
            for summary, array in zip(summaries, batch.columns, strict=True):
                summary.update(array)
            done += len(batch)
            if progress is not None:
                progress(done, table.n_rows)
        encoders: list[Encoder] = []
        left_out, notes = {}, []
        for summary in summaries:
            choice = summary.choose()
            encoders += choice.encoders
            if choice.reason and columns is not None:
                remedy = "take it out of columns."
                got = f"one that cannot: {choice.reason}"
                raise invalid(f"column {summary.column!r}", "one that can be encoded", got, remedy)
            if choice.reason:
                left_out[summary.column] = choice.reason
                notes.append(f"Column {summary.column!r} is left out: {choice.reason}.")
            if choice.note:
                notes.append(choice.note)
        if not encoders:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
            raise invalid("the table", "one with a column to learn from", f"none ({reasons[:500]})")
        encoding = cls(encoders, left_out=left_out, notes=notes)
        _check_size(encoding.n_features)
        return encoding

    def transform(self, batch: pa.RecordBatch) -> NDArray[np.float32]:
        """Encode rows. Shape (n, d), float32, all finite.

        The batch needs the columns of the training table that are in use, of types that convert
        without loss (whole numbers to floats, dictionaries to text); others are ignored. A value
        may be missing where none was in training: it takes the mean, and nothing else tells so.
        """
        arrays = self._arrays(batch)
        X = np.empty((len(batch), self.n_features), dtype=np.float32)
        for start in range(0, len(batch), _CHUNK):
            rows = X[start : start + _CHUNK]
            feature = 0
            for encoder in self.encoders:
                stop = feature + len(encoder.feature_names)
                array = arrays[encoder.column].slice(start, _CHUNK)
                encoder.write(array, rows[:, feature:stop])
                feature = stop
        return X

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse a table that lacks a column, or has one of another kind than in training."""
        missing = [name for name in self.columns if name not in schema.names]
        if missing:
            got = f"none called {shorten(missing)}"
            remedy = f"it has {shorten(schema.names, limit=20)}."
            raise invalid("the table", "one with the columns of training", got, remedy)
        for encoder in self.encoders:
            dtype = plain_type(schema.field(encoder.column).type)
            if not (pa.types.is_null(dtype) or encoder.accepts(dtype)):
                allowed = f"{encoder.wants}, as in training"
                remedy = "convert it."
                raise invalid(f"column {encoder.column!r}", allowed, f"type {dtype}", remedy)

    def _arrays(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        self.check_schema(batch.schema)
        arrays = {}
        for name in self.columns:
            array = batch.column(name)
            plain = plain_type(array.type)
            arrays[name] = array if plain == array.type else array.cast(plain)
        return arrays

    def to_dict(self) -> dict[str, Any]:
        """Give the encoding as plain values for JSON; :meth:`from_dict` gives it back exactly."""
        return {
            "kind": "table",
            "format": _FORMAT,
            "encoders": [encoder.to_dict() for encoder in self.encoders],
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, values: Any) -> "TableEncoding":
        """Make an encoding of what :meth:`to_dict` gave; anything else is an error."""
        fields = ("kind", "format", "encoders", "left_out", "notes")
        if not isinstance(values, Mapping) or set(values) != set(fields):
            raise invalid("encoding", f"a mapping of {shorten(fields)}", _outline(values))
        if values["kind"] != "table" or values["format"] != _FORMAT:
            got = f"{values['kind']!r:.50}, {values['format']!r:.50}"
            raise invalid("kind and format of the encoding", f"'table', {_FORMAT}", got)
        items, left_out, notes = (values[name] for name in fields[2:])
        if not isinstance(items, list) or not 0 < len(items) <= _MAX_FEATURES:
            raise invalid("encoders", f"a list of 1 to {_MAX_FEATURES:,}", _outline(items))
        if not isinstance(left_out, Mapping) or not _are_texts([*left_out, *left_out.values()]):
            raise invalid("left_out", "a mapping of columns to reasons", _outline(left_out))
        if not isinstance(notes, list) or not _are_texts(notes):
            raise invalid("notes", "a list of texts", _outline(notes))
        encoders = []
        for i, item in enumerate(items):
            try:
                encoders.append(encoder_from_dict(item))
            except InvalidInputError as error:
                raise InvalidInputError(f"Encoder {i} of the encoding: {error}") from None
        parts = [(encoder.column, encoder.kind == "missing") for encoder in encoders]
        if len(set(parts)) < len(parts):
            raise invalid("encoders", "of different columns", "a column more than once")
        encoding = cls(encoders, left_out=left_out, notes=notes)
        _check_size(encoding.n_features)
        return encoding


def _check_size(n_features: int) -> None:
    if n_features > _MAX_FEATURES:
        remedy = "choose columns, or leave some out."
        raise invalid("features of the table", f"at most {_MAX_FEATURES:,}", n_features, remedy)


def _are_texts(values: Sequence[object]) -> bool:
    return len(values) <= 2 * _MAX_FEATURES and all(isinstance(value, str) for value in values)


def _outline(value: object) -> str:
    """Describe a value of any size for a message."""
    kind = type(value).__name__
    if isinstance(value, Mapping):
        return f"{kind} of {shorten((str(key)[:50] for key in value), limit=10)}"
    return f"{kind} of {len(value)}" if isinstance(value, list) else f"{kind} {value!r:.50}"

"""How the columns of a table become numbers; part of every model trained on a table."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.io.column import ColumnFit, Missing
from unbag.io.column_types import as_plain, empty_as_null, plain_type
from unbag.io.columns import AnyColumn, Category, kind_of
from unbag.io.drift import Drift, Seen
from unbag.io.frame_table import FrameTable
from unbag.io.input_rows import Encoding, Progress
from unbag.io.tables import Table, batch_rows_of
from unbag.io.text import Text
from unbag.validation import invalid, shorten

__all__ = ["TableEncoding"]

MAX_FEATURES = 100_000
CHUNK = 65_536  # rows encoded at a time, so that a column stays in the processor's cache

Encoders = Annotated[tuple[AnyColumn, ...], msgspec.Meta(min_length=1, max_length=MAX_FEATURES)]


class TableEncoding(Encoding, frozen=True, tag="table", dict=True):
    r"""How the columns of a table become numbers.

    ===================  =========================================================================
    column               features
    ===================  =========================================================================
    number               standardised over the training rows; decimals count as floats, durations
                         and times of day in seconds
    true or false        1 or 0
    text                 1 or 0 for every frequent value (at least 10 rows, fewer in tables under
                         1,000 rows, and at least one row in a thousand; at most 100 values); one
                         more feature for all other values; where most rows have a rarer value,
                         also the features of words
    words                sentences, and lists of words: words and parts of words, hashed and
                         reduced to at most 32 features (latent semantic analysis)
    date or time         days, standardised; sine and cosine of the year, the week and the day
                         where the rows span more than one of these and differ within it; in UTC
                         where there is a time zone. Text that is written as dates throughout
                         (2024-01-31, 31.01.2024, 31/01/2024, 01/31/2024, ...) counts as dates
    missing values       the mean (0 for text), and an indicator feature that marks them, if any
                         were missing in training; an empty text is missing
    ===================  =========================================================================

    Left out, with a reason: columns of one value, whole numbers that only number the rows, text
    that looks like ids, and types such as lists of numbers and bytes. Whole numbers that stand for
    categories stay numbers; make them text to have them as categories.

    Parameters
    ----------
    encoders
        One or more for every encoded column, in order.
    left_out
        Columns that are not encoded, with the reason.
    notes
        What a user should know, one sentence each.
    format
        Of what JSON keeps.
    seen
        What the columns held in training, so that other rows can be compared with it.

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
    >>> cities = ["Oulu", "Turku", "Turku", "Oulu"]
    >>> table = FrameTable(pa.table({"age": [30, 50, 30, 50], "city": cities}))
    >>> encoding = TableEncoding.fit(table)
    >>> X = encoding.transform(next(table.batches()))
    >>> encoding.feature_names
    ('age', 'city=Oulu', 'city=Turku')
    >>> X[:2]
    array([[-1.,  1.,  0.],
           [ 1.,  0.,  1.]], dtype=float32)
    """

    encoders: Encoders
    left_out: Annotated[dict[str, str], msgspec.Meta(max_length=MAX_FEATURES)] = msgspec.field(
        default_factory=dict
    )
    notes: Annotated[tuple[str, ...], msgspec.Meta(max_length=2 * MAX_FEATURES)] = ()
    format: Literal[1] = 1
    seen: Annotated[dict[str, Seen], msgspec.Meta(max_length=MAX_FEATURES)] = msgspec.field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        """Refuse a column that is encoded twice, and too many features."""
        parts = {
            (encoder.column, type(encoder) if isinstance(encoder, Missing | Text) else None)
            for encoder in self.encoders
        }
        if len(parts) < len(self.encoders):
            raise invalid("encoders", "of different columns", "a column more than once")
        if self.n_features > MAX_FEATURES:
            remedy = "choose columns, or leave some out."
            allowed = f"at most {MAX_FEATURES:,}"
            raise invalid("number of features of the table", allowed, self.n_features, remedy)

    def __repr__(self) -> str:
        return f"TableEncoding({len(self.columns)} columns, {self.n_features} features)"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are encoded."""
        return tuple(dict.fromkeys(encoder.column for encoder in self.encoders))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of the columns that hold text."""
        names = (e.column for e in self.encoders if isinstance(e, Category | Text))
        return tuple(dict.fromkeys(names))

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for encoder in self.encoders for name in encoder.feature_names)

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Name of the column that each feature comes from."""
        return tuple(encoder.column for encoder in self.encoders for _ in encoder.feature_names)

    @property
    def row_shape(self) -> tuple[int]:
        """(d,)."""
        return (len(self.feature_names),)

    @classmethod
    def fit(
        cls,
        table: Table,
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
        names = _names_to_use(table, columns, leave_out)
        fits = []
        for name in names:
            dtype = table.schema.field(name).type
            fits.append(ColumnFit(name, dtype, kind_of(dtype), columns is not None))
        done = 0
        for batch in table.batches(names, batch_rows=batch_rows_of(len(names))):
            for fit, array in zip(fits, batch.columns, strict=True):
                fit.update(array)
            done += len(batch)
            if progress is not None:
                progress(done, table.n_rows)
        encoders: list[Any] = []
        left_out: dict[str, str] = {}
        notes: list[str] = []
        for fit in fits:
            choice = fit.choose()
            encoders += choice.columns
            if choice.reason and columns is not None:
                remedy = "take it out of columns."
                got = f"one that cannot: {choice.reason}"
                raise invalid(f"column {fit.column!r}", "one that can be encoded", got, remedy)
            if choice.reason:
                left_out[fit.column] = choice.reason
                notes.append(f"Column {fit.column!r} is left out: {choice.reason}.")
            if choice.note:
                notes.append(choice.note)
        if not encoders:
            reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
            wanted = "a table with a column to learn from"
            raise invalid("rows", wanted, f"none ({reasons[:500]})")
        return cls(tuple(encoders), left_out, tuple(notes))

    def without(self, reasons: Mapping[str, str]) -> tuple["TableEncoding", NDArray[np.bool_]]:
        """Leave out columns, with the reasons; and tell which features are left, (d,)."""
        left = np.array([column not in reasons for column in self.feature_columns])
        rest = msgspec.structs.replace(
            self,
            encoders=tuple(e for e in self.encoders if e.column not in reasons),
            left_out={**self.left_out, **reasons},
            seen={name: seen for name, seen in self.seen.items() if name not in reasons},
        )
        return rest, left

    def transform(self, rows: Any, drift: Drift | None = None) -> NDArray[np.float32]:
        """Encode rows of a record batch or of any table. Shape (n, d), float32, all finite.

        The table needs the columns of the training table that are in use, of types that convert
        without loss (whole numbers to floats, dictionaries to text); others are ignored. A value
        may be missing where none was in training: it takes the mean, and no feature marks it.
        ``drift`` takes in what the columns hold.
        """
        if not isinstance(rows, pa.RecordBatch):
            table = rows if isinstance(rows, FrameTable) else FrameTable(rows)
            self.check_schema(table.schema)
            batches = table.batches(self.columns)
            return np.concatenate([self.transform(batch, drift) for batch in batches])
        batch = rows
        self.check_schema(batch.schema)
        arrays = self._arrays(batch)
        if drift is not None:
            drift.update(arrays)
        X = np.empty((len(batch), self.n_features), dtype=np.float32)
        for start in range(0, len(batch), CHUNK):
            part = X[start : start + CHUNK]
            feature = 0
            for encoder in self.encoders:
                stop = feature + len(encoder.feature_names)
                encoder.write(arrays[encoder.column].slice(start, CHUNK), part[:, feature:stop])
                feature = stop
        return X

    def compare(self, rows: Any) -> tuple[str, ...]:
        """Say where the rows of a table differ from those of training, one sentence each."""
        drift = Drift(self)
        self.transform(rows, drift)
        return drift.messages()

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse a table that lacks a column, or has one of another kind than in training."""
        known = set(schema.names)
        missing = [name for name in self.columns if name not in known]
        if missing:
            got = f"none called {shorten(missing)}"
            remedy = f"it has {shorten(schema.names, limit=20)}."
            raise invalid("rows", "a table with the columns of training", got, remedy)
        for encoder in self.encoders:
            dtype = plain_type(schema.field(encoder.column).type)
            if not (pa.types.is_null(dtype) or encoder.accepts(dtype)):
                allowed = f"{encoder.wants}, as in training"
                remedy = "convert it."
                raise invalid(f"column {encoder.column!r}", allowed, f"type {dtype}", remedy)

    def _arrays(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        arrays = {}
        for name in self.columns:
            arrays[name] = empty_as_null(as_plain(batch.column(name)))
        for encoder in self.encoders:
            # Models of older versions may know the empty text as a value of a Parquet column.
            if isinstance(encoder, Category) and "" in encoder.levels:
                arrays[encoder.column] = as_plain(batch.column(encoder.column))
        return arrays


def _names_to_use(
    table: Table, columns: Sequence[str] | None, leave_out: Collection[str]
) -> list[str]:
    table.check_columns("leave_out", leave_out)
    if columns is not None:
        table.check_columns("columns", columns)
        if both := [name for name in columns if name in leave_out]:
            raise invalid("columns", "other columns than leave_out", f"{shorten(both)} in both")
    names = table.schema.names if columns is None else columns
    names = [name for name in names if name not in leave_out]
    if not names:
        remedy = f"the table has {shorten(table.schema.names, limit=20)}."
        got = f"none besides {shorten(sorted(leave_out), limit=20)}"
        raise invalid("columns", "at least one column to learn from", got, remedy)
    return names

"""What all kinds of columns share, and what a column gives once it is learned."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.io.column_types import empty_as_null, is_missing
from unbag.validation import invalid, shorten

__all__ = [
    "CHOOSE",
    "CONSTANT",
    "MIN_ID_ROWS",
    "Choice",
    "Column",
    "ColumnFit",
    "Learning",
    "Missing",
    "check_different",
]

MIN_ID_ROWS = 20  # so few increasing whole numbers may be increasing by chance
CONSTANT = "all its values are the same"
CHOOSE = "to use it anyway, name it in columns (--columns)"


@dataclass(frozen=True)
class Choice:
    """The features of a column, or the reason why it has none; and a note on what is lost."""

    columns: tuple["Column", ...] = ()
    reason: str = ""
    note: str = ""


Learning: TypeAlias = Generator[None, Any, Choice]
"""Takes in the values of a column, batch by batch, then None, and returns the choice."""


class Column(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """The features of one column.

    Missing values become the mean of the training rows (0 for a category), also where none was
    missing in training.
    """

    column: str

    @property
    def wants(self) -> str:
        """What the column must hold, for messages."""
        return "anything"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order in which they are written."""
        return (self.column,)

    @classmethod
    def learn(cls, fit: "ColumnFit") -> Learning:
        """Learn the encoding of a column from its values, of which none is missing."""
        raise NotImplementedError

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether a column of this (plain) type can be encoded."""
        raise NotImplementedError

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write the features of n values to ``out``, of shape (n, number of features)."""
        raise NotImplementedError


class Missing(Column, frozen=True, tag="missing"):
    """1 where the value is missing, else 0."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name."""
        return (f"{self.column} is missing",)

    def accepts(self, dtype: pa.DataType) -> bool:  # noqa: ARG002 - the same for all types
        """Any type will do."""
        return True

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature."""
        out[:, 0] = is_missing(array)


class ColumnFit:
    """One column while its features are chosen.

    Parameters
    ----------
    column
        Its name.
    dtype
        Its (plain) type.
    kind
        What the column is learned as; None for types that nothing can be learned from.
    chosen
        Whether the user named it, so that it is used even where it looks like an id.
    """

    def __init__(
        self, column: str, dtype: pa.DataType, kind: type[Column] | None, chosen: bool
    ) -> None:
        self.column, self.dtype, self.kind, self.chosen = column, dtype, kind, chosen
        self.n_rows = self.n_missing = 0
        self._choice = Choice()
        self._learning = self._learn()
        next(self._learning)

    @property
    def n_present(self) -> int:
        """Number of values that are not missing."""
        return self.n_rows - self.n_missing

    def update(self, array: pa.Array) -> None:
        """Take in the next values."""
        array = empty_as_null(array)
        missing = is_missing(array)
        self.n_missing += int(missing.sum())
        self.n_rows += len(array)
        if self.kind is not None and not missing.all():
            self._learning.send(array.filter(pa.array(~missing)) if missing.any() else array)

    def choose(self) -> Choice:
        """Choose the features, once all rows are in."""
        if not self.n_present:
            return Choice(reason="it is empty")
        if self.kind is None:
            return Choice(reason=f"values of type {self.dtype} are not numbers, text or dates")
        self._learning.send(None)
        choice = self._choice
        if not self.n_missing or choice.reason not in ("", CONSTANT):
            return choice
        note = (
            f"{self.n_missing:,} of {self.n_rows:,} values of column {self.column!r} are missing; "
            "an indicator feature marks them."
        )
        columns = (*choice.columns, Missing(self.column))
        return Choice(columns, note=f"{choice.note} {note}".strip())

    def _learn(self) -> Generator[None, Any, None]:
        if self.kind is not None:
            self._choice = yield from self.kind.learn(self)
        yield


def check_different(name: str, values: tuple[str, ...]) -> None:
    """Refuse a setting that lists a value twice."""
    if len(set(values)) < len(values):
        raise invalid(name, "all different", shorten(values))

"""All kinds of columns, and how one of them is chosen for a column of a table."""

from collections import Counter
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unbag.io.column import (
    CONSTANT,
    Choice,
    Column,
    ColumnFit,
    Learning,
    Missing,
    check_different,
)
from unbag.io.column_types import is_date, is_list_of_text, is_missing, is_text, quantity_of
from unbag.io.numeric import Date, Number
from unbag.io.text import Text, TextSample
from unbag.io.text_dates import learn_text
from unbag.validation import invalid

__all__ = ["AnyColumn", "Boolean", "Category", "Missing", "kind_of"]

MAX_LEVELS = 100  # values of a category that get one feature each
MAX_LEVEL_LENGTH = 1_000
MAX_DISTINCT = 50_000  # different values counted before a column is taken for ids or free text
MOST_IDS = 0.9  # different values per row, above which single words only name the rows
BETWEEN_WORDS = r"[\s,;|]"

Level = Annotated[str, msgspec.Meta(max_length=MAX_LEVEL_LENGTH)]


class Boolean(Column, frozen=True, tag="boolean"):
    """1 for true, 0 for false."""

    mean: Annotated[float, msgspec.Meta(ge=0, le=1)]

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return "true or false"

    @classmethod
    def learn(cls, fit: "ColumnFit") -> Learning:
        """Learn the share of true values."""
        n_true = 0
        while (array := (yield)) is not None:
            n_true += pc.sum(array).as_py()
        if n_true in (0, fit.n_present):
            return Choice(reason=CONSTANT)
        return Choice((cls(fit.column, n_true / fit.n_present),))

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is boolean."""
        return bool(pa.types.is_boolean(dtype))

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature."""
        out[:, 0] = array.cast(pa.float32()).fill_null(self.mean)


class Category(Column, frozen=True, tag="category"):
    """One feature per frequent value: 1 where the column has this value, else 0.

    If there were other values in training, the last feature is 1 for them and for values that
    were not seen. If there were none, values that were not seen have 0 in all features.
    """

    levels: Annotated[tuple[Level, ...], msgspec.Meta(min_length=1, max_length=MAX_LEVELS)]
    others: bool

    def __post_init__(self) -> None:
        """Refuse settings that no column gives."""
        if any("\ud800" <= character <= "\udfff" for character in "".join(self.levels)):
            raise invalid("levels", "texts in Unicode", "half a character")
        check_different("levels", self.levels)

    @property
    def wants(self) -> str:
        """What the column must hold."""
        return "text"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per frequent value, and one for the others."""
        names = tuple(f"{self.column}={level}" for level in self.levels)
        return (*names, f"{self.column} is another") if self.others else names

    @classmethod
    def learn(cls, fit: "ColumnFit") -> Learning:
        """Count the values; where most are rare or long, learn from their words too."""
        counts: Counter[str] = Counter()
        n_characters = n_of_words = 0
        sample = TextSample()
        while (array := (yield)) is not None:
            n_characters += pc.sum(pc.utf8_length(array)).as_py()
            n_of_words += pc.sum(pc.match_substring_regex(array, BETWEEN_WORDS)).as_py()
            sample.update(array)
            if len(counts) <= MAX_DISTINCT:
                counted = pc.value_counts(array)
                values, numbers = (counted.field(name).to_pylist() for name in ("values", "counts"))
                counts.update(dict(zip(values, numbers, strict=True)))
        if len(counts) == 1:
            return Choice(reason=CONSTANT)
        least = max(2, min(10, fit.n_rows // 100), fit.n_rows // 1_000)
        ranked = sorted(counts, key=lambda level: (-counts[level], level))[:MAX_LEVELS]
        levels = [v for v in ranked if counts[v] >= least and len(v) <= MAX_LEVEL_LENGTH]
        if len(counts) > MAX_DISTINCT:  # of which not all were counted
            levels, different = [], f"it has more than {MAX_DISTINCT:,} different values"
        else:
            different = f"it has {len(counts):,} different values in {fit.n_present:,} rows"
        n_rest = fit.n_present - sum(counts[level] for level in levels)
        rest = len(counts) - len(levels)
        categories = (cls(fit.column, tuple(sorted(levels)), rest > 0),) if levels else ()
        are_words = n_of_words < fit.n_present / 10  # one each
        are_ids = are_words and rest > MOST_IDS * n_rest  # or most of them
        if are_ids and not levels:
            return Choice(reason=f"{different}, all of them rare, like ids")
        if are_ids or n_rest <= fit.n_present / 2:
            note = f"{rest:,} rare values of column {fit.column!r} ({n_rest:,} rows) share one"
            return Choice(categories, note=f"{note} feature." if rest else "")
        text = sample.learn(fit.column)
        if text is None:
            return Choice(categories, reason="" if categories else CONSTANT)
        length = n_characters // fit.n_present
        kind = different if are_words else f"it is text of {length:,} characters on average"
        frequent = f"; {len(levels)} frequent values have a feature each" if levels else ""
        note = f"Column {fit.column!r} is read for its words: {kind}, and {text.summary}{frequent}."
        return Choice((*categories, text), note=note)

    def accepts(self, dtype: pa.DataType) -> bool:
        """Whether the type is text."""
        return is_text(dtype)

    def write(self, array: pa.Array, out: NDArray[np.float32]) -> None:
        """Write one feature per frequent value, and one for the others."""
        text = array.cast(pa.string())  # a column without any value has the type null
        codes = pc.index_in(text, value_set=pa.array(self.levels, pa.string()))
        if self.others:
            others = pa.array(np.where(is_missing(text), -1, len(self.levels)))
            codes = pc.coalesce(codes, others.cast(codes.type))
        positions = codes.fill_null(-1).to_numpy()
        rows = np.flatnonzero(positions >= 0)
        out[:] = 0
        out[rows, positions[rows]] = 1


class TextColumn(Column, frozen=True):
    """Text, which may be dates; what it is decides what it becomes."""

    @classmethod
    def learn(cls, fit: "ColumnFit") -> Learning:
        """Learn dates or categories."""
        return (yield from learn_text(fit, Category.learn))


AnyColumn: TypeAlias = Number | Boolean | Category | Date | Missing | Text


def kind_of(dtype: pa.DataType) -> type[Column] | None:
    """Choose the kind of column for a (plain) type; None where nothing can be learned from it."""
    if quantity_of(dtype):
        return Number
    if is_date(dtype):
        return Date
    if is_text(dtype):
        return TextColumn
    if is_list_of_text(dtype):
        return Text
    return Boolean if pa.types.is_boolean(dtype) else None

"""One CSV file: the types of its columns, and its rows in batches."""

from bisect import bisect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from unbag.io.column_types import common_type
from unbag.io.csv_text import MISSING_WORDS, Block, CsvText

__all__ = ["CsvTable"]

_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


class CsvTable:
    """A CSV file in UTF-8 with column names in its first line.

    Types are found in one pass over the whole file, so no later pass meets a value that does not
    fit: a column of whole numbers that holds 1.5 somewhere is float, a column of numbers that
    holds a word somewhere is text.

    Parameters
    ----------
    path
        The file.
    text
        Columns to read as text, whatever they hold.
    ids
        Columns to read as text exactly as it is written: NA may be Namibia, only nothing at all
        is missing.
    content
        The file that holds the content, where the file itself is compressed.
    """

    def __init__(
        self,
        path: Path,
        text: Collection[str] = (),
        ids: Collection[str] = (),
        *,
        content: Path | None = None,
    ) -> None:
        self.path = path
        self._ids = ids
        self._csv = CsvText(content or path, f"table {path}")
        self._decimal_point = self._find_decimal_point()
        notes = []
        if self._csv.delimiter != ",":
            notes.append(f"{path.name} is separated by {_DELIMITERS[self._csv.delimiter]}.")
        if self._decimal_point == ",":
            notes.append(f"{path.name} has decimal commas.")
        self.notes = tuple(notes)
        self._blocks: list[Block] = []
        self.n_rows = 0
        self.schema = self._infer({*text, *ids})

    def batches(
        self, columns: Sequence[str], *, batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of the columns, from row ``skip_rows`` on."""
        types = dict(zip(self.schema.names, self.schema.types, strict=True))
        first = bisect(self._blocks, skip_rows, key=lambda block: block.rows_before) - 1
        for block in self._blocks[max(0, first) :]:
            rows = self._csv.parse(block, types, columns, self._decimal_point)
            rows = rows.slice(max(0, skip_rows - block.rows_before))
            yield from self._mark_missing(rows).to_batches(batch_rows)

    def _mark_missing(self, rows: pa.Table) -> pa.Table:
        """Make missing values of the words for them; the parser does it in numbers only."""
        for i, field in enumerate(rows.schema):
            if pa.types.is_string(field.type):
                words = MISSING_WORDS[:1] if field.name in self._ids else MISSING_WORDS
                missing = pc.is_in(rows[i], value_set=pa.array(words))
                column = pc.if_else(missing, pa.scalar(None, pa.string()), rows[i])
                rows = rows.set_column(i, field, column)
        return rows

    def _find_decimal_point(self) -> str:
        """Take the decimal comma if it makes numbers of more columns of the first block."""
        n_floats = {".": 0, ",": 0}
        for point in n_floats if self._csv.delimiter != "," else ():
            types = self._csv.parse(self._csv.first, decimal_point=point).schema.types
            n_floats[point] = sum(map(pa.types.is_floating, types))
        return max(n_floats, key=lambda point: n_floats[point])  # the point, where both are equal

    def _infer(self, text: Collection[str]) -> pa.Schema:
        """Find types that fit all rows, and count these."""
        types = {name: pa.string() if name in text else pa.null() for name in self._csv.names}
        as_text = {name: pa.string() for name in text}
        for block in self._csv.blocks():
            block = replace(block, rows_before=self.n_rows)
            rows = self._csv.parse(block, as_text, decimal_point=self._decimal_point)
            for name, dtype in zip(rows.schema.names, rows.schema.types, strict=True):
                if pa.types.is_binary(dtype):
                    raise self._csv.not_utf8("other bytes")
                types[name] = common_type(types[name], dtype) or pa.string()
            self._blocks.append(block)
            self.n_rows += len(rows)
        return pa.schema([(name, types[name]) for name in self._csv.names])

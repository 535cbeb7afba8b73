"""One CSV file: its delimiter, the types of its columns, and its rows in batches."""

import codecs
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from unbag.exceptions import InvalidInputError
from unbag.io.column_types import common_type
from unbag.validation import invalid

__all__ = ["MISSING_WORDS", "CsvTable"]

MISSING_WORDS = ("", "NA", "NaN", "nan", "null", "NULL")
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_BLOCK = 4 << 20  # bytes parsed at a time; the longest row must fit
_SAMPLE = 1 << 16  # bytes looked at to find the delimiter


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
    """

    def __init__(self, path: Path, text: Collection[str] = (), ids: Collection[str] = ()) -> None:
        self.path = path
        self._ids = ids
        header = self._read_header()
        self._delimiter = max(_DELIMITERS, key=re.sub(r'"[^"]*"', "", header).count)
        self._decimal = self._find_decimal_point()
        notes = []
        if self._delimiter != ",":
            notes.append(f"{path.name} is separated by {_DELIMITERS[self._delimiter]}.")
        if self._decimal == ",":
            notes.append(f"{path.name} has decimal commas.")
        self.notes = tuple(notes)
        self.schema, self.n_rows = self._infer({*text, *ids})

    def batches(
        self, columns: Sequence[str], *, batch_rows: int, skip_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Read batches of the columns, from row ``skip_rows`` on."""
        try:
            for block in self._open(self.schema, columns, skip_rows):
                block = self._mark_missing(block)
                for start in range(0, len(block), batch_rows):
                    yield block.slice(start, batch_rows)
        except pa.ArrowInvalid as error:
            raise self._broken(error) from None

    def _mark_missing(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Make missing values of the words for them; the reader does it in numbers only."""
        columns = []
        for field, column in zip(block.schema, block.columns, strict=True):
            if pa.types.is_string(field.type):
                words = MISSING_WORDS[:1] if field.name in self._ids else MISSING_WORDS
                missing = pc.is_in(column, value_set=pa.array(words))
                column = pc.if_else(missing, pa.scalar(None, pa.string()), column)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=block.schema)

    def _read_header(self) -> str:
        """Read the first line with something in it, refusing what is no text."""
        try:
            with self.path.open("rb") as file:
                start = file.read(_SAMPLE)
        except OSError as error:
            reason = str(error.strerror)
            raise invalid(f"table {self.path}", "a readable file", reason) from None
        if start.startswith(b"PAR1"):
            remedy = "rename it to end in .parquet."
            raise invalid(f"table {self.path}", "a CSV file", "a Parquet file", remedy)
        if b"\0" in start:
            raise self._not_utf8("zero bytes, as in UTF-16 or in files that are no text")
        try:
            # The sample may end within a character; only a final decoder would mind.
            text = codecs.getincrementaldecoder("utf-8-sig")().decode(start)
        except UnicodeDecodeError as error:
            raise self._not_utf8(f"byte 0x{start[error.start]:02x} at {error.start}") from None
        lines = [line for line in text.splitlines() if line.strip()]
        if not lines:
            allowed = "a CSV file with column names in its first line"
            raise invalid(f"table {self.path}", allowed, "an empty file")
        return lines[0]

    def _find_decimal_point(self) -> str:
        """Take the decimal comma if it makes numbers of more columns of the first block."""
        if self._delimiter == ",":
            return "."
        floats = {}
        for self._decimal in (".", ","):
            try:
                types = self._open().schema.types
            except pa.ArrowInvalid as error:
                raise self._broken(error) from None
            floats[self._decimal] = sum(pa.types.is_floating(dtype) for dtype in types)
        return max(floats, key=lambda point: floats[point])  # the first of equals, the point

    def _infer(self, text: Collection[str]) -> tuple[pa.Schema, int]:
        """Find types that fit all rows, and count these."""
        schema: pa.Schema | None = None
        n_rows = 0
        while True:
            try:
                # Where a block does not fit, types are inferred again from this block on. Values
                # before it fit the wider types, too.
                wider = self._widen(schema, self._open(None, None, n_rows).schema, text)
                for block in self._open(wider, None, n_rows):
                    n_rows += len(block)
            except pa.ArrowInvalid as error:
                if "conversion error" not in str(error) or wider == schema:
                    raise self._broken(error) from None
                schema = wider
            else:
                return wider, n_rows

    def _widen(self, known: pa.Schema | None, found: pa.Schema, text: Collection[str]) -> pa.Schema:
        if any(pa.types.is_binary(dtype) for dtype in found.types):
            raise self._not_utf8("other bytes")
        types = []
        for i, field in enumerate(found):
            dtype = field.type if known is None else common_type(known.types[i], field.type)
            types.append(pa.string() if field.name in text or dtype is None else dtype)
        return pa.schema(list(zip(found.names, types, strict=True)))

    def _open(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        skip_rows: int = 0,
    ) -> pyarrow.csv.CSVStreamingReader:
        types = None if schema is None else dict(zip(schema.names, schema.types, strict=True))
        return pyarrow.csv.open_csv(
            self.path,
            # One thread, so that messages can tell the row.
            read_options=pyarrow.csv.ReadOptions(
                block_size=_BLOCK, use_threads=False, skip_rows_after_names=skip_rows
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types,
                include_columns=None if columns is None else list(columns),
                null_values=MISSING_WORDS,
                decimal_point=self._decimal,
            ),
        )

    def _broken(self, error: Exception) -> InvalidInputError:
        got = " ".join(str(error).split())[:200]
        if "UTF8" in got:
            return self._not_utf8(got)
        remedy = "quote values that hold the delimiter, a quote or a line break."
        if "straddling" in got:
            got = f"a row longer than {_BLOCK >> 20} MB, perhaps behind a quote that is not closed"
        allowed = "a CSV file whose rows have one value a column"
        return invalid(f"table {self.path}", allowed, got, remedy)

    def _not_utf8(self, got: str) -> InvalidInputError:
        remedy = "convert it, for example with: iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv"
        return invalid(f"table {self.path}", "a CSV file in UTF-8", got, remedy)

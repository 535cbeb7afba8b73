"""The text of a CSV file: how it is written, and its bytes in blocks of whole rows."""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv

from unbag.exceptions import InvalidInputError
from unbag.validation import invalid

__all__ = ["MISSING_WORDS", "Block", "CsvText"]

DELIMITERS = ",;\t|"
MISSING_WORDS = ("", "NA", "NaN", "nan", "null", "NULL")
BLOCK = 4 << 20  # bytes parsed at a time; the longest row must fit
SAMPLE = 1 << 16  # bytes looked at to find the delimiter
MARK = "\ufeff"  # the byte order mark, which may be before the first name
# A quote opens a value behind a delimiter or a line break; elsewhere it is a character.
OPENS = rf'(?:(?<=[\r\n{{0}}]")|(?<=\A")|(?<=\A{MARK}"))'
QUOTED = rf'"{OPENS}[^"]*+(?:""[^"]*+)*+"'
ROW = rf'(?:[^"\r\n]++|{QUOTED}|"(?!{OPENS}))*+'
WHOLE_ROWS = rf"(?:{ROW}[\r\n]++)*+({ROW})"  # and, as a group, the start of the next row


@dataclass(frozen=True)
class Block:
    """Some whole rows of a file: where they are, and how many rows are before them."""

    offset: int
    size: int
    rows_before: int


class CsvText:
    """A CSV file in UTF-8 with column names in its first line.

    The file is cut at line breaks that are not in quotes, and every block of rows is parsed by
    itself. Reading can therefore start at any block, whatever is before it: blank lines and line
    breaks in quotes need not be counted.

    Parameters
    ----------
    path
        The file.
    what
        What it is called in messages.
    delimiters
        The characters that may separate its values; the one that occurs most often in the line of
        column names is taken.

    Attributes
    ----------
    names
        Names of the columns.
    delimiter
        The character between the values.
    """

    def __init__(self, path: Path, what: str, delimiters: str = DELIMITERS) -> None:
        self.path, self.what = path, what
        plain = re.sub(QUOTED.format(re.escape(delimiters)), "quoted", self._sample())
        header = next((line for line in re.split("[\r\n]", plain) if line.strip()), "")
        self.delimiter = max(delimiters, key=header.count)
        self._rows = re.compile(WHOLE_ROWS.format(re.escape(self.delimiter)).encode())
        self.names: list[str] = []
        self.first = next(self.blocks())
        self.names = self.parse(self.first).column_names

    def blocks(self) -> Iterator[Block]:
        """Cut the file into blocks; the rows before each are counted with :meth:`parse`."""
        with self._open() as file:
            offset = 0
            while data := self._read(file, offset, BLOCK):
                size = self._whole_rows(data)
                yield Block(offset, size, 0)
                offset += size

    def parse(
        self,
        block: Block,
        types: Mapping[str, pa.DataType] | None = None,
        columns: Sequence[str] | None = None,
        decimal_point: str = ".",
    ) -> pa.Table:
        """Parse the rows of a block.

        Parameters
        ----------
        block
            One of :meth:`blocks`.
        types
            Types of columns; those of other columns are found from the values in the block.
        columns
            Names of the columns to read; all by default.
        decimal_point
            The decimal mark of numbers.
        """
        with self._open() as file:
            data = self._read(file, block.offset, block.size)
        try:
            return pyarrow.csv.read_csv(
                pa.BufferReader(data),
                # One thread, so that messages can tell the row.
                read_options=pyarrow.csv.ReadOptions(
                    column_names=self.names if block.offset else None,
                    block_size=BLOCK,
                    use_threads=False,
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=columns,
                    null_values=MISSING_WORDS,
                    true_values=["true", "True", "TRUE"],
                    false_values=["false", "False", "FALSE"],
                    decimal_point=decimal_point,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._broken(error, block) from None

    def parse_text(self, block: Block) -> list[pa.ChunkedArray]:
        """Give the columns of a block as text, exactly as it is written."""
        types = dict.fromkeys(self.names, pa.string())
        columns: list[pa.ChunkedArray] = self.parse(block, types).columns
        return columns

    def not_utf8(self, got: str) -> InvalidInputError:
        """Build the error for a file in another encoding."""
        remedy = "convert it, for example with: iconv -f WINDOWS-1252 -t UTF-8 OLD.csv > NEW.csv"
        return invalid(self.what, "a CSV file in UTF-8", got, remedy)

    def _whole_rows(self, data: bytes) -> int:
        """Count the bytes up to the last line break that is not in quotes."""
        match = self._rows.match(data)
        size, end = match.span(1) if match else (0, 0)
        if len(data) == BLOCK and size:
            return size
        if len(data) < BLOCK and end == len(data):  # the last rows of the file
            return end
        got = f"a row longer than {BLOCK >> 20} MB, perhaps behind a quote that is not closed"
        raise self._malformed(got if len(data) == BLOCK else "a quote that is not closed")

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise invalid(self.what, "a readable file", str(error.strerror)) from None

    def _read(self, file: BinaryIO, offset: int, size: int) -> bytes:
        try:
            file.seek(offset)
            return file.read(size)
        except OSError as error:
            raise invalid(self.what, "a readable file", str(error.strerror)) from None

    def _sample(self) -> str:
        """Decode the start of the file, refusing what is no text."""
        with self._open() as file:
            start = self._read(file, 0, SAMPLE)
        if start.startswith(b"PAR1"):
            raise invalid(
                self.what, "a CSV file", "a Parquet file", "rename it to end in .parquet."
            )
        if b"\0" in start:
            raise self.not_utf8("zero bytes, as in UTF-16 or in files that are no text")
        if not start.strip(b"\xef\xbb\xbf \t\r\n"):
            raise invalid(self.what, "a file with column names in its first line", "an empty file")
        try:
            # The sample may end within a character; only a final decoder would mind.
            return codecs.getincrementaldecoder("utf-8-sig")().decode(start)
        except UnicodeDecodeError as error:
            raise self.not_utf8(f"byte 0x{start[error.start]:02x} at {error.start}") from None

    def _broken(self, error: Exception, block: Block) -> InvalidInputError:
        """Say in other words what the parser found; it counts rows from the start of the block."""
        got = " ".join(str(error).split())[:200].removeprefix("CSV parse error: ")
        if "UTF8" in got:
            return self.not_utf8(got)
        before = block.rows_before - (block.offset == 0)  # the column names are a row, too
        return self._malformed(
            re.sub(r"Row #(\d+)", lambda match: f"row {int(match[1]) + before:,}", got)
        )

    def _malformed(self, got: str) -> InvalidInputError:
        remedy = "quote values that hold the delimiter, a quote or a line break."
        allowed = "a CSV file whose rows have one value per column"
        return invalid(self.what, allowed, got, remedy)

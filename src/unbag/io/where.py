"""Conditions on rows, such as ``year = 2024 and age >= 18``, read without running anything."""

import datetime
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from unbag.io.column_types import is_date, plain_type, quantity_of
from unbag.validation import invalid, shorten

__all__ = ["Condition", "parse_condition"]

_LONGEST, _DEEPEST = 10_000, 50  # characters, and parentheses within one another
_DIGITS = 30  # of a whole number; no column holds longer ones
_FORM = "a condition on columns, such as \"year = 2024 and district in ('north', 'south')\""
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")+"|`[^`]+`)
    |(?P<name>[^\W\d]\w*)
    |(?P<sign><=|>=|<>|!=|==|[=<>(),])
    )""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "==": pc.equal,
    "!=": pc.not_equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WRITTEN = {
    "date": "dates are written as '2024-01-31'.",
    "time of day": "times are written as '18:30' or '18:30:00'.",
}
_WORDS = ("and", "or", "not", "in", "is", "null", "between", "true", "false")
_Lookup: TypeAlias = Callable[[str], Any]
_Node: TypeAlias = Callable[[_Lookup, pa.Schema], Any]
"""Makes flags, or an expression, of what a lookup gives for columns; None where none is known."""


@dataclass(frozen=True)
class Condition:
    """A condition on the rows of a table.

    Nulls are as in SQL: a comparison with one is unknown, and rows of which the whole is unknown
    are left out.

    Attributes
    ----------
    text
        As it was written.
    columns
        The columns that it names.

    Examples
    --------
    >>> condition = parse_condition("age >= 18 and not city in ('Oulu', 'Turku')")
    >>> condition.columns
    ('age', 'city')
    >>> rows = pa.record_batch({"age": [17, 18, 40], "city": ["Espoo", "Espoo", "Oulu"]})
    >>> condition.filter(rows).to_pylist()
    [{'age': 18, 'city': 'Espoo'}]
    """

    text: str
    columns: tuple[str, ...]
    _node: _Node

    def check(self, schema: pa.Schema) -> None:
        """Refuse columns that a table does not have, and values that they cannot be compared to."""
        if unknown := [name for name in self.columns if name not in schema.names]:
            remedy = f"the table has {shorten(schema.names, limit=20)}."
            raise invalid("where", "a condition on its columns", shorten(unknown), remedy)
        self.expression(schema)

    def expression(self, schema: pa.Schema) -> pc.Expression:
        """Write the condition as Arrow does, to be pushed down to where rows are read."""
        return self._node(pc.field, schema)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keep the rows for which it is true."""
        return batch.filter(self._node(batch.column, batch.schema))

    def may_hold(self, constants: dict[str, pa.Scalar]) -> bool:
        """Whether it can be true for rows of which only these columns are known."""
        schema = pa.schema([(name, value.type) for name, value in constants.items()])
        result = self._node(constants.get, schema)
        return result is None or result.as_py() is not False


def parse_condition(text: Any) -> Condition:
    """Read a condition: comparisons, ``in``, ``between``, ``is null``, ``and``, ``or``, ``not``.

    Names of columns may be quoted ("my column"), text is in single quotes ('Oulu'), and dates are
    written as text ('2024-01-31').
    """
    if not isinstance(text, str) or not text.strip():
        raise invalid("where", _FORM, repr(text))
    if len(text) > _LONGEST:
        raise invalid("where", f"a condition of at most {_LONGEST:,} characters", f"{len(text):,}")
    parser = _Parser(text)
    node = parser.read_any()
    parser.expect_end()
    return Condition(text, tuple(dict.fromkeys(parser.columns)), node)


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []  # kind, text, place
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._wrong(place, "a column, a value or a sign")
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind], match.start(kind)))
            place = match.end()
        self._next = 0
        self._depth = 0
        self.columns: list[str] = []

    def read_any(self) -> _Node:
        """Read conditions that ``or`` joins."""
        nodes = [self._read_all()]
        while self._take("or"):
            nodes.append(self._read_all())
        return _joined(pc.or_kleene, nodes)

    def expect_end(self) -> None:
        """Refuse what comes after the condition."""
        if self._next < len(self._tokens):
            raise self._wrong(self._tokens[self._next][2], "and, or, or the end")

    def _read_all(self) -> _Node:
        nodes = [self._read_one()]
        while self._take("and"):
            nodes.append(self._read_one())
        return _joined(pc.and_kleene, nodes)

    def _read_one(self) -> _Node:
        negations = 0
        while self._take("not"):
            negations += 1
        if self._take("("):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise invalid("where", f"at most {_DEEPEST} parentheses deep", "more")
            node = self.read_any()
            self._expect(")")
            self._depth -= 1
        else:
            node = self._read_comparison()
        return _negated(node) if negations % 2 else node

    def _read_comparison(self) -> _Node:
        column = self._read_column()
        if self._take("is"):
            is_negated = self._take("not")
            self._expect("null")
            return _test(column, pc.is_valid if is_negated else _is_null)
        is_negated = self._take("not")
        if self._take("in"):
            self._expect("(")
            nodes = [_compared(column, pc.equal, self._read_value())]
            while self._take(","):
                nodes.append(_compared(column, pc.equal, self._read_value()))
            self._expect(")")
            node = _joined(pc.or_kleene, nodes)
            return _negated(node) if is_negated else node
        if self._take("between"):
            low = _compared(column, pc.greater_equal, self._read_value())
            self._expect("and")
            high = _compared(column, pc.less_equal, self._read_value())
            node = _joined(pc.and_kleene, [low, high])
            return _negated(node) if is_negated else node
        for sign, compare in _COMPARISONS.items():
            if not is_negated and self._take(sign):
                return _compared(column, compare, self._read_value())
        raise self._wrong(self._place(), "=, !=, <, <=, >, >=, in, between or is null")

    def _read_column(self) -> str:
        kind, text, place = self._peek()
        if kind == "quoted":
            name = text[1:-1].replace('""', '"') if text[0] == '"' else text[1:-1]
        elif kind == "name" and text.lower() not in _WORDS:
            name = text
        else:
            raise self._wrong(place, "the name of a column")
        self._next += 1
        self.columns.append(name)
        return name

    def _read_value(self) -> Any:
        kind, text, place = self._peek()
        self._next += 1
        if kind == "number":
            is_whole = text.lstrip("+-").isdigit() and len(text) < _DIGITS
            return int(text) if is_whole else float(text)
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "name" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise self._wrong(place, "a number, text in single quotes, true or false")

    def _peek(self) -> tuple[str, str, int]:
        end = ("end", "", len(self._text))
        return self._tokens[self._next] if self._next < len(self._tokens) else end

    def _place(self) -> int:
        return self._peek()[2]

    def _take(self, word: str) -> bool:
        kind, text, _ = self._peek()
        found = kind in ("name", "sign") and text.lower() == word
        self._next += found
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._wrong(self._place(), word)

    def _wrong(self, place: int, expected: str) -> Exception:
        rest = self._text[place : place + 30]
        got = f"{self._text!r}, in which {expected} should come "
        return invalid("where", _FORM, got + (f"at {rest!r}" if rest else "at the end"))


def _compared(column: str, compare: Callable[[Any, Any], Any], value: Any) -> _Node:
    def node(lookup: _Lookup, schema: pa.Schema) -> Any:
        given = _operand(lookup, schema, column)
        if given is None:
            return None
        literal = _literal(schema, column, value)
        if not _fits(plain_type(schema.field(column).type), literal.type):
            given = given.cast(literal.type, safe=False)
        return compare(given, literal)

    return node


def _fits(dtype: pa.DataType, other: pa.DataType) -> bool:
    """Whether Arrow compares these types for all values, the largest whole numbers too."""
    is_large = pa.types.is_int64(dtype) or pa.types.is_uint64(dtype)
    return not pa.types.is_null(dtype) and (dtype == other or not is_large)


def _test(column: str, test: Callable[[Any], Any]) -> _Node:
    def node(lookup: _Lookup, schema: pa.Schema) -> Any:
        given = _operand(lookup, schema, column)
        return None if given is None else test(given)

    return node


def _is_null(values: Any) -> Any:
    return pc.is_null(values, nan_is_null=True)


def _operand(lookup: _Lookup, schema: pa.Schema, column: str) -> Any:
    return lookup(column) if column in schema.names else None


def _joined(join: Callable[[Any, Any], Any], nodes: Sequence[_Node]) -> _Node:
    """Join conditions in halves, so that many of them are not many levels deep."""
    if len(nodes) == 1:
        return nodes[0]
    middle = len(nodes) // 2
    halves = [_joined(join, nodes[:middle]), _joined(join, nodes[middle:])]

    def node(lookup: _Lookup, schema: pa.Schema) -> Any:
        unknown = pa.scalar(None, pa.bool_())
        sides = [half(lookup, schema) for half in halves]
        return join(*(unknown if side is None else side for side in sides))

    return node


def _negated(inner: _Node) -> _Node:
    def node(lookup: _Lookup, schema: pa.Schema) -> Any:
        value = inner(lookup, schema)
        return None if value is None else pc.invert(value)

    return node


def _literal(schema: pa.Schema, column: str, value: Any) -> pa.Scalar:
    """Give a value the type that the column is compared as."""
    dtype = plain_type(schema.field(column).type)
    kind = quantity_of(dtype)
    if pa.types.is_null(dtype):  # of which nothing is known, whatever it is compared to
        return pa.scalar(None, pa.int8())
    try:
        if isinstance(value, bool):
            fits = pa.types.is_boolean(dtype)
        elif isinstance(value, int | float):
            fits = kind == "number"
        elif fits := dtype == pa.string() or is_date(dtype) or kind == "time of day":
            return _from_text(value, dtype)
        if fits:
            return _number(value, dtype)
    except (pa.ArrowException, ValueError):
        pass
    allowed = f"column {column!r} with values of its type, {dtype}"
    if dtype == pa.string():
        remedy = f"write text in single quotes: '{value}'."
    else:
        remedy = _WRITTEN.get("date" if is_date(dtype) else kind or "", "")
    raise invalid("where", f"a condition that compares {allowed}", repr(value), remedy)


def _number(value: float, dtype: pa.DataType) -> pa.Scalar:
    """Keep whole numbers exact where the column can hold them."""
    if isinstance(value, bool):
        return pa.scalar(value)
    if isinstance(value, int) and pa.types.is_integer(dtype):
        with suppress(pa.ArrowInvalid, OverflowError):  # beyond what it can hold
            return pa.scalar(value, dtype)
    return pa.scalar(value if pa.types.is_decimal(dtype) else float(value))


def _from_text(value: str, dtype: pa.DataType) -> pa.Scalar:
    """Read text as a value of a column of text, dates or times; those without a zone are UTC."""
    if pa.types.is_time(dtype):
        return pa.scalar(datetime.time.fromisoformat(value)).cast(dtype)
    zone = getattr(dtype, "tz", None)
    if zone is None:
        return pa.scalar(value).cast(dtype)
    try:
        return pa.scalar(value).cast(dtype)
    except pa.ArrowException:
        naive = pa.scalar(value).cast(pa.timestamp(dtype.unit))
        return pc.assume_timezone(naive, "UTC").cast(dtype)

"""Tables of odd values, written as CSV in many ways."""

import random
from dataclasses import dataclass

from hypothesis import strategies as st

from fuzzing import seeds

WORDS = ("", "NA", "NaN", "nan", "null", "NULL")  # missing values
LETTERS = "abcxyzÅü ß'._-/:#=%$\\\t;|0189"
ODD = ["\n", "\r\n", "\r", '"', '""', ",", "\u2028", "\x85", "\u202e", "\U0001f600", "\x1b", "a\n\nb"]
KINDS = ("float", "int", "text", "bool", "date", "time", "odd text", "mixed", "missing", "huge")


def value(kind: str, rng: random.Random) -> str:
    """The text of one cell."""
    match kind:
        case "float":
            return repr(rng.choice([rng.gauss(0, 1), rng.uniform(-1e6, 1e6), round(rng.random(), 2)]))
        case "int":
            return str(rng.choice([rng.randrange(5), rng.randrange(-1000, 1000), rng.randrange(2**40)]))
        case "text":
            return "".join(rng.choices("abcdeABC", k=rng.randrange(1, 5)))
        case "bool":
            return rng.choice(["true", "false", "True", "False", "TRUE", "FALSE"])
        case "date":
            return f"{rng.randrange(1, 9999):04d}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
        case "time":
            return f"{rng.randrange(1700, 2200):04d}-05-{rng.randrange(1, 29):02d} {rng.randrange(24):02d}:07:59"
        case "odd text":
            return "".join(rng.choices([*LETTERS, *ODD], k=rng.randrange(0, 8)))
        case "missing":
            return rng.choice(WORDS)
        case "huge":
            return rng.choice(["1e308", "-1e300", "3e38", "1e19", "inf", "-inf", "1e-320", "9" * 19, "0", "2"])
        case _:
            return value(rng.choice([k for k in KINDS if k != "mixed"]), rng)


@dataclass(frozen=True)
class Table:
    names: list[str]
    cells: list[list[str]]  # rows


@dataclass(frozen=True)
class Written:
    """A table and the bytes of a CSV file that holds it."""

    table: Table
    delimiter: str
    data: bytes
    is_damaged: bool
    is_readable: bool  # by everybody in the same way


@st.composite
def csv_files(draw, least_columns: int = 2) -> Written:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=least_columns, max_size=5))
    n_rows = draw(st.integers(1, 30))
    share_missing = draw(st.sampled_from([0, 0, 0.2, 0.9]))
    odd_names = draw(st.booleans())
    delimiter = draw(st.sampled_from(",,,;\t|"))
    newline = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    blank_lines = draw(st.sampled_from([0, 0, 0.1, 0.5]))
    quoting = draw(st.sampled_from([0, 0.2, 1]))
    mark = draw(st.booleans())
    ends = draw(st.booleans())
    damage = draw(st.sampled_from([None] * 12 + ["cut", "byte", "row", "quote", "name", "zero"]))
    rng = random.Random(draw(seeds()))
    names = [f"c{i}" for i in range(len(kinds))]
    if odd_names:
        names = [value("odd text", rng).strip() + f" {i}" for i in range(len(kinds))]
    cells = [
        [rng.choice(WORDS) if rng.random() < share_missing else value(kind, rng) for kind in kinds]
        for _ in range(n_rows)
    ]
    lines = [_line(names, delimiter, quoting, rng)]
    for row in cells:
        while rng.random() < blank_lines:
            lines.append("")
        lines.append(_line(row, delimiter, quoting, rng))
    text = newline.join(lines) + newline * ends * (1 + (rng.random() < blank_lines))
    data = ("\ufeff" * mark + text).encode()
    if damage is not None:
        data = _damaged(data, damage, delimiter, rng)
    return Written(Table(names, cells), delimiter, data, damage is not None, damage in (None, "row"))


def _line(cells: list[str], delimiter: str, quoting: float, rng: random.Random) -> str:
    return delimiter.join(_quoted(cell, quoting, rng) for cell in cells)


def _quoted(cell: str, quoting: float, rng: random.Random) -> str:
    if any(sign in cell for sign in ',;\t|"\n\r') or rng.random() < quoting:
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _damaged(data: bytes, how: str, delimiter: str, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    match how:
        case "cut":
            return data[:place]
        case "byte":
            return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        case "row":
            return data + b"\n" + delimiter.join("x" * rng.randrange(9)).encode() + b"\n"
        case "quote":
            return data[:place] + b'"' + data[place:]
        case "name":
            return data.replace(b"c1", b"c0", 1)
        case _:
            return data[:place] + b"\0" + data[place:]

"""Tables in memory are read as files of them are; conditions keep the rows that Python keeps."""

import datetime
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from fuzzing import outcome, seeds, sweep
from hypothesis import strategies as st
from test_fuzz_rows import parquet_tables, rows_of

from unbag.io import TableFiles, read_rows
from unbag.io.frames import encode_frame
from unbag.io.where import parse_condition


class Stream:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def cut(table: pa.Table, rng: random.Random) -> pa.Table:
    """The same table with an offset, in chunks of any sizes."""
    longer = pa.concat_tables([table.slice(0, 1), table, table.slice(0, 1)])
    inner, start, parts = longer.slice(1, len(table)), 0, []
    while start < len(table):
        parts.append(inner.slice(start, rng.randrange(1, 9)))
        start += len(parts[-1])
    return pa.concat_tables(parts)


FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda table: table,
    "stream": Stream,
    "reader": lambda table: table.to_reader(max_chunksize=7),
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
}


def test_tables_in_memory(tmp_path):
    path = tmp_path / "rows.parquet"

    def check(case) -> bool:
        (table, _, _, rng), form = case
        bag = "c0"
        if rng.random() < 0.7:  # ids that can be read
            bag, some = "bag", rng.choice([["a", "b"], [1, 2], [True, False]])
            table = table.append_column(bag, [rng.choices(some, k=len(table))])
        pq.write_table(table, path)
        try:
            given = FORMS[form](cut(table, rng))
        except (pa.ArrowException, TypeError, ValueError, pl.exceptions.PolarsError):
            return False  # of the other package
        found, error = outcome(lambda: encode_frame(given, bag=bag))
        if form in ("pandas", "polars"):  # which change some types on their own
            if error is None:
                assert len(found.X) == len(found.bag_ids) == len(table)
                assert np.isfinite(found.X).all()
            return error is None
        expected, other = outcome(lambda: read_rows(path, bag=bag))
        assert (error is None) == (other is None), (error, other)
        if error is not None:
            return False
        np.testing.assert_array_equal(found.X, expected.X)
        assert found.bag_ids.tolist() == expected.bag_ids.tolist()
        return True

    cases = st.tuples(parquet_tables(), st.sampled_from([*FORMS, "arrow", "stream"]))
    sweep("tables in memory", cases, check)


# ------------------------------------------------------------------------------------- conditions

DAYS = [datetime.date(2024, 1, day) for day in range(1, 6)]
VALUES: dict[str, list[Any]] = {
    "a": [None, -1, 0, 1, 2, 2**62 + 1],
    "b c": [None, 0.5, -2.0, 1e30, 3.0],
    "s": [None, "x", "O'ulu", "", "Ünder", "or"],
    "d": [None, *DAYS],
    "ok": [None, True, False],
    "part": [2023, 2024],
}
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: x == y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<>": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}
Truth = Callable[[dict[str, Any]], bool | None]


def written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | datetime.date):
        return "'" + str(value).replace("'", "''") + "'"
    return repr(value)


def condition_of(rng: random.Random, depth: int = 0) -> tuple[str, Truth]:
    """A condition, and what it says of a row: None where that is unknown, as in SQL."""
    kind = rng.randrange(9 if depth < 3 else 5)
    if kind > 4:
        (one, first), (other, second) = (condition_of(rng, depth + 1) for _ in range(2))
        if kind == 5:
            return f"not ({one})", lambda row: None if (t := first(row)) is None else not t
        word, decides = ("or", True) if kind % 2 else ("and", False)

        def both(row):
            sides = (first(row), second(row))
            return decides if decides in sides else (None if None in sides else not decides)

        return f"({one}) {word} ({other})", both
    name = rng.choice(list(VALUES))
    column = name if name.isalpha() and rng.random() < 0.8 else f'"{name}"'
    known = [value for value in VALUES[name] if value is not None]
    if kind == 0:
        wanted = rng.random() < 0.5
        return (
            f"{column} is {'' if wanted else 'not '}null",
            lambda row: (row[name] is None) == wanted,
        )
    if kind == 1:
        some, wanted = rng.choices(known, k=rng.randrange(1, 4)), rng.random() < 0.5
        text = f"{column} {'' if wanted else 'not '}in ({', '.join(map(written, some))})"
        return text, lambda row: None if row[name] is None else (row[name] in some) == wanted
    if kind == 2 and name != "ok":
        low, high = rng.choices(known, k=2)
        text = f"{column} between {written(low)} and {written(high)}"
        return text, lambda row: None if row[name] is None else low <= row[name] <= high
    sign, value = rng.choice(list(SIGNS) if name != "ok" else ["=", "!="]), rng.choice(known)
    return (
        f"{column} {sign} {written(value)}",
        lambda row: None if row[name] is None else SIGNS[sign](row[name], value),
    )


def test_conditions(tmp_path):
    for year in VALUES["part"]:
        (tmp_path / f"part={year}").mkdir()

    def check(case) -> bool:
        number, size, damage = case
        rng = random.Random(number)
        text, truth = condition_of(rng)
        rows = [
            {name: rng.choice(values) for name, values in VALUES.items()}
            for _ in range(rng.randrange(1, 30))
        ]
        rows.sort(key=lambda row: row["part"])
        schema = pa.schema(
            [("a", pa.int64()), ("b c", pa.float64()), ("s", pa.string()), ("d", pa.date32()),
             ("ok", pa.bool_())]
        )  # fmt: skip
        for year in VALUES["part"]:
            part = [{n: row[n] for n in schema.names} for row in rows if row["part"] == year]
            file = tmp_path / f"part={year}" / "0.parquet"
            pq.write_table(pa.Table.from_pylist(part, schema), file, row_group_size=size)
        if damage:
            place = rng.randrange(len(text))
            text = (
                text[:place]
                + rng.choice(["", "'", '"', "(", ")", "=", " ", "x", "9", "é"])
                + (text[place + rng.randrange(2) :])
            )
        table, error = outcome(lambda: TableFiles(tmp_path, where=text))
        if damage:
            return error is None
        kept = [row for row in rows if truth(row)]
        if error is not None:
            assert not kept, (text, error)
            assert parse_condition(text).text == text
            return True
        skip = rng.randrange(3)
        found = [
            dict(zip(table.schema.names, row, strict=True))
            for row in rows_of(table, skip_rows=skip, batch_rows=size + 1)
        ]
        assert table.n_rows == len(kept)
        assert found == kept[skip:], text
        return True

    cases = st.tuples(seeds(), st.integers(1, 9), st.sampled_from([False, False, True]))
    sweep("conditions", cases, check)

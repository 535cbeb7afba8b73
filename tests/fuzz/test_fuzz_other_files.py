"""Feather, JSON lines, Excel and compressed CSV files: as Parquet reads them, or refused."""

import gzip
import json
import random

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from fuzzing import outcome, seeds, sweep
from hypothesis import strategies as st

from unbag.io import read_rows

KINDS = (".feather", ".jsonl", ".csv.gz", ".xlsx")
DAMAGE = ("none", "none", "bit", "bytes", "cut", "more")


def table_of(rng: random.Random) -> pa.Table:
    n = rng.randrange(4, 30)
    columns = {
        "bag": [rng.choice(["north", "south", "ö"]) for _ in range(n)],
        "size": [rng.choice([None, 0.5, -3.25, 1e9]) if i > 1 else 1.5 + i for i in range(n)],
        "count": [rng.randrange(3) if i > 2 else i for i in range(n)],
        "word": [rng.choice(["a", "b", "a longer one"]) for _ in range(n)],
    }
    return pa.table(columns)


def write(table: pa.Table, path) -> None:
    if path.suffix == ".feather":
        pa.feather.write_feather(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        book.active.append(table.column_names)
        for row in table.to_pylist():
            book.active.append(list(row.values()))
        book.save(path)
    else:
        with gzip.open(path, "wb") as file:
            pa.csv.write_csv(table, file)


def damaged(data: bytes, how: str, rng: random.Random) -> bytes:
    changed, place = bytearray(data), rng.randrange(len(data))
    if how == "bit":
        changed[place] ^= 1 << rng.randrange(8)
    elif how == "bytes":
        changed[place : place + 4] = rng.randbytes(4)
    elif how == "cut":
        changed = changed[:place]
    elif how == "more":
        changed += rng.randbytes(rng.randrange(1, 9))
    return bytes(changed)


def test_other_files(tmp_path):
    def check(case) -> bool:
        ending, how, number = case
        rng = random.Random(number)
        table, path = table_of(rng), tmp_path / f"rows{ending}"
        write(table, path)
        path.write_bytes(damaged(path.read_bytes(), how, rng))
        read, error = outcome(lambda: read_rows(path, bag="bag"))
        if error is not None:
            return False
        assert np.isfinite(read.X).all()
        assert len(read.X) == len(read.bag_ids)
        if how == "none":
            pa.parquet.write_table(table, tmp_path / "rows.parquet")
            expected, error = outcome(lambda: read_rows(tmp_path / "rows.parquet", bag="bag"))
            assert error is None
            np.testing.assert_array_equal(read.X, expected.X)
            assert read.bag_ids.tolist() == expected.bag_ids.tolist()
        return True

    sweep(
        "rows in other files",
        st.tuples(st.sampled_from(KINDS), st.sampled_from(DAMAGE), seeds()),
        check,
    )

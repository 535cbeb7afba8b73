"""Files of rows: every row once, in order, with the values that a plain reading gives."""

import csv
import datetime
import io
import math
import random
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from fuzzing import outcome, seeds, sweep
from unbag.io import TableEncoding, TableFiles, read_npz, read_rows
from unbag.io import csv_text
from written_rows import WORDS, Written, csv_files


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


# -------------------------------------------------------------------------------------------- CSV

TRUTH = {"true": True, "false": False}


def plain_rows(written: Written) -> list[list[str]]:
    """The rows below the names as the csv module of Python reads them, without blank lines."""
    text = written.data.decode("utf-8-sig")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=written.delimiter)
    return [row for row in rows if row][1:]


def same_cell(text: str, found, dtype: pa.DataType, *, exact: bool) -> bool:
    """Whether a value is what the text of a cell says."""
    if text in (WORDS[:1] if exact else WORDS):
        return found is None or (isinstance(found, float) and math.isnan(found))
    if pa.types.is_string(dtype):
        return found == text
    if pa.types.is_boolean(dtype):
        return found is TRUTH[text.casefold()]
    if pa.types.is_integer(dtype):
        return found == int(text)
    if pa.types.is_floating(dtype):
        number = float(text.replace(",", "."))
        return found == pytest.approx(number, rel=1e-12, nan_ok=True)
    if pa.types.is_date(dtype):
        return found == datetime.date.fromisoformat(text)
    if pa.types.is_timestamp(dtype) and dtype.tz is None:
        return found.replace(microsecond=0) == datetime.datetime.fromisoformat(text)
    return not pa.types.is_null(dtype)


def check_table(table: TableFiles, written: Written, ids: tuple[str, ...]) -> None:
    """The table has the names and rows of a plain reading."""
    expected = plain_rows(written)
    assert table.n_rows == len(expected)
    if not written.is_damaged:
        assert table.schema.names == written.table.names
        assert expected == written.table.cells
    for row, found in zip(expected, rows_of(table), strict=True):
        for text, value, field in zip(row, found, table.schema, strict=True):
            assert same_cell(text, value, field.type, exact=field.name in ids), (text, value, field)


def rows_of(table: TableFiles, **options) -> list[list]:
    return [
        list(row.values()) for batch in table.batches(**options) for row in batch.to_pylist()
    ]


def check_parts(table: TableFiles, rng: random.Random) -> None:
    """Reading from any row on gives the rest of all rows."""
    everything = rows_of(table)
    skip, size = rng.randrange(table.n_rows + 2), rng.randrange(1, 9)
    rest = rows_of(table, skip_rows=skip, batch_rows=size)
    assert repr(rest) == repr(everything[skip:])


def check_encoded(paths, table: TableFiles, bag: str) -> bool:
    """Encoded rows are finite, standardised, and the same with the encoding read from JSON."""
    read, error = outcome(lambda: read_rows(paths, bag=bag))
    if error is not None:
        return False
    assert read.X.shape == (table.n_rows, read.encoding.n_features)
    assert np.isfinite(read.X).all()
    again = read_rows(paths, bag=bag, encoding=TableEncoding.from_dict(read.encoding.to_dict()))
    np.testing.assert_array_equal(again.X, read.X)
    names = list(read.encoding.feature_names)
    for field in table.schema:
        if field.name in names and pa.types.is_floating(field.type):
            values = [row[0] for row in rows_of(table, columns=[field.name])]
            if None in values or not np.isfinite(values).all():
                continue
            deviation = np.std(values)
            if 1e-6 * np.abs(values).max() < deviation < 1e100:
                plain = (values - np.mean(values)) / deviation
                np.testing.assert_allclose(read.X[:, names.index(field.name)], plain, atol=1e-3)
    bags = [row[0] for row in rows_of(TableFiles(paths, ids=[bag]), columns=[bag])]
    assert len(read.bag_ids) == len(bags)
    groups = {}
    for found, text in zip(read.bag_ids.tolist(), bags, strict=True):
        if isinstance(found, bool) and isinstance(text, str):
            text = text.casefold()
        assert groups.setdefault(found, text) == text
    assert len(groups) == len(set(groups.values()))
    return True


def test_csv_files(place, monkeypatch):
    path = place / "rows.csv"

    def check(case) -> bool:
        written, block, number = case
        path.write_bytes(written.data)
        rng = random.Random(number)
        ids = tuple(written.table.names[:1]) if number % 2 else ()
        monkeypatch.setattr(csv_text, "BLOCK", block)
        table, error = outcome(lambda: TableFiles(path, ids=ids))
        if error is not None:
            longest = 2 * max(map(len, written.data.splitlines()), default=0)
            assert written.is_damaged or block < 4096 or longest > block, error
            return False
        if written.is_readable:
            check_table(table, written, ids)
        check_parts(table, rng)
        check_encoded(path, table, rng.choice(table.schema.names))
        return True

    cases = st.tuples(csv_files(), st.sampled_from([1 << 9, 1 << 10, 1 << 13, 1 << 22]), seeds())
    sweep("rows in CSV", cases, check)


# ---------------------------------------------------------------------------------------- Parquet

TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()),
    *(pa.bool_(), pa.string(), pa.large_string(), pa.date32(), pa.timestamp("s")),
    *(pa.float32(), pa.float64(), pa.float16(), pa.date64(), pa.timestamp("us", "UTC")),
    *(pa.timestamp("ns"), pa.null(), pa.dictionary(pa.int8(), pa.string()), pa.decimal128(9, 2)),
    *(pa.time32("s"), pa.duration("s"), pa.binary(), pa.list_(pa.int8())),
]


def array(dtype: pa.DataType, n: int, missing: float, rng: random.Random) -> pa.Array:
    """Values of a type, as whole numbers that fit all of them."""
    numbers = [None if rng.random() < missing else rng.randrange(0, 100) for _ in range(n)]
    if pa.types.is_null(dtype):
        return pa.nulls(n)
    if pa.types.is_boolean(dtype):
        return pa.array([None if x is None else x > 50 for x in numbers], dtype)
    texts = pa.array([None if x is None else f"v{x % 7}" for x in numbers])
    if pa.types.is_dictionary(dtype):
        return texts.cast(pa.string()).dictionary_encode()
    if pa.types.is_binary(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return texts.cast(dtype)
    if pa.types.is_list(dtype):
        return pa.array([None if x is None else [x] for x in numbers], dtype)
    if pa.types.is_float16(dtype):
        return pa.array([None if x is None else np.float16(x) for x in numbers], dtype)
    if pa.types.is_floating(dtype) and rng.random() < 0.3:
        odd = [1e30, -1e38, 0.5, math.nan, math.inf, 1e-40]
        numbers = [x if x is None else rng.choice(odd) for x in numbers]
    if pa.types.is_date64(dtype):
        numbers = [x if x is None else x * 86_400_000 for x in numbers]
    if pa.types.is_decimal(dtype):
        return pa.array(numbers, pa.int32()).cast(pa.decimal128(12, 2)).cast(dtype)
    base = {8: pa.int8(), 32: pa.int32()}.get(dtype.bit_width, pa.int64())
    plain = pa.array(numbers, pa.float64() if pa.types.is_floating(dtype) else base)
    return plain.cast(dtype)


@st.composite
def parquet_tables(draw):
    types = [draw(st.sampled_from(TYPES[:15])), *draw(st.lists(st.sampled_from(TYPES), max_size=4))]
    n = draw(st.integers(1, 40))
    missing = draw(st.sampled_from([0, 0, 0, 0.2, 1]))
    rng = random.Random(draw(seeds()))
    columns = [array(dtype, n, missing, rng) for dtype in types]
    table = pa.table(columns, names=[f"c{i}" for i in range(len(types))])
    return table, draw(st.integers(1, 20)), draw(st.sampled_from([None] * 9 + ["cut", "byte"])), rng


def test_parquet_files(place):
    path = place / "rows.parquet"

    def check(case) -> bool:
        written, group, damage, rng = case
        pq.write_table(written, path, row_group_size=group)
        if damage is not None:
            data = bytearray(path.read_bytes())
            position = rng.randrange(len(data))
            if damage == "byte":
                data[position] ^= 1 << rng.randrange(8)
            path.write_bytes(data[:position] if damage == "cut" else data)
        table, error = outcome(lambda: TableFiles(path))
        if error is not None:
            assert damage, error
            return False
        if damage is not None:  # a flipped bit of a value cannot be seen
            outcome(lambda: list(table.batches()))
            outcome(lambda: read_rows(path, bag="c0"))
            return True
        assert table.n_rows == len(written)
        plain = pq.read_table(path)
        for name in written.column_names:
            found, error = outcome(lambda name=name: rows_of(table, columns=[name]))
            if error is None:
                expected = plain[name].to_pylist()
                dtype = table.schema.field(name).type
                if dtype != plain.schema.field(name).type:
                    expected = plain[name].cast(dtype, safe=False).to_pylist()
                assert repr([row[0] for row in found]) == repr(expected)
        check_parts(table, rng)
        return check_encoded(path, table, rng.choice(written.column_names[:2]))

    sweep("rows in Parquet", parquet_tables(), check)


# -------------------------------------------------------------------------------------------- npz

DTYPES = ("f4", "f8", "f2", "i1", "i4", "u8", "?", "u1", ">f4")
REFUSED = ("c8", "M8[D]", "U3", "S2", "O")


@st.composite
def archives(draw):
    rare = draw(st.integers(0, 9))
    dtype = draw(st.sampled_from(REFUSED if rare == 0 else DTYPES))
    n = draw(st.integers(0, 12)) if rare == 1 else draw(st.integers(1, 12))
    tail = draw(st.sampled_from([(1,), (2, 2), (3, 2, 2), (1, 2, 2), (), (0,)]))
    if len(tail) < 2 or dtype != "u1":
        tail = tail if rare == 2 else (draw(st.integers(1, 4)),)
    rng = np.random.default_rng(draw(seeds()))
    X = rng.integers(0, 100, (n, *tail)).astype(dtype)
    if X.dtype.kind == "f" and X.size and draw(st.integers(0, 9)) == 0:
        X.flat[0] = draw(st.sampled_from([np.nan, np.inf, 60000.0]))
    ids_type = draw(st.sampled_from(["U2", "i4", "i8", "?", "M8[D]"] if rare != 3 else ["f8", "O", "S1"]))
    n_ids = n if draw(st.integers(0, 9)) else n + 1
    ids = rng.integers(0, 3, n_ids).astype(ids_type)
    damage = draw(st.sampled_from([None] * 8 + ["cut", "byte", "name", "header"]))
    return X, ids, draw(st.booleans()), damage, int(rng.integers(2**32))


def test_npz_files(place):
    path = place / "rows.npz"

    def check(case) -> bool:
        X, ids, packed, damage, number = case
        rng = random.Random(number)
        save = np.savez_compressed if packed else np.savez
        save(path, **{"X": X, "bag_ids": ids, **({"other": X} if damage == "name" else {})})
        data = bytearray(path.read_bytes())
        position = rng.randrange(len(data))
        if damage == "cut":
            path.write_bytes(data[:position])
        elif damage == "byte":
            data[position] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        elif damage == "header":
            with zipfile.ZipFile(path, "w") as archive:
                header = rng.choice([b"\x93NUMPY", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', ((", b""])
                archive.writestr("X.npy", header + bytes(rng.choices(range(256), k=40)))
                archive.writestr("bag_ids.npy", b"x")
        read, error = outcome(lambda: read_npz(path))
        if error is not None:
            return False
        if damage not in ("byte", "cut"):
            np.testing.assert_array_equal(read.X.reshape(X.shape), X.astype(read.X.dtype))
            np.testing.assert_array_equal(read.bag_ids, ids)
        assert np.isfinite(read.X).all()
        assert len(read.X) == len(read.bag_ids)
        return True

    sweep("rows in npz", archives(), check)

"""Tables in memory become the rows that files of them become."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from unbag.exceptions import InvalidInputError
from unbag.ids import id_array
from unbag.io import read_rows
from unbag.io.frames import encode_frame, is_encoded, rows_of

N = 60
NUMBERS = np.random.default_rng(0)
COLUMNS = {
    "district": [f"d{i % 3}" for i in range(N)],
    "age": [None if i % 7 == 0 else float(age) for i, age in enumerate(NUMBERS.normal(size=N))],
    "city": [("Oulu", "Turku", "")[i] for i in NUMBERS.integers(0, 3, N)],
    "member": (NUMBERS.random(N) < 0.4).tolist(),
    "day": [
        datetime.date(2024, 1, 1) + datetime.timedelta(int(i)) for i in NUMBERS.integers(0, 700, N)
    ],
    "visits": NUMBERS.integers(0, 9, N).tolist(),
}


class Stream:
    """What some package may give: nothing but Arrow's stream."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS, index=range(5, N + 5)).astype({"city": "category"}),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).with_columns(pl.col("city", "district").cast(pl.Categorical)),
        pa.table(COLUMNS),
        pa.concat_tables([pa.table(COLUMNS).slice(0, 7), pa.table(COLUMNS).slice(7)]),
        Stream(pa.table(COLUMNS)),
    ],
    ids=["pandas", "category", "polars", "Categorical", "arrow", "chunks", "stream"],
)
def test_a_table_in_memory_is_the_same_as_the_file_of_it(frame, tmp_path):
    pa.parquet.write_table(pa.table(COLUMNS), tmp_path / "rows.parquet")
    expected = read_rows(tmp_path / "rows.parquet", bag="district")
    read = encode_frame(frame, bag="district")
    np.testing.assert_array_equal(read.X, expected.X)
    assert read.bag_ids.tolist() == expected.bag_ids.tolist()
    assert read.encoding.encoders == expected.encoding.encoders
    np.testing.assert_array_equal(read.encoding.transform(frame), expected.X)
    by_ids = encode_frame(frame, COLUMNS["district"])
    np.testing.assert_array_equal(by_ids.X, expected.X)
    assert by_ids.encoding.left_out == {"district": "it holds the bag ids"}


def test_an_empty_text_is_missing_everywhere(tmp_path):
    frame = pd.DataFrame({"bag": ["a", "b"] * 20, "city": ["Oulu", "", "Turku", "Oulu"] * 10})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    names = ("city=Oulu", "city=Turku", "city is missing")
    for read in (
        read_rows(tmp_path / "rows.csv", bag="bag"),
        read_rows(tmp_path / "rows.parquet", bag="bag"),
        encode_frame(frame, bag="bag"),
    ):
        assert read.encoding.feature_names == names
        np.testing.assert_array_equal(read.X[1], [0, 0, 1])


@pytest.mark.parametrize(
    ("frame", "ids", "encoded"),
    [
        (pd.DataFrame({"a": [1, 2], "b": [0.5, 1]}), None, False),
        (pd.DataFrame({"a": [True, False], "b": [0.5, 1]}), None, False),
        (pl.DataFrame({"a": [1, 2], "b": [0.5, 1]}), None, False),
        (pd.DataFrame({"a": [1, 2], "b": [0.5, None]}), None, True),
        (pl.DataFrame({"a": [1, 2], "b": [0.5, None]}), None, True),
        (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), None, True),
        (pd.DataFrame({"a": [1, 2], "b": [0.5, 1]}), [1, 2], True),
        (pd.DataFrame({"a": [1, 2], "b": [0.5, 1]}), [1, 3], False),
        (pa.table({"a": [1, 2]}), None, True),
        (np.ones((2, 2)), [1, 1], False),
    ],
)
def test_numbers_alone_stay_as_they_are(frame, ids, encoded):
    assert is_encoded(frame, ids) == encoded
    rows, names, encoding = rows_of(frame, ids)
    assert (encoding is not None) == encoded
    assert rows.shape == (2, len(names or [0, 0]))
    assert encoding is None or names == encoding.feature_names


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"bag": ["a", 3]}), "every column is of one kind, got .*column bag"),
        (pd.DataFrame([[1, 2]], columns=["bag", "bag"]), "different names, got|one kind, got Dup"),
        (pd.DataFrame({"bag": []}), "rows of X must be at least one"),
        (pd.DataFrame({"bag": ["a", "b"]}), "at least one column to learn from"),
        (pd.DataFrame({"x": ["a", "b"]}), "unknown 'bag'; the table has 'x'"),
        (pd.DataFrame({"bag": ["a", None], "x": [1, 2]}), "first is row 1 of X, counted from 0"),
        (np.ones((2, 2)), "bag must be left out where X is no table"),
    ],
)
def test_bad_tables_say_what_is_wrong(frame, message):
    with pytest.raises(InvalidInputError, match=message):
        encode_frame(frame, bag="bag")


def test_a_stream_that_is_read_once():
    table = pa.table({"x": [1.0, 2.0, 4.0, 8.0], "bag": ["a", "b", "a", "b"]})
    for ids, bag in ((None, "bag"), (table["bag"].to_pylist(), None)):
        once = encode_frame(table.to_reader(), ids, bag=bag)
        again = encode_frame(table, ids, bag=bag)
        assert once.X.tolist() == again.X.tolist()
        assert once.bag_ids.tolist() == again.bag_ids.tolist() == ["a", "b", "a", "b"]


BAD_TEXT = pa.Array.from_buffers(
    pa.string(),
    3,
    [None, pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xffc")],
)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pd.DataFrame(np.ones((3, 2)), columns=["a", "a"]), "of different names, got 'a' more"),
        (pd.DataFrame(index=range(3)), "a table of at least one column, got none"),
        (pd.DataFrame({"a": [2**70, 1, 2]}), "of which every column is of one kind"),
        (pa.table({"a": BAD_TEXT}), "a sound table of Arrow, in UTF-8"),
    ],
)
def test_tables_that_are_refused(table, said):
    with pytest.raises(InvalidInputError, match=said):
        rows_of(table)


def test_ids_of_other_packages_keep_their_kind():
    for ids in ([1, None, 2], ["a", None, "b"]):
        for made in (pa.array(ids), pa.chunked_array([ids[:1], ids[1:]]), pl.Series(ids)):
            assert id_array("labels", made).tolist() == ids
    assert id_array("y", pa.array([1, 2])).dtype == np.int64

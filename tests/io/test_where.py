"""Conditions on rows: what they keep, what they refuse, and what is not read because of them."""

import datetime

import pyarrow as pa
import pyarrow.parquet
import pytest
from small_tables import refused, values, write

from unbag.exceptions import InvalidInputError
from unbag.io import TableFiles
from unbag.io.parquet_file import ParquetTable
from unbag.io.where import parse_condition

DAYS = [datetime.date(2024, 1, day) for day in (1, 2, 3, 4)]
ROWS = pa.record_batch(
    {
        "n": [0, 1, 2, 3],
        "age": [17, 18, 40, None],
        "x": [1.5, 2.0, float("nan"), 3.0],
        "city": ["Espoo", "O'ulu", "Turku", None],
        "my day": DAYS,
        "time": pa.array(DAYS).cast(pa.timestamp("us", "UTC")),
        "ok": [True, False, None, True],
        "large": pa.array([2**63 + 5, 2**60 + 1, 0, None], pa.uint64()),
        "hour": [datetime.time(8), datetime.time(18, 30), None, datetime.time(23, 59, 59)],
        "none": pa.nulls(4),
    }
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("age >= 18", [1, 2]),
        ("age = 17 OR age == 40.0", [0, 2]),
        ("age <> 17", [1, 2]),
        ("age between 18 and 40 and x < 3", [1]),
        ("not age between 18 and 40", [0]),
        ("city in ('Espoo', 'O''ulu')", [0, 1]),
        ("city not in ('Espoo')", [1, 2]),
        ("not not (age < 18)", [0]),
        ("age is null or city = 'Turku'", [2, 3]),
        ("x is not null and `age` is not null", [0, 1, 2]),
        ("\"my day\" > '2024-01-02'", [2, 3]),
        ("time <= '2024-01-02'", [0, 1]),
        ("ok = true and n != -1", [0, 3]),
        ("age < 18 and n = 0 or n = 3", [0, 3]),
        (f"large = {2**63 + 5}", [0]),
        (f"large in ({2**60 + 1}, -1, {2**70})", [1]),
        ("large > 1.5", [0, 1]),
        ("large >= -1", [0, 1, 2]),
        ("n < 1e400 and n < " + "9" * 9000, [0, 1, 2, 3]),
        ("hour >= '18:30'", [1, 3]),
        ("not none = 1 or none < 'x' or n = 2", [2]),
        (f"n in ({','.join('1' * 4900)})", [1]),
        (" or ".join(["n = 1"] * 900), [1]),
    ],
)
def test_rows_that_are_kept(text, kept):
    condition = parse_condition(text)
    assert condition.filter(ROWS)["n"].to_pylist() == kept
    by_arrow = pa.Table.from_batches([ROWS]).filter(condition.expression(ROWS.schema))
    assert by_arrow["n"].to_pylist() == kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got ''"),
        ("age", "=, !=, <, <=, >, >=, in, between or is null should come at the end"),
        ("age >", "a number, text in single quotes, true or false should come at the end"),
        ("age = 1)", "and, or, or the end should come at ')'"),
        ("age = 12abc", "a column, a value or a sign should come"),
        ("__import__('os')", "should come at \"('os')\""),
        ("and = 1", "the name of a column should come"),
        ("(" * 60 + "age = 1" + ")" * 60, "at most 50 parentheses deep"),
        ("age = 1 or " * 2000 + "age = 1", "at most 10,000 characters"),
        ("nope = 1", "got 'nope'; the table has 'n', 'age'"),
        ("age = 'x'", "compares column 'age' with values of its type, int64, got 'x'"),
        ("city = 7", "write text in single quotes: '7'"),
        ("\"my day\" = 'soon'", "dates are written as '2024-01-31'"),
        ("hour = '25:00'", "times are written as '18:30' or '18:30:00'"),
    ],
)
def test_what_is_refused(text, said):
    with pytest.raises(InvalidInputError) as caught:
        parse_condition(text).check(ROWS.schema)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("year = 2024", True),
        ("year = 2023", False),
        ("year = 2023 and age > 3", False),
        ("year = 2023 or age > 3", True),
        ("not (year = 2024 or age > 3)", False),
        ("age is null", True),
    ],
)
def test_what_may_hold_in_a_partition(text, may):
    assert parse_condition(text).may_hold({"year": pa.scalar(2024)}) is may


@pytest.fixture
def partitioned(tmp_path):
    """Two years of two files of two row groups each, of 3 and 2 rows."""
    for year in (2023, 2024):
        for part in (0, 1):
            start = 100 * (year - 2023) + 10 * part
            file = tmp_path / f"year={year}" / f"{part}.parquet"
            file.parent.mkdir(exist_ok=True)
            rows = pa.table({"n": list(range(start, start + 5))})
            pyarrow.parquet.write_table(rows, file, row_group_size=3)
    return tmp_path


@pytest.mark.parametrize("skip", range(8))
def test_any_start_gives_the_same_rows(partitioned, skip):
    table = TableFiles(partitioned, where="year = 2024 and not n in (101, 113)")
    wanted = [100, 102, 103, 104, 110, 111, 112, 114]
    assert table.n_rows == 8
    assert values(table, ["n"], skip_rows=skip)["n"] == wanted[skip:]
    assert values(table, ["n"], skip_rows=skip, batch_rows=2)["n"] == wanted[skip:]
    assert values(table, ["year"], skip_rows=skip)["year"] == [2024] * (8 - skip)


def test_what_cannot_match_is_not_read(partitioned, monkeypatch):
    opened, groups = [], []
    init, batches = ParquetTable.__init__, ParquetTable.batches

    def count_files(self, path, *rest):
        opened.append(path)
        init(self, path, *rest)

    def count_groups(self, *args, **options):
        groups.append(self.n_rows)
        return batches(self, *args, **options)

    monkeypatch.setattr(ParquetTable, "__init__", count_files)
    monkeypatch.setattr(ParquetTable, "batches", count_groups)
    table = TableFiles(partitioned, where="year = 2024 and n >= 113")
    assert {path.parent.name for path in opened} == {"year=2024"}
    assert groups == [0, 2]  # rows of the row groups that are left
    assert values(table)["n"] == [113, 114]


def test_of_csv_files(tmp_path):
    write(tmp_path / "a.csv", "id,x\n007,1\n7,2\n,3\n")
    table = TableFiles(tmp_path, ids=["id"], where="id = '007' or id is null")
    assert values(table) == {"id": ["007", None], "x": [1, 3]}
    assert table.locate(1) == "row 2 of a.csv among the rows that where keeps"
    assert table.fingerprint() != TableFiles(tmp_path, ids=["id"]).fingerprint()
    refused(tmp_path, "a condition that some rows meet, got 'x > 3'", where="x > 3")


def test_a_file_that_changes(tmp_path):
    file = write(tmp_path / "a.csv", "x\n1\n2\n3\n")
    table = TableFiles(file, where="x > 1")
    write(file, "x\n1\n2\n0\n")
    with pytest.raises(InvalidInputError, match="2 as at first, got 1"):
        values(table)

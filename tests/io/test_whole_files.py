"""JSON lines, Feather, Excel and compressed CSV files are tables like others."""

import datetime
import gzip
import json

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from unbag.exceptions import InvalidInputError, MissingDependencyError
from unbag.io import TableFiles, read_priors, read_rows

ROWS = {
    "district": ["north", "south"] * 20,
    "age": [20.5 + i for i in range(39)] + [None],
    "city": ["Oulu", "Turku", "Pori", "Oulu"] * 10,
    "visits": [1, 2, 3, 5] * 10,
    "day": [datetime.datetime(2024, 1 + i % 12, 3) for i in range(40)],
}


def as_excel(path, columns):
    book = openpyxl.Workbook()
    book.active.append(list(columns))
    for row in zip(*columns.values(), strict=True):
        book.active.append(row)
    book.save(path)


def lines(columns):
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(json.dumps(row, default=str) + "\n" for row in rows)


def csv(columns):
    rows = zip(*columns.values(), strict=True)
    text = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join([",".join(columns), *text, ""])


@pytest.fixture
def tables(tmp_path):
    pa.parquet.write_table(pa.table(ROWS), tmp_path / "rows.parquet")
    pa.feather.write_feather(pa.table(ROWS), tmp_path / "rows.feather")
    as_excel(tmp_path / "rows.xlsx", ROWS)
    (tmp_path / "rows.jsonl").write_text(lines(ROWS))
    with gzip.open(tmp_path / "rows.csv.gz", "wt") as file:
        file.write(csv(ROWS))
    return tmp_path


@pytest.mark.parametrize("name", ["rows.feather", "rows.xlsx", "rows.jsonl", "rows.csv.gz"])
def test_every_kind_of_file_gives_the_same_rows(tables, name):
    expected = read_rows(tables / "rows.parquet", bag="district")
    read = read_rows(tables / name, bag="district")
    np.testing.assert_array_equal(read.X, expected.X)
    assert read.bag_ids.tolist() == expected.bag_ids.tolist()
    other = read_rows(tables / name, encoding=expected.encoding)
    np.testing.assert_array_equal(other.X, expected.X)
    table = TableFiles(tables / name)
    parts = pa.Table.from_batches(table.batches(["visits"], skip_rows=33, batch_rows=3))
    assert parts["visits"].to_pylist() == ROWS["visits"][33:]


def test_a_pattern_names_files(tables):
    for name in ("part-1.jsonl", "part-2.jsonl"):
        (tables / name).write_text((tables / "rows.jsonl").read_text())
    table = TableFiles(tables / "part-*.jsonl")
    assert [file.name for file in table.files] == ["part-1.jsonl", "part-2.jsonl"]
    assert table.n_rows == 80
    with pytest.raises(InvalidInputError, match="existing file or folder"):
        TableFiles(tables / "nothing-*.jsonl")


def test_cells_of_several_kinds_are_text_and_blank_rows_are_left_out(tmp_path):
    columns = {"a": [1, "x", None, 2.5], "b": [True, False, None, True], "": [None] * 4}
    as_excel(tmp_path / "a.xlsx", columns)
    table = TableFiles(tmp_path / "a.xlsx")
    assert table.schema.types == [pa.string(), pa.bool_()]
    assert next(table.batches()).column(0).to_pylist() == ["1", "x", "2.5"]


def test_text_that_looks_like_numbers_stays_text(tmp_path):
    as_excel(tmp_path / "a.xlsx", {"code": [1, 2, 3]})
    assert TableFiles(tmp_path / "a.xlsx", text=["code"]).schema.types == [pa.string()]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.feather", "a readable Feather file, got"),
        ("a.jsonl", "a readable JSON lines file, got"),
        ("a.xlsx", r"a readable Excel file \(.xlsx\), got"),
        ("a.csv.gz", "a whole .gz file, got"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, message):
    (tmp_path / name).write_text("no")
    with pytest.raises(InvalidInputError, match=message):
        TableFiles(tmp_path / name)


def test_an_excel_file_without_rows_and_without_the_package(tmp_path, monkeypatch):
    as_excel(tmp_path / "a.xlsx", {})
    with pytest.raises(InvalidInputError, match="got an empty one"):
        TableFiles(tmp_path / "a.xlsx")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'unbag\[excel\]'"):
        TableFiles(tmp_path / "a.xlsx")


def test_shares_come_from_the_same_files(tmp_path):
    shares = {"district": ["north", "south"], "yes": [30, 60], "no": [70, 40]}
    as_excel(tmp_path / "shares.xlsx", shares)
    with gzip.open(tmp_path / "shares.csv.gz", "wt") as file:
        file.write(csv(shares))
    for name in ("shares.xlsx", "shares.csv.gz"):
        read = read_priors(tmp_path / name)
        assert read.unit == "percent"
        np.testing.assert_allclose(read.priors.values, [[0.3, 0.7], [0.6, 0.4]])
        assert read.priors.bag_ids.tolist() == ["north", "south"]

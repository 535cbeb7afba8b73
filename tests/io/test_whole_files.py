"""JSON lines, Feather, Excel and compressed CSV files are tables like others."""

import datetime
import gzip
import json
import re
import zipfile

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from unbag.exceptions import InvalidInputError, MissingDependencyError
from unbag.io import TableFiles, packed, read_priors, read_rows

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


# ------------------------------------------------------------------------------- damaged files


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


SHEET = "xl/worksheets/sheet1.xml"
XML = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">{}</worksheet>'
ENTITIES = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
LAUGHS = f'<!DOCTYPE x [<!ENTITY a0 "aaaaaaaaaa">{ENTITIES}]>' + XML.format(
    "<sheetData><row><c t='inlineStr'><is><t>&a9;</t></is></c></row></sheetData>"
)
DAMAGED = {
    "no workbook": lambda m: m.pop("xl/workbook.xml"),
    "half of a sheet": lambda m: m.update({SHEET: m[SHEET][: len(m[SHEET]) // 2]}),
    "a workbook of another form": lambda m: m.update({"xl/workbook.xml": b"<x a='1'/>"}),
    "no sheets": lambda m: m.update(
        {"xl/workbook.xml": re.sub(rb"<sheets>.*</sheets>", b"<sheets/>", m["xl/workbook.xml"])}
    ),
    "entities that grow": lambda m: m.update({SHEET: LAUGHS.encode()}),
    "a row far below": lambda m: m.update(
        {SHEET: m[SHEET].replace(b'<row r="41"', b'<row r="999999999"')}
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_workbooks_are_refused(tables, case):
    content = members(tables / "rows.xlsx")
    before = dict(content)
    DAMAGED[case](content)
    assert content != before
    pack(tables / "rows.xlsx", content)
    with pytest.raises(InvalidInputError, match=r"a readable Excel file|a sheet of at most"):
        read_rows(tables / "rows.xlsx", bag="district")


def test_a_sheet_that_calls_itself_smaller_is_read_whole(tables):
    content = members(tables / "rows.xlsx")
    before = content[SHEET]
    content[SHEET] = re.sub(rb'<dimension ref="[^"]*"', b'<dimension ref="A1:C5"', before)
    assert content[SHEET] != before
    expected = read_rows(tables / "rows.xlsx", bag="district").X
    pack(tables / "rows.xlsx", content)
    np.testing.assert_array_equal(read_rows(tables / "rows.xlsx", bag="district").X, expected)


def test_a_feather_file_with_wrong_offsets_is_refused(tables):
    """Arrow would read what lies elsewhere in memory, or crash."""
    table = pa.table({"district": ["a", "b"], "city": ["x", "y"]})
    offsets = pa.py_buffer(np.array([0, 1 << 30, 2], dtype=np.int32))
    broken = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"xy"))
    path = tables / "rows.feather"
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write(pa.record_batch([table["district"].chunk(0), broken], schema=table.schema))
    with pytest.raises(InvalidInputError, match="a readable Feather file"):
        read_rows(path, bag="district")


@pytest.mark.parametrize("name", ["rows.xlsx", "rows.csv.gz"])
def test_bombs_are_refused(tables, monkeypatch, name):
    columns = {"district": ["north"] * 20_000, "age": [1.5] * 20_000}
    if name.endswith(".gz"):
        with gzip.open(tables / name, "wt") as file:
            file.write(csv(columns))
    else:
        content = members(tables / name)
        content[SHEET] += b" " * 500_000
        pack(tables / name, content)
    monkeypatch.setattr(packed, "LARGE", 1000)
    monkeypatch.setattr(packed, "MAX_EXPANSION", 20)
    with pytest.raises(InvalidInputError, match="content that is at most 20 times larger than"):
        read_rows(tables / name, bag="district")


@pytest.mark.parametrize("signs", ["[]", "{}"])
@pytest.mark.parametrize("gap", ["", "\n"])
def test_values_in_one_another_are_bounded(tmp_path, signs, gap):
    """Arrow's parser calls itself for each, and the whole process ended."""
    opening = "[" if signs == "[]" else '{"a":'
    path = tmp_path / "a.jsonl"
    deep = f'{{"bag": "a", "x": {(opening + gap) * 300_000}1{signs[1] * 300_000}}}\n'
    path.write_text('{"bag": "]]}}", "x": 1}\n' * 3 + deep)
    with pytest.raises(InvalidInputError, match="in one another at most 64 deep, got more"):
        read_rows(path, bag="bag")
    path.write_text('{"bag": "a", "x": 1, "y": "[[[["}\n{"bag": "b", "x": 2, "y": "\\"["}\n' * 100)
    assert TableFiles(path).n_rows == 200


def test_a_row_of_json_that_is_too_long_is_told(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"bag": "a", "x": "x" * (2 << 20)}) + "\n")
    assert TableFiles(path).n_rows == 1
    path.write_text(json.dumps({"bag": "a", "x": "x" * (9 << 20)}) + "\n{}\n")
    with pytest.raises(InvalidInputError, match="got a row longer than 4 MB"):
        TableFiles(path)


def test_a_sheet_of_more_cells_than_bytes_is_refused(tables):
    """One cell at the right end of every row makes rows of 16,384 cells."""
    content = members(tables / "rows.xlsx")
    rows = "".join(f'<row r="{i}"><c r="XFD{i}"><v>1</v></c></row>' for i in range(1, 30_000))
    content[SHEET] = XML.format(f"<sheetData>{rows}</sheetData>").encode()
    pack(tables / "rows.xlsx", content)
    with pytest.raises(InvalidInputError, match="a sheet of fewer cells than bytes"):
        TableFiles(tables / "rows.xlsx")


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("rows.feather", "pyarrow.feather.read_table"),
        ("rows.jsonl", "pyarrow.json.read_json"),
        ("rows.parquet", "pyarrow.parquet.ParquetFile"),
        ("rows.parquet", "unbag.io.parquet_file._check_text"),
        ("rows.parquet", "unbag.io.table_part.as_plain"),
    ],
)
def test_too_little_memory_is_not_a_broken_file(tables, monkeypatch, name, reader):
    def fail(*_, **__):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(reader, fail)
    with pytest.raises(MemoryError):
        read_rows(tables / name, bag="district")


def test_the_time_to_look_at_columns_grows_with_their_number(tmp_path, monkeypatch):
    """Lists of all names were made for every name."""
    n, asked = 300, []
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({f"c{i}": [0.0, 1.0] for i in range(n)}), path)
    inner = TableFiles(path).schema

    class Schema:
        def __getattr__(self, name):
            asked.append(name)
            return getattr(inner, name)

        def __iter__(self):
            return iter(inner)

    table = TableFiles(path)
    monkeypatch.setattr(table, "schema", Schema())
    list(table.batches())
    read_rows(path).encoding.check_schema(Schema())
    assert asked.count("names") < 10


def test_a_damaged_file_that_asks_for_petabytes_is_not_called_little_memory(tmp_path, monkeypatch):
    def fail(_, **__):
        raise pa.ArrowMemoryError("malloc of size 2251799813685376 failed")

    (tmp_path / "a.feather").write_bytes(b"x")
    monkeypatch.setattr("pyarrow.feather.read_table", fail)
    with pytest.raises(InvalidInputError, match="a whole Feather file that is at most 200 times"):
        TableFiles(tmp_path / "a.feather")

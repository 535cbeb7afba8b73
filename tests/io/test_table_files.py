import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unbag.exceptions import InvalidInputError
from unbag.io import TableFiles
from unbag.io import csv_file as csv_module


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def values(table, columns=None, **options):
    """All rows of a table as one list a column."""
    batches = list(table.batches(columns, **options))
    return pa.Table.from_batches(batches).to_pydict()


def refused(paths, *words, **options):
    """The table must be refused with a message that has all the words."""
    with pytest.raises(InvalidInputError) as caught:
        values(TableFiles(paths, **options))
    for word in words:
        assert word in str(caught.value)


@pytest.fixture
def small_blocks(monkeypatch):
    """Parse CSV in blocks of a few rows, so that later blocks matter."""
    monkeypatch.setattr(csv_module, "_BLOCK", 64)


class TestFiles:
    def test_folder_in_order_of_names_without_hidden_files(self, tmp_path):
        for name in ("b.csv", "a.csv", ".hidden.csv", "_SUCCESS", "README.txt"):
            write(tmp_path / name, f"x,file\n1,{name}\n")
        (tmp_path / "sub.csv").mkdir()
        table = TableFiles(tmp_path)
        assert [file.name for file in table.files] == ["a.csv", "b.csv"]
        assert values(table)["file"] == ["a.csv", "b.csv"]
        assert table.notes == ("Files that are no tables are not read: 'README.txt'.",)

    def test_given_order_is_kept(self, tmp_path):
        files = [write(tmp_path / name, f"x\n{i}\n") for i, name in enumerate(["b.csv", "a.csv"])]
        assert values(TableFiles([str(files[0]), files[1]])) == {"x": [0, 1]}

    def test_repr(self, tmp_path):
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
        assert repr(TableFiles(tmp_path)) == "TableFiles(2 rows, 1 columns, 1 Parquet file)"

    @pytest.mark.parametrize("paths", [3, None, ["a.csv", 3], b"a.csv"])
    def test_no_paths(self, paths):
        refused(paths, "paths must be a path or a sequence of paths")

    def test_nothing_there(self, tmp_path):
        refused([], "at least one file or folder")
        refused(tmp_path / "no.csv", "no.csv", "existing file")
        refused(tmp_path, "folder", "got none")
        write(tmp_path / "a.xlsx", "")
        refused(tmp_path, "a.xlsx", ".parquet, .pq, .csv or .tsv")
        refused(tmp_path / "a.xlsx", "the suffix '.xlsx'")

    def test_same_file_twice(self, tmp_path):
        file = write(tmp_path / "a.csv", "x\n1\n")
        refused([file, tmp_path], "'a.csv' more than once")

    def test_mixed_kinds(self, tmp_path):
        write(tmp_path / "a.csv", "x\n1\n")
        pq.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
        refused(tmp_path, "all Parquet or all CSV", "'a.csv' and 'b.parquet'")

    @pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
    def test_empty_file(self, tmp_path, name):
        refused(write(tmp_path / name, ""), name, "an empty file")

    def test_fingerprint_follows_the_file(self, tmp_path):
        file = write(tmp_path / "a.csv", "x\n1\n")
        os.utime(file, ns=(5, 5))
        first = TableFiles(file).fingerprint()
        assert TableFiles(file).fingerprint() == first
        os.utime(file, ns=(5, 6))
        assert TableFiles(file).fingerprint() != first
        write(file, "x\n12\n")
        os.utime(file, ns=(5, 5))
        assert TableFiles(file).fingerprint() != first

    def test_locate(self, tmp_path):
        write(tmp_path / "a.csv", "x\n1\n2\n")
        write(tmp_path / "b.csv", "x\n3\n")
        table = TableFiles(tmp_path)
        assert [table.locate(i) for i in range(3)] == [
            "row 1 of a.csv",
            "row 2 of a.csv",
            "row 1 of b.csv",
        ]


class TestSchemas:
    def parts(self, folder, *columns):
        for i, column in enumerate(columns):
            pq.write_table(pa.table(column), folder / f"{i}.parquet")
        return folder

    def test_integers_and_floats_meet_as_floats(self, tmp_path):
        table = TableFiles(self.parts(tmp_path, {"x": [1]}, {"x": [0.5]}, {"x": [None]}))
        assert table.schema.field("x").type == pa.float64()
        assert values(table) == {"x": [1.0, 0.5, None]}

    def test_dictionaries_and_large_strings_are_text(self, tmp_path):
        kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
        columns = [{"x": pa.array(["a", None], kind)} for kind in kinds]
        table = TableFiles(self.parts(tmp_path, *columns))
        assert table.schema.field("x").type == pa.string()
        assert values(table) == {"x": ["a", None] * 3}

    def test_order_of_columns_may_differ(self, tmp_path):
        table = TableFiles(self.parts(tmp_path, {"x": [1], "y": ["a"]}, {"y": ["b"], "x": [2]}))
        assert values(table) == {"x": [1, 2], "y": ["a", "b"]}

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (pa.array([1]), pa.array(["a"])),
            (pa.array([True]), pa.array([1])),
            (pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "UTC"))),
        ],
    )
    def test_other_types(self, tmp_path, first, second):
        folder = self.parts(tmp_path, {"x": first}, {"x": second})
        refused(folder, "column 'x'", str(second.type), "1.parquet", str(first.type))

    def test_dates_meet_as_timestamps(self, tmp_path):
        columns = [pa.array([1], pa.date32()), pa.array([1], pa.timestamp("us"))]
        table = TableFiles(self.parts(tmp_path, *({"x": column} for column in columns)))
        assert table.schema.field("x").type == pa.timestamp("us")
        assert table.n_rows == len(values(table)["x"])

    def test_other_columns(self, tmp_path):
        one, two = tmp_path / "one", tmp_path / "two"
        one.mkdir()
        two.mkdir()
        refused(self.parts(one, {"x": [1], "y": [1]}, {"x": [1]}), "'y' in 0.parquet but not in 1")
        refused(self.parts(two, {"x": [1]}, {"x": [1], "z": [1]}), "'z' in 1.parquet but not in 0")

    def test_repeated_names(self, tmp_path):
        column = pa.array([1])
        pq.write_table(pa.Table.from_arrays([column] * 2, ["x", "x"]), tmp_path / "a.parquet")
        refused(tmp_path, "a.parquet", "'x' more than once")
        refused(write(tmp_path / "a.csv", "x,y,x\n1,2,3\n"), "a.csv", "'x' more than once")


@pytest.mark.usefixtures("small_blocks")
class TestBatches:
    @pytest.fixture(params=["csv", "parquet"])
    def folder(self, request, tmp_path):
        for start in (0, 100, 150):
            column = pa.table({"x": range(start, start + 50 if start else 100)})
            if request.param == "csv":
                pa.csv.write_csv(column, tmp_path / f"{start:03}.csv")
            else:
                pq.write_table(column, tmp_path / f"{start:03}.parquet", row_group_size=7)
        return tmp_path

    @pytest.mark.parametrize("skip", [0, 1, 7, 8, 99, 100, 130, 199, 200, 300])
    def test_skipped_rows(self, folder, skip):
        table = TableFiles(folder)
        assert table.n_rows == 200
        batches = list(table.batches(batch_rows=5, skip_rows=skip))
        assert max((len(batch) for batch in batches), default=0) <= 5
        found = [x for batch in batches for x in batch.column(0).to_pylist()]
        assert found == list(range(skip, 200))

    def test_bad_arguments(self, folder):
        table = TableFiles(folder)
        for options, words in [
            ({"columns": ["y"]}, "columns must be in the table, got unknown 'y'"),
            ({"columns": "x"}, "a sequence of column names"),
            ({"columns": ["x", "x"]}, "different columns"),
            ({"batch_rows": 0}, "batch_rows"),
            ({"skip_rows": -1}, "skip_rows"),
        ]:
            with pytest.raises(InvalidInputError, match=words):
                table.batches(**options)

    def test_choice_of_columns(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,y,z\n1,2,3\n")
        assert values(TableFiles(file), ["z", "x"]) == {"z": [3], "x": [1]}


class TestParquet:
    def test_not_parquet(self, tmp_path):
        refused(write(tmp_path / "a.parquet", "x,y\n1,2\n"), "a.parquet", "readable Parquet file")

    def test_cut_off(self, tmp_path):
        pq.write_table(pa.table({"x": np.random.default_rng(0).normal(size=1000)}), tmp_path / "a")
        refused(write(tmp_path / "a.parquet", (tmp_path / "a").read_bytes()[:-9]), "a.parquet")

    def test_broken_page(self, tmp_path):
        file = tmp_path / "a.parquet"
        column = np.random.default_rng(0).normal(size=1000)
        pq.write_table(pa.table({"x": column}), file)
        content = bytearray(file.read_bytes())
        content[4:200] = b"\xff" * 196
        refused(write(file, bytes(content)), "a.parquet", "whole, readable Parquet file")

    @pytest.mark.parametrize("text", [b"value of a row", b"name of a column"])
    def test_text_in_other_encoding(self, tmp_path, text):
        file = tmp_path / "a.parquet"
        columns = {"name of a column": ["value of a row"]}
        pq.write_table(pa.table(columns), file, store_schema=False, use_dictionary=False)
        refused(write(file, file.read_bytes().replace(text, b"\xe4" + text[1:])), "a.parquet")

    def test_no_rows(self, tmp_path):
        pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "a.parquet")
        refused(tmp_path, "at least one, got only column names")
        pq.write_table(pa.table({}), tmp_path / "a.parquet")
        refused(tmp_path, "must be at least one")


class TestCsv:
    def test_header_only(self, tmp_path):
        refused(write(tmp_path / "a.csv", "x,y\n"), "a.csv", "got only column names")
        refused(write(tmp_path / "a.csv", "\n\n"), "an empty file")

    def test_header_only_among_others(self, tmp_path):
        write(tmp_path / "a.csv", "x,y\n")
        write(tmp_path / "b.csv", "x,y\n1,a\n")
        assert values(TableFiles(tmp_path)) == {"x": [1], "y": ["a"]}

    def test_missing_values(self, tmp_path):
        lines = "".join(f"{word},{word},1\n" for word in ["", "NA", "NaN", "null"])
        table = TableFiles(write(tmp_path / "a.csv", "x,y,z\n" + lines + "1.5,a,1\n"))
        assert values(table)["x"] == [None] * 4 + [1.5]
        assert values(table)["y"] == [None] * 4 + ["a"]

    def test_ids_are_read_as_written(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,id\n1,007\n2,NA\n3,\n4,true\n")
        assert values(TableFiles(file, ids=["id"]))["id"] == ["007", "NA", None, "true"]

    def test_text_on_demand(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,y\n1,1\n2,NA\n")
        table = TableFiles(file, text=["y", "not there"])
        assert values(table) == {"x": [1, 2], "y": ["1", None]}

    @pytest.mark.parametrize(
        ("early", "late", "expected"),
        [
            ("1", "1.5", pa.float64()),
            ("1", "99999999999999999999", pa.float64()),
            ("1", "a", pa.string()),
            ("1.5", "a", pa.string()),
            ("true", "2", pa.string()),
            ("", "7", pa.int64()),
            ("", "a", pa.string()),
            ("2024-01-01", "2024-01-01 10:30:00", pa.timestamp("s")),
            ("2024-01-01 10:30:00", "2024-01-01 10:30:00.25", pa.timestamp("ns")),
            ("2024-01-01", "soon", pa.string()),
        ],
    )
    @pytest.mark.usefixtures("small_blocks")
    def test_types_fit_all_rows(self, tmp_path, early, late, expected):
        lines = [f"{early},1"] * 50 + [f"{late},b"] + [f"{early},2"] * 50 + [f"{late},3"]
        table = TableFiles(write(tmp_path / "a.csv", "x,y\n" + "\n".join(lines)))
        assert table.schema.types == [expected, pa.string()]
        found = values(table)
        assert len(found["x"]) == table.n_rows == 102
        assert found["y"] == ["1"] * 50 + ["b"] + ["2"] * 50 + ["3"]
        if expected == pa.string():
            assert found["x"] == ([early or None] * 50 + [late]) * 2

    @pytest.mark.parametrize(
        ("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")]
    )
    def test_delimiters(self, tmp_path, mark, word):
        text = f'x{mark}"a,b,c,d"{mark}z\n1{mark}u,v{mark}3\n'
        table = TableFiles(write(tmp_path / "a.csv", text))
        assert values(table) == {"x": [1], "a,b,c,d": ["u,v"], "z": [3]}
        assert table.notes == (f"a.csv is separated by {word}.",)

    def test_decimal_commas(self, tmp_path):
        table = TableFiles(write(tmp_path / "a.csv", "x;y\n1,5;2\n-0,25;3\n"))
        assert values(table) == {"x": [1.5, -0.25], "y": [2, 3]}
        assert table.notes[1] == "a.csv has decimal commas."

    def test_quotes_line_breaks_and_byte_order_mark(self, tmp_path):
        text = '\ufeffx,"y"\n1,"a\nb, ""c"""\n'
        table = TableFiles(write(tmp_path / "a.csv", text))
        assert values(table) == {"x": [1], "y": ['a\nb, "c"']}
        assert table.notes == ()

    @pytest.mark.usefixtures("small_blocks")
    def test_wrong_number_of_values(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,y\n" + "1,2\n" * 30 + "1,2,3\n")
        refused(file, "a.csv", "one value a column", "Row #32", "Expected 2 columns, got 3")

    @pytest.mark.usefixtures("small_blocks")
    def test_quote_not_closed(self, tmp_path):
        text = 'x,y\n1,"a\n' + "1,2\n" * 500
        refused(write(tmp_path / "a.csv", text), "a quote that is not closed")

    @pytest.mark.parametrize("start", [0, 40])
    @pytest.mark.usefixtures("small_blocks")
    def test_other_encoding(self, tmp_path, monkeypatch, start):
        monkeypatch.setattr(csv_module, "_SAMPLE", 32)  # the byte is found while reading, too
        text = "x,y\n" + "1,a\n" * start + "1,Jyväskylä\n" * 30
        refused(write(tmp_path / "a.csv", text.encode("latin-1")), "in UTF-8", "iconv")

    def test_utf16_and_bytes(self, tmp_path):
        refused(write(tmp_path / "a.csv", "x,y\n1,2\n".encode("utf-16")), "zero bytes", "iconv")
        refused(write(tmp_path / "a.csv", b"PAR1\0\0"), "got a Parquet file", "rename")

    def test_header_in_other_encoding(self, tmp_path):
        refused(write(tmp_path / "a.csv", "x,ä\n1,2\n".encode("latin-1")), "byte 0xe4 at 2")

    def test_sample_may_end_within_a_character(self, tmp_path, monkeypatch):
        monkeypatch.setattr(csv_module, "_SAMPLE", 7)
        table = TableFiles(write(tmp_path / "a.csv", "x,y\n1,ä\n"))
        assert values(table)["y"] == ["ä"]

    def test_folder_instead_of_file(self, tmp_path):
        folder = tmp_path / "a.csv"
        folder.mkdir()
        refused(folder, "folder", "a.csv")

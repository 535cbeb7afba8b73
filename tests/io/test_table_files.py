import os

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from small_tables import refused, values, write

from unbag.exceptions import InvalidInputError
from unbag.io import TableFiles


class TestFiles:
    def test_folder_in_order_of_names_without_hidden_files(self, tmp_path):
        for name in ("b.csv", "a.csv", ".hidden.csv", "_SUCCESS", "README.txt"):
            write(tmp_path / name, f"x,file\n1,{name}\n")
        (tmp_path / "sub.csv").mkdir()
        table = TableFiles(tmp_path)
        assert [file.name for file in table.files] == ["a.csv", "b.csv"]
        assert values(table)["file"] == ["a.csv", "b.csv"]
        assert table.notes == ("Files that are not tables are not read: 'README.txt'.",)

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
        write(tmp_path / "a.ods", "")
        refused(tmp_path, "a.ods", ".parquet, .pq, .csv, .tsv, ")
        refused(tmp_path / "a.ods", "the suffix '.ods'")

    def test_same_file_twice(self, tmp_path):
        file = write(tmp_path / "a.csv", "x\n1\n")
        refused([file, tmp_path], "'a.csv' more than once")

    def test_mixed_kinds(self, tmp_path):
        write(tmp_path / "a.csv", "x\n1\n")
        pq.write_table(pa.table({"x": [1]}), tmp_path / "b.parquet")
        refused(tmp_path, "all of one kind", "'a.csv' and 'b.parquet'")

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
        result = [x for batch in batches for x in batch.column(0).to_pylist()]
        assert result == list(range(skip, 200))

    def test_bad_arguments(self, folder):
        table = TableFiles(folder)
        for options, words in [
            ({"columns": ["y"]}, "columns must be in the table, got unknown 'y'"),
            ({"columns": "x"}, "a sequence of column names"),
            ({"columns": ["x", "x"]}, "different columns"),
            ({"batch_rows": 0}, "batch_rows must be a whole number of at least 1"),
            ({"skip_rows": -1}, "skip_rows must be a whole number of at least 0"),
        ]:
            with pytest.raises(InvalidInputError, match=words):
                table.batches(**options)

    def test_choice_of_columns(self, tmp_path):
        file = write(tmp_path / "a.csv", "x,y,z\n1,2,3\n")
        assert values(TableFiles(file), ["z", "x"]) == {"z": [3], "x": [1]}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("n", [2, 7])
def test_a_file_that_has_other_rows_than_at_first(tmp_path, suffix, n):
    path = tmp_path / f"a.{suffix}"
    put = pa.csv.write_csv if suffix == "csv" else pq.write_table
    put(pa.table({"x": [0, 1, 2, 3, 4]}), path)
    table = TableFiles(path)
    put(pa.table({"x": list(range(n))}), path)
    if suffix == "csv" and n > 5:  # what was added is not read
        assert sum(map(len, table.batches())) == 5
        return
    with pytest.raises(InvalidInputError, match=r"rows of .* must be 5 as at first, got (2|more)"):
        list(table.batches())

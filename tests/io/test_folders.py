import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_tables import refused, values, write

from unbag.io import TableEncoding, TableFiles, read_rows
from unbag.io.folders import partition_columns


def columns(*folders, text=()):
    """Columns from the names of subfolders of one folder."""
    files = [Path("t", folder, "a.csv") for folder in folders]
    result = partition_columns(files, [Path("t")] * len(files), text)
    return {name: column.to_pylist() for name, column in result.items()}


class TestPartitions:
    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_subfolders_become_columns(self, tmp_path, kind):
        for year in (2024, 2023):
            for town in ("Oulu", "Turku%2FÅbo"):
                folder = tmp_path / f"year={year}" / f"town={town}"
                folder.mkdir(parents=True)
                table = pa.table({"x": [year / 2, 1.0]})
                if kind == "csv":
                    pa.csv.write_csv(table, folder / "a.csv")
                else:
                    pq.write_table(table, folder / "a.parquet")
        table = TableFiles(tmp_path)
        assert table.schema.names == ["x", "year", "town"]
        assert values(table, ["town", "x", "year"]) == {
            "town": ["Oulu", "Oulu", "Turku/Åbo", "Turku/Åbo"] * 2,
            "x": [2023 / 2, 1.0, 2023 / 2, 1.0, 1012.0, 1.0, 1012.0, 1.0],
            "year": [2023] * 4 + [2024] * 4,
        }
        assert values(table, ["year"], skip_rows=3) == {"year": [2023] + [2024] * 4}
        rows = read_rows(tmp_path, bag="town")
        assert rows.bag_ids.tolist() == ["Oulu", "Oulu", "Turku/Åbo", "Turku/Åbo"] * 2
        assert rows.encoding.columns == ("x", "year")

    def test_kinds_of_values(self):
        assert columns("d=1", "d=2") == {"d": [1, 2]}
        assert columns("d=1", "d=2", text=["d"]) == {"d": ["1", "2"]}
        assert columns("d=01", "d=2") == {"d": ["01", "2"]}
        assert columns("d=1", "d=__HIVE_DEFAULT_PARTITION__") == {"d": [1, None]}
        days = [datetime.datetime(2024, 1, day) for day in (1, 2)]
        assert columns("d=2024-01-01", "d=2024-01-02") == {"d": days}
        assert columns("") == {}

    def test_bag_ids_are_as_written(self, tmp_path):
        for bag in ("7", "12"):
            write(tmp_path / f"bag={bag}" / "a.csv", "x\n1\n2\n")
        assert read_rows(tmp_path, bag="bag").bag_ids.tolist() == [12, 12, 7, 7]
        assert TableFiles(tmp_path, ids=["bag"]).schema.field("bag").type == pa.string()

    def test_text_of_training_stays_text(self, tmp_path):
        for bag in ("a", "1"):
            write(tmp_path / "old" / f"kind={bag}" / "a.csv", "x\n1\n2\n")
        write(tmp_path / "new" / "kind=1" / "a.csv", "x\n1\n")
        encoding = TableEncoding.fit(TableFiles(tmp_path / "old"), columns=["kind"])
        assert read_rows(tmp_path / "new", encoding=encoding).X.tolist() == [[1, 0]]

    def test_other_subfolders_are_not_read(self, tmp_path):
        for name in ("a.csv", "sub/b.csv", "_x=1/b.csv", ".x=1/b.csv", "=1/b.csv", "sub/x=1/c.csv"):
            write(tmp_path / name, "x\n1\n")
        assert [file.name for file in TableFiles(tmp_path).files] == ["a.csv"]

    def test_of_different_names(self, tmp_path):
        write(tmp_path / "year=1" / "a.csv", "x\n1\n")
        write(tmp_path / "month=1" / "a.csv", "x\n1\n")
        refused(tmp_path, "of the same names, such as year=2024, got 'month=1' and 'year=1'")

    def test_name_of_a_column(self, tmp_path):
        file = write(tmp_path / "x=1" / "a.csv", "x\n1\n")
        refused(tmp_path, "a.csv", "'x' more than once")
        assert values(TableFiles(file)) == {"x": [1]}  # by itself it is no partition


def test_unreadable_folder(tmp_path, monkeypatch):
    def walk(_, onerror):
        onerror(PermissionError(13, "Permission denied"))
        return iter(())

    monkeypatch.setattr("os.walk", walk)
    refused(tmp_path, "must be a readable folder, got Permission denied")

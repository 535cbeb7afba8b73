import datetime
import gc
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from unbag.exceptions import DiscardedWorkWarning, InvalidInputError
from unbag.ids import index_ids, match_ids
from unbag.io import TableEncoding, TableFiles, encoding_from_dict, read_rows
from unbag.io import rows as rows_module

N = 1000
RNG = np.random.default_rng(0)
TABLE = pa.table(
    {
        "x": RNG.normal(size=N),
        "district": RNG.choice(["north", "south"], N),
        "colour": RNG.choice(["red", "green", "blue"], N),
        "y": pa.array(RNG.normal(size=N), mask=RNG.random(N) < 0.1),
    }
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path)
    return path


@pytest.fixture
def passes(monkeypatch):
    """Count how often a table is read."""
    calls = []
    batches = TableFiles.batches

    def counted(self, *args, **options):
        calls.append(args)
        return batches(self, *args, **options)

    monkeypatch.setattr(TableFiles, "batches", counted)
    return calls


class TestTables:
    def test_rows_and_bags(self, file):
        rows = read_rows(file, bag="district")
        assert rows.X.shape == (N, 6)
        assert rows.X.dtype == np.float32
        assert "district" not in rows.encoding.columns
        assert rows.bag_ids.tolist() == TABLE["district"].to_pylist()
        assert rows.notes == rows.encoding.notes
        np.testing.assert_array_equal(
            rows.X, rows.encoding.transform(TABLE.combine_chunks().to_batches()[0])
        )

    def test_without_bags(self, file):
        rows = read_rows(str(file))
        assert rows.bag_ids is None
        assert "district" in rows.encoding.columns

    def test_csv_gives_the_same(self, file, tmp_path):
        pyarrow.csv.write_csv(TABLE, tmp_path / "rows.csv")
        parquet, csv = (read_rows(path, bag="district") for path in (file, tmp_path / "rows.csv"))
        np.testing.assert_array_equal(csv.X, parquet.X)
        np.testing.assert_array_equal(csv.bag_ids, parquet.bag_ids)
        assert csv.encoding.to_dict() == parquet.encoding.to_dict()

    def test_choice_of_columns(self, file):
        assert read_rows(file, columns=["y"]).encoding.columns == ("y",)
        rows = read_rows(file, bag="district", leave_out=["y", "colour"])
        assert rows.encoding.columns == ("x",)

    def test_rows_that_meet_a_condition(self, file):
        rows = read_rows(file, bag="colour", where="district = 'north'")
        north = [name == "north" for name in TABLE["district"].to_pylist()]
        assert rows.bag_ids.tolist() == TABLE["colour"].filter(pa.array(north)).to_pylist()
        assert len(rows.X) == sum(north)

    def test_encoding_of_a_model(self, file, tmp_path):
        encoding = read_rows(file, bag="district").encoding
        part = TABLE.slice(0, 10).drop_columns(["district"])
        pq.write_table(part, tmp_path / "new.parquet")
        new = read_rows(tmp_path / "new.parquet", encoding=encoding)
        assert new.encoding is encoding
        assert new.notes == ()
        np.testing.assert_array_equal(new.X, read_rows(file, bag="district").X[:10])

    def test_encoding_and_text_of_digits(self, tmp_path):
        (tmp_path / "old.csv").write_text("x\n1\n1\nb\nb\n")
        (tmp_path / "new.csv").write_text("x\n1\n")
        encoding = read_rows(tmp_path / "old.csv").encoding
        assert read_rows(tmp_path / "new.csv", encoding=encoding).X.tolist() == [[1, 0]]

    def test_progress(self, file):
        calls = []
        encoding = read_rows(file, progress=lambda *call: calls.append(call)).encoding
        assert calls == [(N, 2 * N), (2 * N, 2 * N)]
        calls.clear()
        read_rows(file, encoding=encoding, progress=lambda *call: calls.append(call))
        assert calls == [(N, N)]

    def test_notes_on_files(self, tmp_path):
        (tmp_path / "a.csv").write_text("x;y\n1;2\n2;3\n")
        assert read_rows(tmp_path).notes == ("a.csv is separated by semicolons.",)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"bag": "town"}, "bag must be in the table, got unknown 'town'"),
            ({"bag": "district", "columns": ["x", "district"]}, "the bag column 'district'"),
            ({"columns": ["town"]}, "unknown 'town'"),
            ({"encoding": "table"}, "encoding must be that of a model, got str"),
            ({"images": ".", "columns": ["x"]}, "columns and leave_out"),
        ],
    )
    def test_bad_options(self, file, options, words):
        with pytest.raises(InvalidInputError, match=words):
            read_rows(file, **options)

    def test_columns_are_chosen_once(self, file):
        encoding = read_rows(file).encoding
        for options in ({"columns": ["x"]}, {"leave_out": ["x"]}):
            with pytest.raises(InvalidInputError, match="the encoding knows its columns"):
                read_rows(file, encoding=encoding, **options)

    def test_npz_has_no_columns(self, tmp_path):
        with pytest.raises(InvalidInputError, match=r"for rows from a table, got an \.npz"):
            read_rows(tmp_path / "a.npz", leave_out=["x"])


class TestBagIds:
    def ids(self, folder, values, dtype=None):
        stored = dtype.value_type if dtype and pa.types.is_dictionary(dtype) else dtype
        column = pa.array(values, stored)
        column = column if stored is dtype else column.dictionary_encode().cast(dtype)
        table = pa.table({"x": [i % 2 for i in range(len(column))], "bag": column})
        pq.write_table(table, folder / "bags.parquet")
        ids = read_rows(folder / "bags.parquet", bag="bag").bag_ids
        index = index_ids("ids", np.array(list(dict.fromkeys(ids.tolist())), dtype=ids.dtype))
        match_ids("bag_ids", ids, index)  # ids that the library takes
        return ids

    @pytest.mark.parametrize(
        ("values", "dtype", "kind"),
        [
            (["b", "a", "b"], None, "O"),
            (["b", "a", "b"], pa.dictionary(pa.int8(), pa.large_string()), "O"),
            ([3, 1, 3], pa.uint16(), "i"),
            ([2**62 + 1, -1, 0], pa.int64(), "i"),
            ([True, False, True], None, "b"),
            ([1.0, 2.0, 1.0], None, "f"),
        ],
    )
    def test_kinds(self, tmp_path, values, dtype, kind):
        ids = self.ids(tmp_path, values, dtype)
        assert ids.tolist() == values
        assert ids.dtype.kind == kind

    @pytest.mark.parametrize("dtype", [pa.date32(), pa.date64(), pa.timestamp("ns")])
    def test_dates(self, tmp_path, dtype):
        days = [datetime.date(2024, 1, 1), datetime.date(1960, 5, 1)]
        ids = self.ids(tmp_path, pa.array(days).cast(dtype))
        assert ids.dtype == "datetime64[D]"
        assert ids.tolist() == days

    def test_very_long_ids(self, tmp_path):
        with pytest.raises(InvalidInputError, match="at most 10,000 characters each, got one of"):
            self.ids(tmp_path, ["a", "x" * 10_001])

    def test_times_that_differ_by_nanoseconds_are_not_merged(self, tmp_path):
        with pytest.raises(InvalidInputError, match=r"bag column .* must be timestamp.us., got "):
            self.ids(tmp_path, pa.array([1, 2], pa.timestamp("ns")))

    def test_times(self, tmp_path):
        times = [datetime.datetime(2024, 1, 1, 10), datetime.datetime(2024, 1, 2)]
        assert self.ids(tmp_path, times).tolist() == times
        zone = datetime.timezone(datetime.timedelta(hours=2))
        zoned = [time.replace(tzinfo=zone) for time in times]
        assert self.ids(tmp_path, zoned).tolist() == zoned

    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            ("2 1 2", [2, 1, 2]),
            ("02 1 2", ["02", "1", "2"]),
            ("2 a 2", ["2", "a", "2"]),
            ("NA a null", ["NA", "a", "null"]),
            ("true false true", [True, False, True]),
            ("1.0 2.0 1.0", [1.0, 2.0, 1.0]),
            ("1.10 1.1 2.5", ["1.10", "1.1", "2.5"]),
            ("2024-01-01 2024-01-02 2024-01-01", None),
            ("2024-13-01 2024-01-02 2024-01-01", ["2024-13-01", "2024-01-02", "2024-01-01"]),
        ],
    )
    def test_csv(self, tmp_path, texts, expected):
        lines = "".join(f"{text},{i}\n" for i, text in enumerate(texts.split()))
        (tmp_path / "a.csv").write_text("bag,x\n" + lines)
        ids = read_rows(tmp_path / "a.csv", bag="bag").bag_ids
        if expected is None:
            assert ids.dtype == "datetime64[D]"
        else:
            assert ids.tolist() == expected

    @pytest.mark.parametrize("missing", [None, float("nan")])
    def test_missing(self, tmp_path, missing):
        pq.write_table(pa.table({"x": [1, 2], "bag": [1.0, 2.0]}), tmp_path / "a.parquet")
        pq.write_table(
            pa.table({"x": [1, 2, 3], "bag": [1.0, missing, missing]}), tmp_path / "b.parquet"
        )
        words = r"'bag' .* none in 2 of 5 rows; the first is row 2 of b.parquet: drop"
        with pytest.raises(InvalidInputError, match=words):
            read_rows(tmp_path, bag="bag")

    def test_missing_in_csv(self, tmp_path):
        (tmp_path / "a.csv").write_text("bag,x\na,1\n,2\n")
        with pytest.raises(InvalidInputError, match="none in 1 of 2 rows; the first is row 2"):
            read_rows(tmp_path, bag="bag")

    def test_all_missing(self, tmp_path):
        with pytest.raises(InvalidInputError, match="none in 2 of 2 rows"):
            self.ids(tmp_path, pa.nulls(2))

    def test_no_ids(self, tmp_path):
        for values in ([[1], [2]], [b"a", b"b"], pa.array([1, 2], pa.duration("s"))):
            with pytest.raises(InvalidInputError, match="text, whole numbers, bool or dates"):
                self.ids(tmp_path, values)

    def test_far_dates(self, tmp_path):
        for dates in (pa.array([0, 10**7], pa.date32()), pa.array([0, 10**18], pa.timestamp("us"))):
            with pytest.raises(InvalidInputError, match="bag column 'bag' must be "):
                self.ids(tmp_path, dates)

    def test_empty_text(self, tmp_path):
        for values in (["a", ""], pa.array(["a", ""]).dictionary_encode()):
            with pytest.raises(InvalidInputError, match="none in 1 of 2 rows; the first is row 2"):
                self.ids(tmp_path, values)

    def test_inexact(self, tmp_path):
        with pytest.raises(InvalidInputError, match="too large to hold every whole number"):
            self.ids(tmp_path, [1e17, 2.0])
        with pytest.raises(InvalidInputError, match="bag column 'bag' must be int64"):
            self.ids(tmp_path, [2**63, 1], pa.uint64())


class TestCache:
    def read(self, file, tmp_path, **options):
        return read_rows(file, bag="district", cache=tmp_path / "cache", **options)

    def test_same_as_in_memory(self, file, tmp_path):
        kept, cached = read_rows(file, bag="district"), self.read(file, tmp_path)
        assert isinstance(cached.X, np.memmap)
        assert not isinstance(kept.X, np.memmap)
        np.testing.assert_array_equal(cached.X, kept.X)
        np.testing.assert_array_equal(cached.bag_ids, kept.bag_ids)
        assert cached.encoding.to_dict() == kept.encoding.to_dict()
        assert cached.notes == kept.notes

    def test_used_again(self, file, tmp_path, passes):
        first = self.read(file, tmp_path)
        assert len(passes) == 2
        second = self.read(file, tmp_path)
        assert len(passes) == 2
        np.testing.assert_array_equal(second.X, first.X)
        np.testing.assert_array_equal(second.bag_ids, first.bag_ids)
        assert second.encoding.to_dict() == first.encoding.to_dict()
        assert second.notes == first.notes

    def test_not_used_for_anything_else(self, file, tmp_path):
        first = self.read(file, tmp_path)
        assert self.read(file, tmp_path, columns=["x"]).X.shape == (N, 1)
        assert self.read(file, tmp_path, leave_out=["x"]).X.shape == (N, 5)
        assert read_rows(file, bag="colour", cache=tmp_path / "cache").X.shape == (N, 5)
        encoding = TableEncoding(first.encoding.encoders[:1])
        assert self.read(file, tmp_path, encoding=encoding).X.shape == (N, 1)
        pq.write_table(TABLE.slice(1), file)
        assert len(self.read(file, tmp_path).X) == N - 1

    def test_interrupted_at_any_batch(self, file, tmp_path, monkeypatch):
        monkeypatch.setattr("unbag.io.tables._BATCH_CELLS", 1)  # 256 rows a batch
        whole = read_rows(file, bag="district")
        for stop in range(1, 9):

            def interrupt(done, _, stop=stop):
                if done >= 250 * stop:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                self.read(file, tmp_path, progress=interrupt)
            assert not any((tmp_path / "cache").glob("*"))
        np.testing.assert_array_equal(self.read(file, tmp_path).X, whole.X)

    @pytest.mark.parametrize("name", ["X.npy", "bags.npy", "bag_ids.arrow", "about.json"])
    def test_damaged(self, file, tmp_path, name):
        whole = self.read(file, tmp_path)
        X, ids = np.array(whole.X), whole.bag_ids
        (place,) = (tmp_path / "cache").iterdir()
        content = (place / name).read_bytes()
        (place / name).unlink()
        (place / name).write_bytes(content[: len(content) // 2])
        with pytest.warns(DiscardedWorkWarning, match="was damaged"):
            again = self.read(file, tmp_path)
        np.testing.assert_array_equal(again.X, X)
        np.testing.assert_array_equal(again.bag_ids, ids)

    def test_not_a_folder(self, file):
        with pytest.raises(InvalidInputError, match="a folder that can be written"):
            read_rows(file, cache=file)

    def test_large_tables_go_to_a_temporary_folder(self, file, tmp_path, monkeypatch):
        monkeypatch.setattr(rows_module, "_IN_MEMORY", 100)
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        rows = read_rows(file, bag="district")
        assert isinstance(rows.X, np.memmap)
        (folder,) = (tmp_path / "temporary").iterdir()
        assert Path(rows.X.filename).is_relative_to(folder)
        total = rows.X.sum()
        del rows
        gc.collect()
        assert list((tmp_path / "temporary").iterdir()) == []
        assert np.isfinite(total)

    def test_error_removes_the_temporary_folder(self, file, tmp_path, monkeypatch):
        monkeypatch.setattr(rows_module, "_IN_MEMORY", 100)
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        with pytest.raises(InvalidInputError, match="none in"):
            read_rows(file, bag="y")
        assert list((tmp_path / "temporary").iterdir()) == []


class TestEncodingFromDict:
    def test_table(self, file):
        encoding = read_rows(file).encoding
        assert encoding_from_dict(encoding.to_dict()).encoders == encoding.encoders

    @pytest.mark.parametrize("values", [None, [], {}, {"kind": "pickle"}, {"kind": ["table"]}])
    def test_something_else(self, values):
        with pytest.raises(InvalidInputError):
            encoding_from_dict(values)

    def test_rows_of_another_shape(self, file):
        encoding = read_rows(file).encoding
        values = encoding.to_dict()
        assert encoding_from_dict(values, (encoding.n_features,)) == encoding
        with pytest.raises(InvalidInputError, match=r"rows of shape \(7,\), got one that makes"):
            encoding_from_dict(values, (7,))
        images = {"kind": "images", "size": [4, 5], "mode": "RGB"}
        assert encoding_from_dict(images, (3, 4, 5)).row_shape == (3, 4, 5)
        with pytest.raises(InvalidInputError, match=r"makes rows of shape \(3, 4, 5\)"):
            encoding_from_dict(images, (60,))

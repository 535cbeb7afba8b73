import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_tables import encode, feature, many, write

from unbag.exceptions import InvalidInputError
from unbag.io import TableEncoding, TableFiles, read_rows
from unbag.io.column import Missing
from unbag.io.columns import Category


class TestBooleans:
    def test_zero_and_one(self, fit):
        columns = {"x": [True, False, None, True]}
        encoding = fit(columns)
        assert feature(encoding, columns, "x") == pytest.approx([1, 0, 2 / 3, 1])
        assert feature(encoding, columns, "x is missing") == [0, 0, 1, 0]
        assert fit({"x": [True, False]}).feature_names == ("x",)


class TestCategories:
    def test_one_feature_a_value(self, fit):
        columns = {"x": ["b", "a", "b", "a", None]}
        encoding = fit(columns)
        assert encoding.feature_names == ("x=a", "x=b", "x is missing")
        assert encode(encoding, columns).tolist() == [
            [0, 1, 0],
            [1, 0, 0],
            [0, 1, 0],
            [1, 0, 0],
            [0, 0, 1],
        ]
        assert encode(encoding, {"x": ["new"]}).tolist() == [[0, 0, 0]]

    def test_rare_and_unseen_values_share_a_feature(self, fit):
        columns = {"x": [*many(["a", "b"], 1000), *["c"] * 9, "d"]}
        encoding = fit(columns)
        assert encoding.feature_names == ("x=a", "x=b", "x is another")
        assert "2 rare values of column 'x' (10 rows)" in encoding.notes[0]
        assert encode(encoding, {"x": ["c", "new", "a", None]}).tolist() == [
            [0, 0, 1],
            [0, 0, 1],
            [1, 0, 0],
            [0, 0, 0],
        ]

    def test_at_most_a_hundred_values(self, fit):
        encoding = fit({"x": many([f"{i:03}" for i in range(150)], 6000)})
        assert encoding.n_features == 101
        assert encoding.feature_names[99:] == ("x=099", "x is another")

    def test_dictionaries(self, fit):
        columns = {"x": pa.array(["a", "b"] * 10).dictionary_encode()}
        encoding = fit(columns)
        assert encode(encoding, columns)[:2].tolist() == [[1, 0], [0, 1]]
        large = {"x": pa.array(["b"], pa.large_string())}
        assert encode(encoding, large).tolist() == [[0, 1]]

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ([f"id{i}" for i in range(1000)], "1,000 different values in 1,000 rows, all"),
            ([f"{i}" for i in range(60_000)], "more than 50,000 different values"),
        ],
    )
    def test_ids(self, fit, values, words):
        encoding = fit({"x": values, "y": many([1, 2, 1], len(values))})
        assert encoding.feature_names == ("y",)
        assert words in encoding.left_out["x"]
        assert encoding.notes == (f"Column 'x' is left out: {encoding.left_out['x']}.",)

    def test_named_columns_are_used_if_at_all_possible(self, fit):
        rare = ["a"] * 400 + [f"id{i}" for i in range(600)]
        assert fit({"x": rare}, columns=["x"]).feature_names == ("x=a", "x is another")
        assert fit({"x": rare}).feature_names == ("x=a", "x is another")
        assert fit({"x": ["a" * 200, "b" * 200] * 9}).n_features == 2
        with pytest.raises(InvalidInputError, match=r"column 'x' .* can be encoded.* all of them"):
            fit({"x": [f"id{i}" for i in range(1000)]}, columns=["x"])

    def test_columns_without_any_value(self, fit, tmp_path):
        encoding = fit({"x": ["a", "b"] * 400 + ["a"], "y": ["c", "d"] * 400 + ["e"]})
        pq.write_table(pa.table({"x": pa.nulls(2), "y": pa.nulls(2)}), tmp_path / "new.parquet")
        new = TableFiles(tmp_path / "new.parquet")
        assert new.schema.types == [pa.null(), pa.null()]
        assert read_rows(tmp_path / "new.parquet", encoding=encoding).X.tolist() == [[0] * 5] * 2


class TestEmptyText:
    """An empty text is missing, in Parquet as in CSV."""

    COLUMNS = {"x": ["a", "", "b", None] * 10, "y": [1.5, 2.5] * 20}  # noqa: RUF012 - not changed

    def test_means_the_same_in_csv_and_parquet(self, fit, tmp_path):
        encoding = fit(self.COLUMNS)
        assert encoding.feature_names == ("x=a", "x=b", "x is missing", "y")
        assert "20 of 40 values of column 'x' are missing" in encoding.notes[0]
        text = "x,y\n" + 'a,1.5\n"",2.5\nb,1.5\n,2.5\n' * 10
        csv = read_rows(write(tmp_path / "a.csv", text))
        assert csv.encoding.encoders == encoding.encoders
        np.testing.assert_array_equal(csv.X, encode(encoding, self.COLUMNS))
        assert csv.X[:4, :3].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]

    def test_only_empty_text_is_no_value(self, fit):
        assert fit({"x": [""] * 20, "y": [1, 2] * 10}).left_out == {"x": "it is empty"}

    def test_of_dictionaries_and_large_strings(self, fit):
        encoding = fit({"x": pa.array(["a", "", "b"] * 10, pa.large_string()).dictionary_encode()})
        assert encoding.feature_names == ("x=a", "x=b", "x is missing")
        assert encode(encoding, {"x": pa.array([""], pa.large_string())}).tolist() == [[0, 0, 1]]

    def test_an_older_model_may_know_it_as_a_value(self):
        category = Category("x", ("", "a"), True)
        encoding = TableEncoding((category, Missing("x")))
        arguments = {"x": ["", "a", "new", None]}
        expected = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
        assert encode(encoding, arguments).tolist() == expected

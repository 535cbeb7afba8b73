import datetime
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import encode, many

from unbag.exceptions import InvalidInputError
from unbag.io import TableEncoding, TableFiles


class TestChoiceOfColumns:
    COLUMNS = {  # noqa: RUF012 - never changed
        "x": [1, 2] * 10,
        "same": [1] * 20,
        "none": pa.nulls(20),
        "list": [[1]] * 20,
        "bytes": [b"a", b"b"] * 10,
        "struct": [{"a": 1}] * 20,
    }

    def test_reasons(self, fit):
        assert fit(self.COLUMNS).left_out == {
            "same": "all its values are the same",
            "none": "it is empty",
            "list": "values of type list<element: int64> are not numbers, text or dates",
            "bytes": "values of type binary are not numbers, text or dates",
            "struct": "values of type struct<a: int64> are not numbers, text or dates",
        }

    @pytest.mark.parametrize("name", ["same", "none", "list", "bytes", "struct"])
    def test_named_but_impossible(self, fit, name):
        with pytest.raises(InvalidInputError, match=f"column '{name}' must be one that can be enc"):
            fit(self.COLUMNS, columns=["x", name])

    def test_order_and_leaving_out(self, fit):
        columns = {name: many([1, 2]) for name in "abc"}
        assert fit(columns, columns=["c", "a"]).columns == ("c", "a")
        assert fit(columns, leave_out=["b"]).columns == ("a", "c")
        assert fit(columns, leave_out=["b"]).left_out == {}

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"columns": ["z"]}, "columns must be in the table, got unknown 'z'"),
            ({"leave_out": ["z"]}, "leave_out must be in the table, got unknown 'z'"),
            ({"columns": "a"}, "columns must be a sequence of column names, got 'a'"),
            ({"columns": ["a", "a"]}, "columns must be different columns"),
            ({"columns": ["a"], "leave_out": ["a"]}, "'a' in both"),
            ({"columns": []}, "at least one column to learn from"),
            ({"leave_out": ["a", "b"]}, "at least one column to learn from"),
        ],
    )
    def test_bad_choices(self, fit, options, words):
        with pytest.raises(InvalidInputError, match=words):
            fit({"a": [1, 2], "b": [1, 2]}, **options)

    def test_nothing_to_learn_from(self, fit):
        with pytest.raises(InvalidInputError, match=r"none \('same': all its values are the same"):
            fit({"same": [1, 1]})

    def test_progress(self, fit):
        calls = []
        fit({"x": many([1, 2])}, progress=lambda done, total: calls.append((done, total)))
        assert calls == [(100, 100)]


class TestTransform:
    def test_missing_column(self, fit):
        encoding = fit({"x": [1, 2], "y": [1, 2]})
        with pytest.raises(InvalidInputError, match=r"none called 'y'; it has 'x', 'z'"):
            encode(encoding, {"x": [1], "z": [1]})

    def test_extra_columns_and_other_order(self, fit):
        encoding = fit({"x": [1, 3], "y": [1, 2]})
        assert encode(encoding, {"y": [1], "z": ["?"], "x": [3.0]}).tolist() == [[1, -1]]

    @pytest.mark.parametrize(
        ("trained", "given", "words"),
        [
            ([1, 2], ["1"], "'x' must be numbers, as in training, got type string"),
            ([1, 2], [True], "must be numbers"),
            ([True, False], [1], "must be true or false"),
            (["a", "b"] * 2, [1], "must be text"),
            ([1, 2], [datetime.date(2024, 1, 1)], "must be numbers"),
            ([datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)], [1], "without a time zone"),
        ],
    )
    def test_other_types(self, fit, trained, given, words):
        with pytest.raises(InvalidInputError, match=words):
            encode(fit({"x": trained}), {"x": given})

    def test_no_rows(self, fit):
        assert encode(fit({"x": [1, 2]}), {"x": pa.array([], pa.int64())}).shape == (0, 1)

    def test_text_of_digits_in_csv(self, tmp_path):
        (tmp_path / "old.csv").write_text("x\n1\n1\nb\nb\n")
        (tmp_path / "new.csv").write_text("x\n1\n")
        encoding = TableEncoding.fit(TableFiles(tmp_path / "old.csv"))
        assert encoding.text_columns == ("x",)
        with pytest.raises(InvalidInputError, match="'x' must be text"):
            encoding.check_schema(TableFiles(tmp_path / "new.csv").schema)
        table = TableFiles(tmp_path / "new.csv", text=encoding.text_columns)
        assert encoding.transform(next(table.batches())).tolist() == [[1, 0]]


VALUES = {
    "number": (pa.float64(), st.floats(-1e6, 1e6)),
    "integer": (pa.int64(), st.integers(-1000, 1000)),
    "boolean": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.sampled_from(["a", "b", "c c", 'd"', "é,;"])),
    "date": (pa.date32(), st.dates(datetime.date(1950, 1, 1), datetime.date(2050, 1, 1))),
    "time": (
        pa.timestamp("s"),
        st.datetimes(
            datetime.datetime(1950, 1, 1), datetime.datetime(2050, 1, 1), timezones=st.none()
        ).map(lambda time: time.replace(microsecond=0)),
    ),
}


@st.composite
def tables(draw):
    n = draw(st.integers(2, 60))
    columns = {
        name: pa.array(draw(st.lists(st.none() | values, min_size=n, max_size=n)), dtype)
        for name, (dtype, values) in VALUES.items()
    }
    return pa.table({"base": many([1, 2], n), **columns})


class TestProperties:
    @given(table=tables(), step=st.integers(1, 20))
    @settings(max_examples=60, deadline=None)
    def test_batches_and_file_formats_do_not_matter(self, tmp_path_factory, table, step):
        folder = tmp_path_factory.mktemp("tables")
        pq.write_table(table, folder / "a.parquet")
        pyarrow.csv.write_csv(table, folder / "a.csv")
        parquet = TableFiles(folder / "a.parquet")
        encoding = TableEncoding.fit(parquet)
        (batch,) = parquet.batches()
        X = encoding.transform(batch)
        assert X.dtype == np.float32
        assert np.isfinite(X).all()
        assert X.shape == (len(table), encoding.n_features)
        parts = [encoding.transform(part) for part in parquet.batches(batch_rows=step)]
        np.testing.assert_array_equal(np.concatenate(parts), X)

        csv = TableFiles(folder / "a.csv")
        assert TableEncoding.fit(csv).to_dict() == encoding.to_dict()
        rows = [encoding.transform(part) for part in csv.batches(batch_rows=step)]
        np.testing.assert_array_equal(np.concatenate(rows), X)

        again = TableEncoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
        assert again.to_dict() == encoding.to_dict()
        assert again.encoders == encoding.encoders
        np.testing.assert_array_equal(again.transform(batch), X)


NUMBER = {"kind": "number", "column": "x", "mean": 0.0, "scale": 1.0, "quantity": "number"}
CATEGORY = {"kind": "category", "column": "x", "levels": ["a"], "others": False}
DATE = {
    "kind": "date",
    "column": "x",
    "mean": 0.0,
    "scale": 1.0,
    "cycles": [],
    "zoned": False,
    "form": "",
}
WHOLE = {
    "kind": "table",
    "format": 1,
    "encoders": [NUMBER],
    "left_out": {},
    "notes": [],
    "seen": {},
}


class TestFromDict:
    @pytest.mark.parametrize("encoder", [NUMBER, CATEGORY, DATE])
    def test_sound(self, encoder):
        values = {**WHOLE, "encoders": [encoder, {"kind": "missing", "column": "x"}]}
        assert TableEncoding.from_dict(values).to_dict() == values

    @pytest.mark.parametrize(
        "change",
        [
            {"kind": "array"},
            {"format": 2},
            {"encoders": []},
            {"encoders": {}},
            {"encoders": [NUMBER] * 100_001},
            {"encoders": [NUMBER, NUMBER]},
            {"encoders": [NUMBER, CATEGORY]},
            {"encoders": ["number"]},
            {"left_out": []},
            {"left_out": {"x": 3}},
            {"notes": "a"},
            {"notes": [3]},
            {"more": 1},
        ],
    )
    def test_malformed(self, change):
        with pytest.raises(InvalidInputError):
            TableEncoding.from_dict({**WHOLE, **change})

    @pytest.mark.parametrize("values", [None, [], "table", 3, {}, {"kind": "table"}])
    def test_something_else(self, values):
        with pytest.raises(InvalidInputError, match="encoding must be one that unbag wrote"):
            TableEncoding.from_dict(values)

    @pytest.mark.parametrize(
        ("encoder", "change"),
        [
            (NUMBER, {"kind": "unknown"}),
            (NUMBER, {"kind": ["number"]}),
            (NUMBER, {"column": 3}),
            (NUMBER, {"mean": math.nan}),
            (NUMBER, {"mean": "0"}),
            (NUMBER, {"mean": True}),
            (NUMBER, {"mean": 10**400}),
            (NUMBER, {"scale": 0.0}),
            (NUMBER, {"scale": -1.0}),
            (NUMBER, {"scale": math.inf}),
            (NUMBER, {"scale": 1e-320}),
            (NUMBER, {"quantity": "length"}),
            (NUMBER, {"more": 1}),
            (CATEGORY, {"levels": []}),
            (CATEGORY, {"levels": "ab"}),
            (CATEGORY, {"levels": [1]}),
            (CATEGORY, {"levels": ["a", "a"]}),
            (CATEGORY, {"levels": [str(i) for i in range(101)]}),
            (CATEGORY, {"levels": ["a" * 1001]}),
            (CATEGORY, {"levels": ["\ud800"]}),
            (CATEGORY, {"others": 1}),
            (DATE, {"cycles": ["month"]}),
            (DATE, {"cycles": ["week", "week"]}),
            (DATE, {"cycles": [["week"]]}),
            (DATE, {"zoned": "UTC"}),
            (DATE, {"scale": 0}),
        ],
    )
    def test_hostile_encoders(self, encoder, change):
        values = {**WHOLE, "encoders": [{**encoder, **change}]}
        with pytest.raises(InvalidInputError, match=r"encoders\[0\]"):
            TableEncoding.from_dict(values)

    def test_field_left_out(self):
        for name in NUMBER:
            encoder = {key: value for key, value in NUMBER.items() if key != name}
            with pytest.raises(InvalidInputError, match=r"encoders\[0\]"):
                TableEncoding.from_dict({**WHOLE, "encoders": [encoder]})

    def test_too_many_features(self):
        levels = [str(i) for i in range(100)]
        encoders = [{**CATEGORY, "column": str(i), "levels": levels} for i in range(1001)]
        with pytest.raises(InvalidInputError, match="at most 100,000"):
            TableEncoding.from_dict({**WHOLE, "encoders": encoders})

import datetime
import decimal
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbag.exceptions import InvalidInputError
from unbag.io import TableEncoding, TableFiles


@pytest.fixture
def fit(tmp_path):
    """Fit an encoding to columns, through a Parquet file."""

    def fit(content, **options):
        pq.write_table(pa.table(content), tmp_path / "table.parquet")
        return TableEncoding.fit(TableFiles(tmp_path / "table.parquet"), **options)

    return fit


def encode(encoding, columns):
    return encoding.transform(pa.record_batch(columns))


def column(encoding, columns, feature):
    """One feature of the encoded columns."""
    return encode(encoding, columns)[:, encoding.feature_names.index(feature)].tolist()


def many(values, n=100):
    return [values[i % len(values)] for i in range(n)]


class TestNumbers:
    @pytest.mark.parametrize(
        "dtype", [pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64()]
    )
    def test_standardised(self, fit, dtype):
        columns = {"x": pa.array(many([1, 2, 6]), dtype)}
        X = encode(fit(columns), columns)
        assert X.dtype == np.float32
        values = np.array(many([1.0, 2.0, 6.0]))
        np.testing.assert_allclose(X[:, 0], (values - values.mean()) / values.std(), rtol=1e-6)

    @pytest.mark.parametrize("cells", [1, 1 << 20])
    def test_whole_numbers_that_all_differ_are_used_with_a_note(self, fit, monkeypatch, cells):
        monkeypatch.setattr("unbag.io.tables._BATCH_CELLS", cells)
        shuffled = np.random.default_rng(0).permutation(100)
        once_twice = np.where(shuffled == 7, 8, shuffled)
        columns = {"record": shuffled, "twice": once_twice, "real": shuffled + 0.5}
        encoding = fit(columns)
        assert encoding.feature_names == ("record", "twice", "real")
        assert encoding.notes == (
            "Column 'record' holds whole numbers of which none comes twice in 100 rows; if they "
            "only name the rows, leave it out (--leave-out).",
        )
        assert fit(columns, columns=["record"]).notes == ()  # asked for by name
        assert fit({"few": shuffled[:19]}).notes == ()

    def test_whole_numbers_are_not_all_kept_to_find_repeats(self, fit, monkeypatch):
        monkeypatch.setattr("unbag.io.tables._BATCH_CELLS", 1)
        monkeypatch.setattr("unbag.io.summaries._MAX_DISTINCT", 30)
        values = np.random.default_rng(0).permutation(5_000)
        (note,) = fit({"record": np.append(values, values[0])}).notes
        assert "none comes twice in " in note
        assert "5,00" not in note

    def test_stable_far_from_zero_over_many_batches(self, fit, monkeypatch):
        monkeypatch.setattr("unbag.io.tables._BATCH_CELLS", 1)
        values = 1e9 + np.random.default_rng(0).normal(size=10_000)
        encoding = fit({"x": values})
        (encoder,) = encoding.encoders
        assert encoder.mean == pytest.approx(values.mean(), rel=1e-15)
        assert encoder.scale == pytest.approx(values.std(), rel=1e-7)

    def test_missing_values_take_the_mean_and_are_marked(self, fit):
        columns = {"x": [1.0, None, 3.0, math.nan] * 10}
        encoding = fit(columns)
        assert encoding.feature_names == ("x", "x is missing")
        assert encode(encoding, columns)[:4].tolist() == [[-1, 0], [0, 1], [1, 0], [0, 1]]
        assert "lacks 20 of 40 values" in encoding.notes[0]

    def test_missing_only_later(self, fit):
        encoding = fit({"x": [1.0, 3.0]})
        assert encode(encoding, {"x": [None, 3.0]}).tolist() == [[0], [1]]
        assert encode(encoding, {"x": pa.nulls(2)}).tolist() == [[0], [0]]

    def test_one_value_or_missing_keeps_the_mark(self, fit):
        encoding = fit({"x": [1, None] * 10, "y": ["yes", None] * 10, "z": [True, None] * 10})
        assert encoding.feature_names == ("x is missing", "y is missing", "z is missing")
        assert encoding.left_out == {}

    @pytest.mark.parametrize("value", [math.inf, -math.inf])
    def test_infinite_values(self, fit, value):
        with pytest.raises(InvalidInputError, match=r"column 'x' .* 2 infinite values"):
            fit({"x": [1.0, value, 2.0, value]})
        encoding = fit({"x": [1.0, 2.0]})
        with pytest.raises(InvalidInputError, match=r"column 'x' .* 1 values that are infinite"):
            encode(encoding, {"x": [1.0, value]})

    def test_beyond_float32(self, fit):
        encoding = fit({"x": [1.0, 2.0]})
        with pytest.raises(InvalidInputError, match="beyond the range of float32"):
            encode(encoding, {"x": [1e300]})

    def test_squares_overflow(self, fit):
        with pytest.raises(InvalidInputError, match=r"'x' must be of moderate numbers.*1e\+200"):
            fit({"x": [-1e200, 1e200]})

    def test_too_close(self, fit):
        encoding = fit({"x": [0.0, 1e-200] * 10, "y": [1, 2] * 10})
        assert "too close" in encoding.left_out["x"]

    def test_decimals_durations_and_times(self, fit):
        columns = {
            "price": [decimal.Decimal("1.50"), decimal.Decimal("2.50")],
            "length": pa.array([1000, 3000], pa.duration("ms")),
            "at": [datetime.time(1), datetime.time(2)],
        }
        encoding = fit(columns)
        assert encode(encoding, columns).tolist() == [[-1, -1, -1], [1, 1, 1]]
        assert [encoder.mean for encoder in encoding.encoders] == [2.0, 2.0, 5400.0]
        with pytest.raises(InvalidInputError, match="'length' must be durations, as in training"):
            encode(encoding, {**columns, "length": [1, 3]})

    def test_row_numbers(self, fit):
        columns = {"up": range(30), "down": range(30, 0, -1), "x": many([1, 2], 30)}
        encoding = fit(columns)
        assert encoding.feature_names == ("x",)
        assert "numbers the rows" in encoding.left_out["up"]
        assert "(--columns)" in encoding.left_out["down"]
        assert fit(columns, columns=["up"]).feature_names == ("up",)

    @pytest.mark.parametrize(
        "values",
        [
            range(10),  # too few to tell
            [float(i) for i in range(30)],
            [*range(29), 28],
            [*range(29), 3],
            [*range(29), None],
        ],
    )
    def test_no_row_numbers(self, fit, values):
        assert fit({"x": pa.array(values)}).feature_names[0] == "x"

    def test_row_numbers_over_batches(self, fit, monkeypatch):
        monkeypatch.setattr("unbag.io.tables._BATCH_CELLS", 1)  # 256 rows a batch
        sawtooth = [i % 256 for i in range(1024)]
        encoding = fit({"id": range(1024), "x": sawtooth, "y": [i // 2 for i in range(1024)]})
        assert encoding.feature_names == ("x", "y")


class TestBooleans:
    def test_zero_and_one(self, fit):
        columns = {"x": [True, False, None, True]}
        encoding = fit(columns)
        assert column(encoding, columns, "x") == pytest.approx([1, 0, 2 / 3, 1])
        assert column(encoding, columns, "x is missing") == [0, 0, 1, 0]
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
            ([f"id{i // 2}" for i in range(1000)], "500 different values in 1,000 rows, all"),
            (["a"] * 400 + [f"id{i}" for i in range(600)], "most of them rare"),
            (["long " * 50, "text " * 50] * 10, "text of 250 characters on average"),
            ([f"{i}" for i in range(60_000)], "more than 50,000 different values"),
        ],
    )
    def test_ids_and_text(self, fit, values, words):
        encoding = fit({"x": values, "y": many([1, 2, 1], len(values))})
        assert encoding.feature_names == ("y",)
        assert words in encoding.left_out["x"]
        assert encoding.notes == (f"Column 'x' is left out: {encoding.left_out['x']}.",)

    def test_named_columns_are_used_if_at_all_possible(self, fit):
        rare = ["a"] * 400 + [f"id{i}" for i in range(600)]
        assert fit({"x": rare}, columns=["x"]).feature_names == ("x=a", "x is another")
        assert fit({"x": ["a" * 200, "b" * 200] * 9}, columns=["x"]).n_features == 2
        with pytest.raises(InvalidInputError, match=r"column 'x' .* can be encoded.* all of them"):
            fit({"x": [f"id{i}" for i in range(1000)]}, columns=["x"])


class TestDates:
    DAY = datetime.date(2024, 1, 1)

    def days(self, *offsets):
        return [self.DAY + datetime.timedelta(offset) for offset in offsets]

    def test_days_are_standardised(self, fit):
        columns = {"x": self.days(0, 2)}
        encoding = fit(columns)
        assert encoding.feature_names == ("x",)
        assert encode(encoding, columns).tolist() == [[-1], [1]]

    @pytest.mark.parametrize(
        ("offsets", "cycles"),
        [
            (range(7), []),
            (range(30), ["week"]),
            (range(0, 70, 7), []),
            (range(800), ["year", "week"]),
            (range(0, 366 * 10, 1461), ["week"]),
        ],
    )
    def test_cycles_where_they_vary(self, fit, offsets, cycles):
        names = [f"x {cycle} {wave}" for cycle in cycles for wave in ("sine", "cosine")]
        assert fit({"x": self.days(*offsets)}).feature_names == ("x", *names)

    def test_hours(self, fit):
        start = datetime.datetime(2024, 1, 1)
        columns = {"x": [start + datetime.timedelta(hours=6 * i) for i in range(9)]}
        encoding = fit(columns)
        assert encoding.feature_names == ("x", "x day sine", "x day cosine")
        np.testing.assert_allclose(
            encode(encoding, columns)[:4, 1:], [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-6
        )

    def test_weeks_repeat(self, fit):
        columns = {"x": self.days(*range(30))}
        X = encode(fit(columns), columns)
        np.testing.assert_allclose(X[:7, 1:], X[7:14, 1:], atol=1e-6)
        assert len({tuple(row) for row in X[:7, 1:].round(3)}) == 7

    def test_missing(self, fit):
        columns = {"x": [*self.days(*range(30)), None]}
        encoding = fit(columns)
        assert encode(encoding, columns)[-1].tolist() == [0, 0, 0, 1]
        assert encode(encoding, {"x": pa.nulls(1)}).tolist() == [[0, 0, 0, 1]]

    def test_time_zones_count_in_utc(self, fit):
        utc = pa.array([0, 86_400 * 10**6], pa.timestamp("us", "UTC"))
        encoding = fit({"x": utc})
        helsinki = utc.cast(pa.timestamp("ns", "Europe/Helsinki"))
        assert encode(encoding, {"x": helsinki}).tolist() == [[-1], [1]]
        with pytest.raises(InvalidInputError, match="'x' must be dates or times with a time zone"):
            encode(encoding, {"x": utc.cast(pa.timestamp("us"))})

    def test_dates_and_times_mix(self, fit):
        encoding = fit({"x": self.days(0, 2)})
        times = pa.array(self.days(0, 2)).cast(pa.timestamp("ms"))
        assert encode(encoding, {"x": times}).tolist() == [[-1], [1]]
        assert encode(encoding, {"x": times.cast(pa.date64())}).tolist() == [[-1], [1]]


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
DATE = {"kind": "date", "column": "x", "mean": 0.0, "scale": 1.0, "cycles": [], "zoned": False}
WHOLE = {"kind": "table", "format": 1, "encoders": [NUMBER], "left_out": {}, "notes": []}


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
        with pytest.raises(InvalidInputError, match="encoding must be a mapping"):
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
        with pytest.raises(InvalidInputError, match="Encoder 0 of the encoding: "):
            TableEncoding.from_dict(values)

    def test_field_left_out(self):
        for name in NUMBER:
            encoder = {key: value for key, value in NUMBER.items() if key != name}
            with pytest.raises(InvalidInputError, match="Encoder 0"):
                TableEncoding.from_dict({**WHOLE, "encoders": [encoder]})

    def test_too_many_features(self):
        levels = [str(i) for i in range(100)]
        encoders = [{**CATEGORY, "column": str(i), "levels": levels} for i in range(1001)]
        with pytest.raises(InvalidInputError, match="at most 100,000"):
            TableEncoding.from_dict({**WHOLE, "encoders": encoders})

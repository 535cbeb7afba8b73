import datetime
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from small_tables import encode, many

from unbag.exceptions import InvalidInputError


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
            "Column 'record' holds whole numbers, and none is repeated in 100 rows. If they only "
            "name the rows, leave the column out (--leave-out).",
        )
        assert fit(columns, columns=["record"]).notes == ()  # asked for by name
        assert fit({"few": shuffled[:19]}).notes == ()

    def test_whole_numbers_are_not_all_kept_to_find_repeats(self, fit, monkeypatch):
        monkeypatch.setattr("unbag.io.tables._BATCH_CELLS", 1)
        monkeypatch.setattr("unbag.io.numeric.MAX_DISTINCT", 30)
        values = np.random.default_rng(0).permutation(5_000)
        (note,) = fit({"record": np.append(values, values[0])}).notes
        assert "none is repeated in " in note
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
        assert "20 of 40 values of column 'x' are missing; an indicator" in encoding.notes[0]

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
        with pytest.raises(InvalidInputError, match=r"column 'x' .* got -?inf, too far from"):
            encode(encoding, {"x": [1.0, value]})

    def test_beyond_float32(self, fit):
        encoding = fit({"x": [1.0, 2.0]})
        with pytest.raises(InvalidInputError, match=r"1e\+300, too far from the values"):
            encode(encoding, {"x": [1e300]})

    @pytest.mark.parametrize("value", [3e38, -3e38, 2e19])
    def test_whose_squares_overflow_float32(self, fit, value):
        encoding = fit({"x": [-1.0, 1.0]})
        with pytest.raises(InvalidInputError, match=r"column 'x' .* and 1 more, too far from"):
            encode(encoding, {"x": [0.0, value, None, value]})
        (moderate,) = encode(encoding, {"x": [value / 1e20]})[0]
        assert moderate == np.float32(value / 1e20)

    def test_squares_overflow(self, fit):
        with pytest.raises(InvalidInputError, match=r"moderate numbers.*1e\+200"):
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

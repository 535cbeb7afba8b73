"""Plain values for JSON."""

import datetime
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unbag.plain import to_plain

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_values_stay(value):
    assert to_plain(value) == value


def test_everything_else_becomes_plain():
    class Interval:
        def to_plain(self):
            return {"low": np.float64(0.5), "high": np.inf}

    value = {
        1: np.array([[1.5, np.nan]]),
        np.str_("b"): (np.int64(3), np.bool_(True), {"x"}),
        "day": datetime.date(2024, 5, 1),
        "days": np.array(["2024-05-01"], dtype="M8[ns]"),
        "day64": np.datetime64("2024-05"),
        "e": Interval(),
        "path": np.dtype("f4"),
    }
    plain = to_plain(value)
    assert plain == {
        "1": [[1.5, None]],
        "b": [3, True, ["x"]],
        "day": "2024-05-01",
        "days": ["2024-05-01T00:00:00.000000000"],
        "day64": "2024-05",
        "e": {"low": 0.5, "high": None},
        "path": "float32",
    }
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain

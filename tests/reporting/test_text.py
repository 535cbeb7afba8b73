"""Plain values, and texts that are safe to show."""

import datetime
import json
import math

import numpy as np
import pytest
from small_run import HOSTILE_BAGS

from unbag.evaluation import Estimate
from unbag.plain import to_plain
from unbag.reporting.text import text


def test_plain_values():
    arguments = {
        1: np.array([1 / 3, np.nan, -np.inf]),
        "e": Estimate(0.5, math.nan, 1),
        "when": [np.datetime64("2024-05-01T10:00", "ns"), datetime.date(2024, 5, 1)],
        "b": (np.bool_(True), np.int64(3), None),
    }
    converted = to_plain(arguments, text=text, digits=6)
    assert converted["1"] == [0.333333, None, None]
    assert converted["e"] == {"value": 0.5, "low": None, "high": 1.0}
    assert converted["when"] == ["2024-05-01T10:00:00.000000000", "2024-05-01"]
    assert converted["b"] == [True, 3, None]
    json.dumps(converted, allow_nan=False)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x00b\x1b[0m", "a\ufffdb\ufffd[0m"),
        ("\ud800", "?"),
        ("x\u202egpj.exe\u2066", "x\ufffdgpj.exe\ufffd"),
        (HOSTILE_BAGS[4], HOSTILE_BAGS[4]),
        (HOSTILE_BAGS[5], HOSTILE_BAGS[5]),
        (True, "True"),
    ],
)
def test_text_is_safe_to_show(given, shown):
    assert text(given) == shown
    text(given).encode("utf-8")

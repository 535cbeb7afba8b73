"""Rows are compared with those of training, column by column."""

import numpy as np
import pandas as pd
import pytest

from unbag.io import encoding_from_dict
from unbag.io.drift import Drift
from unbag.io.frames import encode_frame


def rows(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 9, n),
            "city": rng.choice(["Oulu", "Turku", "Pori"], n, p=[0.5, 0.3, 0.2]),
            "day": pd.Timestamp("2023-01-05") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "member": pd.array(rng.random(n) < 0.5, dtype="boolean"),
        }
    )


@pytest.fixture(scope="module")
def encoding():
    return encode_frame(rows(900, 0).assign(bag=["a", "b"] * 450), bag="bag").encoding


@pytest.mark.parametrize("n", [1, 5, 50, 900, 2000])
def test_rows_like_those_of_training_are_not_said_to_differ(encoding, n):
    assert not any(encoding.compare(rows(n, 1 + seed)) for seed in range(60))


def test_differences_are_named_with_their_size(encoding):
    other = rows(500, 1)
    other["age"] += 30
    other["day"] += pd.Timedelta(days=200)
    other.loc[:40, "city"] = "Rovaniemi"
    other.loc[100:300, "member"] = pd.NA
    by_column = {text.split("'")[1]: text for text in encoding.compare(other)}
    assert set(by_column) == set(other.columns)
    assert "of the values are outside the range of training: they go from" in by_column["age"]
    assert "those of training from 2023-01-05 to 2023-10-31" in by_column["day"]
    assert "8.2% of the values were rare or absent in training (0.0%" in by_column["city"]
    assert by_column["city"].endswith("such as 'Rovaniemi'.")
    assert "40.2% of the values are missing (0.0% in training)" in by_column["member"]


def test_what_was_seen_is_kept_and_models_without_it_compare_nothing(encoding):
    assert encoding_from_dict(encoding.to_dict()) == encoding
    assert encoding.seen["age"].rows == 900
    values = encoding.to_dict()
    del values["seen"]
    other = rows(500, 1).assign(age=1000.0)
    assert encoding_from_dict(values).compare(other) == ()
    assert encoding.compare(other)


def test_parts_that_are_counted_apart_add_up(encoding):
    other = rows(500, 1)
    other["age"] += 30
    other.loc[:40, "city"] = "Rovaniemi"
    other.loc[450:, "city"] = "Inari"
    other.loc[100:300, "member"] = pd.NA
    whole, first, second = (Drift(encoding) for _ in range(3))
    for drift, part in ((whole, other), (first, other[:300]), (second, other[300:])):
        encoding.transform(part, drift)
    first.add(second)
    assert first.seen == whole.seen
    assert first.messages() == whole.messages() != ()
    both = Drift(encoding)
    both.add(first)
    assert both.messages() == first.messages()


def test_columns_can_be_left_out_of_an_encoding(encoding):
    rest, left = encoding.without({"city": "it tells the bag", "day": "it is a day"})
    assert rest.columns == ("age", "member")
    assert set(rest.seen) == {"age", "member"}
    assert rest.left_out == {**encoding.left_out, "city": "it tells the bag", "day": "it is a day"}
    other = rows(20, 3)
    np.testing.assert_array_equal(rest.transform(other), encoding.transform(other)[:, left])
    assert repr(rest) == f"TableEncoding(2 columns, {left.sum()} features)"

"""Encodings that an older unbag wrote: they are read, and mean the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from unbag.io import TableFiles, encoding_from_dict, read_rows

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("name", ["table", "array", "images"])
def test_json_is_the_same_but_for_what_is_new(name):
    values = json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    read = encoding_from_dict(values).to_dict()
    assert read.pop("seen", {}) == {}
    for encoder in read.get("encoders", ()):
        assert encoder.pop("form", "") == ""
    assert read == values


def test_features_are_the_same():
    encoding = encoding_from_dict(json.loads((SAMPLES / "table.json").read_text(encoding="utf-8")))
    X = np.load(SAMPLES / "features.npy")
    read = read_rows(SAMPLES / "rows.parquet", encoding=encoding).X
    # Sines may differ by a rounding between processors.
    np.testing.assert_allclose(read, X, rtol=1e-6, atol=1e-6)
    (batch,) = TableFiles(SAMPLES / "rows.parquet").batches()
    assert "" in batch.column("city").to_pylist()  # was a value of its own
    np.testing.assert_array_equal(encoding.transform(batch), read)

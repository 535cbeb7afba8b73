"""Rows, and a model of them, for the other examples of this folder."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import unbag

SHARES = {"north": {"no": 0.8, "yes": 0.2}, "south": {"no": 0.3, "yes": 0.7}}


def make_rows(n=2000, seed=0):
    """Rows of two districts, as a DataFrame."""
    rng = np.random.default_rng(seed)
    district = rng.choice(list(SHARES), n)
    yes = rng.random(n) < [SHARES[name]["yes"] for name in district]
    return pd.DataFrame(
        {
            "id": np.arange(n),
            "district": district,
            "age": rng.normal(40 + 10 * yes, 6),
            "city": np.where(rng.random(n) < 0.3 + 0.4 * yes, "Oulu", "Turku"),
        }
    )


def make_model():
    """Train a small model; give its folder."""
    clf = unbag.UnbagClassifier(SHARES, method="prop", epochs=5, random_state=0)
    clf.fit(make_rows().drop(columns="id"), bag="district")
    return str(clf.save(Path(tempfile.mkdtemp(), "model")))

"""A column of labels that some rows have: learned from, calibrated by and evaluated with."""

import numpy as np
import pandas as pd
import pytest

from unbag.exceptions import InvalidInputError
from unbag.workflow import evaluate_files, fit_files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows of weak bags, a tenth of them with labels, and more rows."""
    folder = tmp_path_factory.mktemp("labelled")
    rng = np.random.default_rng(0)
    shares = pd.DataFrame({"bag": ["a", "b", "c"], "0": [0.6, 0.5, 0.4], "1": [0.4, 0.5, 0.6]})
    shares.to_csv(folder / "shares.csv", index=False)
    for name in ("rows", "more"):
        bag = rng.integers(0, 3, 900)
        y = (rng.random(900) < shares["1"].to_numpy()[bag]).astype(int)
        table = pd.DataFrame({"bag": shares["bag"].to_numpy()[bag]})
        table["x"], table["z"] = rng.normal(size=900) + 3 * y, rng.normal(size=900)
        table["seen"] = np.where(rng.random(900) < 0.2, y, np.nan)  # floats: 0.0, 1.0 and missing
        table.to_csv(folder / f"{name}.csv", index=False)
        table["truth"] = y
        table.to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def fitted(files):
    return fit_files(
        files / "rows.csv",
        bag="bag",
        priors=files / "shares.csv",
        output=files / "model",
        labels="seen",
        model="linear",
        evaluation_share=0.3,
    )


def test_labels_are_learned_from_and_are_no_feature(files, fitted):
    more = pd.read_parquet(files / "more.parquet")
    assert "seen" not in fitted.classifier.encoding_.columns
    predicted = fitted.classifier.predict(more.drop(columns=["bag", "truth"]))
    assert (predicted.astype(int) == more["truth"]).mean() > 0.75  # without labels 0.6
    assert fitted.evaluation.labelled.n_rows == pytest.approx(0.3 * 0.2 * 900, abs=25)
    assert 'labels = "seen"' in (files / "model" / "config.toml").read_text()


@pytest.mark.usefixtures("fitted")
def test_evaluation_takes_labels_of_other_rows(files):
    options = {"priors": files / "shares.csv"}
    plain = evaluate_files(files / "model", files / "more.csv", **options).evaluation
    known = evaluate_files(files / "model", files / "more.csv", labels="seen", **options).evaluation
    assert plain.labelled is None
    assert known.labelled.n_rows > 100
    width = known.accuracy.high - known.accuracy.low
    assert width < 0.8 * (plain.accuracy.high - plain.accuracy.low)
    both = evaluate_files(files / "model", files / "more.parquet", labels="seen", **options)
    assert both.evaluation.labelled.n_rows == known.labelled.n_rows


@pytest.mark.usefixtures("fitted")
def test_labels_that_are_no_classes_are_refused(files):
    with pytest.raises(InvalidInputError, match=r"labels must be a column of the classes.*'x'"):
        evaluate_files(files / "model", files / "more.csv", labels="x")
    with pytest.raises(InvalidInputError, match="labels must be in the table, got unknown 'z z'"):
        evaluate_files(files / "model", files / "more.csv", labels="z z")

"""A model as a function of batches of every kind, which other processes can call."""

import os
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import unbag
from small_files import draw
from unbag.exceptions import InvalidInputError
from unbag.mlflow import ServedModel, _load_pyfunc

ROWS = draw(120, seed=5)[0]
KINDS = {
    "Arrow": lambda table: table,
    "batches": lambda table: table.combine_chunks().to_batches()[0],
    "pandas": lambda table: table.to_pandas().set_index(np.arange(7, 7 + len(table))),
    "polars": pl.from_arrow,
    "arrays": lambda table: {
        n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names
    },
}


def as_arrow(out):
    if isinstance(out, pa.RecordBatch):
        return pa.Table.from_batches([out])
    if isinstance(out, pd.DataFrame):
        return pa.Table.from_pandas(out, preserve_index=False)
    return pa.table(out)


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_out_is_of_the_kind_that_went_in(small_files, kind):
    predict = unbag.predictor(small_files / "model", key=["id"])
    batch = KINDS[kind](ROWS)
    out = predict(batch)
    assert type(out) is type(batch)
    table = as_arrow(out)
    clf = unbag.load_model(small_files / "model")
    assert table.column_names == ["id", "class", "p_yes", "p_no"]
    assert table["id"].to_pylist() == ROWS["id"].to_pylist()
    assert table["class"].to_pylist() == clf.predict(ROWS).tolist()
    np.testing.assert_allclose(table["p_no"], clf.predict_proba(ROWS)[:, 1], rtol=1e-6)
    if kind == "pandas":
        assert (out.index == batch.index).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_no_rows_of_the_same_types(small_files, kind):
    if kind == "batches":
        empty, whole = (pa.RecordBatch.from_pandas(ROWS.to_pandas()[:n]) for n in (0, 120))
    else:
        empty, whole = KINDS[kind](ROWS.slice(0, 0)), KINDS[kind](ROWS)
    predict = unbag.predictor(small_files / "model", key=["age"])
    out = as_arrow(predict(empty))
    assert out.num_rows == 0
    if kind != "arrays":  # an empty array of objects is of no type
        assert out.schema.types == as_arrow(predict(whole)).schema.types


def test_another_process_needs_no_folder(folder):
    predict = unbag.predictor("model", prior={"yes": 0.1, "no": 0.9})
    here = predict(ROWS)
    sent = pickle.dumps(predict)
    for file in (folder / "model").iterdir():
        file.unlink()
    unbag.estimator.predictor._load.cache_clear()
    there = pickle.loads(sent)
    assert there(ROWS).equals(here)
    assert [len(part) for part in there(iter(ROWS.to_batches(50)))] == [50, 50, 20]


def test_priors_and_bags(small_files):
    clf = unbag.load_model(small_files / "model")
    prior = {"yes": 0.05, "no": 0.95}
    out = unbag.predictor(clf, prior=prior)(ROWS)
    np.testing.assert_allclose(out["p_yes"], clf.predict_proba(ROWS, prior)[:, 0], rtol=1e-6)
    out = unbag.predictor(clf, bag="district", probabilities=False)(ROWS)
    ids = ROWS["district"].to_numpy(zero_copy_only=False)
    assert out.to_pydict() == {"class": clf.predict(ROWS, bag_ids=ids).tolist()}


@pytest.mark.parametrize("named", [True, False])
def test_models_of_numbers(named):
    X = np.random.default_rng(0).normal(size=(100, 2))
    frame = pd.DataFrame(X, columns=["x", "y"])
    bags = np.repeat([0, 1], 50)
    clf = unbag.UnbagClassifier([[0.8, 0.2], [0.3, 0.7]], method="prop", epochs=1, random_state=0)
    clf.fit(frame if named else X, bags)
    predict = unbag.predictor(clf, key=["id"])
    table = pa.table({"id": np.arange(100), "x": X[:, 0], "y": X[:, 1]})
    if named:  # columns are found by name
        table = table.select(["y", "id", "x"])
    np.testing.assert_allclose(
        predict(table)["p_1"], clf.predict_proba(frame if named else X)[:, 1], rtol=1e-6
    )


def test_a_module_of_the_users_own():
    X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    net = torch.nn.Linear(2, 2)
    clf = unbag.UnbagClassifier(
        [[0.8, 0.2], [0.3, 0.7]], method="prop", model=net, epochs=1, random_state=0
    ).fit(X, np.repeat([0, 1], 30))
    predict = pickle.loads(pickle.dumps(unbag.predictor(clf, module=net)))
    table = pa.table({"a": X[:, 0], "b": X[:, 1]})
    np.testing.assert_allclose(predict(table)["p_1"], clf.predict_proba(X)[:, 1], rtol=1e-6)


def test_what_is_refused(small_files):
    model = small_files / "model"
    for options, message in [
        ({"key": "id"}, "key must be a sequence of column names"),
        ({"key": ["class"]}, "columns whose names the output does not have"),
        ({"prior": {"yes": 1}, "bag": "district"}, "prior must be left out where bag is given"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            unbag.predictor(model, **options)
    predict = unbag.predictor(model, key=["name"])
    for batch, message in [
        ([1, 2], "batch must be a table"),
        (ROWS, "without 'name'"),
        ({"id": [1, 2], "age": [1]}, "batch must be a dict of columns"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            predict(batch)
    with pytest.raises(InvalidInputError, match="a table with the columns of training"):
        unbag.predictor(model)(ROWS.drop_columns("age"))


def test_what_mlflow_calls(small_files):
    served = _load_pyfunc(str(small_files / "model"))
    assert isinstance(served, ServedModel)
    frame = ROWS.to_pandas()
    out = served.predict(frame)
    assert out.equals(unbag.predictor(small_files / "model")(frame))
    assert served.predict(frame.to_dict("records")).equals(out)
    with pytest.raises(InvalidInputError, match="params must be left out"):
        served.predict(frame, {"prior": 1})
    text = (small_files / "model" / "MLmodel").read_text()
    assert "\n    loader_module: unbag.mlflow\n" in text


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs links and pipes")
@pytest.mark.parametrize("kind", ["a link", "a pipe"])
def test_files_that_are_not_of_the_model_are_not_read(tmp_path, kind):
    """A stranger's link would put another file of the user into every pickle."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    priors = {"a": [0.8, 0.2], "b": [0.3, 0.7]}
    clf = unbag.UnbagClassifier(priors, method="prop", epochs=1, width=8)
    folder = clf.fit(X, np.repeat(["a", "b"], 30)).save(tmp_path / "model")
    (tmp_path / "secret").write_text("a word that nobody knows")
    planted = folder / "encoding.json"
    planted.symlink_to(tmp_path / "secret") if kind == "a link" else os.mkfifo(planted)
    assert b"nobody knows" not in pickle.dumps(unbag.predictor(folder))

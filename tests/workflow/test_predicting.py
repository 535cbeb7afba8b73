"""Predictions for files: the same as from Python, in parts that survive a stop."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

import unbag
from run_command import content
from small_files import train
from unbag.exceptions import UnbagError
from unbag.io import read_rows
from unbag.workflow import evaluate_files, parts, predict_files, predicting


def read(path):
    table = pa.parquet.read_table(path) if str(path).endswith("parquet") else pa.csv.read_csv(path)
    return table.to_pydict()


def expected(model, rows, prior=None):
    clf = unbag.load_model(model)
    X = read_rows(rows, encoding=clf.encoding_).X
    return clf.predict(X, prior), clf.predict_proba(X, prior).astype(np.float32)


def test_the_result_is_that_of_python(folder):
    written = predict_files("model", "other.parquet", output="out.parquet", key=["id", "age"])
    out = read("out.parquet")
    labels, chances = expected("model", "other.parquet")
    source = read("other.parquet")
    assert list(out) == ["id", "age", "class", "p_yes", "p_no"]
    assert out["id"] == source["id"]
    assert out["age"] == source["age"]
    assert out["class"] == labels.tolist()
    np.testing.assert_allclose(out["p_yes"], chances[:, 0], rtol=1e-6)
    assert (written.rows, written.rows_before) == (360, 0)
    assert written.shares["yes"] == np.mean(labels == "yes")
    assert not list(folder.glob(".out*"))


@pytest.mark.usefixtures("folder")
def test_all_kinds_of_files_agree():
    predict_files("model", "rows.parquet", output="a.parquet")
    predict_files("model", "rows.csv", output="b.parquet")
    predict_files("model", "rows.csv", output="b.csv")
    a, b, c = read("a.parquet"), read("b.parquet"), read("b.csv")
    assert a == b
    assert a["row"] == list(range(360))
    assert (c["row"], c["class"]) == (a["row"], a["class"])
    np.testing.assert_allclose(c["p_yes"], a["p_yes"], rtol=1e-6)


@pytest.mark.usefixtures("folder")
def test_prior_and_no_probabilities():
    prior = {"no": 0.98, "yes": 0.02}
    predict_files("model", "other.parquet", output="a.csv", prior=prior, probabilities=False)
    out = read("a.csv")
    assert list(out) == ["row", "class"]
    assert out["class"] == expected("model", "other.parquet", prior)[0].tolist()
    assert set(out["class"]) == {"no"}


def test_arrays(folder):
    train(folder, "arrays", rows="rows.npz", bag=None)
    predict_files("arrays", "rows.npz", output="a.parquet")
    labels, _ = expected("arrays", "rows.npz")
    assert read("a.parquet")["class"] == labels.tolist()
    assert evaluate_files("arrays", "rows.npz").evaluation.n_rows == 360


def test_images(folder):
    train(folder, "pictures", rows="images.csv", images="images")
    predict_files("pictures", "images.csv", images="images", output="a.parquet", key=["file"])
    out = read("a.parquet")
    clf = unbag.load_model("pictures")
    X = read_rows("images.csv", images="images", encoding=clf.encoding_).X
    assert out["file"] == read("images.csv")["file"]
    assert out["class"] == clf.predict(X).tolist()
    assert evaluate_files("pictures", "images.csv", images="images").evaluation.n_rows == 60


# ------------------------------------------------------------------------ stopped, and going on


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(predicting, "_BATCH_ROWS", 16)
    monkeypatch.setattr(predicting, "_PART_ROWS", 64)


def interrupted(after, monkeypatch, rows="other.parquet", **options):
    """Predict, and be interrupted at the nth batch."""
    inner = predicting.UnbagClassifier.predict_proba
    calls = []

    def stopping(*given):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return inner(*given)

    with monkeypatch.context() as patched:
        # By one thread, so that the nth call is of the nth batch.
        patched.setattr(predicting, "ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1))
        patched.setattr(predicting.UnbagClassifier, "predict_proba", stopping)
        with pytest.raises(KeyboardInterrupt):
            predict_files("model", rows, **{"output": "out.parquet", **options})


@pytest.mark.usefixtures("small_parts")
def test_the_number_of_threads_changes_nothing(folder):
    before = torch.get_num_threads()
    try:
        for threads in (1, 4):
            torch.set_num_threads(threads)
            predict_files("model", "other.parquet", output=f"{threads}.parquet")
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert (folder / "1.parquet").read_bytes() == (folder / "4.parquet").read_bytes()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("after", "rows", "output", "options"),
    [
        (0, "rows.csv", "out.csv", {}),
        (3, "other.parquet", "out.parquet", {}),
        (4, "other.parquet", "out.parquet", {}),
        (11, "rows.csv", "out.csv", {}),
        (11, "other.parquet", "out.csv", {"bag": "district"}),
        (11, "rows.csv", "out.parquet", {"prior": {"yes": 0.1, "no": 0.9}}),
        (22, "other.parquet", "out.parquet", {"bag": "district"}),
    ],
)
def test_an_interrupted_run_goes_on(folder, monkeypatch, after, rows, output, options):
    whole = f"whole{output[3:]}"
    predict_files("model", rows, output=whole, key=["id"], **options)
    interrupted(after, monkeypatch, rows, output=output, key=["id"], **options)
    assert not (folder / output).exists()
    written = predict_files("model", rows, output=output, key=["id"], **options)
    assert written.rows_before == after * 16 // 64 * 64
    assert written.rows == 360
    assert (folder / output).read_bytes() == (folder / whole).read_bytes()
    assert not list(folder.glob(".out*"))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", ["_write_state", "remove_folder"])
def test_stopped_after_the_last_row(folder, monkeypatch, name):
    predict_files("model", "other.parquet", output="whole.parquet")
    inner = parts.Parts._write_state

    def stop(self, **_):
        if name == "remove_folder" or self._state.whole:
            raise KeyboardInterrupt
        inner(self)

    with monkeypatch.context() as patched:
        patched.setattr(parts if name == "remove_folder" else parts.Parts, name, stop)
        with pytest.raises(KeyboardInterrupt):
            predict_files("model", "other.parquet", output="out.parquet")
    written = predict_files("model", "other.parquet", output="out.parquet")
    assert written.rows_before == written.rows == 360
    assert (folder / "out.parquet").read_bytes() == (folder / "whole.parquet").read_bytes()
    assert not list(folder.glob(".out*"))


def _other_model(folder):
    train(folder, "model", overwrite=True, seed=9)
    return {}


def _other_rows(folder):
    (folder / "other.parquet").write_bytes((folder / "rows.parquet").read_bytes())
    return {}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    "change",
    [
        _other_model,
        _other_rows,
        lambda _: {"prior": {"yes": 0.5, "no": 0.5}},
        lambda _: {"key": ["id"]},
        lambda _: {"bag": "district"},
    ],
)
def test_parts_of_something_else_are_not_used(folder, monkeypatch, change):
    interrupted(9, monkeypatch)
    options = change(folder)
    written = predict_files("model", "other.parquet", output="out.parquet", **options)
    assert written.rows_before == 0
    predict_files("model", "other.parquet", output="whole.parquet", **options)
    assert (folder / "out.parquet").read_bytes() == (folder / "whole.parquet").read_bytes()


@pytest.mark.usefixtures("small_parts")
def test_images_that_changed_are_predicted_again(folder, monkeypatch):
    train(folder, "model", rows="images.csv", images="images", overwrite=True)
    monkeypatch.setattr(predicting, "_PART_ROWS", 16)
    interrupted(2, monkeypatch, rows="images.csv", images="images")
    (folder / "images" / "000.png").write_bytes((folder / "images" / "001.png").read_bytes())
    written = predict_files("model", "images.csv", images="images", output="out.parquet")
    assert written.rows_before == 0
    assert written.rows == 60


def test_an_existing_file_is_kept_or_replaced(folder):
    (folder / "out.csv").write_text("mine")
    with pytest.raises(UnbagError, match=r"out.csv; choose another path"):
        predict_files("model", "other.parquet", output="out.csv")
    assert (folder / "out.csv").read_text() == "mine"
    assert predict_files("model", "other.parquet", output="out.csv", overwrite=True).rows == 360
    assert len((folder / "out.csv").read_text().splitlines()) == 361


def test_an_error_in_the_middle_writes_nothing(folder):
    table = pa.parquet.read_table("other.parquet")
    age = table["age"].to_pylist()
    age[-1] = np.inf
    pa.parquet.write_table(table.set_column(0, "age", pa.array(age)), "other.parquet")
    before = content(folder)
    with pytest.raises(UnbagError, match="finite"):
        predict_files("model", "other.parquet", output="out.csv")
    assert content(folder) == before


# ---------------------------------------------------------------------------------- evaluating


@pytest.mark.usefixtures("folder")
def test_evaluation_is_that_of_python():
    result = evaluate_files("model", "other.parquet")
    clf = unbag.load_model("model")
    rows = read_rows("other.parquet", bag="district", encoding=clf.encoding_)
    direct = unbag.evaluate(clf, unbag.Bags(rows.X, rows.bag_ids, clf.priors_))
    assert str(result.evaluation) == str(direct)
    assert result.report is None


def test_evaluating_leaves_the_results_of_training_alone(folder):
    before = content(folder / "model")
    evaluate_files("model", "other.parquet")
    assert content(folder / "model") == before
    evaluate_files("model", "other.parquet", report="model/other.html")
    after = content(folder / "model")
    assert after.keys() - before.keys() == {"other.html", "other.json"}
    assert {name: after[name] for name in before} == before


def test_rows_of_the_training_are_told(folder):
    result = evaluate_files("model", "rows.parquet", report="page.html")
    assert any("trained on" in text or "training" in text for text in result.warnings)
    assert any("train" in text for text in _report(folder / "page.json")["warnings"])


def test_other_priors_in_another_order(folder):
    text = "area,no,yes\nnorth,20,80\nsouth,70,30\nwest,50,50\n"
    (folder / "percent.csv").write_text(text)
    result = evaluate_files("model", "other.parquet", priors="percent.csv", report="a.html")
    same = evaluate_files("model", "other.parquet", report="b.html")
    assert str(result.evaluation) == str(same.evaluation)
    assert any("percent" in note for note in result.notes)


def _report(path):
    return json.loads(path.read_text())


def test_a_stopped_run_on_a_file_with_blank_lines(folder, monkeypatch):
    """Blank lines, and line breaks in quotes, are no rows: none is lost or repeated."""
    lines = (folder / "rows.csv").read_text().splitlines()
    rows = [f'{line},"a\n\nb"' + "\n\r\n" * (i % 7 == 0) for i, line in enumerate(lines[1:])]
    (folder / "odd.csv").write_text("\n".join([f"{lines[0]},note", "", *rows]), newline="")
    monkeypatch.setattr(predicting, "_BATCH_ROWS", 16)
    monkeypatch.setattr(predicting, "_PART_ROWS", 64)
    monkeypatch.setattr("unbag.io.csv_text.BLOCK", 4096)
    whole = predict_files("model", "odd.csv", key=["id"], output="whole.csv")
    keep, moments = predicting.Parts.keep, itertools.count(1)

    def stopping(self, *arguments):
        keep(self, *arguments)
        if next(moments) % 2 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(predicting.Parts, "keep", stopping)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            predict_files("model", "odd.csv", key=["id"], output="out.csv")
    monkeypatch.setattr(predicting.Parts, "keep", keep)
    again = predict_files("model", "odd.csv", key=["id"], output="out.csv")
    assert (whole.rows, again.rows, again.rows_before) == (360, 360, 256)
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    ids = pa.csv.read_csv("out.csv")["id"].to_pylist()
    assert ids == [f"r{i:04d}" for i in range(360)]

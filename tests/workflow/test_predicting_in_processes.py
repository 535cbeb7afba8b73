"""Predictions by several processes, and those that are a folder of files."""

import os
import signal
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import torch

import unbag
from small_files import draw
from unbag.exceptions import UnbagError, WorkerLostError
from unbag.workflow import predict_files, predicting


@pytest.fixture
def small_parts(folder, monkeypatch):
    """Parts of 64 rows, of which the tables have six."""
    monkeypatch.setattr(predicting, "_BATCH_ROWS", 16)
    monkeypatch.setattr(predicting, "_PART_ROWS", 64)
    return folder


@pytest.mark.parametrize(
    ("rows", "output", "options"),
    [
        ("other.parquet", "out.parquet", {"key": ["id"]}),
        ("rows.csv", "out.csv", {"bag": "district"}),
    ],
)
def test_the_number_of_processes_changes_nothing(small_parts, rows, output, options):
    one = predict_files("model", rows, output=f"one.{output}", **options)
    two = predict_files("model", rows, output=output, processes=2, **options)
    assert (small_parts / output).read_bytes() == (small_parts / f"one.{output}").read_bytes()
    assert (two.rows, two.shares) == (one.rows, one.shares)
    assert not list(small_parts.glob(".out*"))


@pytest.mark.usefixtures("small_parts")
def test_what_differs_from_training_is_told_in_the_order_of_the_rows(folder):
    rows, _ = draw(360, seed=1)
    cities = [f"town {i // 64}" for i in range(360)]
    age = pa.array(np.arange(360.0))
    rows = rows.set_column(rows.schema.get_field_index("city"), "city", pa.array(cities))
    rows = rows.set_column(rows.schema.get_field_index("age"), "age", age)
    pa.parquet.write_table(rows, folder / "odd.parquet")
    one = predict_files("model", "odd.parquet", output="one.parquet")
    two = predict_files("model", "odd.parquet", output="two.parquet", processes=2)
    assert two.warnings == one.warnings
    assert any("'town 0', 'town 1', 'town 2'" in text for text in one.warnings)


def stop_at(keeping: int, monkeypatch, **options):
    """Predict in two processes, and be interrupted before the nth part is kept."""
    kept = []
    inner = predicting.Parts.keep

    def keep(self, number, *given):
        if len(kept) == keeping:
            raise KeyboardInterrupt
        kept.append(number)
        inner(self, number, *given)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(predicting.Parts, "keep", keep)
        predict_files("model", "other.parquet", processes=2, **options)
    return kept


def test_parts_that_are_there_are_not_predicted_again(small_parts, monkeypatch):
    predict_files("model", "other.parquet", output="whole.parquet")
    kept = stop_at(3, monkeypatch, output="out.parquet")
    state = (small_parts / ".out.parquet.parts" / "state.json").read_text()
    assert state.count("digest") == len(kept) == 3
    done = []
    inner = predicting.Parts.keep
    monkeypatch.setattr(
        predicting.Parts, "keep", lambda *given: (done.append(given[1]), inner(*given))
    )
    written = predict_files("model", "other.parquet", output="out.parquet")
    assert sorted([*kept, *done]) == list(range(6))
    assert written.rows_before == 3 * 64
    files = (small_parts / name for name in ("out.parquet", "whole.parquet"))
    assert len({file.read_bytes() for file in files}) == 1


class _Fatal(torch.nn.Linear):
    """Kills the process that predicts, unless that is the one which made it."""

    def __init__(self):
        super().__init__(6, 2)
        self.maker = os.getpid()

    def forward(self, rows):
        if os.getpid() != self.maker:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(rows)


@pytest.mark.usefixtures("small_parts")
def test_a_process_that_is_killed(monkeypatch):
    def load(model, _):
        clf = unbag.load_model(model)
        clf.module_ = _Fatal()
        clf.module_.weight = torch.nn.Parameter(torch.zeros(2, clf.encoding_.n_features))
        return clf

    monkeypatch.setattr(predicting, "load_for_files", load)
    with pytest.raises(WorkerLostError, match="with fewer processes"):
        predict_files("model", "other.parquet", output="out.parquet", processes=2)


# ---------------------------------------------------------------------------- folders of files


@pytest.mark.parametrize("processes", [1, 2])
def test_a_folder_of_files(small_parts, processes):
    predict_files("model", "other.parquet", output="one.parquet", key=["id"])
    predict_files("model", "other.parquet", output="out", key=["id"], processes=processes)
    files = sorted(path.name for path in (small_parts / "out").iterdir())
    assert files == [f"part-{i:06d}-0.parquet" for i in range(6)]
    one = pa.parquet.read_table("one.parquet")
    assert pa.dataset.dataset([f"out/{name}" for name in files]).to_table().equals(one)


@pytest.mark.parametrize("stopped", [False, True])
def test_partitions(small_parts, monkeypatch, stopped):
    options = {"key": ["id", "district"], "partition_by": ["district", "class"], "output": "out"}
    predict_files("model", "other.parquet", output="one.parquet", key=["id", "district"])
    if stopped:
        stop_at(4, monkeypatch, **options)
        assert not (small_parts / "out").exists()
    predict_files("model", "other.parquet", **options)
    assert {path.name for path in (small_parts / "out").iterdir()} == {
        f"district={name}" for name in ("north", "south", "west")
    }
    read = pa.dataset.dataset("out", partitioning="hive").to_table().sort_by("id")
    one = pa.parquet.read_table("one.parquet")
    for name in one.column_names:
        assert read[name].to_pylist() == one[name].to_pylist()
    assert not list(small_parts.glob(".out*"))


@pytest.mark.usefixtures("small_parts")
def test_a_folder_with_files_is_never_replaced(folder):
    (folder / "out").mkdir()  # an empty one is taken
    predict_files("model", "other.parquet", output="out")
    before = sorted((folder / "out").iterdir())
    with pytest.raises(UnbagError, match="output must be a new folder, got out, a folder with"):
        predict_files("model", "other.parquet", output="out", overwrite=True)
    assert sorted((folder / "out").iterdir()) == before


@pytest.mark.usefixtures("small_parts")
def test_stopped_after_the_folder_had_its_name(folder, monkeypatch):
    predict_files("model", "other.parquet", output="whole")
    with monkeypatch.context() as patched:

        def stop(*_, **__):
            raise KeyboardInterrupt

        patched.setattr("unbag.workflow.parts.remove_folder", stop)
        with pytest.raises(KeyboardInterrupt):
            predict_files("model", "other.parquet", output="out")
    written = predict_files("model", "other.parquet", output="out")
    assert written.rows == written.rows_before == 360
    for path in (folder / "whole").iterdir():
        assert (folder / "out" / path.name).read_bytes() == path.read_bytes()
    assert not list(folder.glob(".out*"))

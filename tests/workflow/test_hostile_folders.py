"""Folders of strangers, damaged unfinished work, and disks that are full.

Whatever is planted in a folder or beside an output, no other file is written to; what cannot be
trusted is thrown away with a warning; what fails leaves nothing behind.
"""

import itertools
import os
import re
import sqlite3
import stat
import sys
import tempfile
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import unbag
from run_command import content, run
from small_files import QUICK, train
from unbag import files
from unbag.cli.common import say
from unbag.exceptions import (
    DiscardedWorkWarning,
    InvalidInputError,
    ModelFolderError,
    NotFiniteError,
)
from unbag.schema import seal, unseal
from unbag.workflow import evaluate_files, fit_files, predict_files, predicting, tune_files
from unbag.workflow.outputs import hidden_folder, hold
from unbag.workflow.parts import parts_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
OPTIONS = {"bag": "district", "priors": "shares.csv", **QUICK}


class Stop(KeyboardInterrupt):
    """Stands for a key that was pressed."""


def stop(*_, **__):
    raise Stop


@pytest.fixture
def victim(tmp_path):
    """A folder with files that nothing may change."""
    place = tmp_path / "victim"
    place.mkdir()
    names = ("file", "model.json", "config.toml", "state.json", "000000.arrow")
    for name in names:
        (place / name).write_text("dear")
    yield place
    assert {p.name: p.read_text() for p in place.iterdir()} == dict.fromkeys(names, "dear")


def fit(**options):
    return fit_files("rows.parquet", **{"output": "new", **OPTIONS, **options})


# ------------------------------------------------------------------------------------ planted links

PLANTED = (
    ".evaluation-report.json.tmp",
    ".evaluation-report.html.tmp",
    ".config.toml.tmp",
    ".report.json.tmp",
    "evaluation-report.html",
    "evaluation-report.json",
    "report.html",
    "config.toml",
    ".unbag.new",
    ".unbag.left",
)


@pytest.mark.parametrize("name", PLANTED)
def test_links_in_a_model_folder_are_not_written_through(folder, victim, name):
    place = folder / "model" / name
    place.unlink(missing_ok=True)
    place.symlink_to(victim if name.startswith(".unbag") else victim / "file")
    evaluate_files("model", "other.parquet", bag="district")
    if name != "evaluation-report.html":
        page = "model/evaluation-report.html"
        evaluate_files("model", "other.parquet", bag="district", report=page, overwrite=True)
    fit(output="model", overwrite=True)
    assert name.endswith(".tmp") or not place.is_symlink()  # a file of the user's stays
    assert unbag.load_model("model").method_ == "prop"


@pytest.mark.parametrize("command", ["evaluate", "predict", "export", "fit"])
def test_links_in_place_of_an_output(folder, victim, command):
    name = {"evaluate": "out.html", "predict": "out.csv", "export": "out.onnx", "fit": "out"}
    output = folder / name[command]
    output.symlink_to(victim if command == "fit" else victim / "file")
    call = {
        "evaluate": "evaluate model other.parquet --report out.html",
        "predict": "predict model other.parquet --output out.csv",
        "export": "export model --output out.onnx",
        "fit": "fit rows.parquet --bag district --priors shares.csv --method prop --output out",
    }[command]
    assert run(call).exit_code == 1
    if command == "fit":  # a folder with files that are no model
        assert run(f"{call} --overwrite").exit_code == 1
    else:  # the link is replaced, not the file that it leads to
        assert run(f"{call} --overwrite").exit_code == 0
        assert not output.is_symlink()


@pytest.mark.parametrize("name", [".new.work", ".new.saving", ".out.csv.parts"])
def test_links_in_place_of_unfinished_work(folder, victim, name):
    (folder / name).symlink_to(victim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiscardedWorkWarning)
        fit()
        predict_files("new", "other.parquet", output="out.csv")
    assert not list(folder.glob(".*"))


def test_a_pipe_in_place_of_the_options(folder):
    (folder / "model" / "config.toml").unlink()
    os.mkfifo(folder / "model" / "config.toml")
    with pytest.raises(InvalidInputError, match="bag must be the name of the column"):
        evaluate_files("model", "other.parquet")
    assert evaluate_files("model", "other.parquet", bag="district").report is None


# --------------------------------------------------------------------------------- unfinished work


def test_unfinished_work_is_private(folder, monkeypatch):
    modes = []

    def look(*_, **__):
        modes.append(stat.S_IMODE((folder / ".new.work").stat().st_mode))
        raise KeyboardInterrupt

    monkeypatch.setattr("unbag.workflow.training.judge", look)
    with pytest.raises(KeyboardInterrupt):
        fit()
    assert modes == [0o700]


def test_work_that_others_could_change_is_not_used(folder):
    place = hidden_folder(folder / "new")
    place.mkdir()
    place.chmod(0o777)
    (place / "planted").write_text("x")
    with ExitStack() as held:
        with pytest.warns(DiscardedWorkWarning, match="open to other users"):
            held.enter_context(hold(place, folder / "new"))
        assert not list(place.iterdir())
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_work_of_another_user_is_refused(folder, monkeypatch):
    place = hidden_folder(folder / "new")
    place.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with (
        pytest.raises(InvalidInputError, match="which belongs to another user; remove"),
        hold(place, folder / "new"),
    ):
        pass


@pytest.fixture
def stopped(folder, monkeypatch):
    """Parts of predictions that were stopped after the third."""
    monkeypatch.setattr(predicting, "_BATCH_ROWS", 16)
    monkeypatch.setattr(predicting, "_PART_ROWS", 64)
    predict_files("model", "other.parquet", output="whole.csv")
    inner = predicting.Parts._join

    def stopping(self):
        if self.rows == 3 * 64:
            raise KeyboardInterrupt
        inner(self)

    with monkeypatch.context() as patched:
        patched.setattr(predicting.Parts, "_join", stopping)
        with pytest.raises(KeyboardInterrupt):
            predict_files("model", "other.parquet", output="out.csv")
    return parts_folder(folder / "out.csv")


def changed(**values):
    def change(place):
        state = unseal((place / "state.json").read_bytes(), dict)
        (place / "state.json").write_bytes(seal(state | values))

    return change


def one_more_row(place):
    data = (place / "state.json").read_bytes()
    count = re.search(rb'"counts":\[(\d+)', data)
    more = b"%d" % (int(count[1]) + 1)
    (place / "state.json").write_bytes(data[: count.start(1)] + more + data[count.end(1) :])


def fewer_rows(place):
    with pa.memory_map(str(place / "000001.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
    table = table.slice(3)
    with pa.ipc.new_file(str(place / "000001.arrow"), table.schema) as writer:
        writer.write_table(table)


DAMAGE = {
    "no JSON": lambda p: (p / "state.json").write_text("{"),
    "other counts": one_more_row,
    "no text": lambda p: (p / "state.json").write_bytes(b"\xff"),
    "a list": lambda p: (p / "state.json").write_text("[1]"),
    "no parts": changed(parts=None),
    "parts of text": changed(parts=["a", "b"]),
    "negative counts": changed(parts=[{"counts": [-1, 2], "digest": "0"}]),
    "counts of three classes": changed(parts=[{"counts": [1, 2, 3], "digest": "0"}]),
    "a whole that is not there": changed(whole="0"),
    "a damaged part": lambda p: (p / "000001.arrow").write_bytes(b"ARROW1"),
    "an empty part": lambda p: (p / "000002.arrow").write_bytes(b""),
    "a part of fewer rows": fewer_rows,
    "a missing part": lambda p: (p / "000000.arrow").unlink(),
    "a link to a state": lambda p: (
        (p / "state.json").rename(p / "other"),
        (p / "state.json").symlink_to("other"),
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_parts_are_thrown_away(folder, stopped, case):
    DAMAGE[case](stopped)
    with pytest.warns(DiscardedWorkWarning, match=r"out\.csv was damaged"):
        written = predict_files("model", "other.parquet", output="out.csv")
    assert written.rows_before == 0
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    assert not stopped.exists()


def test_sound_parts_are_used_and_the_rest_goes(folder, stopped, victim):
    (stopped / "000003.arrow").symlink_to(victim / "file")
    (stopped / "whole.csv").unlink(missing_ok=True)
    (stopped / "whole.csv").symlink_to(victim / "file")
    assert predict_files("model", "other.parquet", output="out.csv").rows_before == 192
    assert (folder / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()


@pytest.fixture
def half_fitted(folder, monkeypatch):
    """What a fit keeps that was stopped after its training."""
    clock = SimpleNamespace(monotonic=itertools.count(step=60).__next__)
    with monkeypatch.context() as patched:
        patched.setattr("unbag.training.engine.time", clock)  # a checkpoint at every epoch
        patched.setattr(
            "unbag.workflow.training.judge", lambda *_, **__: (_ for _ in ()).throw(Stop)
        )
        with pytest.raises(Stop):
            fit()
    return hidden_folder(folder / "new")


def flip_last(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def flip_text(path):
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"age"', b'"agf"', 1))


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def replace_by_link(path):
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def replace_by_model(path):
    path.write_bytes((path.parents[2] / "model" / "model.safetensors").read_bytes())


WORK = {
    "a bit of a weight": ("training/*.safetensors", flip_last, "The checkpoint .* was damaged"),
    "half a checkpoint": ("training/*.safetensors", cut, "The checkpoint .* was damaged"),
    "another file": ("training/*.safetensors", replace_by_model, "The checkpoint .* was damaged"),
    "a linked checkpoint": ("training/*.safetensors", replace_by_link, "was a link"),
    "a folder as checkpoint": ("training/*.safetensors", replace_by_folder, "checkpoint .* was da"),
    "a bit of a row": ("rows/*/X.npy", flip_last, "The cache .* was damaged"),
    "fewer rows": ("rows/*/X.npy", cut, "The cache .* was damaged"),
    "linked rows": ("rows/*/X.npy", replace_by_link, "was a link"),
    "a bit of a bag": ("rows/*/bags.npy", flip_last, "The cache .* was damaged"),
    "another encoding": ("rows/*/about.json", flip_text, "The cache .* was damaged"),
    "half a description": ("rows/*/about.json", cut, "The cache .* was damaged"),
}


@pytest.mark.parametrize("case", WORK)
def test_damaged_work_is_thrown_away(folder, half_fitted, case):
    pattern, damage, message = WORK[case]
    (path,) = half_fitted.glob(pattern)
    before = path.read_bytes()
    damage(path)
    assert path.is_dir() or path.is_symlink() or path.read_bytes() != before
    with pytest.warns(DiscardedWorkWarning) as caught:
        fit()
    assert any(re.search(message, str(warning.message)) for warning in caught)
    fit(output="other")
    one, other = content(folder / "new"), content(folder / "other")
    assert one["model.safetensors"] == other["model.safetensors"]
    assert one["encoding.json"] == other["encoding.json"]


@pytest.mark.parametrize("kind", ["bytes", "folder"])
def test_damaged_trials_are_thrown_away(folder, kind):
    place = hidden_folder(folder / "new")
    place.mkdir(mode=0o700)
    if kind == "bytes":
        (place / "trials.db").write_bytes(b"no database" * 1000)
    else:
        (place / "trials.db").mkdir()
    with pytest.warns(DiscardedWorkWarning, match="damaged"):
        trained = tune_files("rows.parquet", output="new", trials=1, **OPTIONS)
    assert len(trained.tuning.trials) == 1


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * (1 << 21)])
def test_damaged_options_of_a_stopped_run(folder, data):
    place = hidden_folder(folder / "new")
    place.mkdir(mode=0o700)
    (place / "config.toml").write_bytes(data)
    assert fit().folder.is_dir()
    assert not place.exists()


# -------------------------------------------------------------------------------------- full disks


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_full_disk_leaves_the_whole_result_or_none(folder, monkeypatch, overwrite):
    """Every write of a whole file fails once, at the nth; the same command then works."""
    output = "model" if overwrite else "new"
    before = content(folder)
    inner = files.new_file
    for moment in range(100):
        calls = []

        def full(path, calls=calls, moment=moment):
            calls.append(path)
            if len(calls) > moment:
                raise OSError(28, "No space left on device", str(path))
            return inner(path)

        with monkeypatch.context() as patched:
            patched.setattr(files, "new_file", full)
            result = run(
                "fit rows.parquet --bag district --priors shares.csv --method prop --epochs 2 "
                f"--width 8 --output {output} {'--overwrite' * overwrite}"
            )
        if result.exit_code == 0:
            break
        assert "No space left" in result.stderr, result.exception
        assert content(folder) == before
    assert moment > 7
    assert unbag.load_model(output).method_ == "prop"
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("output", ["out.csv", "out.parquet"])
def test_a_full_disk_while_predicting_leaves_nothing(folder, monkeypatch, output):
    monkeypatch.setattr(predicting, "_PART_ROWS", 64)
    monkeypatch.setattr(predicting, "_BATCH_ROWS", 16)
    before = content(folder)
    inner, parts = files.new_file, itertools.count()

    def full(path):
        if path.suffix == ".arrow" and next(parts) == 3:
            raise OSError(28, "No space left on device", str(path))
        return inner(path)

    with monkeypatch.context() as patched:
        patched.setattr("unbag.workflow.parts.new_file", full)
        result = run(f"predict model other.parquet --output {output}")
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert content(folder) == before


def test_a_full_disk_while_saving_names_the_cause(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unbag.estimator.saving.write_tensors", full)
    with pytest.raises(ModelFolderError, match="No space left on device"):
        fit()
    assert not (folder / "new").exists()


# ----------------------------------------------------------------------------- odd outputs and keys


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "command",
    [
        "fit rows.parquet --bag district --priors shares.csv --output loop/x",
        "predict model rows.csv --output loop/x.csv",
        "evaluate model other.parquet --report loop/x.html",
        "export model --output loop/x.onnx",
    ],
)
def test_a_link_to_itself_as_output(command):
    Path("loop").symlink_to("loop")
    result = run(command)
    assert result.exit_code == 1
    assert "Too many levels of symbolic links" in result.stderr


@pytest.mark.usefixtures("folder")
def test_a_closed_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    say("nothing")


@pytest.mark.usefixtures("folder")
def test_a_link_to_another_file_system_as_output(tmp_path):
    """Work lies where the result will, so that it can be renamed."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs two file systems")
    with tempfile.TemporaryDirectory(dir=memory) as place:
        Path("new").symlink_to(Path(place, "model"))
        fit()
        fit(overwrite=True)
        assert Path("new").is_symlink()
        assert [path.name for path in Path(place).iterdir()] == ["model"]
        for name in ("new.csv", "new.html", "new.onnx"):
            Path(name).symlink_to(Path(place, name))
        predict_files("new", "other.parquet", output="new.csv", overwrite=True)
        evaluate_files("new", "other.parquet", report="new.html", overwrite=True)
        assert run("export new --output new.onnx --overwrite").exit_code == 0
        assert [path.name for path in Path(place).iterdir()] == ["model"]


def test_fit_into_the_current_folder(folder, monkeypatch):
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    inode = (folder / "here").stat().st_ino
    for seed in (0, 1):
        options = {**OPTIONS, "priors": "../shares.csv", "seed": seed, "overwrite": seed > 0}
        fit_files("../rows.parquet", output=".", **options)
        assert Path().stat().st_ino == (folder / "here").stat().st_ino == inode
        assert unbag.load_model(".").random_state == seed
    assert not [p for p in folder.rglob(".*") if p.name != ".."]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("rows", ["rows.csv", "rows.parquet"])
def test_a_key_that_is_also_a_feature(rows):
    predict_files("model", rows, key=["id", "age", "city"], output="a.parquet")
    predict_files("model", rows, output="b.parquet")
    one, other = (pa.parquet.read_table(name) for name in ("a.parquet", "b.parquet"))
    source = pa.parquet.read_table("rows.parquet")
    assert one["p_yes"] == other["p_yes"]
    assert one["city"].to_pylist() == source["city"].to_pylist()
    assert one["id"].to_pylist() == source["id"].to_pylist()
    assert one["age"].to_pylist() == pytest.approx(source["age"].to_pylist())


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_evaluate_and_export_are_one_run_at_a_time(folder, command):
    output = folder / ("a.html" if command == "evaluate" else "a.onnx")
    call = {
        "evaluate": "evaluate model other.parquet --report a.html",
        "export": "export model --output a.onnx",
    }[command]
    with hold(hidden_folder(output), output):
        result = run(call)
    assert result.exit_code == 1
    assert "which another run is writing" in result.stderr
    assert not output.exists()
    assert run(call).exit_code == 0
    assert not list(folder.glob(".*"))


def test_priors_of_too_low_a_rank_are_refused_before_training(folder, monkeypatch):
    (folder / "shares.csv").write_text("district,yes,no\nnorth,1,1\nsouth,1,1\nwest,1,1\n")
    monkeypatch.setattr(unbag.UnbagClassifier, "fit_bags", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(InvalidInputError, match="tell all 2 classes apart"):
        fit()


def test_a_new_model_has_no_work_left(folder):
    train(folder, "new")
    assert not list(folder.glob(".*"))


def test_a_prediction_that_has_its_name_is_kept_when_removing_parts_fails(folder, monkeypatch):
    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("unbag.workflow.parts.remove_folder", fail)
        assert run("predict model other.parquet --output out.parquet").exit_code == 1
    assert run("predict model other.parquet --output out.parquet").exit_code == 0
    assert pa.parquet.read_table("out.parquet").num_rows == 360
    assert not list(folder.glob(".*"))


def test_rows_without_finite_predictions_are_named(folder, monkeypatch):
    monkeypatch.setattr(predicting, "_BATCH_ROWS", 16)
    inner = unbag.UnbagClassifier.predict_proba
    seen = []

    def overflowing(self, X, prior=None, bag_ids=None):
        seen.append(len(X))
        if len(seen) == 3:
            raise NotFiniteError((1, 4))
        return inner(self, X, prior, bag_ids)

    monkeypatch.setattr(unbag.UnbagClassifier, "predict_proba", overflowing)
    with pytest.raises(NotFiniteError, match="for the rows 33, 36;"):
        predict_files("model", "other.parquet", output="out.csv")
    assert not list(folder.glob("*out.csv*"))


def test_a_full_disk_under_the_trials_names_the_cause(folder, monkeypatch):
    def full(*_, **__):
        try:
            raise sqlite3.OperationalError("database or disk is full")
        except sqlite3.Error as error:
            raise RuntimeError("storage") from error

    monkeypatch.setattr("unbag.workflow.training.tune", full)
    with pytest.raises(OSError, match=r"The trials cannot be kept: database or disk is full\."):
        tune_files("rows.parquet", output="new", trials=1, **OPTIONS)
    assert not list(folder.glob("*new*"))


def test_a_fault_while_the_file_of_trials_is_made_names_the_cause(folder, monkeypatch):
    def failing(*_, **__):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("optuna.create_study", failing)
    with pytest.raises(OSError, match=r"The trials cannot be kept: disk I/O error\."):
        tune_files("rows.parquet", output="new", trials=1, **OPTIONS)
    assert not list(folder.glob("*new*"))

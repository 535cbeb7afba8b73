"""Saved models: the same predictions from numbers and JSON, and nothing from hostile folders."""

import datetime
import hashlib
import itertools
import json
import os
import pickle
import shutil
import struct
import sys
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from torch import nn

import unbag
from unbag import UnbagClassifier, load_model
from unbag.estimator import folder as files
from unbag.exceptions import InvalidInputError, ModelFolderError, NotSavedWarning
from unbag.identity import SKETCH_SIZE
from unbag.methods import UPRR

RNG = np.random.default_rng(0)
X = RNG.normal(2, 3, (240, 4))
BAGS = np.repeat(["a", "b", "c"], 80)
THETA = {"a": [0.7, 0.2, 0.1], "b": [0.2, 0.7, 0.1], "c": [0.1, 0.2, 0.7]}
IMAGES = RNG.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
IMAGE_BAGS = np.repeat(["a", "b", "c"], 20)


class Net(nn.Module):
    """A module with a buffer outside its state, a shared weight and a mask of infinities."""

    def __init__(self, act=torch.tanh, width=5):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, 3)
        self.twin = self.out
        self.act = act
        self.register_buffer("shift", torch.zeros(3), persistent=False)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    def forward(self, x):
        self.shift += 1e-3 * self.training
        return self.twin(self.norm(self.act(self.first(x)))) + self.shift


def fitted(**options):
    options = {
        "priors": THETA,
        "method": "prop",
        "epochs": 2,
        "width": 8,
        "random_state": 0,
    } | options
    return UnbagClassifier(**options).fit(X, BAGS)


def fitted_images(**options):
    return UnbagClassifier(THETA, epochs=1, random_state=0, **options).fit(IMAGES, IMAGE_BAGS)


def assert_same(one, other, rows=X):
    a, b = one.predict_proba(rows), other.predict_proba(rows)
    assert (a == b).all()
    assert a.dtype == b.dtype
    assert (one.predict(rows) == other.predict(rows)).all()
    assert one.predict(rows).dtype == other.predict(rows).dtype
    assert (one.row_hashes_ == other.row_hashes_).all()
    names = ("priors_", "n_iter_", "best_epoch_", "stop_reason_", "method_", "bytes_", "row_shape_")
    for name in names:
        assert repr(getattr(one, name)) == repr(getattr(other, name))
    assert (one.priors_.values == other.priors_.values).all()
    assert one.history_.keys() == other.history_.keys()
    for name, values in one.history_.items():
        np.testing.assert_array_equal(values, other.history_[name])


# ------------------------------------------------------------------------------------ round trip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "linear"},
        {"depth": 4, "dropout": 0.25},
        {"precision": "float64"},
        {"standardize": False},
        {"method": "crossfit"},
        {"test_prior": {2: 0.2, 0: 0.5, 1: 0.3}},
        {"early_stopping": True, "epochs": 5, "n_iter_no_change": 2},
    ],
    ids=str,
)
def test_predictions_are_the_same_bit_for_bit(tmp_path, options):
    clf = fitted(**options)
    state = torch.get_rng_state()
    again = load_model(clf.save(tmp_path / "model"))
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(clf, again)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "MLmodel",
        "model",
        "model.json",
        "model.safetensors",
    ]
    # What the estimator can do besides.
    assert again.score(X, BAGS) == clf.score(X, BAGS)
    assert_same(pickle.loads(pickle.dumps(again)), clf)
    assert_same(clone(again).fit(X, BAGS), clone(clf).fit(X, BAGS))


@pytest.mark.parametrize("model", [*unbag.models.IMAGE_MODELS, "mlp"])
def test_images_of_bytes(tmp_path, model):
    if model == "lenet5":
        rows = np.pad(IMAGES, [(0, 0), (0, 0), (2, 2), (2, 2)])
        clf = UnbagClassifier(THETA, "prop", model=model, epochs=1, random_state=0)
        clf.fit(rows, IMAGE_BAGS)
    else:
        rows, clf = IMAGES, fitted_images(model=model, method="prop")
    again = load_model(clf.save(tmp_path / model))
    assert type(again.module_) is type(clf.module_)
    assert_same(clf, again, rows)
    with pytest.raises(InvalidInputError, match="bytes"):
        again.predict(rows.astype(np.float32))


def test_a_calibrated_model(tmp_path):
    clf = fitted().calibrate(X[::2], BAGS[::2])
    again = load_model(clf.save(tmp_path / "model"))
    assert again.calibration_.temperature == clf.calibration_.temperature
    assert_same(clf, again)


def test_pure_bags_and_priors_of_more_bags(tmp_path):
    pure = UnbagClassifier(epochs=1, random_state=0).fit(X, BAGS)
    again = load_model(pure.save(tmp_path / "pure"))
    assert again.priors is None
    assert_same(pure, again)
    with pytest.warns(unbag.exceptions.MissingBagsWarning):
        clf = fitted(priors=THETA | {"d": [0.3, 0.3, 0.4]})
    again = load_model(clf.save(tmp_path / "more"))
    assert again.priors.bag_ids.tolist() == ["a", "b", "c", "d"]
    assert again.priors_.bag_ids.tolist() == ["a", "b", "c"]
    again.calibrate(X[:9], ["d", *BAGS[:8]])


def test_errors_of_the_shares_and_what_they_are_of(tmp_path):
    errors = unbag.priors.ShareErrors.from_rows(50)
    priors = unbag.ClassPriors.of(THETA).with_errors(errors, shares_of="rows")
    clf = fitted(priors=priors)
    again = load_model(clf.save(tmp_path / "model"))
    assert again.priors_.equals(clf.priors_)
    assert again.priors is again.priors_
    clf.priors = priors.with_errors(shares_of="population")
    again = load_model(clf.save(tmp_path / "other"))
    assert again.priors.equals(clf.priors)
    assert again.priors_.equals(clf.priors_)
    guessed = unbag.priors.ShareErrors(
        priors.errors.variances, priors.errors.weights, np.arange(priors.n_bags) == 1
    )
    clf.priors = priors.with_errors(guessed)
    again = load_model(clf.save(tmp_path / "guessed"))
    assert again.priors.errors == guessed
    assert not again.priors_.errors.is_guess.any()


DAY, TIME = datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 7, 30)
ZONED = TIME.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


@pytest.mark.parametrize(
    "classes",
    [
        ["yes", "<script>", "ü\U0001f600\u202e"],
        [3, 1, 2],
        [2**63, 2**63 + 1, 2**63 + 2],
        [2**70, 1, 2],
        [0.5, 1.5, 2.5],
        [DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
        [TIME, DAY, ZONED.replace(tzinfo=None, year=1999)],
        [ZONED, ZONED.replace(hour=1), ZONED.replace(hour=2)],
        [1, "1", True],
        [DAY, "2024-05-01", ZONED],
        np.array(["2024-05", "2024-06", "2024-07"], dtype="M8[M]"),
    ],
    ids=str,
)
def test_ids_keep_their_kind(tmp_path, classes):
    table = unbag.ClassPriors(np.eye(3) * 0.7 + 0.1, classes, classes)
    bags = np.repeat(table.bag_ids, 80)
    clf = UnbagClassifier(table, epochs=1, random_state=0).fit(X, bags)
    again = load_model(clf.save(tmp_path / "model"))
    assert_same(clf, again)
    assert again.classes_.dtype == clf.classes_.dtype
    for one, other in zip(again.classes_, clf.classes_, strict=True):
        assert type(one) is type(other)
        assert one == other
    assert again.score(X, bags) == clf.score(X, bags)


def test_two_classes_of_true_and_false(tmp_path):
    clf = UnbagClassifier(epochs=1, random_state=0).fit(X, X[:, 0] > 2)
    again = load_model(clf.save(tmp_path / "model"))
    assert again.classes_.dtype == bool
    assert_same(clf, again)


def test_feature_names(tmp_path):
    frame = pd.DataFrame(X, columns=["w", "x", "y", "z"])
    clf = UnbagClassifier(THETA, epochs=1, random_state=0).fit(frame, BAGS)
    again = load_model(clf.save(tmp_path / "model"))
    assert_same(clf, again, frame)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[["x", "w", "y", "z"]])


def test_the_description_is_for_people_too(tmp_path):
    fitted(checkpoint=tmp_path / "there").save(tmp_path / "model")
    text = (tmp_path / "model" / "model.json").read_text()
    values = json.loads(text)
    assert values["format"] == "unbag-model"
    assert values["versions"].keys() == {"unbag", "torch", "numpy", "python"}
    assert values["bags"] == {"kind": "str", "values": ["a", "b", "c"]}
    assert values["network"] == {"kind": "mlp", "depth": 3, "width": 8, "dropout": 0.0}
    assert str(tmp_path) not in text
    modes = {p.stat().st_mode for p in (tmp_path / "model").iterdir()}
    assert len(modes) == 1
    assert load_model(tmp_path / "model").checkpoint is None


def test_training_rows_are_recognised_after_loading(tmp_path):
    again = load_model(fitted().save(tmp_path / "model"))
    with pytest.warns(unbag.exceptions.TrainingRowsWarning, match=r"100\.0%"):
        unbag.evaluate(again, X, BAGS)


def test_few_hashes_of_many_rows_are_kept():
    n = SKETCH_SIZE + 5000
    rows = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    options = {"model": "linear", "epochs": 1, "random_state": 0}
    clf = UnbagClassifier(np.eye(2), **options).fit(rows, np.arange(n) % 2)
    assert len(clf.row_hashes_) == SKETCH_SIZE
    with pytest.warns(unbag.exceptions.TrainingRowsWarning, match=r"100\.0%"):
        unbag.evaluate(clf, rows, np.arange(n) % 2)


# -------------------------------------------------------------------------------- what is no value


def test_a_module_of_the_users_own(tmp_path):
    clf = fitted(model=Net())
    assert clf.module_.shift[0] > 0
    path = clf.save(tmp_path / "model")
    given = Net()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    again = load_model(path, module=given)
    assert_same(clf, again)
    assert again.module_ is not given
    assert again.model is given
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())
    assert_same(clf, load_model(path, module=lambda *_: Net()))
    assert_same(clf, load_model(path, module=Net().double()))


def test_a_module_that_does_not_fit(tmp_path):
    path = fitted(model=Net()).save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match=r"of class 'Net', got nothing; give load_model"):
        load_model(path)
    with pytest.raises(InvalidInputError, match="the text 'mlp'"):
        load_model(path, module="mlp")
    with pytest.raises(InvalidInputError, match=r"module must be .*must be torch.float32 \[6, 4\]"):
        load_model(path, module=Net(width=6))
    with pytest.raises(InvalidInputError, match=r"module must be .*it lacks 'network\.bias'"):
        load_model(path, module=nn.Linear(4, 3))
    with pytest.raises(InvalidInputError, match=r"module must be .*logits"):
        load_model(path, module=nn.Linear(4, 2))
    with pytest.raises(InvalidInputError, match="gives other numbers"):
        load_model(path, module=Net(act=torch.relu))
    plain = fitted().save(tmp_path / "plain")
    with pytest.raises(InvalidInputError, match=r"module must be None .*'mlp', got Net"):
        load_model(plain, module=Net())


def test_a_state_that_is_no_tensor_is_refused(tmp_path):
    class Odd(Net):
        def get_extra_state(self):
            return {"anything": 1}

        def set_extra_state(self, state):
            pass

    with pytest.raises(InvalidInputError, match="state is tensors"):
        fitted(model=Odd()).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_function_as_loss_and_a_generator_are_left_out_and_said(tmp_path):
    def loss(logits):
        return -torch.log_softmax(logits, -1)

    clf = fitted(loss=loss, random_state=np.random.default_rng(0))
    with pytest.warns(NotSavedWarning, match="'loss', 'random_state'") as caught:
        path = clf.save(tmp_path / "model")
    assert caught[0].filename == __file__
    again = load_model(path)
    assert_same(clf, again)
    assert again.random_state is None
    with pytest.raises(InvalidInputError, match="set_params"):
        again.fit(X, BAGS)
    again.set_params(loss=loss).fit(X, BAGS)


def test_an_instance_of_one_of_our_networks(tmp_path):
    clf = fitted(model=unbag.models.MLP(4, 3, depth=2, width=7))
    with pytest.warns(NotSavedWarning, match="'model'"):
        path = clf.save(tmp_path / "model")
    again = load_model(path)
    assert_same(clf, again)
    assert (again.model, again.depth, again.width) == ("mlp", 2, 7)
    warm = clf.set_params(model="mlp", warm_start=True).fit(X, BAGS)
    assert_same(warm, load_model(warm.save(path)))


def test_the_encoding_comes_along(tmp_path, monkeypatch):
    class Encoding:
        def __init__(self, values):
            self.values = values

        def to_dict(self):
            return self.values

    def from_dict(values, row_shape):  # noqa: ARG001 - as in unbag.io
        if values.get("kind") != "table":
            raise InvalidInputError("kind must be 'table', got something else.")
        return Encoding(values)

    module = types.ModuleType("unbag.io")
    module.encoding_from_dict = from_dict
    monkeypatch.setitem(sys.modules, "unbag.io", module)
    clf = fitted()
    clf.encoding_ = Encoding({"kind": "table", "columns": ["ü"]})
    path = clf.save(tmp_path / "model")
    assert load_model(path).encoding_.values == {"kind": "table", "columns": ["ü"]}
    (path / "encoding.json").write_text('{"kind": "other"}')
    with pytest.raises(ModelFolderError, match="SHA-256"):
        load_model(path)
    rehash(path)
    with pytest.raises(ModelFolderError, match=r"encoding\.json is refused: kind must be"):
        load_model(path)
    clf.encoding_ = None
    clf.save(path)
    assert not (path / "encoding.json").exists()
    assert load_model(path).encoding_ is None


# ------------------------------------------------------------------------------------ replacement


def test_a_model_is_replaced_and_other_files_stay(tmp_path):
    path = fitted().save(tmp_path / "deep" / "model")
    (path / "report.html").write_text("mine")
    (path / "notes").mkdir()
    (path / "notes" / "a.txt").write_text("mine too")
    clf = fitted(random_state=1)
    clf.save(path)
    assert_same(clf, load_model(path))
    assert (path / "report.html").read_text() == "mine"
    assert (path / "notes" / "a.txt").read_text() == "mine too"
    assert [p.name for p in path.parent.iterdir()] == ["model"]
    (tmp_path / "empty").mkdir()
    load_model(clf.save(tmp_path / "empty"))
    (tmp_path / "link").symlink_to(path)
    fitted().save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert_same(fitted(), load_model(path))


@pytest.mark.parametrize("kind", ["file", "folder", "foreign", "broken"])
def test_what_is_not_a_model_is_never_touched(tmp_path, kind):
    path = tmp_path / "mine"
    if kind == "file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "data.csv").write_text("mine")
    if kind in ("foreign", "broken"):
        (path / "model.json").write_text('{"format": "keras"}' if kind == "foreign" else "{")
    before = {p: p.is_file() and p.read_text() for p in tmp_path.rglob("*")}
    with pytest.raises(ModelFolderError, match="nothing was written"):
        fitted().save(path)
    assert {p: p.is_file() and p.read_text() for p in tmp_path.rglob("*")} == before


def test_a_save_that_fails_leaves_the_model_before(tmp_path, monkeypatch):
    clf = fitted()
    path = clf.save(tmp_path / "model")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr("unbag.estimator.saving.write_json", fail)
    with pytest.raises(ModelFolderError, match=r"cannot be written .*no space left"):
        fitted(random_state=1).save(path)
    assert_same(clf, load_model(path))
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("is_new", [True, False])
def test_killed_at_any_moment_one_of_the_two_models_is_there(tmp_path, killed, is_new):
    old, new = fitted(), fitted(random_state=1)
    path = tmp_path / "model"
    for moment in itertools.count():
        shutil.rmtree(path, ignore_errors=True)
        if not is_new:
            old.save(path)
            (path / "mine.txt").write_text("mine")
        ended = killed(lambda: new.save(path), moment)
        if (path / "model.json").exists():
            clf = load_model(path)
            expected = new if (clf.predict_proba(X) == new.predict_proba(X)).all() else old
            assert_same(clf, expected)
        elif path.exists():
            with pytest.raises(ModelFolderError, match="interrupted"):
                load_model(path)
        if moment % 3 and path.exists() and not is_new:  # also from what another kill left
            killed(lambda: old.save(path), moment // 3)
        new.save(path)
        assert_same(load_model(path), new)
        assert is_new or (path / "mine.txt").read_text() == "mine"
        names = {p.name for p in path.iterdir()} - {"mine.txt"}
        assert names == {"MLmodel", "model.json", "model.safetensors"}
        assert [p.name for p in tmp_path.iterdir()] == ["model"]
        if ended:
            break
    assert moment > 5


def test_what_is_saved_is_on_the_disk_and_was_read_back(tmp_path, monkeypatch):
    """Every file is synced before it gets its name, and the folder before it appears."""
    events = []

    def recorded(name, inner):
        def record(*args, **kwargs):
            where = args[0]
            if isinstance(where, int):
                where = Path(f"/proc/self/fd/{where}").readlink()
            events.append((name, Path(where).name.split(".")[-1], Path(where).parent.name))
            return inner(*args, **kwargs)

        return record

    monkeypatch.setattr(os, "fsync", recorded("sync", os.fsync))
    monkeypatch.setattr(os, "rename", recorded("rename", os.rename))
    monkeypatch.setattr(os, "replace", recorded("replace", os.replace))
    loaded = recorded("load", load_model)
    monkeypatch.setattr("unbag.estimator.saving.load_model", loaded)
    fitted().save(tmp_path / "model")
    kinds = [event[0] for event in events]
    for i, kind in enumerate(kinds):
        if kind == "replace":
            assert kinds[i - 1] == "sync", events
            assert events[i - 1][2].endswith(".tmp")
    stage = events.index(("sync", "saving", tmp_path.name), kinds.index("load"))
    assert kinds[stage + 1 :] == ["rename", "sync"], events
    assert kinds.count("replace") == 3


def test_a_model_that_cannot_be_loaded_again_is_not_saved(tmp_path, monkeypatch):
    def fail(*_):
        raise ModelFolderError("it is odd.")

    monkeypatch.setattr("unbag.estimator.saving.load_model", fail)
    with pytest.raises(ModelFolderError, match=r"cannot be saved: it is odd\."):
        fitted().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_current_folder_stays(tmp_path, monkeypatch):
    """An empty folder, or one with a model, is filled and not replaced."""
    monkeypatch.chdir(tmp_path)
    before = tmp_path.stat().st_ino
    for seed in (0, 1):
        clf = fitted(random_state=seed)
        clf.save(".")
        assert Path().stat().st_ino == tmp_path.stat().st_ino == before
        assert_same(load_model("."), clf)


def test_a_link_to_a_folder_on_another_disk(tmp_path):
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    clf = fitted()
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        (tmp_path / "link").symlink_to(folder)
        clf.save(tmp_path / "link")
        assert_same(load_model(folder), clf)
        assert (tmp_path / "link").is_symlink()


# ------------------------------------------------------------------------ models of older versions

OLD = Path(__file__).parent / "saved_by_0_1"


def test_a_model_of_arrays_that_the_first_version_saved():
    clf = load_model(OLD / "arrays")
    assert clf.priors_.bag_ids.tolist() == [datetime.date(2024, 5, 1), "b", 7]
    expected = [[0.23566617, 0.6157399, 0.14859394], [0.45254004, 0.54487422, 0.00258573]]
    np.testing.assert_allclose(clf.predict_proba(np.arange(6.0).reshape(2, 3)), expected, 1e-5)
    assert (clf.method, clf.model, clf.random_state) == ("prop", "linear", 0)
    np.testing.assert_array_equal(clf.test_prior, [0.2, 0.3, 0.5])


def test_a_model_of_a_table_that_the_first_version_saved():
    clf = load_model(OLD / "table")
    assert (clf.method_, clf.method) == ("u-prr", UPRR(alpha=0.4, ascent_scale=2.0))
    assert (clf.depth, clf.width, clf.random_state, clf.precision) == (2, 4, 3, "float32")
    assert clf.encoding_.columns == ("age", "income", "city", "member")
    assert clf.calibration_ is not None
    assert clf.history_["label_free_error"].shape == (2,)
    assert clf.predict_proba(np.zeros((1, 7), dtype=np.float32)).sum() == pytest.approx(1)


# --------------------------------------------------------------------------------- hostile folders


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return fitted().calibrate(X, BAGS).save(tmp_path_factory.mktemp("good") / "model")


@pytest.fixture
def copy(good, tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    for file in good.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    return path


def rehash(path):
    """Make the digests right again, as a determined attacker would."""
    values = json.loads((path / "model.json").read_text())
    for name in values["files"]:
        if (path / name).exists():
            values["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    (path / "model.json").write_text(json.dumps(values))


def described(**changes):
    """Change the description; a dotted name reaches into an object."""

    def change(path):
        values = json.loads((path / "model.json").read_text())
        for name, value in changes.items():
            *outer, last = name.split("__")
            inner = values
            for key in outer:
                inner = inner[key]
            inner[last] = value
        (path / "model.json").write_text(json.dumps(values))

    return change


def without(name):
    def change(path):
        values = json.loads((path / "model.json").read_text())
        del values[name]
        (path / "model.json").write_text(json.dumps(values))

    return change


def tensors(edit, name="model.safetensors"):
    def change(path):
        arrays = load_file(path / name)
        edit(arrays)
        save_file(arrays, path / name)
        rehash(path)

    return change


def setting(name, index, value):
    def edit(arrays):
        arrays[name].view(-1)[index] = value

    return tensors(edit)


def replaced(name, make):
    return tensors(lambda arrays: arrays.update({name: make(arrays.get(name))}))


def text(name, content):
    return lambda path: (path / name).write_text(content)


def header(shapes):
    """Write a safetensors file whose header claims what is not there."""

    def change(path):
        data = json.dumps(shapes).encode()
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(data)) + data + bytes(64))
        rehash(path)

    return change


def raw(content):
    def change(path):
        (path / "model.safetensors").write_bytes(content)
        rehash(path)

    return change


def truncated(path):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    rehash(path)


def longer(path):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes() + bytes(64))
    rehash(path)


def flipped(path):
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "model.safetensors").write_bytes(data)


def linked(name):
    def change(path):
        outside = path.parent / "outside"
        (path / name).rename(outside)
        (path / name).symlink_to(outside)

    return change


def fifo(path):
    (path / "model.safetensors").unlink()
    os.mkfifo(path / "model.safetensors")


def sparse(name):
    def change(path):
        with (path / name).open("r+b") as file:
            file.truncate(1 << 42)

    return change


def sparse_encoding(path):
    (path / "encoding.json").write_text("{}")
    sparse("encoding.json")(path)
    described(**{"files__encoding.json": "0"})(path)


def foreign_encoding(path):
    (path / "encoding.json").write_text("pickle")
    described(**{"files__encoding.json": hashlib.sha256(b"pickle").hexdigest()})(path)


W = "network.linears.0.weight"
BILLION = 10**9
HOSTILE = {
    # Files.
    "no model.json": (lambda p: (p / "model.json").unlink(), "it is missing"),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), "it is missing"),
    "link to a description": (linked("model.json"), "it is a link"),
    "link to weights": (linked("model.safetensors"), "it is a link"),
    "a pipe": (fifo, "not a file"),
    "a flipped bit": (flipped, "SHA-256 differs"),
    "40,000 layers": (
        tensors(lambda a: a.update({f"network.{i}": torch.zeros(0) for i in range(40_000)})),
        r"tensors, and 10,000 are read|truncated, or no",
    ),
    "11,000 layers": (
        tensors(lambda a: a.update({f"network.{i}": torch.zeros(0) for i in range(11_000)})),
        r"11,0\d\d tensors, and 10,000 are read",
    ),
    "truncated weights": (truncated, "cannot be read"),
    "empty weights": (raw(b""), "truncated, or no safetensors"),
    "a pickle": (raw(pickle.dumps({"a": 1})), "truncated, or no safetensors"),
    "header of 2**62 bytes": (raw(struct.pack("<Q", 2**62)), "truncated, or no safetensors"),
    "sparse weights of 4 TB": (sparse("model.safetensors"), "half of the memory"),
    "more bytes than the header says": (longer, "cannot be read"),
    "sparse description of 4 TB": (sparse("model.json"), r"4,398,046,511,104 bytes"),
    "overlapping tensors": (
        header({W: {"dtype": "F32", "shape": [4], "data_offsets": [0, 64]}}),
        "cannot be read",
    ),
    "shape beyond the file": (
        header({W: {"dtype": "F32", "shape": [BILLION, BILLION], "data_offsets": [0, 64]}}),
        "cannot be read",
    ),
    # Names with path tricks.
    "file above": (described(files={"../model.safetensors": "0"}), "files must be"),
    "absolute file": (described(files={"/etc/passwd": "0"}), "files must be"),
    "one file more": (described(files__other="0"), "files must be"),
    "sparse encoding of 4 TB": (sparse_encoding, r"4,398,046,511,104 bytes"),
    "encoding that is no JSON": (foreign_encoding, "encoding.json is refused: it is no valid JSON"),
    "encoding that is not there": (described(**{"files__encoding.json": "0"}), "it is missing"),
    "files as a list": (
        described(files=["model.safetensors"]),
        "files must be an object",
    ),
    # JSON.
    "no JSON": (text("model.json", "weights"), "no valid JSON"),
    "no text": (lambda p: (p / "model.json").write_bytes(b"\xff\xfe{"), "no valid JSON"),
    "truncated JSON": (text("model.json", '{"format": "unbag-model"'), "no valid JSON"),
    "deep JSON": (
        text("model.json", "[" * 100_000 + "]" * 100_000),
        "must be an object, got a list",
    ),
    "many lists": (text("model.json", "[" + "[]," * (1 << 20) + "1]"), "1,048,576 lists"),
    "long JSON": (text("model.json", " " * (1 << 25) + "{}"), "bytes"),
    "NaN": (text("model.json", '{"format": NaN}'), "no valid JSON"),
    "a number of 10,000 digits": (text("model.json", "1" * 10_000), "refused"),
    "foreign": (text("model.json", '{"format": "keras"}'), "not of a model of unbag"),
    "foreign list": (text("model.json", "[1, 2]"), "must be an object, got a list"),
    "newer": (described(format_version=2), "update unbag"),
    "no version": (without("format_version"), "format version"),
    "version of text": (described(format_version="1"), "format version"),
    # Sizes.
    "width of a billion": (described(network__width=BILLION), r"must be torch\.float32"),
    "width of 2**80": (described(network__width=2**80), "width must be"),
    "width of -1": (described(network__width=-1), "width must be"),
    "width of text": (described(network__width="8"), "width must be"),
    "depth of a billion": (
        described(network__depth=BILLION),
        "number <= 1000",
    ),
    "dropout of 1e999": (
        lambda p: (p / "model.json").write_text(
            (p / "model.json").read_text().replace('"dropout": 0.0', '"dropout": 1e999')
        ),
        "valid JSON|dropout|out of range|of those allowed",
    ),
    "dropout of text": (described(network__dropout="x"), "dropout must be"),
    "another kind": (described(network={"kind": "resnet20"}), "images"),
    "unknown kind": (described(network={"kind": "os.system"}), "network.kind must be"),
    "kind of a list": (described(network={"kind": []}), "network.kind must be"),
    "kind of a user's module": (described(network={"kind": "module"}), "module must be"),
    "rows of 2**62 numbers": (described(row_shape=[2**31 - 1, 2**31 - 1]), "row_shape must be"),
    "rows of 2**30 numbers": (described(row_shape=[2**30]), r"must be torch\.float32"),
    "rows of no numbers": (described(row_shape=[]), "row_shape must be"),
    "rows of negative numbers": (described(row_shape=[-4]), r"row_shape.* must be"),
    "other rows": (described(row_shape=[2, 2]), "probe|scaler|must be torch"),
    "a million epochs": (described(n_iter=10**6), "history"),
    # Tensors.
    "missing tensor": (tensors(lambda a: a.pop(W)), "it lacks"),
    "no scaler": (tensors(lambda a: a.pop("scaler.mean")), "lacks 'scaler.mean'"),
    "extra tensor": (replaced("network.more", lambda _: torch.zeros(2)), "it has 'network.more'"),
    "extra history": (replaced("history.more", lambda _: torch.zeros(2)), "it has 'history.more'"),
    "wrong shape": (replaced(W, lambda t: t.T.contiguous()), r"\[8, 4\], got .*\[4, 8\]"),
    "wrong type": (replaced(W, lambda t: t.half()), r"got torch\.float16"),
    "weights of integers": (replaced(W, lambda t: t.long()), r"got torch\.int64"),
    "one weight of float64": (replaced(W, lambda t: t.double()), "must be torch.float64"),
    "a weight that is no number": (setting(W, 3, torch.nan), "not finite"),
    "an infinite weight": (setting(W, 3, torch.inf), "not finite"),
    "an infinite statistic": (
        setting("network.norms.0.running_mean", 0, torch.inf),
        "not finite",
    ),
    "a negative variance": (setting("network.norms.0.running_var", 0, -1), "negative variances"),
    "another weight": (setting(W, 3, 5.0), "does not give the numbers"),
    "a scale of zero": (setting("scaler.scale", 0, 0), "scaler"),
    "a mean that is no number": (setting("scaler.mean", 0, torch.nan), "scaler"),
    "a temperature of zero": (setting("calibration.temperature", 0, 0), "calibration"),
    "infinite biases": (setting("calibration.biases", 0, torch.inf), "calibration"),
    "too many hashes": (
        replaced("row_hashes", lambda _: torch.zeros(SKETCH_SIZE + 1, dtype=torch.uint64)),
        "row_hashes",
    ),
    "hashes of floats": (replaced("row_hashes", lambda _: torch.zeros(9)), "row_hashes"),
    # Priors and classes.
    "priors that sum to 2": (setting("priors", 0, 1.7), "sum"),
    "negative priors": (setting("priors", 0, -0.1), "non-negative"),
    "priors that are no numbers": (setting("priors", 0, torch.nan), "finite"),
    "a bag less": (described(bags={"kind": "str", "values": ["a", "b"]}), "'priors' must be"),
    "a bag twice": (described(bags={"kind": "str", "values": ["a", "b", "b"]}), "all different"),
    "a bag that is null": (described(bags={"kind": "str", "values": ["a", "b", None]}), "wrong id"),
    "bags of lists": (described(bags={"kind": "str", "values": [[], "b", "c"]}), "wrong id 0"),
    "an unknown kind of bags": (
        described(bags={"kind": "x", "values": [1, 2, 3]}),
        "kind must be",
    ),
    "bags of the day": (
        described(bags={"kind": "datetime64", "values": ["now", "today", "2024-05-01"]}),
        "no date",
    ),
    "no bags": (
        described(bags={"kind": "str", "values": []}),
        "a list of length >= 1",
    ),
    "a class less": (described(classes={"kind": "int", "values": [0, 1]}), "must be torch"),
    "a class twice": (described(classes={"kind": "int", "values": [0, 1, 1]}), "all different"),
    "classes of another kind": (
        described(classes={"kind": "int", "values": ["0", "1", "2"]}),
        "wrong id 0",
    ),
    "an id of 4 million characters": (
        described(classes={"kind": "str", "values": ["a" * (1 << 22), *map(str, range(60))]}),
        "characters",
    ),
    "a test prior of 2": (described(test_prior=[1, 0.5, 0.5]), "test_prior must be"),
    "a test prior of text": (described(test_prior="abc"), "test_prior must be"),
    "an output prior less": (described(output_prior=[0.5, 0.5]), "output_prior must be"),
    "an output prior of lists": (described(output_prior=[[1], 0, 0]), r"output_prior.* must be"),
    # Settings.
    "an unknown setting": (described(settings__callback="os.system"), "update unbag"),
    "a path as setting": (described(settings__checkpoint="/etc"), "settings must be"),
    "a list as setting": (
        described(settings__alpha=[1]),
        "has no setting 'alpha'",
    ),
    "a number as name": (described(settings__device=1), "got device, where it must be text"),
    "an unknown precision": (described(settings__precision="int4"), "precision must be"),
    "settings of text": (described(settings="none"), "settings must be"),
    "anything not saved": (described(not_saved=["priors"]), r"not_saved.* must be"),
    "names too many": (described(feature_names=["a"] * 5), "feature_names must be"),
    "a scaler for bytes": (described(bytes=True), "scaler"),
    "flag of text": (described(bytes="false"), "bytes must be true or false, got text"),
    "no reason": (without("stop_reason"), "stop_reason must be"),
    "no method": (without("method"), "method must be"),
    "an unknown word": (described(given_bags="all"), "given_bags must be"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_folders_are_refused(copy, case):
    change, message = HOSTILE[case]
    change(copy)
    with pytest.raises(InvalidInputError, match=message):
        load_model(copy)


def test_the_copy_that_the_hostile_ones_start_from_is_good(copy, good):
    rehash(copy)
    assert_same(load_model(copy), load_model(good))


def test_paths_that_are_no_folder(tmp_path):
    with pytest.raises(ModelFolderError, match="no such folder"):
        load_model(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFolderError, match="it is a file"):
        load_model(tmp_path / "file")
    with pytest.raises(ModelFolderError, match=r"model\.json is refused: it is missing"):
        load_model(tmp_path)


@pytest.mark.parametrize("error", [OSError(12, "Cannot allocate memory"), MemoryError()])
def test_little_memory_is_not_called_a_broken_file(copy, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(files, "safe_open", fail)
    with pytest.raises(MemoryError):
        load_model(copy)


def test_nothing_is_unpickled(copy, monkeypatch):
    def fail(*_, **__):
        raise AssertionError

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, fail)
    load_model(copy)


def test_a_huge_network_is_refused_without_memory(copy):
    """The description and the header may claim what they like; only bytes of the file count."""
    described(network__width=2**31 - 1)(copy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = _peak()
        with pytest.raises(ModelFolderError):
            load_model(copy)
        assert _peak() - before < 64 << 20


def _peak():
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

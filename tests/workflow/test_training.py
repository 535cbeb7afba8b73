"""Models from files: the same as from Python, kept when stopped, and nothing lost."""

import importlib
import itertools
import json
import tomllib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import unbag
from run_command import content
from small_files import BAGS, QUICK, SHARES, draw, train
from unbag.exceptions import InvalidInputError
from unbag.io import read_rows
from unbag.training import engine
from unbag.workflow import fit_files, inspect_files, training, tune_files

OPTIONS = {"bag": "district", "priors": "shares.csv", **QUICK}


def weights(clf):
    return [value.numpy() for value in clf.module_.state_dict().values()]


def assert_same(one, other):
    for a, b in zip(weights(one), weights(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_result_is_that_of_python(folder):
    trained = fit_files(
        "rows.parquet", output="new", evaluation_share=0, validation_share=0, **OPTIONS
    )
    rows = read_rows("rows.parquet", bag="district")
    clf = unbag.UnbagClassifier(
        priors=unbag.ClassPriors(SHARES, list(BAGS), ["yes", "no"]),
        random_state=0,
        standardize=False,
        **QUICK,
    ).fit(rows.X, rows.bag_ids)
    assert_same(trained.classifier, clf)
    assert trained.evaluation is None
    assert "No rows were kept for an evaluation." in trained.warnings
    assert json.loads((folder / "new" / "evaluation.json").read_text()) is None


@pytest.mark.usefixtures("folder")
def test_the_evaluation_is_that_of_python():
    trained = fit_files("rows.parquet", output="new", **OPTIONS)
    rows = read_rows("rows.parquet", bag="district")
    bags = unbag.Bags(rows.X, rows.bag_ids, unbag.ClassPriors(SHARES, list(BAGS), ["yes", "no"]))
    rest, untouched = bags.train_test_split(0.2, random_state=0)
    train_part, watched = rest.train_test_split(0.1 / 0.8, random_state=0)
    clf = unbag.UnbagClassifier(random_state=0, standardize=False, **QUICK)
    clf.fit_bags(train_part, held_out=watched)
    assert_same(trained.classifier, clf)
    assert float(trained.evaluation.accuracy) == float(unbag.evaluate(clf, untouched).accuracy)
    assert trained.classifier.history_["label_free_error"].shape == (2,)


@pytest.mark.parametrize("calibrate", [False, True])
def test_the_band_of_the_error_curve_is_that_of_the_rows_it_is_on(folder, calibrate):
    trained = fit_files("rows.parquet", output="new", calibrate=calibrate, **OPTIONS)
    rows = read_rows("rows.parquet", bag="district")
    bags = unbag.Bags(rows.X, rows.bag_ids, unbag.ClassPriors(SHARES, list(BAGS), ["yes", "no"]))
    rest, _ = bags.train_test_split(0.2, random_state=0)
    _, watched = rest.train_test_split(0.1 / 0.8, random_state=0)
    clf = trained.classifier
    clf.calibration_ = None  # the curve is of the network alone
    direct = unbag.evaluate(clf, watched, test_prior=clf.test_prior_)
    assert float(direct.error) == pytest.approx(clf.history_["label_free_error"][-1])
    training = json.loads((folder / "new" / "report.json").read_text())["training"]
    low, high = direct.error.interval
    assert training["label_free_half_width"] == pytest.approx((high - low) / 2, rel=1e-4)
    low, high = trained.evaluation.error.interval
    assert training["label_free_half_width"] > 1.2 * (high - low) / 2  # twice as many rows


def test_csv_and_parquet_and_several_files_give_the_same_model(folder):
    one = fit_files("rows.parquet", output="a", **OPTIONS)
    two = fit_files("rows.csv", output="b", **OPTIONS)
    assert_same(one.classifier, two.classifier)
    table = pa.parquet.read_table("rows.parquet")
    (folder / "parts").mkdir()
    pa.parquet.write_table(table.slice(0, 100), "parts/1.parquet")
    pa.parquet.write_table(table.slice(100), "parts/2.parquet")
    assert_same(one.classifier, fit_files("parts", output="c", **OPTIONS).classifier)
    both = ["parts/1.parquet", "parts/2.parquet"]
    assert_same(one.classifier, fit_files(both, output="d", **OPTIONS).classifier)


@pytest.mark.parametrize("rows", ["rows.npz", "images.csv"])
def test_arrays_and_images(folder, rows):
    options = {**OPTIONS, "bag": None} if rows == "rows.npz" else {**OPTIONS, "images": "images"}
    trained = fit_files(rows, output="new", **options)
    assert trained.evaluation.n_rows == {"rows.npz": 72, "images.csv": 13}[rows]
    assert (folder / "new" / "report.html").is_file()


def test_options_of_training_reach_the_classifier(folder):
    trained = fit_files(
        "rows.parquet",
        output="new",
        **{**OPTIONS, "method": "u-flood"},
        method_settings={"flood_level": 0.1},
        test_prior={"no": 0.9, "yes": 0.1},
        columns=["age", "city"],
        early_stopping=True,
        n_iter_no_change=1,
        calibrate=True,
        shares_of="rows",
        level=0.8,
        title="Mine",
    )
    clf = trained.classifier
    assert clf.settings_ == {"flood_level": 0.1}
    np.testing.assert_allclose(clf.test_prior_, [0.1, 0.9])
    assert clf.best_epoch_ is not None
    assert clf.calibration_ is not None
    assert (trained.evaluation.level, trained.evaluation.shares_of) == (0.8, "rows")
    assert trained.classifier.encoding_.columns == ("age", "city")
    assert json.loads((folder / "new" / "report.json").read_text())["title"] == "Mine"


@pytest.mark.usefixtures("folder")
def test_classes_that_are_numbers_can_be_named_as_text():
    pairs = [(b, k, SHARES[i, k]) for i, b in enumerate(BAGS) for k in range(2)]
    columns = dict(
        zip(("district", "class", "share"), map(list, zip(*pairs, strict=True)), strict=True)
    )
    pa.parquet.write_table(pa.table(columns), "long.parquet")
    options = {**OPTIONS, "priors": "long.parquet", "test_prior": {"1": 0.25, "0": 0.75}}
    trained = fit_files("rows.parquet", output="new", **options)
    assert trained.classifier.classes_.tolist() == [0, 1]
    np.testing.assert_allclose(trained.classifier.test_prior_, [0.75, 0.25])


def test_notes_and_warnings_reach_the_report(folder):
    pa.parquet.write_table(
        draw(360, 0)[0].append_column("same", pa.array(["x"] * 360)), "rows.parquet"
    )
    priors = (folder / "shares.csv").read_text().replace("district", "name") + "east,0.6,0.4\n"
    (folder / "shares.csv").write_text(priors)
    trained = fit_files("rows.parquet", output="new", **OPTIONS)
    report = json.loads((folder / "new" / "report.json").read_text())
    told = report["data"]["notes"]
    for part in ("no column 'district'", "of column 'income' are missing", "'east'"):
        assert any(part in note for note in trained.notes), part
        assert any(part in note for note in told), part
    assert any("'same' is left out" in note for note in trained.notes)
    assert "same" in report["data"]["left_out"]  # a table of its own, not told twice
    assert not any("'same'" in note for note in told)
    assert list(trained.warnings) == report["warnings"]
    assert report["data"]["files"] == ["rows.parquet", "shares.csv"]


def test_a_bag_that_the_held_out_rows_miss(folder):
    table = draw(360, 0)[0]
    names = table["district"].to_pylist()
    names[0] = "tiny"
    index = table.column_names.index("district")
    pa.parquet.write_table(table.set_column(index, "district", pa.array(names)), "rows.parquet")
    with (folder / "shares.csv").open("a") as file:
        file.write("tiny,0.9,0.1\n")
    trained = fit_files("rows.parquet", output="new", **OPTIONS)
    assert trained.evaluation is not None
    assert trained.classifier.priors_.n_bags + trained.evaluation.n_bags >= 7


def test_the_config_makes_the_same_model_again(folder):
    first = unbag.load_model("model")
    options = tomllib.loads((folder / "model" / "config.toml").read_text())
    again = fit_files(options.pop("rows"), **{**options, "output": "again"})
    assert_same(first, again.classifier)


# ------------------------------------------------------------- settings are checked before rows

BAD_SETTINGS = {
    "epochs": 0,
    "batch_size": 0,
    "learning_rate": 0.0,
    "weight_decay": -1.0,
    "depth": 0,
    "width": 0,
    "dropout": 1.0,
    "model": "cnn",
    "precision": "half",
    "batching": "sorted",
    "loss": "hinge",
    "method": "u-pr",
    "device": "gpu",
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
@pytest.mark.parametrize("make", [fit_files, tune_files])
def test_settings_are_checked_before_files_are_read(folder, make, name):
    wrong = {name: BAD_SETTINGS[name]}
    X = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    clf = unbag.UnbagClassifier(priors=SHARES[:2], **{"method": "u-prr", **QUICK, **wrong})
    with pytest.raises(InvalidInputError) as direct:
        clf.fit(X, np.arange(20) % 2)
    before = content(folder)
    with pytest.raises(InvalidInputError) as early:
        make(
            "nowhere.parquet",
            bag="district",
            priors="nowhere.csv",
            output="new",
            **{"method": "u-prr", **QUICK, **wrong},
        )
    assert str(early.value) == str(direct.value)
    assert content(folder) == before


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (fit_files, {"shares_of": "census"}),
        (fit_files, {"level": 95}),
        (inspect_files, {"shares_of": "census"}),
        (inspect_files, {"level": 95}),
        (tune_files, {"scoring": "error"}),
        (tune_files, {"trials": 0}),
        (tune_files, {"at_once": 0}),
    ],
)
def test_options_are_checked_before_files_are_read(make, wrong):
    output = {} if make is inspect_files else {"output": "new"}
    with pytest.raises(InvalidInputError, match=f"^{next(iter(wrong))} must be"):
        make("nowhere.parquet", bag="district", priors="nowhere.csv", **output, **wrong)


@pytest.mark.usefixtures("folder")
def test_a_network_of_the_user_need_not_fit_other_rows():
    trained = fit_files("rows.parquet", output="new", **OPTIONS, model=OwnNetwork())
    assert isinstance(trained.classifier.module_, OwnNetwork)


class OwnNetwork(torch.nn.Module):
    """Takes the seven features of the rows, and nothing else."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(7, 2)

    def forward(self, x):
        return self.layer(x)


# ------------------------------------------------------------------------ stopped, and going on


class Stop(KeyboardInterrupt):
    pass


@pytest.fixture
def stop(monkeypatch):
    """Stop the next run at its nth call of a function."""

    # A checkpoint is due every 30 seconds: make every look at the clock a minute later.
    clock = SimpleNamespace(monotonic=itertools.count(step=60).__next__)
    monkeypatch.setattr(engine, "time", clock)

    def patch(where, name, after):
        inner = getattr(where, name)
        calls = []

        def stopping(*args, **kwargs):
            calls.append(1)
            if len(calls) > after:
                raise Stop
            return inner(*args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(where, name, stopping)
            with pytest.raises(Stop):
                fit_files("rows.parquet", output="new", **{**OPTIONS, "epochs": 6})

    return patch


@pytest.mark.parametrize(
    ("where", "name", "after"),
    [
        ("unbag.io.encoding.TableEncoding", "transform", 0),
        ("unbag.training.engine.Stack", "run_epoch", 0),
        ("unbag.training.engine.Stack", "run_epoch", 3),
        ("unbag.workflow.training", "judge", 0),
        ("unbag.workflow.training", "write_whole", 1),
        ("unbag.reporting.making.Report", "save", 0),
    ],
)
def test_a_stopped_fit_goes_on(folder, stop, where, name, after):
    module, _, owner = where.rpartition(".")
    place = getattr(importlib.import_module(module), owner)
    stop(place, name, after)
    assert (folder / ".new.work").is_dir()
    trained = fit_files("rows.parquet", output="new", **{**OPTIONS, "epochs": 6})
    assert not (folder / ".new.work").exists()
    undisturbed = fit_files("rows.parquet", output="other", **{**OPTIONS, "epochs": 6})
    assert_same(trained.classifier, undisturbed.classifier)
    one, two = content(folder / "new"), content(folder / "other")
    assert one.keys() == two.keys()
    for file in ("model.safetensors", "encoding.json", "evaluation.json", "inspection.json"):
        assert one[file] == two[file], file


@pytest.mark.usefixtures("folder")
def test_training_is_not_done_again(stop, monkeypatch):
    stop(engine.Stack, "run_epoch", 4)
    epochs = []
    inner = engine.Stack.run_epoch
    monkeypatch.setattr(
        engine.Stack, "run_epoch", lambda *a, **k: (epochs.append(1), inner(*a, **k))[1]
    )
    fit_files("rows.parquet", output="new", **{**OPTIONS, "epochs": 6})
    resumed = len(epochs)
    fit_files("rows.parquet", output="other", **{**OPTIONS, "epochs": 6})
    assert resumed == len(epochs) - resumed - 4


@pytest.mark.usefixtures("folder")
def test_another_run_does_not_use_what_a_stopped_one_left(stop):
    stop(training, "judge", 0)
    trained = fit_files("rows.parquet", output="new", **{**OPTIONS, "epochs": 3})
    fresh = fit_files("rows.parquet", output="other", **{**OPTIONS, "epochs": 3})
    assert trained.classifier.n_iter_ == 3
    assert_same(trained.classifier, fresh.classifier)


def test_an_error_keeps_what_a_stopped_run_left(folder, stop):
    stop(training, "judge", 0)
    before = content(folder)
    with pytest.raises(InvalidInputError, match="nowhere"):
        fit_files("nowhere.parquet", output="new", **OPTIONS)
    after = content(folder)
    assert after.keys() == before.keys()
    assert {k for k in after if after[k] != before[k]} <= {".new.work/config.toml"}


def test_a_stopped_run_does_not_allow_another_to_replace_a_model(folder):
    train(folder, "new")
    before = content(folder / "new")
    with pytest.raises(
        InvalidInputError,
        match="new, a model; choose another",
    ):
        fit_files("rows.parquet", output="new", **OPTIONS)
    (folder / ".new.work").mkdir(mode=0o700)
    (folder / ".new.work" / "config.toml").write_text("seed = 7\n")
    with pytest.raises(InvalidInputError, match="a model; choose"):
        fit_files("rows.parquet", output="new", **OPTIONS)
    assert content(folder / "new") == before


def test_overwriting_keeps_files_of_the_user_and_no_old_results(folder):
    (folder / "model" / "mine.txt").write_text("mine")
    (folder / "model" / "evaluation-report.html").write_text("of the old model")
    (folder / "model" / "tuning.json").write_text("[]")
    old = content(folder / "model")
    fit_files("rows.parquet", output="model", overwrite=True, **{**OPTIONS, "seed": 5})
    new = content(folder / "model")
    assert new["mine.txt"] == b"mine"
    assert new["model.safetensors"] != old["model.safetensors"]
    assert set(old) - set(new) == {"evaluation-report.html", "tuning.json"}


# -------------------------------------------------------------------------- tuning, inspecting


def test_tuning(folder):
    trained = tune_files("rows.parquet", output="new", trials=2, at_once=1, **OPTIONS)
    assert len(trained.tuning.trials) == 2
    assert trained.to_dict()["best_params"] == trained.tuning.best_params
    listed = json.loads((folder / "new" / "tuning.json").read_text())
    assert [trial["number"] for trial in listed] == [0, 1]
    assert not (folder / ".new.work").exists()
    loaded = unbag.load_model("new")
    assert loaded.method == trained.tuning.best_params.get("method", "prop")
    assert listed[0]["params"] == {}
    assert "trials = 2" in (folder / "new" / "config.toml").read_text()


@pytest.mark.usefixtures("folder")
def test_a_stopped_search_keeps_its_trials(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(training, "judge", lambda *_, **__: (_ for _ in ()).throw(Stop()))
        with pytest.raises(Stop):
            tune_files("rows.parquet", output="new", trials=2, at_once=1, **OPTIONS)
    trained = tune_files("rows.parquet", output="new", trials=3, at_once=1, **OPTIONS)
    assert len(trained.tuning.trials) == 3
    scores = [trial["score"] for trial in trained.tuning.trials]
    fresh = tune_files("rows.parquet", output="other", trials=2, at_once=1, **OPTIONS)
    assert scores[:2] == [trial["score"] for trial in fresh.tuning.trials]


def test_trials_are_kept_beside_an_output_of_any_name(folder, monkeypatch):
    name = "what? 50%41 #1 {x}"
    with monkeypatch.context() as patched:
        patched.setattr(training, "judge", lambda *_, **__: (_ for _ in ()).throw(Stop()))
        with pytest.raises(Stop):
            tune_files("rows.parquet", output=name, trials=1, **OPTIONS)
    kept = [
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if "what" in p.name or p.suffix == ".db"
    ]
    assert sorted(kept) == [f".{name}.work", f".{name}.work/trials.db"]
    assert tune_files("rows.parquet", output=name, trials=1, **OPTIONS).folder.name == name


def test_the_address_of_a_storage_is_not_kept(folder):
    storage = "sqlite:///secret.db"
    tune_files(
        "rows.parquet", output="new", trials=1, storage=storage, scoring="likelihood", **OPTIONS
    )
    assert (folder / "secret.db").is_file()
    assert "secret" not in (folder / "new" / "config.toml").read_text()


@pytest.mark.usefixtures("folder")
def test_inspection_is_that_of_python():
    result = inspect_files("rows.parquet", bag="district", priors="shares.csv", leave_out=["age"])
    rows = read_rows("rows.parquet", bag="district", leave_out=["age"])
    priors = unbag.ClassPriors(SHARES, list(BAGS), ["yes", "no"])
    sizes = [int((rows.bag_ids == bag).sum()) for bag in BAGS]
    columns = rows.encoding.feature_columns
    direct = unbag.inspect(priors, sizes, X=rows.X, bag_ids=rows.bag_ids, columns=columns)
    assert str(result.inspection) == str(direct)
    assert "age" not in result.features
    json.dumps(result.to_dict(), allow_nan=False)


class TestColumnsThatTellTheBag:
    """A date where bags are days, or an id, is left out unless it is asked for."""

    @pytest.fixture
    def with_copy(self, folder):  # noqa: ARG002 - it moves to the folder
        frame = pd.read_parquet("rows.parquet")
        codes = {bag: i for i, bag in enumerate(BAGS)}
        noise = np.random.default_rng(0).uniform(0, 0.1, len(frame))
        frame["height"] = frame["district"].map(codes).to_numpy(float) + noise
        frame.to_parquet("copy.parquet")

    @pytest.mark.usefixtures("with_copy")
    def test_it_is_left_out_with_a_note_in_inspect_and_fit(self):
        inspected = inspect_files("copy.parquet", bag="district", priors="shares.csv", seed=3)
        assert "height" not in inspected.features
        assert inspected.inspection.bag_features == {}
        (note,) = [note for note in inspected.notes if "height" in note]
        assert "Column 'height' is left out: it tells which bag a row is in" in note
        assert "--keep" in note
        trained = fit_files("copy.parquet", output="left", **OPTIONS)
        assert note in trained.notes
        assert "height" not in trained.classifier.encoding_.columns
        report = json.loads((trained.folder / "report.json").read_text())
        assert "tells which bag" in report["data"]["left_out"]["height"]
        assert (
            report["answers"]["questions"][2]["answer"]
            == f"{trained.verdict.verdict.capitalize()}."
        )
        assert trained.to_dict()["model_verdict"]["verdict"] == trained.verdict.verdict

    @pytest.mark.usefixtures("with_copy")
    @pytest.mark.parametrize("how", ["keep", "columns"])
    def test_it_can_be_kept(self, how):
        options = {"keep": ["height"]} if how == "keep" else {"columns": ["age", "height"]}
        inspected = inspect_files("copy.parquet", bag="district", priors="shares.csv", **options)
        assert "height" in inspected.features
        assert list(inspected.inspection.bag_features) == ["height"]
        assert any("'height' tells which bag" in r for r in inspected.inspection.reasons)

    @pytest.mark.usefixtures("folder")
    def test_an_unknown_column_is_an_error(self):
        with pytest.raises(InvalidInputError, match="keep must be columns of the rows, got"):
            inspect_files("rows.parquet", bag="district", priors="shares.csv", keep=["heigth"])

"""What callbacks are told, and the loggers on top of them."""

import copy
import json
import pickle

import numpy as np
import pytest

import unbag
from unbag.callbacks import Callback, JsonLinesLogger, check_callbacks
from unbag.exceptions import CallbackError, InvalidInputError, MissingDependencyError
from unbag.methods import Job, fit_many

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3)).astype(np.float32)
BAGS = np.repeat(["a", "b"], 120)
THETA = {"a": [0.8, 0.2], "b": [0.3, 0.7]}


class Recorder(Callback):
    def __init__(self):
        self.told = []

    def _keep(self, told):
        self.told.append(told)

    on_epoch = on_stage = on_trial = on_end = _keep

    def of(self, kind):
        return [told for told in self.told if type(told).__name__ == kind]


def make(**options):
    settings = {"method": "u-prr", "epochs": 3, "width": 8, "random_state": 0, **options}
    return unbag.UnbagClassifier(THETA, **settings)


def test_a_fit():
    recorder = Recorder()
    clf = make(early_stopping=True, callbacks=[recorder]).fit(X, BAGS)
    assert (clf.predict_proba(X) == make(early_stopping=True).fit(X, BAGS).predict_proba(X)).all()
    kinds = [type(told).__name__ for told in recorder.told]
    assert kinds == ["Epoch"] * 3 + ["Stage", "End"]
    for i, told in enumerate(recorder.of("Epoch")):
        assert (told.job, told.stage, told.network) == (0, "training", 0)
        assert (told.epoch, told.epochs) == (i + 1, 3)
        for name in ("objective", "empirical_risk", "label_free_error"):
            assert told.values[name] == pytest.approx(clf.history_[name][i])
        assert "test_error" not in told.values
    (end,) = recorder.of("End")
    assert (end.method, end.stop_reason) == ("u-prr", clf.stop_reason_)
    assert end.settings["alpha"] == clf.settings_["alpha"]
    assert end.settings["learning_rate"] == clf.training_settings_["learning_rate"]
    assert end.values == {"n_epochs": 3.0}


def test_jobs_and_networks_have_numbers():
    bags = unbag.Bags(X, BAGS, unbag.ClassPriors.of(THETA))
    jobs = [
        Job(bags, "prop", epochs=2, model="linear"),
        Job(bags, "crossfit", epochs=2, model="linear"),
        Job(bags, "unbiased", epochs=1, model="linear"),
    ]
    recorder = Recorder()
    fits = fit_many(jobs, callbacks=[recorder])
    plain = fit_many(jobs)
    assert [fit.stop_reason for fit in fits] == [fit.stop_reason for fit in plain]
    epochs = recorder.of("Epoch")
    assert [told.epoch for told in epochs if told.job == 0] == [1, 2]
    assert [told.epoch for told in epochs if told.job == 2] == [1]
    start = {told.network for told in epochs if told.job == 1 and told.stage == "start"}
    assert len(start) > 1
    assert start == set(range(len(start)))
    assert sorted(told.job for told in recorder.of("End")) == [0, 1, 2]
    stages = [told.stage for told in recorder.of("Stage") if told.job == 1]
    assert "last network" in stages
    assert all(told.seconds >= 0 for told in recorder.of("Stage"))


def test_networks_that_end_early_are_told_of_no_more():
    recorder = Recorder()
    bags = unbag.Bags(X, BAGS, unbag.ClassPriors.of(THETA))
    jobs = [Job(bags, m, epochs=40, learning_rate=0.3) for m in ("u-stop", "unbiased")]
    fits = fit_many(jobs, callbacks=[recorder])
    assert fits[0].n_epochs < 40
    for job, fit in enumerate(fits):
        assert len([t for t in recorder.of("Epoch") if t.job == job]) == fit.n_epochs


def test_tasks_are_stages():
    recorder = Recorder()
    rows = np.repeat(X, 2, 0) + RNG.normal(size=(480, 3))
    method = unbag.methods.Tables(rounds=1, trees=3)
    make(method=method, epochs=None, callbacks=[recorder]).fit(rows, np.repeat(BAGS, 2))
    assert len({told.stage for told in recorder.of("Stage")}) > 1
    assert len(recorder.of("End")) == 1


def test_a_search():
    pytest.importorskip("optuna")
    recorder = Recorder()
    search = {"learning_rate": (1e-3, 1e-1, "log")}
    found = unbag.tune(X, BAGS, make(callbacks=[recorder]), search=search, n_trials=3, storage=None)
    trials = sorted(recorder.of("Trial"), key=lambda told: told.number)
    assert [told.number for told in trials] == [0, 1, 2]
    for told, trial in zip(trials, found.trials, strict=True):
        assert (told.params, told.state) == (trial["params"], trial["state"])
        assert told.score == trial["score"]
    end = recorder.of("End")[-1]
    assert end.method == "tune"
    assert end.settings == found.best_params
    assert end.values["accuracy"] == found.evaluation.accuracy


def test_an_error_names_the_callback():
    class Broken(Callback):
        def on_epoch(self, told):
            raise OSError(f"no space for epoch {told.epoch}")

    with pytest.raises(CallbackError, match=r"Broken\.on_epoch failed with OSError: no .*epoch 1"):
        make(callbacks=[Broken()]).fit(X, BAGS)


@pytest.mark.parametrize("wrong", [JsonLinesLogger("a"), [print], "log"])
def test_what_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="callbacks must be a sequence of"):
        make(callbacks=wrong).fit(X, BAGS)


def test_lines_of_json(tmp_path):
    file = tmp_path / "run.jsonl"
    clf = make(callbacks=[JsonLinesLogger(file)]).fit(X, BAGS)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["epoch"] * 3 + ["stage", "end"]
    assert lines[2]["values"]["objective"] == pytest.approx(clf.history_["objective"][2])
    assert lines[-1]["stop_reason"] == clf.stop_reason_
    assert all("time" in line for line in lines)


def test_loggers_are_copied_and_models_saved_without_them(tmp_path):
    loggers = [
        JsonLinesLogger(tmp_path / "a.jsonl"),
        unbag.callbacks.TensorBoardLogger(tmp_path),
        unbag.callbacks.MlflowLogger("census"),
    ]
    for logger in loggers:
        assert vars(pickle.loads(pickle.dumps(copy.deepcopy(logger)))) == vars(logger)
    clf = make(callbacks=loggers[:1]).fit(X, BAGS)
    assert unbag.load_model(clf.save(tmp_path / "model")).callbacks is None
    assert check_callbacks(None) == ()


@pytest.mark.parametrize("kind", ["mlflow", "tensorboard"])
def test_without_the_package(kind, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, kind, None)
    logger = {
        "mlflow": unbag.callbacks.MlflowLogger("census"),
        "tensorboard": unbag.callbacks.TensorBoardLogger(tmp_path),
    }[kind]
    with pytest.raises(CallbackError, match=rf"pip install 'unbag\[{kind}\]'") as error:
        make(callbacks=[logger]).fit(X, BAGS)
    assert isinstance(error.value.__cause__, MissingDependencyError)

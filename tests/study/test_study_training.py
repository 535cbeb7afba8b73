"""The study in small, from end to end: what is trained, what is not, and what a kill leaves."""

import os
from dataclasses import replace

import pytest
from tiny_study import install, made_choices, plain

from study import plan, training
from study.choices import Choices
from study.plan import METHODS, SETTINGS, STUDY, Spec, cell_runs, figure_runs
from study.records import Records
from study.training import quick_choices, run_study
from unbag.exceptions import InvalidInputError
from unbag.training.engine import Stack

PART = {
    "datasets": ["pendigits"],
    "settings": ["symmetric-0.5", "non-square"],
    "methods": ["prop", "u-stop", "u-prr"],
    "trials": 2,
    "device": "cpu",
}
pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def untrained(monkeypatch):
    monkeypatch.setattr(training, "fit_many", lambda *_, **__: pytest.fail("something was trained"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a part of the study, run without disturbance."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        install(patch.setattr, patch.setitem)
        report = run_study(folder, **PART)
    assert len(report.found) == 0
    assert len(report.trained) == len(report.records)
    return folder


def test_every_run_of_the_tables_has_a_record(whole):
    records, choices = Records(whole), Choices.load(whole, "pendigits")
    runs_here = cell_runs(choices, PART["settings"], PART["methods"], 2)
    best = cell_runs(choices, PART["settings"], ["u-prr"], 2, oracle=True)
    final = {r.run for r in records if not r.run.held_out}
    assert final == {*runs_here, *best}
    assert len(runs_here) == 12
    for record in records:
        assert 0 <= record.best_error <= record.error <= 1
        assert (record.label_free_error is None) != record.run.held_out
        assert bool(record.epochs) != record.run.held_out
        assert record.seconds > 0
        assert records.environments[record.environment]["precision"] == "float32"
    full = [r for r in records if not r.run.held_out and r.run.method != "u-stop"]
    assert {r.epochs for r in full} == {(1, 2, 3)}  # tested after every epoch


@pytest.mark.usefixtures("untrained")
def test_what_has_a_record_is_not_run_again(whole):
    report = run_study(whole, **PART)
    assert len(report.trained) == 0
    assert len(report.found) == sum(not record.run.held_out for record in report.records)


@pytest.mark.usefixtures("untrained")
def test_choices_are_made_again_from_the_records(whole, tmp_path):
    for file in whole.glob("*/*.jsonl"):
        target = tmp_path / file.relative_to(whole)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
    run_study(tmp_path, **PART)
    assert Choices.load(tmp_path, "pendigits") == Choices.load(whole, "pendigits")


def test_only_what_is_new_is_trained(whole, tmp_path):
    choices = Choices.load(whole, "pendigits")
    choices.save(tmp_path)
    few = {**PART, "settings": ["asymmetric"], "methods": ["prop"]}
    assert len(run_study(tmp_path, **few).trained) == 2
    report = run_study(tmp_path, **{**few, "methods": ["prop", "biased"], "trials": 3})
    assert (len(report.trained), len(report.found)) == (4, 2)
    assert len(report.records) == 6


class Killed(BaseException):
    pass


def killing(function, number):
    """Wrap a function such that its call of this number ends everything."""
    left = iter(range(number - 1))

    def wrapped(*arguments):
        if next(left, None) is None:
            raise Killed
        return function(*arguments)

    return wrapped


def test_a_run_that_is_killed_goes_on_and_ends_with_the_same_records(whole, tmp_path, monkeypatch):
    counts = []
    # While the first records are written, in the middle of training, while the third file is
    # written, and in the middle of what is left.
    for where, name, number in (
        (os, "fsync", 1),
        (Stack, "run_epoch", 5),
        (os, "fsync", 3),
        (Stack, "run_epoch", 4),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, killing(getattr(where, name), number))
            with pytest.raises(Killed):
                run_study(tmp_path, **PART)
        counts.append(len(Records(tmp_path)))
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert 0 < counts[1] < counts[-1] < len(Records(whole))
    report = run_study(tmp_path, **PART)
    assert len(report.trained) == len(Records(whole)) - counts[-1]
    assert plain(Records(tmp_path)) == plain(Records(whole))
    assert Choices.load(tmp_path, "pendigits") == Choices.load(whole, "pendigits")


def test_a_stop_by_the_keyboard_keeps_what_is_done(whole, tmp_path, monkeypatch):
    add, calls = Records.add, []

    def stop_after_two(self, *arguments):
        add(self, *arguments)
        calls.append(self)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Records, "add", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            run_study(tmp_path, **PART)
    kept = len(Records(tmp_path))
    assert kept > 0
    report = run_study(tmp_path, **PART)
    assert len(report.trained) == len(report.records) - kept
    assert plain(report.records) == plain(Records(whole))


def test_the_figures_have_their_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "SHARES", (0.5, 1.0))
    choices = replace(made_choices("mnist"), batch_divisor=4)
    choices.save(tmp_path)
    report = run_study(
        tmp_path,
        datasets=["mnist"],
        settings=["asymmetric"],
        methods=["unbiased"],
        trials=1,
        figures=True,
        device="cpu",
    )
    wanted = set(figure_runs(choices, 1))
    assert wanted <= {r.run for r in report.records}
    # Five rates of dropout and seven of decay share one, which is a cell as well; four settings
    # with four noises; two shares of rows for two methods, one of which is among the noises.
    assert len(wanted) == 11 + 16 + 4 - 1
    assert len(report.trained) == len(wanted)


def test_quick_runs_choose_nothing(tmp_path):
    arguments = {**PART, "methods": ["prop", "u-prr"], "trials": 1}
    report = run_study(tmp_path, quick=True, **arguments)
    assert len(report.trained) == 4
    assert Choices.load(tmp_path, "pendigits") == quick_choices("pendigits")
    for record in report.records:
        assert record.run.epochs == record.n_epochs == 50
        assert record.epochs[0] == 5  # not tested every epoch
        assert record.run.hyperparameters == {}
    again = run_study(tmp_path, quick=True, **arguments)
    assert (len(again.trained), len(again.found)) == (0, 4)


@pytest.mark.usefixtures("untrained")
class TestFolders:
    def test_quick_runs_stay_out_of_a_folder_of_the_study(self, whole):
        before = {file: file.read_bytes() for file in whole.glob("*/*")}
        for arguments in (PART, {**PART, "datasets": ["usps"]}):
            with pytest.raises(InvalidInputError, match="must be a folder of quick runs, got"):
                run_study(whole, quick=True, **arguments)
        assert {file: file.read_bytes() for file in whole.glob("*/*")} == before

    def test_quick_choices_are_not_taken_for_choices(self, tmp_path):
        quick_choices("pendigits").save(tmp_path)
        with pytest.raises(InvalidInputError, match=r"folder of the full study.*name another"):
            run_study(tmp_path, **PART)


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": []}, "datasets must be some of pendigits, usps, .*, got none"),
        ({"datasets": ["svhn"]}, "datasets must be one of 'pendigits'.*got 'svhn'"),
        ({"settings": ["symmetric"]}, "settings must be one of 'symmetric-0.5'"),
        ({"methods": ["best"]}, "methods must be one of 'biased'"),
        ({"trials": 0}, "trials must be a whole number of at least 1, got 0"),
        ({"device": "gpu"}, "device must be 'auto', 'cpu'"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_done(tmp_path, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        run_study(tmp_path / "new", **{**PART, **changes})
    assert not (tmp_path / "new").exists()


def test_cells_of_a_dataset():
    runs = cell_runs(made_choices())
    assert len(runs) == len(set(runs)) == len(SETTINGS) * len(METHODS) * 5
    best = cell_runs(made_choices(), oracle=True)
    assert {run.method for run in best} == {"u-flood", "u-prr"}
    assert not set(best) & set(runs)


def test_a_dataset_without_a_grid_chooses_its_learning_rate_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDY, "cifar10", Spec("mlp", {"depth": 2, "width": 8}, 3, has_grid=False))
    part = {"datasets": ["cifar10"], "settings": ["asymmetric"], "methods": ["u-flood", "u-prr"]}
    report = run_study(tmp_path, **part, trials=1, device="cpu")
    runs = [record.run for record in report.records]
    # Two learning rates in one setting to choose, then the two cells.
    assert sorted((run.setting, run.held_out) for run in runs) == [
        *[("asymmetric", False)] * 2,
        *[("symmetric-0.5", True)] * 2,
    ]
    assert {(run.epochs, run.batch_divisor) for run in runs} == {(3, 4)}
    assert len(run_study(tmp_path, **part, trials=1, device="cpu").trained) == 0


def test_one_training_serves_unbiased_and_u_stop(tmp_path, monkeypatch):
    spec = Spec("mlp", {"depth": 2, "width": 32}, 60)
    monkeypatch.setitem(STUDY, "pendigits", spec)
    part = {"datasets": ["pendigits"], "settings": ["asymmetric"], "trials": 2, "device": "cpu"}
    choices = replace(made_choices(), learning_rate=1e-2, batch_divisor=4)
    for name in ("alone", "both"):
        choices.save(tmp_path / name)
    run_study(tmp_path / "alone", **part, methods=["u-stop"])
    jobs = []
    fit_many = training.fit_many
    monkeypatch.setattr(
        training, "fit_many", lambda given, **rest: jobs.extend(given) or fit_many(given, **rest)
    )
    report = run_study(tmp_path / "both", **part, methods=["unbiased", "u-stop"])
    assert [job.method.name for job in jobs] == ["unbiased"] * 2
    assert len(report.trained) == 4
    both = {r.run: r for r in report.records}
    for record in Records(tmp_path / "alone"):
        other = both[record.run]
        assert 1 < record.n_epochs < 60
        assert replace(other, seconds=0.0) == replace(record, seconds=0.0)
        whole = both[replace(record.run, method="unbiased")]
        assert whole.n_epochs == 60
        assert whole.seconds > other.seconds == 0
    assert len(run_study(tmp_path / "both", **part, methods=["unbiased", "u-stop"]).trained) == 0

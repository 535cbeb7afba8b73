import json

import numpy as np
import pytest
from tiny_study import HERE, made_choices, made_record

from study.plan import Run
from study.records import Record, Records, key_of, thinned
from unbag.exceptions import InvalidInputError
from unbag.files import write_whole
from unbag.methods import Fit

RUN = made_choices().run("asymmetric", "u-prr", 0)
CHOOSING = Run.from_dict({**RUN.to_dict(), "held_out": True})


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    "record",
    [
        made_record(RUN, 5.0, drop=1.0),
        made_record(RUN, 0.0, seconds=0.0, n_epochs=0),
        made_record(CHOOSING, 5.0, label_free_error=0.0),
        made_record(CHOOSING, 5.0, label_free_error=-0.02),
        made_record(RUN, 90.0, diverged=True),
        made_record(RUN, 5.0, epochs=(1, 2), errors=(0.0, 0.05), risks=(None, -0.5)),
    ],
)
def test_every_field_survives(tmp_path, record):
    assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    Records(tmp_path).add([record], HERE)
    again = Records(tmp_path)
    assert again[record.run] == record
    assert list(again) == [record]
    assert again.environments == {key_of(HERE): HERE}


def test_runs_that_choose_lie_in_a_file_of_their_own(tmp_path):
    records = Records(tmp_path / "new")
    assert len(records) == 0
    assert RUN not in records
    records.add([made_record(RUN, 5.0), made_record(CHOOSING, 6.0, label_free_error=0.1)], HERE)
    files = sorted(p.relative_to(tmp_path / "new").as_posix() for p in tmp_path.glob("new/*/*"))
    assert files == ["pendigits/runs.jsonl", "pendigits/selection.jsonl"]
    assert [RUN in records, CHOOSING in records, len(records)] == [True, True, 2]


def test_environments_of_two_days_are_kept_apart(tmp_path):
    other = {**HERE, "hardware": "another machine", "date": "2026-01-03"}
    second = made_choices().run("asymmetric", "u-prr", 1)
    Records(tmp_path).add([made_record(RUN, 5.0)], HERE)
    Records(tmp_path).add([made_record(second, 6.0, environment=key_of(other))], other)
    again = Records(tmp_path)
    assert [again.environments[r.environment]["hardware"] for r in again] == [
        "a test",
        "another machine",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:-1], lines[-1][: len(lines[-1]) // 2]],
        lambda lines: [*lines[:-1], "[1, 2]"],
        lambda lines: [*lines[:-1], "3"],
        lambda lines: [*lines[:-1], '{"error": 0.5}'],
        lambda lines: [*lines[:-1], lines[-1].replace('"trial"', '"trail"')],
        lambda lines: [*lines[:-1], lines[-1].replace('"seconds"', '"minutes"')],
    ],
    ids=["cut off", "a list", "a number", "no run", "wrong run", "wrong field"],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path, damage):
    Records(tmp_path).add([made_record(RUN, 5.0)], HERE)
    path = tmp_path / "pendigits/runs.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    path.write_text("\n".join(damage(lines)))
    with pytest.raises(InvalidInputError, match=r"runs\.jsonl must be .* line 2: .*delete it"):
        Records(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"results must be a folder, got .* is a file"):
        Records(tmp_path / "file")


@pytest.mark.parametrize("moment", ["os.fsync", "pathlib.Path.replace"])
def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch, moment):
    records = Records(tmp_path)
    records.add([made_record(RUN, 5.0)], HERE)
    second = made_choices().run("asymmetric", "u-prr", 1)

    def crash(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(moment, crash)
        with pytest.raises(Killed):
            records.add([made_record(second, 6.0)], HERE)
    again = Records(tmp_path)
    assert [r.run for r in again] == [RUN]
    again.add([made_record(second, 6.0)], HERE)
    assert [r.run for r in Records(tmp_path)] == [RUN, second]


def test_write_whole_makes_folders_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a/b/file.txt"
    write_whole(path, "1")
    write_whole(path, "α")
    assert path.read_text(encoding="utf-8") == "α"
    assert list(path.parent.iterdir()) == [path]


def make_fit(errors, diverged=False, **history):
    n = len(errors)
    filled = {
        "epoch": np.arange(1, n + 1.0),
        "empirical_risk": np.linspace(2, -1, n),
        "test_error": np.array(errors),
    }
    return Fit(None, {**filled, **history}, n, "it ended", diverged, seconds=1.23456)


def test_the_record_of_a_fit():
    record = Record.of(RUN, make_fit([0.5, 0.1, 0.2]), "key")
    assert (record.error, record.best_error, record.n_epochs) == (0.2, 0.1, 3)
    assert record.epochs == (1, 2, 3)
    assert record.errors == (0.5, 0.1, 0.2)
    assert record.risks == (2.0, 0.5, -1.0)
    assert (record.label_free_error, record.seconds) == (None, 1.235)


def test_epochs_without_a_test_are_left_out():
    record = Record.of(RUN, make_fit([np.nan, 0.1, np.nan, 0.3]), "key")
    assert (record.error, record.best_error) == (0.3, 0.1)
    assert (record.epochs, record.errors) == ((2, 4), (0.1, 0.3))


def test_runs_that_choose_keep_no_curve():
    free = np.array([np.nan, np.nan, -0.01])
    fit = make_fit([np.nan, np.nan, 0.2], label_free_error=free)
    record = Record.of(CHOOSING, fit, "key")
    assert (record.label_free_error, record.epochs, record.risks) == (-0.01, (), ())


def test_a_run_that_failed_before_its_first_test_is_wrong_everywhere(tmp_path):
    nothing = np.full(2, np.nan)
    fit = make_fit(nothing, diverged=True, label_free_error=nothing)
    record = Record.of(CHOOSING, fit, key_of(HERE))
    assert (record.error, record.best_error, record.label_free_error) == (1.0, 1.0, None)
    assert record.diverged
    Records(tmp_path).add([record], HERE)
    assert list(Records(tmp_path)) == [record]


def test_a_run_that_failed_counts_with_its_last_test():
    record = Record.of(RUN, make_fit([0.5, 0.4, np.nan], diverged=True), "key")
    assert (record.error, record.best_error) == (0.4, 0.4)


@pytest.mark.parametrize("n", [1, 2, 30, 200, 500])
def test_thinned_epochs_rise_to_the_last(n):
    epochs = thinned(n)
    assert epochs[0] == 1
    assert epochs[-1] == n
    assert (np.diff(epochs) > 0).all()
    assert len(epochs) <= 60

"""Methods of our own in the study: their jobs, their records, their tables."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_study import HERE, made_choices, made_record, plain, write_cells

from unbag.bench import Records, Results, run_study, running
from unbag.bench.cells import Published, differs, published
from unbag.bench.ours import ablations, noise, ours
from unbag.bench.running import ABLATIONS, ablation_runs, noise_runs
from unbag.bench.study import OURS, SETTINGS, STUDY, Data, Run, our_run
from unbag.bench.tables import write_tables
from unbag.exceptions import InvalidInputError
from unbag.methods.crossfit import CrossFit
from unbag.methods.jobs import prepare

pytestmark = pytest.mark.usefixtures("small")
PART = {"datasets": ["pendigits"], "settings": ["symmetric-0.5"], "device": "cpu", "trials": 1}


def test_the_labels_are_those_of_the_same_rows():
    data = Data("pendigits")
    run = our_run("pendigits", "asymmetric", "supervised", 3)
    bags = data.job(our_run("pendigits", "asymmetric", "crossfit", 3)).bags
    job = data.job(run)
    np.testing.assert_array_equal(job.bags.X, bags.X)
    np.testing.assert_array_equal(job.bags.bag_index, bags.labels)
    assert (job.bags.priors.values == np.eye(10)).all()
    plain = {"rounds": 0, "augment": "none"}
    assert (job.method, job.hyperparameters, job.seed) == ("crossfit", plain, 3)
    augmented = data.job(our_run("pendigits", "asymmetric", "supervised-augmented", 3))
    assert augmented.hyperparameters == {"rounds": 0, "augment": "weak"}
    assert data.job(our_run("pendigits", "asymmetric", "consistency", 3)).epochs is None
    assert job.epochs is None


def test_with_labels_mlps_on_images_are_smoothed_as_crossfit_is(monkeypatch):
    def options(model, method="supervised"):
        monkeypatch.setitem(STUDY, "usps", replace(STUDY["usps"], model=model))
        data = Data("usps")
        rows = data.rows
        images = [x.reshape(len(x), 2, -1) for x in (rows.X_train, rows.X_test)]
        data.__dict__["rows"] = replace(rows, X_train=images[0], X_test=images[1])
        return data.job(our_run("usps", "asymmetric", method, 3)).hyperparameters

    assert options("mlp") == {"rounds": 0, "augment": "none", "smoothing": 0.2}
    assert options("resnet20") == {"rounds": 0, "augment": "none"}
    assert options("mlp", "crossfit") == {"augment": "none"}


def test_epochs_are_many_where_the_default_is_few_and_where_rows_are_augmented():
    for dataset, own in (("usps", None), ("mnist", 40), ("cifar10", None)):
        runs = [our_run(dataset, "asymmetric", method, 0) for method in OURS]
        assert [run.epochs for run in runs] == [own, 60, None, own, 60]


def test_options_reach_the_job_and_the_record(tmp_path):
    run = our_run("usps", "asymmetric", "crossfit", 0, rounds=1, folds=2)
    job = Data("usps").job(run)
    assert job.hyperparameters == {"augment": "none", "rounds": 1, "folds": 2}
    Records(tmp_path).add([made_record(run, 3.0, stop_reason="1 round")], HERE)
    (record,) = Records(tmp_path)
    assert (record.run, record.stop_reason) == (run, "1 round")
    assert Run.from_dict(run.to_dict()) == run
    assert our_run("usps", "asymmetric", "crossfit", 0) != run


def test_they_are_trained_once_and_need_no_choices(tmp_path):
    report = run_study(tmp_path, **PART, methods=["crossfit", "supervised"])
    assert (report.trained, report.found) == (2, 0)
    assert not (tmp_path / "pendigits" / "choices.json").exists()
    errors = {r.run.method: r.error for r in Records(tmp_path)}
    assert errors["supervised"] < 0.5
    reasons = {r.run.method: r.stop_reason for r in Records(tmp_path)}
    assert "after a start by matched-likelihood" in reasons["crossfit"]
    assert "supervised learning" in reasons["supervised"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "fit_many", lambda *_, **__: pytest.fail("trained again"))
        again = run_study(tmp_path, **PART, methods=["crossfit", "supervised"])
    assert (again.trained, again.found) == (0, 2)
    assert plain(again.records) == plain(report.records)


def test_quick_runs_have_none(tmp_path):
    with pytest.raises(InvalidInputError, match=r"methods must be some of .* in quick runs"):
        run_study(tmp_path, **PART, methods=["crossfit"], quick=True)
    with pytest.raises(InvalidInputError, match="ablations must be False in quick runs"):
        run_study(tmp_path, **PART, ablations=True, quick=True)


def test_a_difference_that_chance_explains_is_not_significant():
    paper = Published(10.0, 1.0, 0.0, 0.0, True)
    assert differs([7.0, 7.5, 8.0, 7.2, 7.6], paper)
    assert differs([12.0, 12.1, 12.3, 12.2, 12.0], paper)
    assert not differs([9.0, 11.0, 8.0, 10.5, 9.5], paper)
    assert not differs([2.0], paper)


def test_the_table(tmp_path):
    choices = made_choices("mnist")
    write_cells(tmp_path, {("symmetric-0.5", "u-prr"): [3.0, 3.2, 3.1]}, choices)
    trials = {"crossfit": [1.8, 1.9, 2.0, 1.8, 1.9], "supervised": [1.5, 1.5, 1.5, 1.5, 1.5]}
    Records(tmp_path).add(
        [
            made_record(our_run("mnist", "symmetric-0.5", method, trial), error)
            for method, errors in trials.items()
            for trial, error in enumerate(errors)
        ],
        HERE,
    )
    text, table, distances = ours(Results(tmp_path))
    assert published()["mnist", "symmetric-0.5", "u-prr"].error_mean == 2.99
    (row,) = table.rows
    assert row[:3] == ("MNIST", "symmetric-0.5", "2.99 (0.10)")
    assert row[3:] == ("3.10 (0.10)", "**1.88 (0.08)**", "—", "—", "1.50 (0.00)", "—")
    assert "below it in 1 of 1 cells, significantly in 1" in text
    assert "paper's `u-prr` 1.49, our `u-prr` 1.60, the best recipe 0.38" in distances
    assert "Methods of our own" in write_tables(Results(tmp_path), "md")


def test_nothing_is_there_yet(tmp_path):
    write_cells(tmp_path, {("asymmetric", "u-prr"): [3.0]})
    assert ours(Results(tmp_path)) == ["None are made yet."]


def test_every_ablation_is_a_job_of_its_own():
    runs = ablation_runs(STUDY)
    assert len(set(runs)) == len(runs) == sum(len(changes) + 1 for changes in ABLATIONS.values())
    for run in runs:  # hyperparameters are checked
        job = Data(run.dataset).job(run)
        if job.method == "crossfit":
            CrossFit(job, "float32")
        else:
            prepare(job, "float32")
    assert ablation_runs(["usps"]) == []


def test_ablations_and_noise_are_run_and_shown(tmp_path, monkeypatch):
    few = {("mnist", "symmetric-0.5", "crossfit"): (("no mixup", {"mixup": False}),)}
    monkeypatch.setattr(running, "ABLATIONS", few)
    monkeypatch.setattr(running, "NOISE_RATES", (0.0, 0.05))
    part = {**PART, "datasets": ["mnist", "usps"], "methods": ["crossfit"]}
    report = run_study(tmp_path, **part, ablations=True)
    # Two cells, one change, and noise in four settings of which one without noise is a cell.
    assert report.trained == 2 + 1 + 2 * len(SETTINGS) - 1
    assert run_study(tmp_path, **part, ablations=True).trained == 0
    (changed,) = [r for r in report.records if r.run.options]
    whole = report.records[our_run("mnist", "symmetric-0.5", "crossfit", 0)]
    (table,) = ablations(Results(tmp_path))
    difference = f"{100 * (changed.error - whole.error):+.2f}"
    assert [row[3:] for row in table.rows] == [
        ("no mixup", f"{100 * whole.error:.2f}", f"{100 * changed.error:.2f}", difference)
    ]
    (table,) = noise(Results(tmp_path))
    assert [row[:2] for row in table.rows] == [(setting, "crossfit") for setting in SETTINGS]
    first = table.rows[0]
    assert first[2] == f"{100 * whole.error:.2f}"
    assert first[3:5] == ("—", "—")  # rates that were not run here
    assert first[5] != "—"


def test_noise_beside_that_of_the_paper(tmp_path):
    choices = made_choices("mnist")
    choices.save(tmp_path)
    own = noise_runs(2)
    theirs = [
        replace(choices.run(r.setting, "u-prr", r.trial), prior_noise=r.prior_noise) for r in own
    ]
    records = [made_record(r, 3.0 + r.trial) for r in own]
    Records(tmp_path).add([*records, *(made_record(r, 5.0 + r.trial) for r in theirs)], HERE)
    (table,) = noise(Results(tmp_path))
    assert table.rows[:2] == (
        ("symmetric-0.5", "u-prr", *["5.50 (0.71)"] * 4),
        ("symmetric-0.5", "crossfit", *["3.50 (0.71)"] * 4),
    )


def test_neither_is_there_yet(tmp_path):
    write_cells(tmp_path, {("asymmetric", "u-prr"): [3.0]})
    for block in (ablations, noise):
        assert block(Results(tmp_path)) == ["None are made yet."]

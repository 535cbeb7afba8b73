"""Methods of our own in the study: their jobs, their records, their tables."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_study import HERE, made_choices, made_record, plain, rows_of, write_cells

from study import plan
from study.data import SMOOTHING, Data
from study.ours import ablations, noise, ours
from study.plan import ABLATIONS, OURS, SETTINGS, STUDY, Run, ablation_runs, noise_runs, our_run
from study.records import Records
from study.results import Results, differs, published
from study.tables import write_tables
from study.training import run_study
from unbag.exceptions import InvalidInputError
from unbag.methods import Consistency, CrossFit, check_job
from unbag.methods.smoothing import USUAL_SHARE

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
    assert (job.method, job.seed) == (CrossFit(rounds=0, augment="none"), 3)
    mixed = data.job(our_run("pendigits", "asymmetric", "supervised-mixup", 3))
    assert mixed.method == CrossFit(rounds=0, augment="none", mixup=True)
    np.testing.assert_array_equal(mixed.bags.bag_index, bags.labels)
    augmented = data.job(our_run("pendigits", "asymmetric", "supervised-augmented", 3))
    assert augmented.method == CrossFit(rounds=0, augment="weak")
    assert data.job(our_run("pendigits", "asymmetric", "consistency", 3)).epochs is None
    assert job.epochs is None


def test_with_labels_mlps_on_images_are_smoothed_as_crossfit_is(monkeypatch):
    def options(model, method="supervised"):
        monkeypatch.setitem(STUDY, "usps", replace(STUDY["usps"], model=model))
        data = Data("usps")
        rows = data.rows
        images = [x.reshape(len(x), 2, -1) for x in (rows.X_train, rows.X_test)]
        data.__dict__["rows"] = replace(rows, X_train=images[0], X_test=images[1])
        return data.job(our_run("usps", "asymmetric", method, 3)).method

    labels = CrossFit(rounds=0, augment="none")
    assert options("mlp") == replace(labels, adversarial_smoothing=SMOOTHING)
    assert options("resnet20") == labels
    assert options("mlp", "crossfit") == CrossFit(augment="none")
    assert SMOOTHING == USUAL_SHARE


def test_epochs_are_many_where_the_default_is_few_and_where_rows_are_augmented():
    for dataset, own in (("usps", None), ("mnist", 40), ("cifar10", None)):
        runs = [our_run(dataset, "asymmetric", method, 0) for method in OURS]
        assert [run.epochs for run in runs] == [own, own, 60, None, own, own, 60]


def test_options_reach_the_job_and_the_record(tmp_path):
    run = our_run("usps", "asymmetric", "crossfit", 0, rounds=1, folds=2)
    job = Data("usps").job(run)
    assert job.method == CrossFit(augment="none", rounds=1, folds=2)
    Records(tmp_path).add([made_record(run, 3.0, stop_reason="1 round")], HERE)
    (record,) = Records(tmp_path)
    assert (record.run, record.stop_reason) == (run, "1 round")
    assert Run.from_dict(run.to_dict()) == run
    assert our_run("usps", "asymmetric", "crossfit", 0) != run


def test_they_are_trained_once_and_need_no_choices(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_OUR_EPOCHS", {"pendigits": 2})
    monkeypatch.setitem(OURS, "crossfit", ("crossfit", {"rounds": 1, "folds": 2}))
    study = run_study(tmp_path, **PART, methods=["crossfit", "supervised"])
    assert (len(study.trained), len(study.found)) == (2, 0)
    assert not (tmp_path / "pendigits" / "choices.json").exists()
    reasons = {r.run.method: r.stop_reason for r in Records(tmp_path)}
    assert "cross-fitting (1 round)" in reasons["crossfit"]
    assert "cross-fitting" not in reasons["supervised"]
    monkeypatch.setattr("study.training.fit_many", lambda *_, **__: pytest.fail("trained again"))
    again = run_study(tmp_path, **PART, methods=["crossfit", "supervised"])
    assert (len(again.trained), len(again.found)) == (0, 2)
    assert plain(again.records) == plain(study.records)


def test_quick_runs_have_none(tmp_path):
    with pytest.raises(InvalidInputError, match=r"methods must be some of .* in quick runs"):
        run_study(tmp_path, **PART, methods=["crossfit"], quick=True)
    with pytest.raises(InvalidInputError, match="ablations must be False in quick runs"):
        run_study(tmp_path, **PART, ablations=True, quick=True)


def test_a_difference_that_chance_explains_is_not_significant():
    def from_ten(errors):  # published: 10 with a deviation of 1 in five trials
        return differs(np.mean(errors), np.std(errors, ddof=1), len(errors), 10.0, 1.0)

    assert from_ten([7.0, 7.5, 8.0, 7.2, 7.6])
    assert from_ten([12.0, 12.1, 12.3, 12.2, 12.0])
    assert not from_ten([9.0, 11.0, 8.0, 10.5, 9.5])
    assert not differs(2.0, np.nan, 1, 10.0, 1.0)


def test_the_limit_is_that_of_welch():
    """Deviations of 1.5 and 0.5, five trials each: t has 4.878 degrees of freedom, not 8."""
    variances = np.array([1.5, 0.5]) ** 2 / 5
    assert variances.sum() ** 2 / (variances**2 / 4).sum() == pytest.approx(4.878, abs=1e-3)
    limit = 2.5899 * np.sqrt(variances.sum())
    assert not differs(10 + 0.999 * limit, 1.5, 5, 10.0, 0.5)
    assert differs(10 + 1.001 * limit, 1.5, 5, 10.0, 0.5)


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
    assert published().loc[("mnist", "symmetric-0.5", "u-prr"), "error_mean"] == 2.99
    (row,) = rows_of(table)
    assert row[:3] == ("MNIST", "symmetric-0.5", "2.99 (0.10)")
    assert row[3:] == ("3.10 (0.10)", "**1.88 (0.08)**", *"———", "1.50 (0.00)", *"——")
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
        _, method = check_job(Data(run.dataset).job(run))
        assert isinstance(method, Consistency if run.method == "consistency" else CrossFit)
    assert ablation_runs(["usps"]) == []


@pytest.mark.usefixtures("canned")
def test_ablations_and_noise_are_run_and_shown(tmp_path, monkeypatch):
    few = {("mnist", "symmetric-0.5", "crossfit-mixup"): (("no mixup", {"mixup": False}),)}
    monkeypatch.setattr(plan, "ABLATIONS", few)
    monkeypatch.setattr(plan, "NOISE_RATES", (0.0, 0.05))
    part = {**PART, "datasets": ["mnist", "usps"], "methods": ["crossfit-mixup"]}
    report = run_study(tmp_path, **part, ablations=True)
    # Two cells, one change, and noise in four settings of which one without noise is a cell.
    assert len(report.trained) == 2 + 1 + 2 * len(SETTINGS) - 1
    assert not run_study(tmp_path, **part, ablations=True).trained
    (changed,) = [r for r in report.records if r.run.options]
    whole = report.records[our_run("mnist", "symmetric-0.5", "crossfit-mixup", 0)]
    _, table = ablations(Results(tmp_path))
    difference = f"{100 * (changed.error - whole.error):+.2f}"
    cell = f"{100 * changed.error:.2f} ({difference})"
    assert list(rows_of(table)) == [("crossfit-mixup", "no mixup", cell)]
    monkeypatch.setattr(plan, "NOISE_RATES", (0.0, 0.01, 0.03, 0.05))
    (table,) = noise(Results(tmp_path))
    expected = [(setting, "crossfit-mixup") for setting in SETTINGS]
    assert [row[:2] for row in rows_of(table)] == expected
    first = rows_of(table)[0]
    assert first[2] == f"{100 * whole.error:.2f}"
    assert first[3:5] == ("—", "—")  # rates that were not run here
    assert first[5] != "—"


def test_noise_beside_that_of_the_paper(tmp_path):
    choices = made_choices("mnist")
    choices.save(tmp_path)
    runs_here = noise_runs(2)
    theirs = [
        replace(choices.run(r.setting, "u-prr", r.trial), prior_noise=r.prior_noise)
        for r in runs_here
    ]
    records = [made_record(r, 3.0 + r.trial) for r in runs_here]
    Records(tmp_path).add([*records, *(made_record(r, 5.0 + r.trial) for r in theirs)], HERE)
    (table,) = noise(Results(tmp_path))
    assert rows_of(table)[:2] == [
        ("symmetric-0.5", "u-prr", *["5.50 (0.71)"] * 4),
        ("symmetric-0.5", "crossfit-mixup", *["3.50 (0.71)"] * 4),
    ]


def test_neither_is_there_yet(tmp_path):
    write_cells(tmp_path, {("asymmetric", "u-prr"): [3.0]})
    for block in (ablations, noise):
        assert block(Results(tmp_path)) == ["None are made yet."]


def test_the_best_recipe_is_with_augmentation_and_labels_are_the_better_of_two(tmp_path):
    choices = made_choices("mnist")
    write_cells(tmp_path, {("symmetric-0.5", "u-prr"): [3.0, 3.2]}, choices)
    errors = {"consistency": 5.0, "crossfit": 1.0, "supervised": 1.5, "supervised-augmented": 0.5}
    runs = {m: our_run("mnist", "symmetric-0.5", m, 0) for m in errors}
    Records(tmp_path).add([made_record(runs[m], error) for m, error in errors.items()], HERE)
    text, _, distances = ours(Results(tmp_path))
    assert "below it in 0 of 1 cells" in text  # consistency, though crossfit has less
    assert "our `u-prr` 2.60, the best recipe 4.50" in distances


def test_errors_clearly_above_the_published_ones_are_not_bold(tmp_path):
    write_cells(tmp_path, {("symmetric-0.5", "u-prr"): [3.0, 3.2]}, made_choices("mnist"))
    runs = [our_run("mnist", "symmetric-0.5", "crossfit", trial) for trial in range(5)]
    Records(tmp_path).add([made_record(run, 50.0 + run.trial) for run in runs], HERE)
    text, table = ours(Results(tmp_path))
    assert rows_of(table)[0][4] == "52.00 (1.58)"
    assert "significantly in 0" in text

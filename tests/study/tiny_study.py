"""The study in small: rows that are made up, tiny networks, few epochs, short grids."""

import zlib
from dataclasses import replace

import numpy as np

from study import data, plan, training
from study.choices import Choices
from study.plan import ALPHAS, ASCENT_SCALES, SETTINGS, STUDY, Spec
from study.records import Record, Records, key_of, thinned
from unbag.datasets import Dataset
from unbag.methods import Fit

K, FEATURES = 10, 6
HERE = {
    "hardware": "a test",
    "precision": "float32",
    "date": "2026-01-02",
    "versions": {"python": "3.12", "torch": "2.0"},
}


def tiny_rows(name):
    """Ten clouds of points, 24 rows each to train on."""
    rng = np.random.default_rng(len(name))
    centres = 2 * rng.normal(size=(K, FEATURES))

    def draw(n):
        y = np.arange(n * K) % K
        return (centres[y] + rng.normal(size=(n * K, FEATURES))).astype(np.float32), y

    return Dataset(name, *draw(24), *draw(6))


CHANGES = [
    (data, "load", tiny_rows),
    (plan, "BATCH_DIVISORS", (4, 8)),
    (plan, "LEARNING_RATES", (1e-3, 1e-2)),
    (plan, "ALPHAS", (0.5, 0.7)),
    (plan, "ASCENT_SCALES", (2.0, 5.0)),
    (plan, "FLOOD_LEVELS", (0.0, 0.1)),
    (training, "_QUICK_DIVISOR", 4),
]


def install(set_attribute, set_item):
    """Put the small study in the place of the large one."""
    for where, name, value in CHANGES:
        set_attribute(where, name, value)
    for name in STUDY:
        set_item(STUDY, name, Spec("mlp", {"depth": 2, "width": 8}, 3))


def plain(records):
    """Records by run without what differs between two runs of the same program."""
    return {r.run: replace(r, seconds=0.0, environment="") for r in records}


def rows_of(table):
    """List the rows of a table as tuples."""
    return [tuple(row) for row in table.to_numpy().tolist()]


def made_choices(dataset="pendigits", **changes):
    settings = {"u-flood": {"flood_level": 0.05}, "u-prr": {"alpha": 0.7, "ascent_scale": 5.0}}
    best = {"u-flood": {"flood_level": 0.0}, "u-prr": {"alpha": 0.5, "ascent_scale": 2.0}}
    values = {
        "dataset": dataset,
        "learning_rate": 1e-3,
        "batch_divisor": 20,
        "label_free": dict.fromkeys(SETTINGS, settings),
        "by_test_error": dict.fromkeys(SETTINGS, best),
    }
    return Choices(**{**values, **changes})


def made_record(run, error, *, drop=0.0, **values):
    """The record of a run that was never trained; error and drop in percent."""
    defaults = {
        "environment": key_of(HERE),
        "error": round(error / 100, 6),
        "best_error": round((error - drop) / 100, 6),
        "n_epochs": run.epochs or 100,
        "seconds": 0.5,
    }
    return Record(run, **{**defaults, **values})


def write_cells(folder, errors, choices=None):
    """Write records of cells: errors in percent by (setting, method), one per trial."""
    choices = choices or made_choices()
    choices.save(folder)
    records = [
        made_record(choices.run(setting, method, trial), error, drop=trial)
        for (setting, method), trials in errors.items()
        for trial, error in (trials.items() if isinstance(trials, dict) else enumerate(trials))
    ]
    Records(folder).add(records, HERE)
    return choices


def with_curves(run, error=5.0):
    """A record with curves, as a run of all epochs leaves them."""
    epochs = thinned(run.epochs)
    errors = error / 100 + 0.5 * np.exp(-epochs / 3)
    risks = 2.3 * np.exp(-epochs / 5) - (epochs / 30 if run.method == "unbiased" else 0)
    return made_record(
        run,
        error,
        epochs=tuple(epochs.tolist()),
        errors=tuple(errors.round(6).tolist()),
        risks=tuple(risks.round(4).tolist()),
    )


def grid_records(choices):
    """Records of the runs that chose α and s_GA."""
    return [
        made_record(
            replace(
                choices.run(setting, "u-prr", 0), alpha=alpha, ascent_scale=scale, held_out=True
            ),
            10 * alpha + scale,
            label_free_error=0.1 * alpha - 0.02,
        )
        for setting in SETTINGS
        for alpha in ALPHAS
        for scale in ASCENT_SCALES
    ]


def canned_fits(calls):
    """Stand in for ``fit_many``: the fit of a job follows from its method and seed alone."""

    def fit(job):
        n = job.epochs or 4
        score = zlib.crc32(repr((job.method, job.seed, job.bags.priors.values.tolist())).encode())
        error = 0.1 + 0.5 * score / 2**32
        history = {
            "epoch": np.arange(1.0, n + 1),
            "empirical_risk": np.linspace(2, -1, n),
            "test_error": np.linspace(0.9, error, n),
        }
        if job.held_out is not None:
            history["label_free_error"] = np.full(n, error)
        return Fit(None, history, n, f"canned {job.method.name}", diverged=False, seconds=1.0)

    def fit_many(jobs, *, on_finish, **options):
        calls.append((jobs, options))
        fits = [fit(job) for job in jobs]
        for part in (range(0, len(jobs), 2), range(1, len(jobs), 2)):  # as stacks end
            on_finish({i: fits[i] for i in part})
        return fits

    return fit_many

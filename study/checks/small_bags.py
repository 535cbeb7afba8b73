"""Many small bags: Fashion-MNIST in random bags of 16, 64 and 256 rows.

usage: python -m study.checks small_bags [--trials 1] [--rows 60000] [--record FILE.json]
       python -m study.checks small_bags --table FILE.json

Training rows are dealt to bags at random, and only the class shares of every bag are known. All
methods have the network, epochs and batches of their defaults: whole bags in a batch, but for the
soft labels of crossfit, which "auto" chooses here; "rows shuffled" is the proportion loss with
batches that cut bags. Errors are those on the 10,000 test rows. "Supervised" is the same network
trained on the labels of the same rows.
"""

import datetime
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import unbag
from study.data import make_job
from unbag.methods import Job, fit_many
from unbag.training import TestSet

DATASET, SIZES = "fashion-mnist", (16, 64, 256)
METHODS = {
    "auto": ("auto", "auto"),
    "matched-likelihood": ("matched-likelihood", "auto"),
    "prop": ("prop", "auto"),
    "prop, rows shuffled": ("prop", "shuffled"),
}


def measure(trials: int = 1, rows: int = 60_000) -> Iterator[dict[str, Any]]:
    """Fit all methods to bags of all sizes, and a network with labels, trial by trial."""
    data = unbag.datasets.load(DATASET)
    cuda = torch.cuda.is_available()
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if cuda else cpu,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "dataset": DATASET,
        "runs": [],
    }
    for trial in range(trials):
        runs, jobs = make_jobs(data, trial, rows)
        for run, job, fit in zip(runs, jobs, fit_many(jobs, test_every=1000), strict=True):
            fit.raise_if_failed()
            error = round(float(fit.history["test_error"][-1]), 5)
            facts = {"rows": job.bags.n_rows, "chosen": fit.method, "error": error}
            record["runs"].append(run | facts | {"why": fit.stop_reason})
        yield record


def make_jobs(data: Any, trial: int, rows: int) -> tuple[list[dict[str, Any]], list[Job]]:
    """Make the runs of a trial, in words and as jobs."""
    test = TestSet(data.X_test, data.y_test)
    order = np.random.default_rng(trial).permutation(len(data.y_train))[:rows]
    y = data.y_train[order].astype(np.int64)
    runs: list[dict[str, Any]] = []
    jobs: list[Job] = []
    for size in SIZES:
        n = rows // size * size
        bag = np.arange(n) // size
        theta = np.zeros((n // size, data.n_classes))
        np.add.at(theta, (bag, y[:n]), 1 / size)
        bags = unbag.Bags(data.X_train[order[:n]], bag, theta)
        for label, (method, batching) in METHODS.items():
            runs.append({"size": size, "bags": n // size, "trial": trial, "method": label})
            jobs.append(make_job(bags, method, {}, batching=batching, seed=trial, test=test))
    pure = unbag.Bags(data.X_train[order], y, np.eye(data.n_classes))
    runs.append({"size": 1, "bags": rows, "trial": trial, "method": "supervised"})
    jobs.append(make_job(pure, "auto", {}, seed=trial, test=test))
    return runs, jobs


def table(record: dict[str, Any]) -> str:
    """One line per bag size: mean errors in percent."""
    runs = record["runs"]
    lines = [
        f"| rows of a bag | bags | {' | '.join(METHODS)} | supervised |",
        f"|---|---|{'---|' * (len(METHODS) + 1)}",
    ]

    def error(size: int, method: str) -> str:
        errors = [r["error"] for r in runs if (r["size"], r["method"]) == (size, method)]
        return f"{100 * np.mean(errors):.1f}"

    for size in SIZES:
        first = next(r for r in runs if r["size"] == size and r["method"] == "auto")
        cells = [str(size), f"{first['bags']:,}", *(error(size, method) for method in METHODS)]
        lines.append(f"| {' | '.join([*cells, error(1, 'supervised')])} |")
    return "\n".join(lines)

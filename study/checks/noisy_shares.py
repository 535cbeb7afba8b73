"""Training with shares that are not exact: what it brings to say so.

usage: python -m study.checks noisy_shares [--trials 2] [--record FILE.json]
       python -m study.checks noisy_shares --table FILE.json

Bags of 200 rows (digits: 120) have exact counts in the asymmetric setting, and the shares that are
given were counted in 50, 200 or 1,000 draws; the method is ``tables`` with extremely randomised
trees, since that is quick. Errors are those on the test rows (digits: the last 497 rows of a random
order). The mechanism was chosen on simulated rows and on digits before Pendigits and USPS were run.
A run that is stopped goes on from its record.
"""

import datetime
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import unbag
from study.data import make_job
from unbag.methods import Job, fit_many
from unbag.priors import ClassPriors, ShareErrors, asymmetric
from unbag.training import TestSet

ROWS = (50, 200, 1000)
SIZES = {"digits": 120, "pendigits": 200, "usps": 200}
TRAINED_DIGITS = 1300


def load(name: str) -> tuple[Any, Any, TestSet]:
    """Rows as tables, their classes, and test rows."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order].astype(np.float32) / 16, y[order]
        return (
            X[:TRAINED_DIGITS],
            y[:TRAINED_DIGITS],
            TestSet(X[TRAINED_DIGITS:], y[TRAINED_DIGITS:]),
        )
    data = unbag.datasets.load(name)
    X, X_test = (np.reshape(X, (len(X), -1)) for X in (data.X_train, data.X_test))
    return X, data.y_train, TestSet(X_test, data.y_test)


def measure(trials: int = 2, done: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Fit all cases that are not done, one after another."""
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "runs": (done or {}).get("runs", []),
    }

    def fit(job: Job, **facts: Any) -> dict[str, Any]:
        known = facts | {"seed": job.seed}
        if any(run | {"error": 0} == known | {"error": 0} for run in record["runs"]):
            return record
        (fit,) = fit_many([job], test_every=1000)
        error = round(float(fit.history["test_error"][-1]), 5)
        record["runs"].append(known | {"error": error})
        return record

    for name, size in SIZES.items():
        X, y, test = load(name)
        for trial in range(trials):
            theta = asymmetric(10, random_state=trial)
            bags = unbag.make_bags(X, y, theta, sizes=size, random_state=trial)
            trees = {"learner": "extra-trees"}
            job = make_job(bags, "tables", trees, seed=trial, test=test)
            yield fit(job, data=name, told="exact")
            for rows in ROWS:
                rng = np.random.default_rng([trial, rows])
                shares = np.stack([rng.multinomial(rows, t) for t in theta]) / rows
                errors = ShareErrors.from_rows(rows)
                for told, priors in (
                    ("not", ClassPriors(shares)),
                    ("told", ClassPriors(shares, errors=errors)),
                ):
                    given = bags.with_priors(priors)
                    job = make_job(given, "tables", trees, seed=trial, test=test)
                    yield fit(job, data=name, rows=rows, told=told)


def table(record: dict[str, Any]) -> str:
    """Mean errors in percent, by dataset and rows."""
    runs = record["runs"]

    def error(**facts: Any) -> str:
        errors = [r["error"] for r in runs if all(r.get(k) == v for k, v in facts.items())]
        return f"{100 * np.mean(errors):.1f}" if errors else "-"

    pairs = [(rows, told) for rows in ROWS for told in ("not", "told")]
    names = " | ".join(f"{rows}, {told}" for rows, told in pairs)
    trials = len({run["seed"] for run in runs})
    lines = [
        f"Test error in percent, mean of {trials} trial{'s' if trials > 1 else ''}, "
        f"{record['date']}, by the rows in which the shares of a bag were counted.",
        "",
        f"| dataset | exact | {names} |",
        f"|---|---|{'---|' * len(pairs)}",
    ]
    for name in SIZES:
        cells = [error(data=name, rows=rows, told=told) for rows, told in pairs]
        lines.append(f"| {' | '.join([name, error(data=name, told='exact'), *cells])} |")
    return "\n".join(lines)

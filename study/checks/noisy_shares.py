"""Training with shares that are not exact: what it brings to say so.

usage: python -m study.checks noisy_shares [--trials 2] [--processes 1] [--seconds LIMIT]
           [--record FILE.json]
       python -m study.checks noisy_shares --table FILE.json

Bags of 200 rows (digits: 120) have exact counts in the asymmetric setting, and the shares that are
given were counted in 50, 200 or 1,000 draws; the method is ``tables`` with extremely randomised
trees, since that is quick. Errors are those on the test rows (digits: the last 497 rows of a random
order). The mechanism was chosen on simulated rows and on digits before Pendigits and USPS were run.
A run that is stopped goes on from its record.
"""

import datetime
import itertools
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import unbag
from study.checks.processes import results_of
from study.data import make_job
from unbag.methods import fit_many
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


def measure(
    trials: int = 2,
    processes: int = 1,
    seconds: float = 0.0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Fit all cases that are not done."""
    told = [{"told": "exact"}]
    told += [{"rows": rows, "told": how} for rows in ROWS for how in ("not", "told")]
    wanted = [
        {"data": name, **how, "seed": trial}
        for name, trial, how in itertools.product(SIZES, range(trials), told)
    ]
    yield from measure_runs(fit_case, wanted, processes, seconds, done)


def measure_runs(
    fit: Callable[[dict[str, Any]], list[dict[str, Any]]],
    wanted: list[dict[str, Any]],
    processes: int,
    seconds: float,
    done: dict[str, Any] | None,
) -> Iterator[dict[str, Any]]:
    """Fit those of some cases that the record lacks; a fit gives facts with errors."""
    runs: list[dict[str, Any]] = (done or {}).get("runs", [])
    threads = 1 if processes > 1 else torch.get_num_threads()
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": f"{platform.machine()} CPU, {threads} threads",
        "versions": {"torch": str(torch.__version__), "numpy": np.__version__},
        "runs": runs,
    }
    todo = [facts for facts in wanted if not any(facts.items() <= run.items() for run in runs)]
    start = time.perf_counter()
    for _, found in results_of([(fit, (facts,)) for facts in todo], processes, seconds):
        runs.extend(found)
        print(f"{time.perf_counter() - start:.0f} s: {found}", flush=True)
        yield record


def fit_case(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Fit what some facts name, and give them with the error."""
    name, trial, rows = facts["data"], facts["seed"], facts.get("rows")
    X, y, test = load(name)
    theta = asymmetric(10, random_state=trial)
    bags = unbag.make_bags(X, y, theta, sizes=SIZES[name], random_state=trial)
    if rows is not None:
        shares = np.random.default_rng([trial, rows]).multinomial(rows, theta) / rows
        errors = ShareErrors.from_rows(rows) if facts["told"] == "told" else None
        bags = bags.with_priors(ClassPriors(shares, errors=errors))
    job = make_job(bags, "tables", {"learner": "extra-trees"}, seed=trial, test=test)
    (fit,) = fit_many([job], device=torch.device("cpu"), test_every=1000)
    return [facts | {"error": round(float(fit.history["test_error"][-1]), 5)}]


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

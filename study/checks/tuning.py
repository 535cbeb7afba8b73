"""Tuning without labels on real data: the chosen model against the default and the best trial.

usage: UNBAG_DATA=DIR python -m study.checks tuning [--trials 8] [--record FILE.json]
       python -m study.checks tuning --table FILE.json

Labels serve only to check: the true test error of every trial that was trained to its end is noted
when it is scored, and the search never sees it.
"""

import datetime
import json
import platform
import time
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

import unbag
from study.data import Data
from study.plan import SETTINGS, Run
from unbag.selection import tuning
from unbag.selection.scorers import likelihood_scorer

DATASETS = ("pendigits", "usps")


def measure_one(dataset: str, setting: str, trials: int) -> dict[str, Any]:
    data = Data(dataset)
    bags, _ = data.bags(Run(dataset, setting, "u-prr", 0, 1e-3, 10, 1))
    X_test, y_test = data.test.X, data.test.y
    default = unbag.UnbagClassifier(bags.priors, test_prior=data.test_prior, random_state=0)
    true_errors: list[float] = []  # of trials that were trained to their end

    def true_error(estimator: Any) -> float:
        return float((estimator.predict(X_test) != y_test).mean())

    def watched(estimator: Any, X: Any, y: Any) -> float:
        scored.append(true_error(estimator))
        return likelihood_scorer(estimator, X, y)

    def scores(search: Any, candidates: Any, share: float, verbose: bool) -> Any:
        scored.clear()
        tuned = inner(search, candidates, share, verbose)
        # A shortened first try of a trial is no model that could be chosen.
        if share == 1:
            true_errors.extend(scored)
        return tuned

    scored: list[float] = []
    inner = tuning._Search._scores
    with warnings.catch_warnings(), mock.patch.dict(tuning.SCORERS, likelihood=watched):
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        with mock.patch.object(tuning._Search, "_scores", scores):
            result = unbag.tune(bags.X, bags.bag_ids, default, n_trials=trials, storage=None)
        seconds = time.perf_counter() - start
        default.fit(bags.X, bags.bag_ids)
    error = true_error(result.best_estimator)
    low, high = result.evaluation.error.interval
    return {
        "dataset": dataset,
        "setting": setting,
        "default": true_error(default),
        "chosen": error,
        "best_trial": min(true_errors),
        "label_free": float(result.evaluation.error),
        "interval": [low, high],
        "params": result.best_params,
        "method": result.best_estimator.method_,
        "pruned": sum(t["state"] == "PRUNED" for t in result.trials),
        "seconds": round(seconds, 1),
    }


def measure(trials: int = 8) -> Iterator[dict[str, Any]]:
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "trials": trials,
        "cases": [],
    }
    for dataset in DATASETS:
        for setting in SETTINGS:
            record["cases"].append(measure_one(dataset, setting, trials))
            print(json.dumps(record["cases"][-1]), flush=True)
            yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"{record['trials']} trials each, {record['hardware']}, {record['date']}; errors in "
        "percent, those of the models on test rows whose labels nobody used.",
        "",
        "| dataset | priors | default | chosen | best trial | label-free estimate (95 % interval) "
        "| truth inside | method chosen | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in record["cases"]:
        low, high = case["interval"]
        inside = "yes" if low <= case["chosen"] <= high else "no"
        lines.append(
            f"| {case['dataset']} | {case['setting']} | {100 * case['default']:.1f} "
            f"| {100 * case['chosen']:.1f} | {100 * case['best_trial']:.1f} "
            f"| {100 * case['label_free']:.1f} ({100 * low:.1f} to {100 * high:.1f}) | {inside} "
            f"| {'as given: ' if not case['params'] else ''}{case['method']} "
            f"| {case['seconds']:.0f} |"
        )
    return "\n".join(lines)

"""Rows that are a sample, not exact counts: ``auto`` told so, not told, and ``u-prr``.

usage: python -m study.checks sampled_rows [--datasets NAMES] [--trials 3] [--data FOLDER]
           [--methods NAMES] [--counts KINDS] [--device auto] [--processes 1] [--seconds LIMIT]
           [--record FILE.json]
       python -m study.checks sampled_rows --table FILE.json

Bags of the study's settings. The rows of a bag are drawn at random by its shares, so that their
classes match the shares on average only; beside them, bags with exact counts. ``auto`` is as it is
by default, and on tables, where it chooses ``tables``, ``crossfit`` stands beside it. "Told" means
shares_of="population"; the kinds of counts are exact, not told and told. ``u-prr`` is run twice: as
it is by default, and as in the study, with 500 epochs and the hyperparameters that were chosen
there without labels (for exact counts). Errors are those on the test rows after the last epoch. A
run that is stopped goes on from its record, by trial.
"""

import datetime
import itertools
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unbag
from study.checks.processes import results_of
from study.data import make_job
from study.plan import SETTINGS, STUDY, rows_in_bags
from unbag.methods import Auto, Fit, Job, fit_many
from unbag.priors import ClassPriors
from unbag.training import TestSet, resolve_device

CHOICES = Path(__file__).parents[2] / "results" / "study"
COLUMNS = {
    "auto, exact counts": ("auto", "exact"),
    "auto, not told": ("auto", "not told"),
    "auto, told": ("auto", "told"),
    "crossfit, not told": ("crossfit", "not told"),
    "crossfit, told": ("crossfit", "told"),
    "u-prr, exact counts": ("u-prr of the study", "exact"),
    "u-prr": ("u-prr of the study", "not told"),
    "u-prr by default": ("u-prr", "not told"),
}


def jobs_of(name: str, trial: int, folder: str | None) -> Iterator[tuple[dict[str, Any], Job]]:
    """Yield what each job of a trial is, and the job."""
    data = unbag.datasets.load(name, folder)
    test = TestSet(data.X_test, data.y_test)
    choices = json.loads((CHOICES / name / "choices.json").read_text(encoding="utf-8"))
    spec = STUDY[name]
    for setting, make in SETTINGS.items():
        theta = make(data.n_classes)
        size = rows_in_bags(len(data.y_train), data.n_classes) // len(theta)
        drawn = {
            sampling: unbag.make_bags(
                data.X_train,
                data.y_train,
                theta,
                sizes=size,
                sampling=sampling,
                random_state=trial,
            )
            for sampling in ("exact", "iid")
        }
        given = {
            "exact": drawn["exact"],
            "not told": drawn["iid"],
            "told": drawn["iid"].with_priors(ClassPriors(theta, shares_of="population")),
        }
        long = {
            "model": spec.model,
            "model_options": spec.model_options,
            "epochs": spec.epochs,
            "learning_rate": choices["learning_rate"],
            "batch_size": drawn["iid"].n_rows // choices["batch_divisor"],
            "batching": "shuffled",
        }
        chosen = choices["label_free"][setting]["u-prr"]
        plain = make_job(drawn["iid"], "auto", {})
        chooses_crossfit = Auto().choose(plain)[0].name == "crossfit"
        for method, counts in COLUMNS.values():
            if method == "crossfit" and chooses_crossfit:
                continue
            facts = {"data": name, "setting": setting, "trial": trial}
            facts |= {"method": method, "counts": counts}
            common: dict[str, Any] = {"seed": trial, "test": test}
            if method == "u-prr of the study":
                yield facts, make_job(given[counts], "u-prr", chosen, **common, **long)
            else:
                yield facts, make_job(given[counts], method, {}, **common)


def measure(
    datasets: str = "pendigits,mnist,kmnist",
    trials: int = 3,
    methods: str = "auto,crossfit,u-prr,u-prr of the study",
    counts: str = "exact,not told,told",
    data: str = "",
    device: str = "auto",
    processes: int = 1,
    seconds: float = 0.0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Fit what is not done: one trial of all datasets at a time, or one model per process."""
    runs: list[dict[str, Any]] = (done or {}).get("runs", [])
    record = {"versions": {"torch": str(torch.__version__), "numpy": np.__version__}, "runs": runs}
    known = {json.dumps(run["facts"]) for run in runs}
    wanted: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for trial, name in itertools.product(range(trials), datasets.split(",")):
        wanted[name, trial] = [
            facts
            for facts, _ in jobs_of(name, trial, data or None)
            if json.dumps(facts) not in known
            and facts["method"] in methods.split(",")
            and facts["counts"] in counts.split(",")
        ]
    if processes == 1:
        parts = [
            [facts for (_, t), some in wanted.items() if t == trial for facts in some]
            for trial in range(trials)
        ]
    else:
        parts = [[facts] for some in wanted.values() for facts in some]
    parts = [part for part in parts if part]
    start = time.perf_counter()
    tasks = [(fit_jobs, (part, data or None, device)) for part in parts]
    for _, ended in results_of(tasks, processes, seconds):
        runs.extend(ended)
        runs.sort(key=lambda run: _order(run["facts"]))
        print(f"{time.perf_counter() - start:.0f} s: {len(runs)} models", flush=True)
        yield record
    yield record


def fit_jobs(wanted: list[dict[str, Any]], folder: str | None, device: str) -> list[dict[str, Any]]:
    """Fit what some facts name, in stacks, and give its errors."""
    resolved = resolve_device(device)
    on_gpu = resolved.type == "cuda"
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    where = {
        "hardware": torch.cuda.get_device_name(resolved) if on_gpu else cpu,
        "date": datetime.date.today().isoformat(),
    }
    parts = dict.fromkeys((facts["data"], facts["trial"]) for facts in wanted)
    jobs = [(f, job) for part in parts for f, job in jobs_of(*part, folder) if f in wanted]
    fits = fit_many(
        [job for _, job in jobs],
        device=resolved,
        precision="bf16" if on_gpu else "float32",
        test_every=10_000,
    )
    return [
        {"facts": facts, "used": fit.method, "error": _last_error(fit)} | where
        for (facts, _), fit in zip(jobs, fits, strict=True)
    ]


def _last_error(fit: Fit) -> float:
    return round(float(fit.history["test_error"][-1]), 5)


def _order(facts: dict[str, Any]) -> tuple[int, ...]:
    """Place of a run in the record: by dataset, trial, setting and column."""
    columns = list(COLUMNS.values())
    return (
        list(STUDY).index(facts["data"]),
        facts["trial"],
        list(SETTINGS).index(facts["setting"]),
        columns.index((facts["method"], facts["counts"])),
    )


def table(record: dict[str, Any]) -> str:
    """Mean errors in percent, and how often ``auto`` that is told is worse than ``u-prr``."""
    errors: dict[tuple[str, ...], list[float]] = {}
    for run in record["runs"]:
        facts = run["facts"]
        key = (facts["data"], facts["setting"], facts["method"], facts["counts"])
        errors.setdefault(key, []).append(100 * run["error"])
    cells = dict.fromkeys(key[:2] for key in errors)
    lines = [
        "Test error in percent, mean (and largest) over the trials.",
        "",
        f"| dataset | setting | trials | {' | '.join(COLUMNS)} |",
        f"|---|---|---|{'---|' * len(COLUMNS)}",
    ]
    worse = []
    for name, setting in cells:
        found = {title: errors.get((name, setting, *where)) for title, where in COLUMNS.items()}
        shown = ["–" if e is None else f"{np.mean(e):.1f} ({max(e):.1f})" for e in found.values()]
        trials = max(len(e) for e in found.values() if e)
        lines.append(f"| {name} | {setting} | {trials} | {' | '.join(shown)} |")
        told = found["auto, told"]
        others = [e for t, e in found.items() if t in ("u-prr", "u-prr by default") and e]
        if told and others and np.mean(told) > min(map(np.mean, others)):
            worse.append(f"{name}, {setting}")
    lines += [
        "",
        f"`auto` that is told has a larger mean error than the better `u-prr` in {len(worse)} of "
        f"{len(cells)}{': ' if worse else ''}{'; '.join(worse)}.",
    ]
    return "\n".join(lines)

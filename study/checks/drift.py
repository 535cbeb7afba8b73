"""Bags that differ: coverage of intervals with and without the allowance for misfit.

usage: python -m study.checks drift [--repeats 500] [--processes 1] [--seconds LIMIT]
           [--record FILE.json]
       python -m study.checks drift --table FILE.json

The recall of every class differs from bag to bag at random: for each class by itself, or for all
classes of a bag together (rows of a bag lean towards one prediction). The size is given as the
ratio of the standard error of the accuracy with drift to that without; at 3.08 an interval of 95 %
that knows nothing of it covers half as often. A run that is stopped goes on from its record.
"""

import datetime
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from study.checks.coverage import make_confusion, make_priors
from study.checks.processes import results_of
from unbag.evaluation.core import Core
from unbag.evaluation.metrics import CLASS_METRICS, OVERALL_METRICS
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors

SHAPES = ((5, 2), (10, 2), (30, 2), (5, 4), (10, 4), (30, 4))  # M, K
RATIOS = (1.0, 1.75, 3.08, 6.0)
KINDS = ("by class", "by bag")
LEVEL, ROWS, ACCURACY, CONDITION = 0.95, 500, 0.8, 4
NAMES = ("accuracy", "macro_f1", "recall")


def moved(
    confusion: NDArray[np.float64], drift: float, kind: str, m: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Confusion matrices of the bags, (M, K, K)."""
    k = len(confusion)
    errors = np.where(np.eye(k) > 0, 0, confusion)
    directions = np.eye(k) - errors / errors.sum(1, keepdims=True)
    if kind == "by class":
        steps = rng.normal(size=(m, k, 1)) * directions
    else:  # all classes lean towards the same prediction
        lean = rng.normal(size=(m, 1, k))
        steps = np.repeat((lean - lean.mean(2, keepdims=True)) / np.sqrt(2), k, axis=1)
    shifted = np.clip(confusion + drift * steps, 1e-3, None)
    return shifted / shifted.sum(2, keepdims=True)


def measure_case(shape: tuple[int, int], ratio: float, kind: str, repeats: int) -> dict[str, Any]:
    """Coverage and mean widths of one case."""
    m, k = shape
    rng = np.random.default_rng([m, k, int(100 * ratio), KINDS.index(kind)])
    priors = ClassPriors(make_priors(m, k, CONDITION, rng))
    confusion = make_confusion(k, ACCURACY, rng)
    sizes = np.full(m, ROWS)
    sample = BagSample.of(priors, sizes)
    typical = Core(
        np.maximum(np.rint(ROWS * priors.values @ confusion), 1).astype(int), priors, sample
    )
    weights = typical.inverse.weights(np.diag(typical.pi))
    known = replace(typical.sample, drift=1.0)
    by_chance = float(sample.variance(weights, confusion))
    by_drift = float(known.variance(weights, confusion)) - by_chance
    drift = float(np.sqrt((ratio**2 - 1) * by_chance / by_drift))
    pi = typical.pi
    truth = [float(OVERALL_METRICS[n].value(confusion, pi)) for n in ("accuracy", "macro_f1")]
    truth.append(float(confusion[0, 0]))
    z, recall = float(stats.norm.ppf(0.5 + LEVEL / 2)), CLASS_METRICS["recall"]
    hits, widths, warned, distrusted = np.zeros((2, 3)), np.zeros((2, 3)), 0, 0
    for _ in range(repeats):
        shares = np.einsum("my,myk->mk", priors.values, moved(confusion, drift, kind, m, rng))
        table = np.array([rng.multinomial(ROWS, row) for row in shares])
        core = Core(table, priors, sample)
        distrusted += core.errors_beyond_limits(OVERALL_METRICS["accuracy"]) > 1.5
        for i in range(2):
            if i:
                core.allow_misfit(LEVEL)
            result = [core.overall(OVERALL_METRICS[n], z) for n in ("accuracy", "macro_f1")]
            result.append(core.of_class("recall", 0, core.raw[0, 0], recall, z))
            for j, (estimate, true) in enumerate(zip(result, truth, strict=True)):
                hits[i, j] += estimate.low <= true <= estimate.high
                widths[i, j] += estimate.high - estimate.low
        warned += core.misfit is not None and core.misfit.is_significant
    plain, allowed = hits / repeats
    return {
        "bags": m,
        "classes": k,
        "kind": kind,
        "ratio": ratio,
        "drift": drift,
        "plain": dict(zip(NAMES, plain.tolist(), strict=True)),
        "allowed": dict(zip(NAMES, allowed.tolist(), strict=True)),
        "plain_width": float(widths[0, 0] / repeats),
        "allowed_width": float(widths[1, 0] / repeats),
        "warned": warned / repeats,
        "beyond_limits": distrusted / repeats,
    }


def measure(
    repeats: int = 500,
    processes: int = 1,
    seconds: float = 0.0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure all cases that are not done."""
    cases = list(itertools.product(KINDS, SHAPES, RATIOS))
    facts = ("kind", "bags", "classes", "ratio")
    old = {tuple(c[name] for name in facts): c for c in (done or {}).get("cases", [])}
    known = [old.get((kind, *shape, ratio)) for kind, shape, ratio in cases]
    todo = [i for i, case in enumerate(known) if case is None]
    arguments = [(shape, ratio, kind, repeats) for kind, shape, ratio in (cases[i] for i in todo)]
    start = time.perf_counter()
    tasks = [(measure_case, given) for given in arguments]
    for position, case in results_of(tasks, processes, seconds):
        known[todo[position]] = case
        print(f"{time.perf_counter() - start:.0f} s", case, flush=True)
        yield {
            "date": datetime.date.today().isoformat(),
            "repeats": repeats,
            "level": LEVEL,
            "rows": ROWS,
            "cases": [case for case in known if case is not None],
        }


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"Coverage in percent of {record['level']:.0%} intervals, {record['repeats']} repeats, "
        f"{record['rows']} rows per bag: without → with the allowance for misfit.",
        "",
        "| drift | M, K | standard error, times | points of recall | accuracy | macro F1 "
        "| recall | mean width, points | warns |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for c in record["cases"]:
        shown = [f"{100 * c['plain'][n]:.1f} → {100 * c['allowed'][n]:.1f}" for n in NAMES]
        width = f"{100 * c['plain_width']:.1f} → {100 * c['allowed_width']:.1f}"
        lines.append(
            f"| {c['kind']} | {c['bags']}, {c['classes']} | {c['ratio']:g} "
            f"| {100 * c['drift']:.1f} | {' | '.join(shown)} | {width} "
            f"| {100 * c['warned']:.0f} |"
        )
    return "\n".join(lines)

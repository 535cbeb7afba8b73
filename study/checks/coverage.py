"""Whether intervals hold what they promise: coverage over simulated repeats with known truth.

usage: python -m study.checks coverage [--repeats 2000] [--processes 1] [--seconds LIMIT]
           [--record FILE.json]
       python -m study.checks coverage --table FILE.json

Bags, class priors of a wanted condition number and a confusion matrix are drawn once per case; each
repeat draws predictions from them and forms the intervals of the accuracy, of the recall of two
classes and of the macro F1. A run that is stopped goes on from its record.
"""

import datetime
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from study.checks.processes import results_of
from unbag.evaluation.core import Core
from unbag.evaluation.inverses import INVERSES
from unbag.evaluation.metrics import CLASS_METRICS, OVERALL_METRICS
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors

SHAPES = ((10, 10, False), (20, 10, True), (5, 2, False), (40, 26, False))  # M, K, unequal sizes
CONDITIONS = (10, 50)
SIZES = (60, 500, 5000)
ACCURACIES = (0.85, 0.99)
SAMPLINGS = ("iid", "exact")
LEVEL = 0.95


def make_priors(m: int, k: int, condition: float, rng: np.random.Generator) -> Any:
    """Class priors of a condition number: random ones, mixed with equal shares."""
    base = rng.dirichlet(np.full(k, 0.3), m)
    for start in range(0, m - k + 1, k):
        base[start : start + k] = 0.5 * base[start : start + k] + 0.5 * np.eye(k)
    low, high = 1e-4, 1.0
    for _ in range(60):
        middle = np.sqrt(low * high)
        mixed = middle * base + (1 - middle) / k
        low, high = (middle, high) if np.linalg.cond(mixed) > condition else (low, middle)
    return high * base + (1 - high) / k


def make_confusion(k: int, accuracy: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Error rates that differ fourfold between classes, spread unevenly over the others."""
    error = rng.uniform(0.4, 1.6, k)
    error *= (1 - accuracy) / error.mean()
    confusion = np.zeros((k, k))
    for y in range(k):
        others = np.arange(k) != y
        confusion[y, others] = error[y] * rng.dirichlet(np.full(k - 1, 0.7))
        confusion[y, y] = 1 - error[y]
    return confusion


def exact_counts(theta: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    wanted = sizes[:, None] * theta
    counts = np.floor(wanted).astype(np.int64)
    for m, row in enumerate(counts):
        row[np.argsort(row - wanted[m])[: sizes[m] - row.sum()]] += 1
    return counts


def measure_case(
    shape: tuple[int, int, bool],
    condition: float,
    size: int,
    accuracy: float,
    sampling: str,
    inverse: str,
    repeats: int,
) -> dict[str, Any]:
    m, k, unequal = shape
    rng = np.random.default_rng([m, k, int(condition), size])
    theta = make_priors(m, k, condition, rng)
    sizes = np.full(m, size)
    if unequal:
        sizes = np.clip(size * rng.lognormal(0, 0.8, m), 60, 5000).astype(np.int64)
    counts = exact_counts(theta, sizes)
    if sampling == "exact":
        theta = counts / sizes[:, None]
    confusion = make_confusion(k, accuracy, rng)
    priors = ClassPriors(theta, shares_of="rows" if sampling == "exact" else "population")
    pi = priors.pooled(sizes)
    chosen = (0, k // 2)
    recall = CLASS_METRICS["recall"]
    truth = [float(OVERALL_METRICS[name].value(confusion, pi)) for name in ("accuracy", "macro_f1")]
    truth += [confusion[c, c] for c in chosen]
    z = float(stats.norm.ppf(0.5 + LEVEL / 2))
    if sampling == "iid":
        parts = [
            rng.multinomial(n, t, repeats) for n, t in zip(sizes, theta @ confusion, strict=True)
        ]
    else:
        parts = [
            sum(rng.multinomial(n, c, repeats) for n, c in zip(row, confusion, strict=True))
            for row in counts
        ]
    hits, widths = np.zeros(4), np.zeros(4)
    for predictions in np.stack(parts, axis=1):
        core = Core(predictions, priors, BagSample.of(priors, sizes), inverse=inverse)
        result = [core.overall(OVERALL_METRICS[name], z) for name in ("accuracy", "macro_f1")]
        result += [core.of_class("recall", c, core.raw[c, c], recall, z) for c in chosen]
        for i, (estimate, true) in enumerate(zip(result, truth, strict=True)):
            hits[i] += estimate.low - 1e-12 <= true <= estimate.high + 1e-12
            widths[i] += estimate.high - estimate.low
    share, width = hits / repeats, widths / repeats
    return {
        "bags": m,
        "classes": k,
        "unequal": unequal,
        "condition": round(float(np.linalg.cond(theta)), 1),
        "rows": size,
        "accuracy": accuracy,
        "sampling": sampling,
        "inverse": inverse,
        "coverage": {"accuracy": share[0], "macro_f1": share[1], "recall": share[2:].tolist()},
        "width": {"accuracy": width[0], "macro_f1": width[1], "recall": width[2:].tolist()},
    }


def measure(
    repeats: int = 2000,
    processes: int = 1,
    seconds: float = 0.0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure all cases that are not done."""
    every = itertools.product(SAMPLINGS, SHAPES, CONDITIONS, SIZES, ACCURACIES)
    others = itertools.product(SAMPLINGS, SHAPES[1:3], CONDITIONS, INVERSES)
    few = max(1, repeats // 5)
    runs = [("cases", (*case, sampling, "size-weighted", repeats)) for sampling, *case in every]
    runs += [
        ("inverses", (*case, 500, 0.85, sampling, inverse, few))
        for sampling, *case, inverse in others
    ]
    old: dict[str, Any] = done or {}
    found = {
        name: {json.dumps(case.get("settings")): case for case in old.get(name, [])}
        for name in ("cases", "inverses")
    }
    known = [found[name].get(json.dumps(settings)) for name, settings in runs]
    todo = [i for i, case in enumerate(known) if case is None]
    start = time.perf_counter()
    tasks = [(measure_case, runs[i][1]) for i in todo]
    for position, case in results_of(tasks, processes, seconds):
        known[todo[position]] = {"settings": runs[todo[position]][1], **case}
        print(f"{time.perf_counter() - start:.0f} s: {json.dumps(case)}", flush=True)
        kept: dict[str, list[Any]] = {"cases": [], "inverses": []}
        for (name, _), result in zip(runs, known, strict=True):
            kept[name] += [] if result is None else [result]
        yield {
            "date": datetime.date.today().isoformat(),
            "repeats": repeats,
            "level": LEVEL,
            **kept,
        }


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"Coverage in percent of {record['level']:.0%} intervals over {record['repeats']:,} "
        f"repeats, {record['date']}; in brackets the mean width in points.",
        "",
        "| M, K | condition | rows per bag | true accuracy | sampling | accuracy | macro F1 "
        "| recall of two classes |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def shown(share: float, width: float) -> str:
        text = f"{100 * share:.1f} ({100 * width:.1f})"
        return text if 0.935 <= share <= 0.965 else f"**{text}**"

    for case in record["cases"]:
        cover, width = case["coverage"], case["width"]
        recalls = ", ".join(
            shown(*pair) for pair in zip(cover["recall"], width["recall"], strict=True)
        )
        rows = f"{case['rows']}{', unequal' if case['unequal'] else ''}"
        lines.append(
            f"| {case['bags']}, {case['classes']} | {case['condition']:g} | {rows} "
            f"| {case['accuracy']} | {case['sampling']} "
            f"| {shown(cover['accuracy'], width['accuracy'])} "
            f"| {shown(cover['macro_f1'], width['macro_f1'])} | {recalls} |"
        )
    numbers = [
        share
        for case in record["cases"]
        for share in (
            case["coverage"]["accuracy"],
            case["coverage"]["macro_f1"],
            *case["coverage"]["recall"],
        )
    ]
    inside = sum(0.935 <= share <= 0.965 for share in numbers)
    lines += [
        "",
        f"{inside} of {len(numbers)} lie between 93.5 and 96.5 %; those outside are bold. "
        f"Smallest {100 * min(numbers):.1f}, largest {100 * max(numbers):.1f}.",
        "",
        "| M, K | condition | sampling | inverse | coverage of the accuracy | mean width, points |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {c['bags']}, {c['classes']} | {c['condition']:g} | {c['sampling']} | {c['inverse']} "
        f"| {100 * c['coverage']['accuracy']:.1f} | {100 * c['width']['accuracy']:.2f} |"
        for c in record["inverses"]
    ]
    return "\n".join(lines)

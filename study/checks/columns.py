"""Power and false alarms of the test of the assumption where one of many columns drifts.

usage: python -m study.checks columns [--repeats 200] [--processes 1] [--seconds LIMIT]
           [--record FILE.json]

Tables of 3, 20 and 200 columns, of which one is categorical with 80 values. In a third of the bags
one column is shifted: a numeric one by some standard deviations, or the categorical one by rows
that take one of its five most frequent values instead.
"""

import datetime
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from study.checks.processes import results_of
from unbag.inspection import alike_test
from unbag.inspection.rules import ALARM

COLUMNS = (3, 20, 200)
SHIFTS = (0.0, 0.1, 0.2, 0.4)
LEVELS = 80
BAGS, CLASSES, ROWS = 12, 3, 400


def draw(n_columns: int, shift: float, which: str, rng: np.random.Generator) -> tuple[Any, ...]:
    """Rows, bags, shares and the column of every feature."""
    theta = rng.dirichlet(np.ones(CLASSES), BAGS)
    bag = np.repeat(np.arange(BAGS), ROWS)
    y = np.concatenate([rng.choice(CLASSES, ROWS, p=row) for row in theta])
    numeric = (
        rng.normal(size=(len(bag), n_columns - 1))
        + rng.normal(size=(CLASSES, n_columns - 1))[y] * 0.5
    )
    popular = np.array([rng.permutation(1 / np.arange(1, LEVELS + 1)) for _ in range(CLASSES)])
    popular = (popular / popular.sum(1, keepdims=True)).cumsum(1)
    value = (rng.random(len(bag))[:, None] > popular[y]).sum(1).clip(max=LEVELS - 1)
    moved = bag < BAGS // 3
    if which == "numeric":
        numeric[moved, 0] += shift
    else:
        value[moved & (rng.random(len(bag)) < shift / 2)] = np.bincount(value).argmax()
    X = np.hstack([numeric, np.eye(LEVELS)[value]]).astype(np.float32)
    names = [f"x{j}" for j in range(n_columns - 1)] + ["place"] * LEVELS
    return X, bag, theta, names


def measure_case(n_columns: int, which: str, shift: float, repeats: int) -> dict[str, Any]:
    """Rates of alarms where one column drifts."""
    rng = np.random.default_rng([n_columns, int(1000 * shift), which == "place"])
    drifted = "place" if which == "place" else "x0"
    alarms, joint, named, others = 0, 0, 0, 0
    for seed in range(repeats):
        X, bag, theta, names = draw(n_columns, shift, which, rng)
        result = alike_test(X, bag, theta, columns=names, random_state=seed)
        found = {test.column for test in result.columns}
        alarms += result.p_value < ALARM
        joint += result.joint_p_value < ALARM
        named += drifted in found
        others += bool(found - {drifted})
    return {
        "columns": n_columns,
        "drifts": which,
        "shift": shift,
        "repeats": repeats,
        "verdict": alarms / repeats,
        "joint": joint / repeats,
        "named": named / repeats,
        "another_named": others / repeats,
    }


def measure(
    repeats: int = 200,
    processes: int = 1,
    seconds: float = 0.0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure the cases that have fewer repeats; those of many columns first, as they last."""
    cases = [
        (n_columns, which, shift)
        for n_columns, which, shift in itertools.product(COLUMNS, ("numeric", "place"), SHIFTS)
        if which == "numeric" or shift > 0
    ]
    facts = ("columns", "drifts", "shift")
    old = {tuple(c[name] for name in facts): c for c in (done or {}).get("cases", [])}
    known = [old.get(case) for case in cases]
    todo = [i for i, case in enumerate(known) if case is None or case["repeats"] < repeats][::-1]
    tasks = [(measure_case, (*cases[i], repeats)) for i in todo]
    for position, case in results_of(tasks, processes, seconds):
        known[todo[position]] = case
        print(case, flush=True)
        kept = [case for case in known if case is not None]
        yield {"date": datetime.date.today().isoformat(), "cases": kept}


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"Percent of repeats. {BAGS} bags of {ROWS} rows, {CLASSES} classes; a "
        f"categorical column of {LEVELS} values among the columns. A shift of 0 is no drift.",
        "",
        "| columns | drifts | shift | repeats | all columns together | verdict (both) | names it "
        "| names another |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in record["cases"]:
        rates = " | ".join(
            f"{100 * c[name]:.1f}" for name in ("joint", "verdict", "named", "another_named")
        )
        drifts = c["drifts"] if c["shift"] else "none"
        lines.append(f"| {c['columns']} | {drifts} | {c['shift']:g} | {c['repeats']} | {rates} |")
    return "\n".join(lines)

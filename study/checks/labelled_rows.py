"""A few labelled rows beside bags: errors against bags alone and labels alone.

usage: python -m study.checks labelled_rows [--trials 2] [--processes 1] [--seconds LIMIT]
           [--record FILE.json]
       python -m study.checks labelled_rows --table FILE.json

Bags of 200 rows (digits: 120) have exact counts in the symmetric setting with a = 0.1 or 0.5. Of
each class 1, 5 or 20 rows of the bags, drawn at random, are labelled. The method is ``tables`` with
extremely randomised trees; "labels alone" is the same learner, by scikit-learn, on these rows.
Errors are those on the test rows (digits: the last 497 rows of a random order). A run that is
stopped goes on from its record.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier

import unbag
from study.checks.noisy_shares import SIZES, load, measure_runs
from study.data import make_job
from study.plan import SETTINGS
from unbag.methods import fit_many

LABELLED = (1, 5, 20)
CHOSEN = ("symmetric-0.1", "symmetric-0.5")


def measure(
    trials: int = 2,
    processes: int = 1,
    seconds: float = 0.0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Fit all cases that are not done."""
    what = [{"what": "bags"}, *({"what": "both", "labelled": count} for count in LABELLED)]
    wanted = [
        {"data": name, "setting": setting, "trial": trial, **some}
        for name, setting, trial, some in itertools.product(SIZES, CHOSEN, range(trials), what)
    ]
    yield from measure_runs(fit_case, wanted, processes, seconds, done)


def fit_case(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Fit bags, or bags with labels and the labels alone, and give the facts with errors."""
    name, trial, count = facts["data"], facts["trial"], facts.get("labelled", 0)
    X, y, test = load(name)
    theta = SETTINGS[facts["setting"]](10)
    bags = unbag.make_bags(X, y, theta, sizes=SIZES[name], random_state=trial)
    truth = np.asarray(bags.labels).astype(np.int64)
    order = np.random.default_rng(trial).permutation(bags.n_rows)
    chosen = np.concatenate([order[truth[order] == k][:count] for k in range(10)])
    labels = np.full(bags.n_rows, -1)
    labels[chosen] = truth[chosen]
    job = make_job(
        bags,
        "tables",
        {"learner": "extra-trees"},
        seed=trial,
        labels=labels if count else None,
        test=test,
    )
    (fit,) = fit_many([job], device=torch.device("cpu"))
    errors = {facts["what"]: float(fit.history["test_error"][-1])}
    if count:
        alone = ExtraTreesClassifier(random_state=trial)
        alone.fit(np.asarray(bags.X)[chosen], truth[chosen])
        errors["labels"] = float((alone.predict(test.X) != test.y).mean())
    return [facts | {"what": what, "error": round(error, 5)} for what, error in errors.items()]


def table(record: dict[str, Any]) -> str:
    """Mean errors in percent by dataset and setting."""

    def error(**facts: Any) -> str:
        runs = [r for r in record["runs"] if all(r.get(k) == v for k, v in facts.items())]
        return f"{100 * np.mean([r['error'] for r in runs]):.1f}" if runs else "-"

    pairs = [(count, what) for count in LABELLED for what in ("labels", "both")]
    names = " | ".join(f"{count}, {'alone' if w == 'labels' else w}" for count, w in pairs)
    trials = len({run["trial"] for run in record["runs"]})
    lines = [
        f"Test error in percent, mean of {trials} trial{'s' if trials > 1 else ''}, "
        f"{record['date']}, by the number of labelled rows per class.",
        "",
        f"| dataset | setting | bags alone | {names} |",
        f"|---|---|---|{'---|' * len(pairs)}",
    ]
    for name in SIZES:
        for setting in CHOSEN:
            here = {"data": name, "setting": setting}
            cells = [error(**here, labelled=count, what=what) for count, what in pairs]
            lines.append(f"| {' | '.join([name, setting, error(**here, what='bags'), *cells])} |")
    return "\n".join(lines)

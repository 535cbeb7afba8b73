"""A few labelled rows beside bags: errors against bags alone and labels alone.

usage: python -m study.checks labelled_rows [--trials 2] [--record FILE.json]
       python -m study.checks labelled_rows --table FILE.json

Bags of 200 rows (digits: 120) have exact counts in the symmetric setting with a = 0.1 or 0.5. Of
each class 1, 5 or 20 rows of the bags, drawn at random, are labelled. The method is ``tables`` with
extremely randomised trees; "labels alone" is the same learner, by scikit-learn, on these rows.
Errors are those on the test rows (digits: the last 497 rows of a random order). A run that is
stopped goes on from its record.
"""

import datetime
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier

import unbag
from study.checks.noisy_shares import SIZES, load
from study.data import make_job
from study.plan import SETTINGS
from unbag.methods import fit_many

LABELLED = (1, 5, 20)
CHOSEN = ("symmetric-0.1", "symmetric-0.5")


def measure(trials: int = 2, done: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Fit all cases that are not done, one after another."""
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": f"{platform.machine()} CPU, {torch.get_num_threads()} threads",
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "runs": (done or {}).get("runs", []),
    }

    def known(facts: dict[str, Any]) -> bool:
        return any(run | {"error": 0} == facts | {"error": 0} for run in record["runs"])

    for name, size in SIZES.items():
        X, y, test = load(name)
        for setting in CHOSEN:
            for trial in range(trials):
                theta = SETTINGS[setting](10)
                bags = unbag.make_bags(X, y, theta, sizes=size, random_state=trial)
                facts = {"data": name, "setting": setting, "trial": trial}

                def fit(given: unbag.Bags, labels: Any, seed: int = trial, to: Any = test) -> float:
                    trees = {"learner": "extra-trees"}
                    job = make_job(given, "tables", trees, seed=seed, labels=labels, test=to)
                    (fit,) = fit_many([job])
                    return round(float(fit.history["test_error"][-1]), 5)

                if not known(facts | {"what": "bags"}):
                    record["runs"].append(facts | {"what": "bags", "error": fit(bags, None)})
                    yield record
                truth = np.asarray(bags.labels).astype(np.int64)
                order = np.random.default_rng(trial).permutation(bags.n_rows)
                for count in LABELLED:
                    if known(facts | {"what": "both", "labelled": count}):
                        continue
                    chosen = np.concatenate([order[truth[order] == k][:count] for k in range(10)])
                    labels = np.full(bags.n_rows, -1)
                    labels[chosen] = truth[chosen]
                    alone = ExtraTreesClassifier(random_state=trial)
                    alone.fit(np.asarray(bags.X)[chosen], truth[chosen])
                    wrong = float((alone.predict(test.X) != test.y).mean())
                    runs = {"labels": round(wrong, 5), "both": fit(bags, labels)}
                    for what, error in runs.items():
                        found = {"what": what, "labelled": count, "error": error}
                        record["runs"].append(facts | found)
                    yield record


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

"""Four processes at one search in a shared file, of which two are killed.

usage: python benchmarks/shared_search.py [--record FILE.json] [--trials N] [--runs N]
       python benchmarks/shared_search.py --table FILE.json

Each process gives the same call of ``unbag.tune`` with a file of Optuna's ``JournalStorage``. Two
are killed (``kill -9``) at random moments while they have trials. Every trial must end. If two
processes write an end of the same trial, Optuna takes the first.
"""

import collections
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands import machine
from script import run_script

PROCESSES, KILLED = 4, 2
WORKER = """
import sys
from sklearn.datasets import load_digits
import unbag
from unbag.selection import sharing

sharing.EVERY, sharing.GRACE = 1.0, 45.0  # Optuna breaks the lock of a killed process after 30 s
X, y = load_digits(return_X_y=True)
theta = unbag.priors.symmetric(n_classes=10, a=0.5)
bags = unbag.make_bags(X, y, theta, random_state=0)
clf = unbag.UnbagClassifier(theta, method="prop", epochs=20, width=50, random_state=0)
search = {"method": ["prop", "u-prr"], "learning_rate": (1e-3, 1e-1, "log")}
found = unbag.tune(bags.X, bags.bag_ids, clf, search=search, n_trials=int(sys.argv[2]), at_once=3,
                   storage=sys.argv[1])
print(found.best_score, found.best_params)
"""


def ends_by_trial(journal: Path) -> collections.Counter[int]:
    """Count how often an end of each trial was written to the journal; Optuna takes the first."""
    ended: collections.Counter[int] = collections.Counter()
    for line in journal.read_text().splitlines():
        entry = json.loads(line)
        if entry.get("op_code") == 6 and entry["state"] in (1, 2, 3):  # complete, pruned, failed
            ended[entry["trial_id"]] += 1
    return ended


def open_study(journal: Path) -> Any:
    import optuna

    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    storage = optuna.storages.JournalStorage(backend)
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage)


def measure(trials: int, runs: int) -> Iterator[dict[str, Any]]:
    record: dict[str, Any] = {**machine(), "trials": trials, "runs": []}
    for seed in range(runs):
        rng = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder, "trials.log")
            command = [sys.executable, "-c", WORKER, str(journal), str(trials)]
            pipe = {"stdout": subprocess.PIPE, "text": True}
            workers = [subprocess.Popen(command, **pipe) for _ in range(PROCESSES)]

            for worker in workers[:KILLED]:
                time.sleep(rng.uniform(0, 3))
                while not (journal.exists() and journal.read_text().count('"worker"') >= PROCESSES):
                    time.sleep(0.2)
                worker.kill()
            before = [t.number for t in open_study(journal).trials if t.state.name == "RUNNING"]
            printed = [worker.communicate()[0] for worker in workers[KILLED:]]
            states = [t.state.name for t in open_study(journal).trials]
            taken_over = journal.read_text().count('"worker":""') + journal.read_text().count(
                '"worker": ""'
            )
            record["runs"].append(
                {
                    "running_at_the_kills": len(before),
                    "taken_over": taken_over,
                    "trials": len(states),
                    "states": dict(collections.Counter(states)),
                    "most_ends_of_one_trial": max(ends_by_trial(journal).values()),
                    "same_result": len(set(printed)) == 1 and bool(printed[0]),
                }
            )
        yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"{PROCESSES} processes, {record['trials']} trials, {KILLED} of the processes killed; "
        f"{record['hardware']}.",
        "",
        "| run | trials taken over | trials | ended | ends written of one trial, at most "
        "| same result |",
        "|---|---|---|---|---|---|",
    ]
    for number, run in enumerate(record["runs"], 1):
        ended = sum(n for state, n in run["states"].items() if state not in ("RUNNING", "WAITING"))
        lines.append(
            f"| {number} | {run['taken_over']} | {run['trials']} | {ended} | "
            f"{run['most_ends_of_one_trial']} | {'yes' if run['same_result'] else 'no'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, trials=24, runs=3)

"""Four processes at one search in a shared file, of which two are killed.

usage: python benchmarks/shared_search.py [--record FILE.json] [--trials N] [--runs N]
       python benchmarks/shared_search.py --table FILE.json

Each process gives the same call of ``unbag.tune`` with a file of Optuna's ``JournalStorage``. Two
are killed (``kill -9``) at random moments while they have trials. Every trial must end, and none
may be trained to its end twice: the journal tells who claimed a trial, and who claimed its end.
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
from typing import Any, NamedTuple

from commands import machine
from script import run_script

PROCESSES, KILLED = 4, 2
WORKER = """
import sys
from sklearn.datasets import load_digits
import unbag
from unbag.selection import sharing

sharing.EVERY, sharing.MISSED = 1.0, 15
X, y = load_digits(return_X_y=True)
theta = unbag.priors.symmetric(n_classes=10, a=0.5)
bags = unbag.make_bags(X, y, theta, random_state=0)
clf = unbag.UnbagClassifier(theta, method="prop", epochs=60, width=50, random_state=0)
search = {"method": ["prop", "u-prr"], "learning_rate": (1e-3, 1e-1, "log")}
found = unbag.tune(bags.X, bags.bag_ids, clf, search=search, n_trials=int(sys.argv[2]), at_once=3,
                   storage=sys.argv[1])
print(found.best_score, found.best_params)
"""


class Claim(NamedTuple):
    """A process that claims a trial or its end."""

    trial: int
    number: int
    process: str
    outcome: Any  # of the process that claims the end


def claims_in(journal: Path) -> list[Claim]:
    """Read the claims in a journal."""
    found = []
    for line in journal.read_text().splitlines() if journal.exists() else ():
        entry = json.loads(line)
        for key, outcome in entry.get("user_attr", {}).items():
            if key.startswith("claim "):
                number, process = key.removeprefix("claim ").split(": ")
                found.append(Claim(entry["trial_id"], int(number), process, outcome))
    return found


def states_written(journal: Path) -> collections.Counter[int]:
    """Count how often the end of each trial was written to the journal; Optuna takes the first."""
    entries = map(json.loads, journal.read_text().splitlines())
    return collections.Counter(
        e["trial_id"] for e in entries if e.get("op_code") == 6 and e["state"] in (1, 2, 3)
    )


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

            while len({claim.process for claim in claims_in(journal)}) < PROCESSES:
                time.sleep(0.1)
            for worker in workers[:KILLED]:
                time.sleep(rng.uniform(0, 1))
                worker.kill()
            before = [t.number for t in open_study(journal).trials if t.state.name == "RUNNING"]
            printed = [worker.communicate()[0] for worker in workers[KILLED:]]
            states = [t.state.name for t in open_study(journal).trials]
            claims = claims_in(journal)
            ends = collections.Counter(claim.trial for claim in claims if claim.outcome)
            record["runs"].append(
                {
                    "running_at_the_kills": len(before),
                    "taken_over": sum(c.number > 0 and not c.outcome for c in claims),
                    "trials": len(states),
                    "states": dict(collections.Counter(states)),
                    "most_trainings_to_the_end": max(ends.values()),
                    "most_ends_written": max(states_written(journal).values()),
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
        f"| search | trials taken over | ended, of {record['trials']} "
        "| trainings of one trial to its end, at most | same result |",
        "|---|---|---|---|---|",
    ]
    for number, run in enumerate(record["runs"], 1):
        ended = sum(n for state, n in run["states"].items() if state not in ("RUNNING", "WAITING"))
        most = run.get("most_trainings_to_the_end", "–")  # earlier records counted ends instead
        lines.append(
            f"| {number} | {run['taken_over']} | {ended} | {most} | "
            f"{'yes' if run['same_result'] else 'no'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, trials=36, runs=6)

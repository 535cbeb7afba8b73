"""Rows a second and memory of `unbag predict` with several processes.

usage: python benchmarks/predict_processes.py [--record FILE.json] [--rows N] [--tree-rows N]
       python benchmarks/predict_processes.py --table FILE.json

The file and the network are those of ``predict.py``; a forest of 100 trees predicts the first rows
of it (--tree-rows). Memory is the largest sum of the resident sizes of all processes, looked at ten
times a second; pages that they share count in each. All outputs of a model must be equal, byte for
byte.
"""

import datetime
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands import BAG, machine, run, shares, write_priors, write_rows
from script import run_script

COLUMNS, CLASSES, PROCESSES = 20, 10, (1, 2, 4)


def resident(group: int) -> int:
    """Bytes of all processes of a process group."""
    total = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                total += int((entry / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # it has ended
            continue
    return total


def measure(rows: int, tree_rows: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        theta = shares(CLASSES, CLASSES)
        priors, train = folder / "priors.csv", folder / "train.parquet"
        write_priors(priors, theta)
        record: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            **machine(),
            "columns": COLUMNS,
            "runs": [],
        }
        for name, (n_rows, train_rows, options) in {
            "network": (rows, 20_000, ["--method", "u-prr", "--epochs", "2"]),
            "100 trees": (tree_rows, 5_000, ["--learner", "trees"]),
        }.items():
            model, source = folder / name, folder / f"{name}.parquet"
            write_rows(train, train_rows, COLUMNS, theta)
            arguments = ["--bag", BAG, "--priors", priors, "--output", model, *options]
            run("fit", train, *arguments, "--overwrite")
            write_rows(source, n_rows, COLUMNS, theta, seed=1)
            digests = set()
            for count in PROCESSES:
                result, digest = predict(model, source, count)
                digests.add(digest)
                equal = len(digests) == 1
                record["runs"].append({"model": name, "rows": n_rows, **result, "equal": equal})
                yield record


def predict(model: Path, source: Path, count: int) -> tuple[dict[str, Any], str]:
    """Predict a file in some processes: what it took, and the digest of the output."""
    output = model.with_name(f"{model.name}-{count}.parquet")
    command = [sys.executable, "-m", "unbag", "predict", str(model), str(source), "--quiet"]
    command += ["--output", str(output), "--processes", str(count)]
    before, began = os.times(), time.perf_counter()
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    most = 0
    while child.poll() is None:
        most = max(most, resident(child.pid))
        time.sleep(0.1)
    seconds, after = time.perf_counter() - began, os.times()
    assert child.returncode == 0
    own = after.children_user + after.children_system
    own -= before.children_user + before.children_system
    result = {
        "processes": count,
        "seconds": round(seconds, 1),
        "processor_seconds": round(own, 1),
        "resident_mb": round(most / 1e6),
        "load": round(os.getloadavg()[0], 1),
    }
    digest = hashlib.sha256(output.read_bytes()).hexdigest()
    output.unlink()
    return result, digest


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    runs = record["runs"]
    equal = all(run["equal"] for run in runs)
    lines = [
        f"Rows of {record['columns']} doubles; {record['hardware']}, {record['date']}. Outputs of "
        f"a model are {'equal' if equal else 'NOT equal'}.",
        "",
        "| model | rows | processes | rows per second | per second of a processor | "
        "peak memory of all | load of the machine |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {run['model']} | {run['rows']:,} | {run['processes']} | "
        f"{run['rows'] / run['seconds']:,.0f} | {run['rows'] / run['processor_seconds']:,.0f} | "
        f"{run['resident_mb'] / 1000:.2f} GB | {run['load']} |"
        for run in runs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, rows=10_000_000, tree_rows=1_000_000)

"""Rows a second and memory of `unbag predict` with several processes.

usage: python benchmarks/predict_processes.py [--record FILE.json] [--rows N]
       python benchmarks/predict_processes.py --table FILE.json

The file and the model are those of ``predict.py``. Memory is the largest sum of the resident sizes
of all processes, looked at ten times a second; pages that they share count in each. All outputs
must be equal, byte for byte.
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


def measure(rows: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        theta = shares(CLASSES, CLASSES)
        priors, model, source = folder / "priors.csv", folder / "model", folder / "rows.parquet"
        write_priors(priors, theta)
        write_rows(folder / "train.parquet", 20_000, COLUMNS, theta)
        arguments = ["--bag", BAG, "--priors", priors, "--output", model, "--epochs", "2"]
        run("fit", folder / "train.parquet", *arguments, "--method", "u-prr")
        write_rows(source, rows, COLUMNS, theta, seed=1)
        record: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            **machine(),
            "rows": rows,
            "columns": COLUMNS,
            "runs": [],
        }
        digests = set()
        for count in PROCESSES:
            output = folder / f"{count}.parquet"
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
            digests.add(hashlib.sha256(output.read_bytes()).hexdigest())
            own = after.children_user + after.children_system
            own -= before.children_user + before.children_system
            record["runs"].append(
                {
                    "processes": count,
                    "seconds": round(seconds, 1),
                    "processor_seconds": round(own, 1),
                    "resident_mb": round(most / 1e6),
                    "load": round(os.getloadavg()[0], 1),
                }
            )
            record["equal"] = len(digests) == 1
            yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"{record['rows']:,} rows of {record['columns']} doubles; {record['hardware']}, "
        f"{record['date']}. Outputs are {'equal' if record['equal'] else 'NOT equal'}.",
        "",
        "| processes | rows a second | seconds | peak memory of all | load of the machine |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {run['processes']} | {record['rows'] / run['seconds']:,.0f} | {run['seconds']:.0f} | "
        f"{run['resident_mb'] / 1000:.2f} GB | {run['load']} |"
        for run in record["runs"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, rows=10_000_000)

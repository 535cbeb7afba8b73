"""Rows a second and memory of `unbag predict`, against the same job with pandas and torch.

usage: python benchmarks/predict.py [--record FILE.json] [--rows N] [--runs N]
       python benchmarks/predict.py --table FILE.json

Makes a Parquet file of N rows of 20 doubles (10 million are 1.6 GB) in a temporary folder and a
model of 10 classes (an MLP of depth 3 and width 300), and predicts in turn with the command and
with ``plain_predict.py``, which reads the whole file. Both must give the same classes.
"""

import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

import unbag
from commands import BAG, Ran, machine, run, shares, write_priors, write_rows
from script import run_script

COLUMNS, CLASSES = 20, 10
PLAIN = [sys.executable, str(Path(__file__).parent / "plain_predict.py")]
# The same command, with the processor time of its steps, which run side by side.
TIMED = """
import json, sys, time
from unbag.estimator import UnbagClassifier
from unbag.io import TableEncoding, TableFiles
from unbag.workflow import predict_files

seconds = {"reading": 0.0, "encoding": 0.0, "network": 0.0}

def timed(name, function):
    def call(*args, **options):
        began = time.thread_time()
        try:
            return function(*args, **options)
        finally:
            seconds[name] += time.thread_time() - began
    return call

def timed_batches(batches):
    def call(*args, **options):
        iterator = iter(batches(*args, **options))
        take = timed("reading", lambda: next(iterator, None))
        while (batch := take()) is not None:
            yield batch
    return call

TableFiles.batches = timed_batches(TableFiles.batches)
TableEncoding.transform = timed("encoding", TableEncoding.transform)
UnbagClassifier.predict_proba = timed("network", UnbagClassifier.predict_proba)
model, rows, output = sys.argv[1:]
began = time.process_time()
predict_files(model, rows, output=output, overwrite=True)
seconds["writing and all else"] = time.process_time() - began - sum(seconds.values())
print(json.dumps(seconds))
"""


def save_plainly(clf: unbag.UnbagClassifier, path: Path) -> None:
    """Write what the plain script needs."""
    linears, norms = clf.module_.blocks()
    layers = {0: linears[0], 2: norms[0], 3: linears[1], 5: norms[1], 6: linears[2]}
    weights = {f"{i}.{k}": v for i, m in layers.items() for k, v in m.state_dict().items()}
    encoders = clf.encoding_.encoders
    content = {
        "columns": [e.column for e in encoders],
        "mean": [e.mean for e in encoders],
        "scale": [e.scale for e in encoders],
        "classes": clf.classes_.tolist(),
        "weights": weights,
        "temperature": clf.calibration_.temperature,
        "biases": torch.tensor(clf.calibration_.biases, dtype=torch.float32),
    }
    torch.save(content, path)


def difference(one: Path, other: Path) -> tuple[float, float]:
    """Share of rows with another class, and the largest difference of a probability."""
    n_rows, unequal, largest = 0, 0, 0.0
    names = [f"p_class{k}" for k in range(CLASSES)]
    files = (pq.ParquetFile(one), pq.ParquetFile(other))
    for a, b in zip(*(f.iter_batches(65_536, use_threads=False) for f in files), strict=True):
        n_rows += len(a)
        unequal += int(pc.sum(pc.not_equal(a["class"], b["class"])).as_py())
        for name in names:
            largest = max(largest, float(np.abs(a[name].to_numpy() - b[name].to_numpy()).max()))
    return unequal / n_rows, largest


def measure(rows: int, runs: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        theta = shares(CLASSES, CLASSES)
        priors, model, source = folder / "priors.csv", folder / "model", folder / "rows.parquet"
        write_priors(priors, theta)
        write_rows(folder / "train.parquet", 50_000, COLUMNS, theta)
        arguments = ["--bag", BAG, "--priors", priors, "--output", model, "--epochs", "5"]
        arguments += ["--method", "u-prr", "--calibrate"]
        run("fit", folder / "train.parquet", *arguments)
        write_rows(source, rows, COLUMNS, theta, seed=1)
        save_plainly(unbag.load_model(model), folder / "network.pt")
        ours, theirs = folder / "ours.parquet", folder / "plain.parquet"
        record: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            **machine(),
            "rows": rows,
            "columns": COLUMNS,
            "classes": CLASSES,
            "file_gb": round(source.stat().st_size / 1e9, 2),
            "runs": [],
        }
        for _ in range(runs):
            plain = run(folder / "network.pt", source, theirs, program=PLAIN)
            command = run("predict", model, source, "--output", ours, "--overwrite", "--json")
            record["runs"].append({"unbag predict": _plain(command), "plain": _plain(plain)})
            yield record
        unequal, largest = difference(ours, theirs)
        record["unequal_classes"], record["largest_difference"] = unequal, largest
        steps = run(model, source, ours, program=[sys.executable, "-c", TIMED])
        record["step_seconds"] = {k: round(s, 2) for k, s in json.loads(steps.output).items()}
        yield record


def _plain(ran: Ran) -> dict[str, float]:
    return {
        "seconds": round(ran.seconds, 1),
        "processor_seconds": round(ran.processor, 1),
        "resident_mb": round(ran.resident),
        "anonymous_mb": round(ran.anonymous),
    }


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    runs = record["runs"]
    lines = [
        f"{record['rows']:,} rows of {record['columns']} doubles ({record['file_gb']} GB of "
        f"Parquet), {record['classes']} classes, median of {len(runs)} runs in turn; "
        f"{record['hardware']}, load {record['load_before']} before, {record['date']}.",
        "",
        "| | rows a second | seconds | of processor | peak memory |",
        "|---|---|---|---|---|",
    ]
    middle = {
        name: {key: median(run[name][key] for run in runs) for key in runs[0][name]}
        for name in runs[0]
    }
    for name, label in (("unbag predict", "`unbag predict`"), ("plain", "pandas and torch")):
        values = middle[name]
        lines.append(
            f"| {label} | {record['rows'] / values['seconds']:,.0f} | {values['seconds']:.0f} | "
            f"{values['processor_seconds']:.0f} | {values['resident_mb'] / 1000:.2f} GB |"
        )
    ratios = [run["plain"]["seconds"] / run["unbag predict"]["seconds"] for run in runs]
    memory = middle["plain"]["resident_mb"] / middle["unbag predict"]["resident_mb"]
    lines += [
        "",
        f"`unbag predict` is {median(ratios):.2f} times as fast ({min(ratios):.2f} to "
        f"{max(ratios):.2f} by run) with 1/{memory:.1f} of the memory. "
        f"{record['unequal_classes']:.2g} of the rows get another class, probabilities differ by "
        f"at most {record['largest_difference']:.1g}.",
    ]
    total = sum(record["step_seconds"].values())
    steps = ", ".join(f"{k} {s / total:.0%}" for k, s in record["step_seconds"].items())
    lines.append(f"Where its processor time goes: {steps}.")
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, rows=10_000_000, runs=3)

"""What benchmarks of the commands share: tables to run them on, and runs with their memory."""

import json
import os
import platform
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

UNBAG = [sys.executable, "-c", "from unbag.cli import app; app()"]
BAG = "district"
_BLOCK = 100_000


def shares(n_bags: int, n_classes: int) -> NDArray[np.float64]:
    """Class shares of bags, each with more of one class. Shape (M, K)."""
    theta = np.full((n_bags, n_classes), 0.4 / n_classes)
    theta[np.arange(n_bags), np.arange(n_bags) % n_classes] += 0.6
    return theta


def write_priors(path: Path, theta: NDArray[np.float64]) -> None:
    """Write class shares as CSV, one row a bag."""
    header = ",".join([BAG, *(f"class{k}" for k in range(theta.shape[1]))])
    lines = [",".join([f"bag{m}", *map(repr, row.tolist())]) for m, row in enumerate(theta)]
    path.write_text("\n".join([header, *lines]) + "\n")


def write_rows(
    path: Path, n_rows: int, n_columns: int, theta: NDArray[np.float64], *, seed: int = 0
) -> None:
    """Write a Parquet table of doubles and a bag column; classes differ in ten columns."""
    n_bags, n_classes = theta.shape
    means = np.zeros((n_classes, n_columns))
    # The same classes whatever the seed: files of two seeds are two samples of one population.
    means[:, :10] = 0.6 * np.random.default_rng(0).standard_normal((n_classes, 10))
    rng = np.random.default_rng([1, seed])
    names = [f"x{j:03d}" for j in range(n_columns)]
    schema = pa.schema([(name, pa.float64()) for name in names] + [(BAG, pa.string())])
    # Random digits do not compress: both cost time and save nothing.
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=[BAG]) as writer:
        for start in range(0, n_rows, _BLOCK):
            n = min(_BLOCK, n_rows - start)
            bag = rng.integers(0, n_bags, n)
            y = (rng.random(n)[:, None] > theta[bag].cumsum(1)[:, :-1]).sum(1)
            X = (means[y] + rng.standard_normal((n, n_columns))) * 3 + 10
            ids = pa.DictionaryArray.from_arrays(
                pa.array(bag.astype(np.int32)), pa.array([f"bag{m}" for m in range(n_bags)])
            )
            columns = [*(pa.array(X[:, j]) for j in range(n_columns)), ids.cast(pa.string())]
            writer.write_table(pa.table(columns, schema=schema))


@dataclass(frozen=True)
class Ran:
    """A command that ended: seconds, those of processors, largest memory in MB, its output."""

    seconds: float
    processor: float
    resident: float
    anonymous: float
    output: str

    def json(self) -> dict[str, Any]:
        """Its output read as JSON."""
        content: dict[str, Any] = json.loads(self.output)
        return content


def run(*arguments: str | Path, program: list[str] | None = None) -> Ran:
    """Run ``unbag`` (or another program) with these arguments to its end, watching its memory."""
    command = [*(program or UNBAG), *map(str, arguments)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    anonymous = [0.0]
    watcher = threading.Thread(target=_watch, args=(process.pid, anonymous), daemon=True)
    watcher.start()
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    processor = usage.ru_utime + usage.ru_stime
    return Ran(seconds, processor, usage.ru_maxrss * 1024 / 1e6, anonymous[0], output)


def _watch(pid: int, largest: list[float]) -> None:
    """Keep the largest RssAnon of a process in MB, looking every 20 ms until it ends."""
    path = Path(f"/proc/{pid}/status")
    try:
        while "RssAnon:" in (status := path.read_text()):  # a process that ended has none
            here = int(status.split("RssAnon:")[1].split()[0]) * 1024 / 1e6
            largest[0] = max(largest[0], here)
            time.sleep(0.02)
    except OSError:
        return


def machine() -> dict[str, Any]:
    """Where and by what a record was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "CPU")
    return {
        "hardware": f"{name}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 1),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "pyarrow": pa.__version__,
            "numpy": np.__version__,
        },
    }

"""What one fit of a billion rows would take: arithmetic on measured rates, and a simulation.

usage: python benchmarks/scale.py [--record FILE.json] [--rows N]
       python benchmarks/scale.py --table FILE.json

Measured: the step of one GPU (results/stack-nvidia-h200.json), and in a fit of 50 million rows what
reading and encoding take and how memory grows (results/many-rows.json). Assumed: the links, the
time of a message, and how far steps vary; they are constants here, and part of the record. No
cluster was used.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from script import read, run_script

RESULTS = Path(__file__).parents[1] / "results"
FEATURES, WIDTH, DEPTH, CLASSES, BAGS = 20, 300, 5, 10, 1000
MEASURED_FEATURES = 784
LINKS = {
    8: 450e9,
    64: 50e9,
}  # bytes per second and direction: NVLink in a machine, 400 Gb/s between
MESSAGE = {8: 10e-6, 64: 30e-6}  # seconds that a message takes to arrive
SLOW_START = 0.4e-3  # seconds of a step that do not depend on the rows: starting its operations
VARIES = 0.05  # deviation of the logarithm of a step's time
BATCHES = (8_192, 65_536, 524_288, 4_194_304)
GPUS = (1, 8, 64)


def weights(features: int) -> int:
    """Numbers in the network: layers and batch normalisation."""
    hidden = (DEPTH - 2) * WIDTH * WIDTH
    return features * WIDTH + hidden + WIDTH * CLASSES + (DEPTH - 1) * 4 * WIDTH + CLASSES


def bytes_of_step(gpus: int) -> dict[str, int]:
    """Bytes that one process sends in a step: a ring sends everything nearly twice."""
    ring = 2 * (gpus - 1) / gpus
    return {
        "gradient": int(ring * 4 * weights(FEATURES)),
        "sums over bags": int(ring * 4 * 3 * BAGS * CLASSES),
        "batch normalisation": int(ring * 4 * 4 * WIDTH * (DEPTH - 1)),
    }


def step_seconds(gpus: int, batch: int, seconds_per_row: float, rng: Any = None) -> float:
    """Time of a step: the slowest process, and messages that are not hidden behind its work.

    The gradient of the last layers can be sent while that of the first is computed, so two thirds
    of the work may hide it; sums over bags and moments cannot be hidden.
    """
    work = SLOW_START + seconds_per_row * batch / gpus
    if rng is not None:
        work *= float(np.exp(VARIES * rng.normal(size=gpus)).max())
    if gpus == 1:
        return work
    sizes, link, message = bytes_of_step(gpus), LINKS[gpus], MESSAGE[gpus]
    gradient = sizes["gradient"] / link + message
    rest = (sizes["sums over bags"] + sizes["batch normalisation"]) / link
    waits = message * (2 + 4 * (DEPTH - 1))  # one after another
    return work + max(0.0, gradient - 2 / 3 * work) + rest + waits


def hidden_batch(gpus: int, seconds_per_row: float) -> int:
    """Rows of all GPUs per step from which messages take less than a tenth of it."""
    batch = 1024
    while True:
        alone = SLOW_START + seconds_per_row * batch / gpus
        if step_seconds(gpus, batch, seconds_per_row) <= alone / 0.9:
            return batch
        batch = int(batch * 1.1)


def measure(rows: int) -> Iterator[dict[str, Any]]:
    stack = read(RESULTS / "stack-nvidia-h200.json")
    alone = next(part for part in stack["stacks"] if part["stack"] == 1)
    work = MEASURED_FEATURES * WIDTH + (DEPTH - 2) * WIDTH**2
    # A step of a whole stack has no start to speak of: it tells what a row takes.
    full = max(stack["stacks"], key=lambda part: part["stack"])
    seconds_per_row = full["step_ms"] / 1000 / full["stack"] / full["batch"]
    seconds_per_row *= (FEATURES * WIDTH + (DEPTH - 2) * WIDTH**2) / work
    small, *_, large = read(RESULTS / "many-rows.json")["runs"]
    steps = large["step_seconds"]
    reading = large["rows"] / (steps["encoding chosen"] + steps["rows encoded and written"])
    grown = large["step_anonymous_mb"]["training"] - small["step_anonymous_mb"]["training"]
    bytes_of_row = 1e6 * grown / (large["rows"] - small["rows"])
    rng = np.random.default_rng(0)
    record: dict[str, Any] = {
        "rows": rows,
        "features": FEATURES,
        "bags": BAGS,
        "classes": CLASSES,
        "weights": weights(FEATURES),
        "measured": {
            "rows_per_second_and_gpu": 1 / seconds_per_row,
            "step_ms_of_one_model": alone["step_ms"],
            "rows_read_and_encoded_per_second_and_core": reading,
        },
        "assumed": {"links": LINKS, "message": MESSAGE, "start": SLOW_START, "varies": VARIES},
        "bytes_of_step": {gpus: bytes_of_step(gpus) for gpus in GPUS[1:]},
        "hidden_batch": {gpus: hidden_batch(gpus, seconds_per_row) for gpus in GPUS[1:]},
        "epochs": [],
    }
    for batch in BATCHES:
        for gpus in GPUS:
            times = [step_seconds(gpus, batch, seconds_per_row, rng) for _ in range(400)]
            seconds = float(np.mean(times)) * rows / batch
            record["epochs"].append({"batch": batch, "gpus": gpus, "seconds": seconds})
    record["reading_seconds_of_one_core"] = rows / reading
    record["gb_of_rows"] = rows * FEATURES * 4 / 1e9
    record["gb_of_places"] = rows * bytes_of_row / 1e9
    yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    measured = record["measured"]
    lines = [
        f"{record['rows']:,} rows of {record['features']} features, {record['bags']:,} bags, "
        f"{record['classes']} classes; an MLP of {record['weights']:,} weights. Measured on one "
        f"H200, scaled to these features: {measured['rows_per_second_and_gpu'] / 1e6:.0f} million "
        "rows per second.",
        "",
        "| bytes that a process sends per step | 8 GPUs | 64 GPUs |",
        "|---|---|---|",
    ]
    sizes = record["bytes_of_step"]
    by_gpus = {int(gpus): values for gpus, values in sizes.items()}
    lines += [f"| {name} | {by_gpus[8][name]:,} | {by_gpus[64][name]:,} |" for name in by_gpus[8]]
    hidden = {int(gpus): batch for gpus, batch in record["hidden_batch"].items()}
    lines.append(
        f"| batch from which messages take less than a tenth of a step | {hidden[8]:,} | "
        f"{hidden[64]:,} |"
    )
    lines += ["", "| batch | one epoch on 1 GPU | 8 GPUs | 64 GPUs |", "|---|---|---|---|"]
    for batch in dict.fromkeys(part["batch"] for part in record["epochs"]):
        cells = [f"{p['seconds']:,.1f} s" for p in record["epochs"] if p["batch"] == batch]
        lines.append(f"| {batch:,} | {' | '.join(cells)} |")
    lines += [
        "",
        "Reading, encoding and writing, in two passes: "
        f"{record['reading_seconds_of_one_core']:,.0f} s of one core. Encoded rows: "
        f"{record['gb_of_rows']:.0f} GB. Bags, parts and order of the rows: "
        f"{record['gb_of_places']:.0f} GB of memory.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, rows=1_000_000_000)

"""Many small bags: Fashion-MNIST in random bags of 16, 64 and 256 rows.

usage: python benchmarks/small_bags.py [--trials 1] [--rows 60000] [--record FILE.json]
       python benchmarks/small_bags.py --table FILE.json

Training rows are dealt to bags at random, and only the class shares of every bag are known. All
methods have the network, epochs and batches of their defaults, with whole bags in a batch; "rows
shuffled" is the proportion loss with batches that cut bags. Errors are those on the 10,000 test
rows. "Supervised" is the same network trained on the labels of the same rows.
"""

import datetime
import platform
import time
from collections.abc import Iterator

import numpy as np
import torch

import unbag
from script import Record, run_script

DATASET, SIZES = "fashion-mnist", (16, 64, 256)
METHODS = {
    "auto": ("auto", "auto"),
    "matched-likelihood": ("matched-likelihood", "auto"),
    "prop": ("prop", "auto"),
    "prop, rows shuffled": ("prop", "shuffled"),
}


def measure(trials: int, rows: int) -> Iterator[Record]:
    """Fit all methods to bags of all sizes, and one model to the labels."""
    data = unbag.datasets.load(DATASET)
    cuda = torch.cuda.is_available()
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    record: Record = {
        "date": datetime.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if cuda else cpu,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "dataset": DATASET,
        "runs": [],
    }
    for trial in range(trials):
        order = np.random.default_rng(trial).permutation(len(data.y_train))[:rows]
        X, y = data.X_train[order], data.y_train[order].astype(np.int64)
        for size in SIZES:
            n = rows // size * size
            bag = np.arange(n) // size
            theta = np.zeros((n // size, data.n_classes))
            np.add.at(theta, (bag, y[:n]), 1 / size)
            for label, (method, batching) in METHODS.items():
                clf = unbag.UnbagClassifier(theta, method, batching=batching, random_state=trial)
                start = time.perf_counter()
                clf.fit(X[:n], bag)
                error = float((clf.predict(data.X_test) != data.y_test).mean())
                run = {"size": size, "bags": n // size, "rows": n, "trial": trial}
                run |= {"method": label, "chosen": clf.method_, "error": round(error, 5)}
                record["runs"].append(run | {"seconds": round(time.perf_counter() - start, 1)})
                yield record
        clf = unbag.UnbagClassifier(random_state=trial).fit(X, y)
        error = float((clf.predict(data.X_test) != data.y_test).mean())
        run = {"size": 1, "bags": rows, "rows": rows, "trial": trial, "method": "supervised"}
        record["runs"].append(run | {"chosen": clf.method_, "error": round(error, 5)})
        yield record


def table(record: Record) -> str:
    """One line a bag size: mean errors in percent, and the seconds of the default."""
    runs = record["runs"]
    lines = [
        f"| rows of a bag | bags | {' | '.join(METHODS)} | supervised | seconds of auto |",
        f"|---|---|{'---|' * (len(METHODS) + 2)}",
    ]

    def error(size: int, method: str) -> str:
        own = [r["error"] for r in runs if (r["size"], r["method"]) == (size, method)]
        return f"{100 * np.mean(own):.1f}"

    for size in SIZES:
        first = next(r for r in runs if r["size"] == size and r["method"] == "auto")
        cells = [str(size), f"{first['bags']:,}", *(error(size, method) for method in METHODS)]
        lines.append(f"| {' | '.join([*cells, error(1, 'supervised'), str(first['seconds'])])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, trials=1, rows=60_000)

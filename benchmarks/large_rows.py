"""Training on more rows than one wants in memory: time, memory, and the error without labels.

usage: python benchmarks/large_rows.py [--rows N] [--epochs N] [--folder DIR] [--checkpoint]

Writes N rows of 100 float32 features (10 million are 4 GB) to a file in a temporary folder, trains
on it memory-mapped, evaluates rows held out, and does the same with a sample in memory. Anonymous
memory (RssAnon of /proc/self/status, Linux only) is that of the process without the file's pages,
counted from the start, after the imports.
"""

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unbag
from unbag.bags import Bags

FEATURES = 100
SAMPLE = 200_000
THETA = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])


def anonymous_memory() -> float:
    """RssAnon of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1000


class Peak:
    """Largest anonymous memory above the start, sampled by a thread."""

    def __init__(self) -> None:
        self.start = anonymous_memory()
        self.largest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self.largest = max(self.largest, anonymous_memory() - self.start)

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the seconds and the peak of what is done inside."""
        self.largest, began = 0.0, time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        print(f"{name:<34} {seconds:7.1f} s   peak {self.largest:6.0f} MB", flush=True)


def write_rows(path: Path, n: int) -> NDArray[np.int64]:
    """Fill the file part by part; return the bag of every row. Classes differ in ten features."""
    rng = np.random.default_rng(0)
    means = np.zeros((THETA.shape[1], FEATURES), np.float32)
    means[:, :10] = 0.6 * rng.standard_normal((THETA.shape[1], 10))
    bag = rng.integers(0, len(THETA), n)
    X = np.memmap(path, np.float32, "w+", shape=(n, FEATURES))
    for start in range(0, n, 100_000):
        here = bag[start : start + 100_000]
        share = rng.random(len(here))[:, None]
        y = (share > THETA[here].cumsum(1)[:, :-1]).sum(1)
        noise = rng.standard_normal((len(here), FEATURES), dtype=np.float32)
        X[start : start + len(here)] = noise + means[y]
    X.flush()
    return bag


def show(name: str, clf: Any, bags: Bags) -> None:
    error = unbag.evaluate(clf, bags).error
    interval = f"{error.low:.2%} to {error.high:.2%}"
    print(f"{name}: label-free error {error:.2%} ({interval}) on {bags.n_rows:,} rows held out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the file is written for the while")
    parser.add_argument("--checkpoint", action="store_true", help="save the state as it trains")
    arguments = parser.parse_args()
    n = arguments.rows
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "rows.f32"
        bag = write_rows(path, n)
        print(f"{n:,} rows of {FEATURES} features, {path.stat().st_size / 1e9:.1f} GB")
        settings: dict[str, Any] = {"method": "u-prr", "standardize": False, "device": "cpu"}
        settings["random_state"] = 0
        peak = Peak()
        with peak.step("bags of the mapped rows"):
            X = np.memmap(path, np.float32, "c", shape=(n, FEATURES))
            bags = Bags(X, bag, THETA)
        with peak.step("split, equal rows on one side"):
            train, held_out = bags.train_test_split(0.05, random_state=0)
        large = unbag.UnbagClassifier(
            epochs=arguments.epochs,
            checkpoint=Path(folder) / "checkpoint" if arguments.checkpoint else None,
            **settings,
        )
        began = time.perf_counter()
        with peak.step(f"training, {arguments.epochs} epochs"):
            large.fit_bags(train, held_out=held_out)
        rate = arguments.epochs * train.n_rows / (time.perf_counter() - began)
        print(f"{rate:,.0f} rows a second")
        with peak.step("prediction of the rows held out"):
            large.predict(held_out)
        with peak.step("evaluation of the rows held out"):
            show("mapped", large, held_out)
        peak.stop()

        drawn = np.random.default_rng(0).permutation(train.n_rows)[:SAMPLE]
        sample = train.take(np.sort(drawn))
        small = unbag.UnbagClassifier(priors=THETA, **settings).fit(sample.X, sample.bag_ids)
        show(f"{sample.n_rows:,} rows in memory, {small.n_iter_} epochs", small, held_out)


if __name__ == "__main__":
    main()

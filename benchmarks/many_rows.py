"""Time and memory of each step of `unbag fit` on a folder of many rows.

usage: python benchmarks/many_rows.py [--rows N] [--record FILE.json]
       python benchmarks/many_rows.py --table FILE.json

Makes a folder of Parquet files with N rows of 20 doubles (50 million are 8 GB), a million in each,
in a temporary folder that needs half as much again, and fits it for one epoch in a process of its
own: the method u-prr, a network of 100 units per layer, all else by default. A record keeps the
runs of other numbers of rows. Anonymous memory is RssAnon of /proc/self/status (Linux only), which
does not count pages of files that the system can drop; it is looked at fifty times a second.
"""

import datetime
import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands import BAG, machine, shares, write_priors, write_rows
from script import run_script

COLUMNS, BAGS, CLASSES, WIDTH, PART = 20, 12, 4, 100, 1_000_000
FIT = "evaluation, report and all else"  # what no other step takes


class Steps:
    """Seconds and largest RssAnon in MB of each step; what one does inside another is its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.anonymous: dict[str, float] = {}
        self.reading = 0.0
        self._running: list[str] = []
        self._since = time.perf_counter()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(0.02)

    def _look(self) -> None:
        status = Path("/proc/self/status").read_text()
        here = int(status.split("RssAnon:")[1].split()[0]) * 1024 / 1e6
        for name in self._running[-1:]:
            self.anonymous[name] = max(self.anonymous.get(name, 0.0), here)

    def _book(self) -> None:
        now = time.perf_counter()
        for name in self._running[-1:]:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Book what is done inside to this step."""
        self._book()
        self._running.append(name)
        yield
        self._look()
        self._book()
        self._running.pop()

    def watch(self, name: str, owner: Any, function: str) -> None:
        """Make a function book itself."""
        watched = getattr(owner, function)

        def call(*args: Any, **options: Any) -> Any:
            with self.step(name):
                return watched(*args, **options)

        setattr(owner, function, call)

    def watch_reading(self, owner: Any) -> None:
        """Add up the time that batches of a table take to come."""
        batches: Callable[..., Iterator[Any]] = owner.batches

        def call(*args: Any, **options: Any) -> Iterator[Any]:
            iterator = iter(batches(*args, **options))
            while True:
                began = time.perf_counter()
                batch = next(iterator, None)
                self.reading += time.perf_counter() - began
                if batch is None:
                    return
                yield batch

        owner.batches = call


def fit(folder: Path) -> None:
    """Fit the rows of a folder in this process, and write what each step took."""
    import unbag.io.rows
    import unbag.workflow.training as training

    steps = Steps()
    steps.watch_reading(unbag.io.TableFiles)
    steps.watch("encoding chosen", unbag.io.rows.TableEncoding, "fit")
    steps.watch("rows encoded and written", unbag.io.rows, "_encode")
    steps.watch("bag ids matched", training, "read_training_inputs")
    steps.watch("inspection", training, "inspect_rows")
    steps.watch("split", training, "_split")
    steps.watch("training", training.UnbagClassifier, "fit_bags")
    began = time.perf_counter()
    with steps.step(FIT):
        trained = training.fit_files(
            folder / "rows",
            bag=BAG,
            priors=folder / "priors.csv",
            output=folder / "model",
            method="u-prr",
            epochs=1,
            width=WIDTH,
        )
    assert trained.evaluation is not None
    error, clf = trained.evaluation.error, trained.classifier
    result = {
        "seconds": round(time.perf_counter() - began, 1),
        "reading_seconds": round(steps.reading, 3),
        "step_seconds": {name: round(s, 3) for name, s in steps.seconds.items()},
        "step_anonymous_mb": {name: round(mb) for name, mb in steps.anonymous.items()},
        "parameters": sum(p.numel() for p in clf.module_.parameters()),
        "trained_rows": round(0.7 * trained.inspection.to_dict()["n_rows"]),
        "error": {"value": float(error), "low": error.low, "high": error.high},
    }
    (folder / "result.json").write_text(json.dumps(result))


def measure(rows: int, earlier: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    record = earlier or {"columns": COLUMNS, "runs": []}
    record |= {"date": datetime.date.today().isoformat(), **machine()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        theta = shares(BAGS, CLASSES)
        write_priors(folder / "priors.csv", theta)
        (folder / "rows").mkdir()
        for part, start in enumerate(range(0, rows, PART)):
            path = folder / "rows" / f"{part:04d}.parquet"
            write_rows(path, min(PART, rows - start), COLUMNS, theta, seed=part + 1)
        size = sum(path.stat().st_size for path in (folder / "rows").iterdir())
        child = multiprocessing.get_context("spawn").Process(target=fit, args=(folder,))
        child.start()
        child.join()
        if child.exitcode:
            raise SystemExit(f"the fit ended with {child.exitcode}")
        result = json.loads((folder / "result.json").read_text())
        run = {"rows": rows, "file_gb": round(size / 1e9, 2), **result}
        others = [other for other in record["runs"] if other["rows"] != rows]
        record["runs"] = sorted([*others, run], key=lambda run: int(run["rows"]))
        yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    runs = record["runs"]
    last = runs[-1]
    heads = " | ".join(f"{run['rows'] / 1e6:g} million rows" for run in runs)
    lines = [
        f"Rows of {record['columns']} doubles and a bag column in Parquet files of a million rows; "
        f"one epoch of u-prr on 70 % of the rows, a network of {last['parameters']:,} weights; "
        f"threads: {record['threads']}; {record['hardware']}, {record['date']}. "
        "Seconds, and the largest anonymous memory.",
        "",
        f"| | {heads} |",
        f"|---|{'---|' * len(runs)}",
    ]
    for name in last["step_seconds"]:
        cells = (
            f"{run['step_seconds'][name]:,.0f} s, {run['step_anonymous_mb'][name] / 1000:.2f} GB"
            for run in runs
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = (f"{run['seconds']:,.0f} s, {_largest(run) / 1000:.2f} GB" for run in runs)
    lines.append(f"| all | {' | '.join(cells)} |")
    seconds, n = last["step_seconds"], last["rows"]
    encoding = seconds["encoding chosen"] + seconds["rows encoded and written"]
    error = last["error"]
    lines += [
        "",
        f"Rows per second of the largest: {2 * n / last['reading_seconds']:,.0f} read (each "
        f"twice), {n / encoding:,.0f} read and encoded, "
        f"{last['trained_rows'] / seconds['training']:,.0f} trained on. Its label-free error is "
        f"{error['value']:.2%} ({error['low']:.2%} to {error['high']:.2%}).",
    ]
    if len(runs) > 1:
        per_row = 1e6 * (_largest(last) - _largest(runs[0])) / (n - runs[0]["rows"])
        lines[-1] += f" Anonymous memory grows by {per_row:.0f} bytes per row."
    return "\n".join(lines)


def _largest(run: dict[str, Any]) -> float:
    return max(run["step_anonymous_mb"].values())


if __name__ == "__main__":
    run_script(__doc__, measure, table, rows=50_000_000)

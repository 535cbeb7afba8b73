"""Memory of `unbag fit` on a table of 4 GB, and its label-free error against a sample in memory.

usage: python benchmarks/large_fit.py [--record FILE.json] [--rows N] [--epochs N]
       python benchmarks/large_fit.py --table FILE.json

Makes a Parquet file of N rows of 100 doubles (5 million are 4 GB) in a temporary folder, which
needs twice its size free, fits it, and fits a file of 200,000 rows of the same kind with the
default number of epochs. Both models are judged by ``unbag evaluate`` on the same other rows.
Anonymous memory is RssAnon of /proc/PID/status (Linux only), which does not count pages of files
that the system can drop.
"""

import datetime
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands import BAG, machine, run, shares, write_priors, write_rows
from script import run_script

COLUMNS, SAMPLE, JUDGES = 100, 200_000, 200_000


def measure(rows: int, epochs: int) -> Iterator[dict[str, Any]]:
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        **machine(),
        "columns": COLUMNS,
        "fits": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        theta = shares(6, 4)
        priors, judges = folder / "priors.csv", folder / "judges.parquet"
        write_priors(priors, theta)
        write_rows(judges, JUDGES, COLUMNS, theta, seed=3)
        jobs: dict[str, tuple[int, int, list[str]]] = {
            "sample": (SAMPLE, 2, []),
            "large": (rows, 1, ["--epochs", str(epochs)]),
        }
        for name, (n_rows, seed, options) in jobs.items():
            source, model = folder / f"{name}.parquet", folder / name
            write_rows(source, n_rows, COLUMNS, theta, seed=seed)
            arguments = ["--bag", BAG, "--priors", priors, "--output", model, "--json"]
            arguments += ["--method", "u-prr"]
            fit = run("fit", source, *arguments, *options)
            judged = run("evaluate", model, judges, "--json")
            error = judged.json()["evaluation"]["error"]
            record["fits"][name] = {
                "rows": n_rows,
                "epochs": fit.json()["epochs"],
                "file_gb": round(source.stat().st_size / 1e9, 2),
                "seconds": round(fit.seconds),
                "processor_seconds": round(fit.processor),
                "anonymous_mb": round(fit.anonymous),
                "resident_mb": round(fit.resident),
                "own_error": fit.json()["evaluation"]["error"],
                "error": error,
            }
            yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"Rows of {record['columns']} doubles and a bag column, 6 bags, 4 classes; errors are "
        f"label-free, with 95 % intervals, on the same {JUDGES:,} other rows; "
        f"{record['hardware']}, load {record['load_before']} before, {record['date']}.",
        "",
        "| rows | Parquet | epochs | label-free error | peak anonymous memory | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for fit in record["fits"].values():
        error = fit["error"]
        lines.append(
            f"| {fit['rows']:,} | {fit['file_gb']:.2f} GB | {fit['epochs']} | "
            f"{error['value']:.2%} ({error['low']:.2%} to {error['high']:.2%}) | "
            f"{fit['anonymous_mb'] / 1000:.2f} GB | {fit['seconds']:,} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    run_script(__doc__, measure, table, rows=5_000_000, epochs=1)

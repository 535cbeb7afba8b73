"""What came of the fuzzing in tests/fuzz, by kind of case.

usage: python benchmarks/fuzz.py [--cases N] [--seed N] [--parts N] [--record FILE.json]
       python benchmarks/fuzz.py --table FILE.json

Runs the cases in parts, and goes on from the record, if there is one. A last part, of a tenth of
the cases, is run with coverage. Ends with 1 where a case failed.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from script import run_script

ROOT = Path(__file__).parents[1]
CODE = ("io", "estimator", "cli", "workflow")
Record = dict[str, Any]


def measure(cases: int, seed: int, parts: int, earlier: Record | None) -> Iterator[Record]:
    from commands import machine

    record = earlier or {
        "date": str(datetime.date.today()),
        **machine(),
        "cases": cases,
        "seed": seed,
        "parts": [],
        "lines": {},
    }
    while len(record["parts"]) < parts:
        part = len(record["parts"]) + 1
        record["parts"].append(run(["-m", "pytest"], cases, seed, f"{part}/{parts}"))
        yield record
    if not record["lines"]:
        with tempfile.TemporaryDirectory() as place:
            coverage = ["-m", "coverage"]
            data = f"--data-file={place}/coverage"
            call = [*coverage, "run", data, f"--source={ROOT / 'src' / 'unbag'}", "-m", "pytest"]
            run(call, cases // 10, seed + 1, "1/1")
            for part in CODE:
                call = [sys.executable, *coverage, "report", data, "--format=total"]
                told = subprocess.run(
                    [*call, f"--include=*/unbag/{part}/*"],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                record["lines"][part] = int(told.stdout)
    yield record


def run(program: list[str], cases: int, seed: int, part: str) -> Record:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "counts.json"
        environment = {"FUZZ_CASES": str(cases), "FUZZ_SEED": str(seed), "FUZZ_PART": part}
        ended = subprocess.run(
            [sys.executable, *program, "-q", "-n", "0", "-p", "no:cacheprovider", "tests/fuzz"],
            cwd=ROOT,
            env={**os.environ, **environment, "FUZZ_RECORD": str(file)},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode not in (0, 1):
            raise SystemExit(ended.stdout[-3000:] + ended.stderr[-3000:])
        if ended.returncode:
            print(ended.stdout, file=sys.stderr)
        return json.loads(file.read_text())


def table(record: Record) -> str:
    """Markdown of a record."""
    total: dict[str, Counter[str]] = {}
    for part in record["parts"]:
        for kind, counts in part["kinds"].items():
            total.setdefault(kind, Counter()).update(counts)
    total["all"] = sum(total.values(), Counter())
    lines = ["| cases | number | accepted | share | failed | s |", "|---|---|---|---|---|---|"]
    for kind, counts in total.items():
        n = counts["accepted"] + counts["refused"]
        lines.append(
            f"| {kind} | {n:,} | {counts['accepted']:,} | {counts['accepted'] / max(1, n):.0%} | "
            f"{counts['failed']} | {counts['seconds']:,.0f} |"
        )
    reached = ", ".join(f"{part} {share} %" for part, share in record["lines"].items())
    about = f"Seed {record['seed']}; {len(record['parts'])} parts."
    about += f" Lines of code that a tenth as many cases reach: {reached}." if reached else ""
    return "\n".join([*lines, "", about])


if __name__ == "__main__":
    found = run_script(__doc__, measure, table, cases=100_000, seed=0, parts=10)
    counts = [kind for part in found["parts"] for kind in part["kinds"].values()]
    sys.exit(any(kind["failed"] for kind in counts))

"""The table of cases after a run, and time per kind; FUZZ_RECORD is a file to write it to."""

import json
import os
import time
from pathlib import Path

import fuzzing
import pytest

FAILED: set[str] = set()


@pytest.fixture(autouse=True)
def _timed(request):
    before, known = time.process_time(), set(fuzzing.COUNTS)
    yield
    for kind in set(fuzzing.COUNTS) - known:
        fuzzing.SECONDS[kind] = time.process_time() - before
        if request.node.called.failed:
            FAILED.add(kind)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call":
        item.called = report
    return report


def pytest_terminal_summary(terminalreporter):
    if not fuzzing.COUNTS:
        return
    write = terminalreporter.write_line
    terminalreporter.section(f"fuzzing, seed {fuzzing.SEED}")
    write(f"{'kind':<20} {'cases':>8} {'accepted':>9} {'refused':>8} {'share':>6} {'cases/s':>8}")
    total = sum(fuzzing.COUNTS.values(), type(next(iter(fuzzing.COUNTS.values())))())
    rows = {**fuzzing.COUNTS, "all": total}
    seconds = {**fuzzing.SECONDS, "all": sum(fuzzing.SECONDS.values())}
    for kind, counts in rows.items():
        n, yes = counts.total(), counts["accepted"]
        per_second = n / seconds[kind] if seconds.get(kind) else 0
        write(
            f"{kind:<20} {n:>8,} {yes:>9,} {counts['refused']:>8,} {yes / max(1, n):>6.0%} "
            f"{per_second:>8.0f}"
        )
    if file := os.environ.get("FUZZ_RECORD"):
        kinds = {
            kind: {**counts, "failed": int(kind in FAILED), "seconds": round(seconds[kind], 1)}
            for kind, counts in fuzzing.COUNTS.items()
        }
        Path(file).write_text(json.dumps({"seed": fuzzing.SEED, "kinds": kinds}))

"""The table of cases after a run, and time per kind."""

import time

import fuzzing
import pytest


@pytest.fixture(autouse=True)
def _timed(request):
    before, known = time.perf_counter(), set(fuzzing.COUNTS)
    yield
    for kind in set(fuzzing.COUNTS) - known:
        fuzzing.SECONDS[kind] = time.perf_counter() - before


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

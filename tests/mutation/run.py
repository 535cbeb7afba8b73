"""Break the code at random places and count what the tests notice.

usage: python tests/mutation/run.py PACKAGE [--sample 25] [--seed 0] [--record FILE.jsonl]
                                    [--most SECONDS]

PACKAGE is a package or module of ``unbag``, such as ``objectives`` or ``statistics``; its tests are
``tests/PACKAGE``, ``tests/test_PACKAGE.py`` and its doctests, without the slow ones. First these
run once, to learn which test reaches which line. Then each change of a seeded sample is made in the
memory of a new process, never on the disk, and only tests that reach its line are run, quick ones
first, until one fails. Tests after the first --most seconds are left out, so a change that only
they would notice counts as not noticed; the record says how many these are. A change that makes a
test five times as slow counts as noticed. A run that is started again with the same record goes on
where it stopped, and learns the lines again only if code or tests have changed.
"""

import argparse
import ast
import contextlib
import hashlib
import importlib
import importlib.machinery
import io
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant, find_mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "unbag"
_SHARED = ("callbacks", "fingerprint", "summary")  # tests of what several packages do
# What is slow to import is imported once, before a process is copied for every change.
_SLOW = ("pandas", "polars", "pyarrow.dataset", "scipy.optimize", "sklearn.ensemble", "torch")
# A test may compute for so many times its usual seconds and some more; by the clock, for longer.
_SLOWER, _SECONDS, _CLOCK = 5, 15, 4
_FAILED, _INTERRUPTED = 1, 2  # what pytest returns for a failed test, and for a failed import


def modules(package: str) -> list[Path]:
    """List the files of a package or module."""
    folder = SOURCE / package
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def tests(package: str) -> list[str]:
    """List what pytest is given for all tests of a package."""
    folder = ROOT / "tests"
    own = [folder / package, folder / f"test_{package}.py", *modules(package)]
    places = [*own, *(folder / f"test_{name}.py" for name in _SHARED)]
    return [str(p.relative_to(ROOT)) for p in places if p.exists()]


class Reached:
    """A plugin of pytest: the lines that each test reaches, and its seconds."""

    def __init__(self, package: str) -> None:
        import coverage

        self.coverage = coverage.Coverage(
            data_file=None, include=[str(p) for p in modules(package)], config_file=False
        )
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        before = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - before
            self.coverage.switch_context("import")

    def tests(self) -> dict[str, dict[str, list[str]]]:
        data = self.coverage.get_data()
        reached: dict[str, dict[str, list[str]]] = {}
        for file in data.measured_files():
            lines = data.contexts_by_lineno(file)
            name = str(Path(file).relative_to(ROOT))
            reached[name] = {str(line): sorted(tests) for line, tests in lines.items()}
        return reached


def in_process(work: Callable[[], Any]) -> Any:
    """Run something in a copy of this process; None if it was killed since it took too long."""
    file = Path(tempfile.mkstemp()[1])
    child = os.fork()
    if child == 0:
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            result = work()
        if not result:
            result = {"failed": quiet.getvalue()[-3000:]}
        file.write_text(json.dumps(result))
        os._exit(0)
    os.waitpid(child, 0)
    text = file.read_text()
    file.unlink()
    return json.loads(text) if text else None


class Limited:
    """A plugin of pytest: ends the process if a test takes much longer than it usually does."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        limit = _SLOWER * self.seconds[item.nodeid] + _SECONDS
        timers = {signal.ITIMER_PROF: limit, signal.ITIMER_REAL: _CLOCK * limit}
        for timer, seconds in timers.items():
            signal.setitimer(timer, seconds)  # its signal ends the process
        try:
            return (yield)
        finally:
            for timer in timers:
                signal.setitimer(timer, 0)


def pytest_run(arguments: list[str], *plugins: object) -> int:
    """Run tests in this process."""
    os.chdir(ROOT)
    common = [
        "-q",
        "-x",
        "--assert=plain",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    return int(pytest.main([*common, *arguments], plugins=list(plugins)))


def learn(package: str, kept: Path | None) -> dict[str, Any]:
    """Run all tests of a package once, or read what an earlier run learned of the same files."""
    digest = hashlib.sha256()
    for place in sorted([*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        digest.update(str(place).encode() + place.read_bytes())
    state = f"{package} {digest.hexdigest()}"
    if kept and kept.exists():
        earlier: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if earlier["state"] == state:
            return earlier

    def work() -> dict[str, Any]:
        plugin = Reached(package)
        plugin.coverage.start()
        code = pytest_run(tests(package), plugin)
        plugin.coverage.stop()
        return {} if code else {"reached": plugin.tests(), "seconds": plugin.seconds}

    learned = in_process(work)
    if learned is None or "failed" in learned:
        raise SystemExit(f"The tests of {package} fail as they are:\n{learned}")
    learned["state"] = state
    if kept:
        kept.write_text(json.dumps(learned), encoding="utf-8")
    return learned  # type: ignore[no-any-return]


def chosen_tests(mutant: Mutant, learned: dict[str, Any]) -> list[str]:
    """List the tests that reach the statement of a mutant, or its module if it runs on import."""
    reached = learned["reached"].get(mutant.path, {})
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    lines = {str(line) for line in statement_lines(source, mutant.line)}
    if not lines or any("import" in reached.get(line, []) for line in lines):
        lines = set(reached)
    here = {test for line in lines for test in reached.get(line, [])} - {"", "import"}
    return sorted(here, key=lambda test: learned["seconds"][test])


def statement_lines(source: str, line: int) -> list[int]:
    """List the lines of the statement that a line is part of; none if it runs on import."""
    found, in_function = None, False
    for node in ast.walk(ast.parse(source)):  # outer ones come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            found = node
            if isinstance(node, ast.FunctionDef) and line >= node.body[0].lineno:
                in_function = True
    if found is None or not in_function:
        return []
    body = getattr(found, "body", None)
    end = body[0].lineno - 1 if body else found.end_lineno or line
    return list(range(found.lineno, max(end, line) + 1))


def first_tests(chosen: list[str], seconds: dict[str, float], most: float) -> list[str]:
    """Leave out the tests that come after the first seconds, but keep one in any case."""
    sums = itertools.accumulate(seconds[test] for test in chosen)
    return [test for i, (test, s) in enumerate(zip(chosen, sums, strict=True)) if not i or s < most]


def is_noticed(mutant: Mutant, chosen: list[str], learned: dict[str, Any]) -> bool:
    """Run the chosen tests on the changed code."""
    target = str(ROOT / mutant.path)
    changed = mutant.apply(Path(target).read_text(encoding="utf-8"))
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, name: str) -> Any:
        if self.path == target:
            return compile(changed, target, "exec", dont_inherit=True)
        return original(self, name)

    def work() -> dict[str, Any]:
        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
        return {"code": pytest_run(chosen, Limited(learned["seconds"]))}

    came = in_process(work)
    if came is None or came.get("code") in (_FAILED, _INTERRUPTED):
        return True
    if came.get("code"):  # no test was found: by the change, or by a name that pytest cannot find
        unchanged = in_process(lambda: {"code": pytest_run(["--collect-only", *chosen])})
        if unchanged["code"]:
            raise SystemExit(f"pytest does not find all of these tests:\n{chosen}")
        return True
    return False


def sample(package: str, count: int, seed: int) -> list[Mutant]:
    """Draw changes, all equally likely."""
    found = [
        mutant
        for file in modules(package)
        for mutant in find_mutants(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> None:
    """Print every change that no test noticed, and the share of those that were noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--sample", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--most", type=float, default=60)
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    sys.path.insert(0, str(ROOT / "src"))
    for name in _SLOW:
        importlib.import_module(name)
    drawn = sample(given.package, given.sample, given.seed)
    done: dict[tuple[str, int, str], bool] = {}
    if given.record and given.record.exists():
        for line in given.record.read_text(encoding="utf-8").splitlines():
            run = json.loads(line)
            done[run["path"], run["node"], run["change"]] = run["noticed"]
    kept = given.record and given.record.with_suffix(".reached.json")
    learned = learn(given.package, kept)
    counts: dict[bool, int] = defaultdict(int)
    for mutant in drawn:
        key = (mutant.path, mutant.node, mutant.change)
        if key not in done:
            reaching = chosen_tests(mutant, learned)
            chosen = first_tests(reaching, learned["seconds"], given.most)
            done[key] = bool(chosen) and is_noticed(mutant, chosen, learned)
            counted = {"tests": len(chosen), "left_out": len(reaching) - len(chosen)}
            if given.record:
                facts = {**vars(mutant), "noticed": done[key], **counted}
                with given.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(facts) + "\n")
        counts[done[key]] += 1
        if not done[key]:
            print(f"{mutant.path}:{mutant.line}: {mutant.change}: {mutant.text}", flush=True)
    noticed, n = counts[True], sum(counts.values())
    print(f"{given.package}: {noticed} of {n} noticed ({noticed / max(n, 1):.0%})")


if __name__ == "__main__":
    main()

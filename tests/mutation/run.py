"""Break the code at random places and count what the tests notice.

usage: python tests/mutation/run.py PACKAGE [--sample 25] [--seed 0] [--record FILE.jsonl]
                                    [--most SECONDS] [--jobs N]

PACKAGE is a package or module of ``unbag``, such as ``objectives`` or ``statistics``; its tests are
``tests/PACKAGE``, ``tests/test_PACKAGE.py`` and its doctests, without the slow ones. First these
run once, to learn which test reaches which line; those that fail or are skipped as the code is are
left out. Then each change of a seeded sample is made in the memory of a new process, never on the
disk, and only tests that reach its line are run, those of its own module first and quick ones
first, until one fails. Tests after the first --most seconds are left out, so a change that only
they would notice counts as not noticed; the record says how many these are. A change that makes a
test five times as slow counts as noticed. Changes that ``equivalent.toml`` lists, with the reason
why nobody could see them, are not counted. A run that is started again with the same record goes on
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
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant, find_mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "unbag"
_SHARED = ("callbacks", "fingerprint", "summary")  # tests of what several packages do
# Tests that lie with the package which a user calls.
_ELSEWHERE = {
    "evaluation": ("inspection",),
    "io": ("test_inputs_of_every_kind.py",),
    "priors": ("io/test_priors_file.py",),
}
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
    places += [folder / name for name in _ELSEWHERE.get(package, ())]
    return [str(p.relative_to(ROOT)) for p in places if p.exists()]


class Reached:
    """A plugin of pytest: the lines that each test reaches, its seconds, and whether it passed.

    What a fixture reaches that several tests share counts for all of these tests.
    """

    def __init__(self, package: str) -> None:
        self.files = {str(path) for path in modules(package)}
        self.lines: dict[str, dict[int, set[str]]] = {f: defaultdict(set) for f in self.files}
        self.context = "import"
        self.seconds: dict[str, float] = defaultdict(float)  # of tests, and of shared fixtures
        self.fixtures: dict[str, list[str]] = {}
        self.passed: set[str] = set()

    def trace(self, frame: Any, _: str, __: object) -> Any:
        file = frame.f_code.co_filename
        if file not in self.files:
            return None
        self.lines[file][frame.f_lineno].add(self.context)
        return self.trace

    @contextlib.contextmanager
    def switched(self, context: str) -> Iterator[None]:
        outer, self.context = self.context, context
        before = time.process_time()
        try:
            yield
        finally:
            self.context = outer
            seconds = time.process_time() - before
            self.seconds[context] += seconds
            self.seconds[outer] -= seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        found = getattr(item, "_fixtureinfo", None)
        shared = [d[-1] for d in found.name2fixturedefs.values()] if found else []
        self.fixtures[item.nodeid] = [_name(d) for d in shared if d.scope != "function"]
        with self.switched(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        shared = fixturedef.scope != "function"
        with self.switched(_name(fixturedef)) if shared else contextlib.nullcontext():
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        elif report.failed:
            self.passed.discard(report.nodeid)

    def learned(self) -> dict[str, Any]:
        users = defaultdict(set)
        for test in self.passed:
            for context in (test, *self.fixtures[test]):
                users[context].add(test)
        reached = {
            str(Path(file).relative_to(ROOT)): {
                str(line): sorted({t for c in contexts for t in users[c]} | contexts & {"import"})
                for line, contexts in lines.items()
            }
            for file, lines in self.lines.items()
        }
        seconds = {
            t: sum(self.seconds[context] for context in (t, *self.fixtures[t])) for t in self.passed
        }
        return {"reached": reached, "seconds": seconds}


def _name(fixture: Any) -> str:
    return f"{fixture.baseid} {fixture.argname} {fixture.func.__qualname__}"


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
        threading.settrace(plugin.trace)
        sys.settrace(plugin.trace)
        pytest_run([*tests(package), "--continue-on-collection-errors"], plugin)
        sys.settrace(None)
        return plugin.learned() if plugin.passed else {}

    learned = in_process(work)
    if learned is None or "failed" in learned:
        raise SystemExit(f"No test of {package} passes as it is:\n{learned}")
    learned["state"] = state
    if kept:
        kept.write_text(json.dumps(learned), encoding="utf-8")
    return learned  # type: ignore[no-any-return]


def chosen_tests(mutant: Mutant, learned: dict[str, Any]) -> list[str]:
    """List the tests that reach the statement of a mutant.

    Of one that runs on import: those that reach its module, or lie in files of the module's name.
    """
    reached = learned["reached"].get(mutant.path, {})
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    module = Path(mutant.path).stem

    def mirrors(test: str) -> bool:
        return module in test.partition("::")[0]

    lines = {str(line) for line in statement_lines(source, mutant.line)}
    on_import = not lines or any("import" in reached.get(line, []) for line in lines)
    if on_import:
        lines = set(reached)
    here = {test for line in lines for test in reached.get(line, [])} - {"import"}
    if on_import:
        here |= set(filter(mirrors, learned["seconds"]))
    return sorted(here, key=lambda test: (not mirrors(test), learned["seconds"][test]))


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
        return {"code": pytest_run(["-x", *chosen], Limited(learned["seconds"]))}

    came = in_process(work)
    if came is None or came.get("code") in (_FAILED, _INTERRUPTED):
        return True
    if came.get("code"):  # no test was found: by the change, or by a name that pytest cannot find
        unchanged = in_process(lambda: {"code": pytest_run(["--collect-only", *chosen])})
        if unchanged["code"]:
            raise SystemExit(f"pytest does not find all of these tests:\n{chosen}")
        return True
    return False


def find_all(package: str) -> list[Mutant]:
    """List all changes of a package."""
    return [
        mutant
        for file in modules(package)
        for mutant in find_mutants(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
    ]


def find_unseen(found: list[Mutant]) -> set[Mutant]:
    """Find the changes that ``equivalent.toml`` lists."""
    text = (Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8")
    unseen = set()
    for path, entries in tomllib.loads(text).items():
        here = [m for m in found if m.path == f"src/unbag/{path}"]
        for entry in entries if here else []:
            alike = [m for m in here if (m.change, m.text) == (entry["change"], entry["line"])]
            if not alike:
                print(f"equivalent.toml: {path} has no line {entry['line']!r} any more")
            unseen |= {m for i, m in enumerate(alike, 1) if i in entry.get("which", [i])}
    return unseen


def read_record(record: Path) -> list[dict[str, Any]]:
    """Read the changes that were tried."""
    text = record.read_text(encoding="utf-8") if record.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def try_all(drawn: list[Mutant], learned: dict[str, Any], record: Path, most: float) -> None:
    """Add a line to the record for each change."""
    for mutant in drawn:
        reaching = chosen_tests(mutant, learned)
        chosen = first_tests(reaching, learned["seconds"], most)
        noticed = bool(chosen) and is_noticed(mutant, chosen, learned)
        counted = {"tests": len(chosen), "left_out": len(reaching) - len(chosen)}
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**vars(mutant), "noticed": noticed, **counted}) + "\n")


def main() -> None:
    """Print every change that no test noticed, and the share of those that were noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--sample", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--most", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    sys.path.insert(0, str(ROOT / "src"))
    for name in _SLOW:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    found = find_all(given.package)
    unseen = find_unseen(found)
    drawn = random.Random(given.seed).sample(found, min(given.sample, len(found)))
    n_unseen = len(unseen.intersection(drawn))
    drawn = [mutant for mutant in drawn if mutant not in unseen]
    kept = given.record and given.record.with_suffix(".reached.json")
    record = given.record or Path(tempfile.mkstemp()[1])
    learned = learn(given.package, kept)
    keys = ("path", "node", "change", "text")
    done = {tuple(run[key] for key in keys) for run in read_record(record)}
    left = [m for m in drawn if tuple(vars(m)[key] for key in keys) not in done]
    children = []
    for job in range(given.jobs):
        if not (child := os.fork()):
            try_all(left[job :: given.jobs], learned, record, given.most)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    noticed = {tuple(run[key] for key in keys): run["noticed"] for run in read_record(record)}
    lost = [m for m in drawn if not noticed.get(tuple(vars(m)[key] for key in keys))]
    for m in lost:
        print(f"{m.path}:{m.line}: {m.change}: {m.text}")
    n = len(drawn)
    share = f"{n - len(lost)} of {n} noticed ({1 - len(lost) / max(n, 1):.0%})"
    print(f"{given.package}: {share}; {n_unseen} change nothing")


if __name__ == "__main__":
    main()

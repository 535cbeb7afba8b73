"""Model folders that mean harm: what comes of each, the memory and the time that it takes.

usage: python tests/faults/hostile.py

The kinds are those of the tests. Each folder is read by a fork of this process, beside a file that
nothing may change. Memory is the growth of the process beyond the size of the folder. Prints
Markdown; ends with 1 where a folder or the file beside it was changed, an error was not one of
unbag, or a reading took more memory than is promised.
"""

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "estimator"), str(HERE.parent / "workflow")]
ALLOWED = 100 << 20


def main() -> int:
    import test_memory
    import test_saving

    kinds = {name: change for name, (change, _) in test_saving.HOSTILE.items()}
    kinds |= {f"memory: {change.__name__}": change for change in test_memory.KINDS}
    rows = []
    with tempfile.TemporaryDirectory() as place:
        good = Path(place) / "good"
        test_saving.fitted().calibrate(test_saving.X, test_saving.BAGS).save(good)
        for name, change in kinds.items():
            rows.append((name, *read(Path(place), good, change)))
        planted = plant(Path(place))
    say("kind", "came of it", "MB beyond the folder", "seconds", "wrong")
    for row in rows:
        say(*row)
    say("planted links", f"{planted['kinds']} kinds", "", "", planted["wrong"] or "")
    refused = sum(row[1] == "refused" for row in rows)
    peak, seconds = max(row[2] for row in rows), max(row[3] for row in rows)
    wrong = sum(bool(row[4]) for row in rows) + len(planted["wrong"])
    say("all", f"{refused} of {len(rows)} refused", peak, seconds, wrong)
    return bool(wrong)


def read(place: Path, good: Path, change) -> tuple[str, float, float, str]:
    """Read a changed copy of a folder in a fork; what came of it."""
    folder, victim = place / "model", place / "victim"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
    victim.write_text("dear")
    (place / "outside").unlink(missing_ok=True)
    in_fork(lambda: change(folder))  # so that memory it takes is not there for the reading
    before = state(place)
    size = sum(path.lstat().st_blocks * 512 for path in folder.iterdir())
    told = forked(folder, good)
    wrong = "" if told["came"] in ("refused", "read") else told["came"]
    if state(place) != before or victim.read_text() != "dear":
        wrong += " files changed"
    beyond = max(0, told["bytes"] - size)
    if beyond > ALLOWED:
        wrong += " too much memory"
    return told["came"], round(beyond / 1e6), round(told["seconds"], 2), wrong


def forked(folder: Path, good: Path) -> dict:
    from unbag import load_model
    from unbag.exceptions import UnbagError

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        load_model(good)  # what is imported late
        start, before = time.perf_counter(), peak()
        try:
            load_model(folder)
            came = "read"
        except UnbagError:
            came = "refused"
        except BaseException as error:  # noqa: BLE001 — that is what must not be
            came = repr(error)
        seconds = time.perf_counter() - start
        told = {"came": came, "seconds": seconds, "bytes": peak() - before}
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:  # noqa: PTH123
        data = file.read()
    os.waitpid(child, 0)
    return json.loads(data) if data else {"came": "it crashed", "seconds": 0, "bytes": 0}


def in_fork(function) -> None:
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def plant(place: Path) -> dict:
    """Plant links in a folder under names that are written to; evaluate and replace the model."""
    from test_hostile_folders import PLANTED

    import small_files
    from run_command import run

    work, victim = place / "files", place / "victim"
    work.mkdir()
    small_files.write_files(work)
    small_files.train(work)
    os.chdir(work)
    wrong = []
    for name in PLANTED:
        path = work / "model" / name
        path.unlink(missing_ok=True)
        path.symlink_to(victim)
        page = "model/evaluation-report.html"
        for command in (
            f"evaluate model other.parquet --bag district --report {page} --overwrite",
            "fit rows.parquet --bag district --priors shares.csv --method prop --epochs 1 "
            "--output model --overwrite",
        ):
            ended = run(command)
            if ended.exit_code not in (0, 1) or victim.read_text() != "dear":
                wrong.append(f"{name}: {command.split()[0]} {ended.exit_code}")
        path.unlink(missing_ok=True)
    os.chdir(place)
    return {"kinds": len(PLANTED), "wrong": wrong}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def state(place: Path) -> dict[str, tuple[int, ...]]:
    paths = {str(path): path.lstat() for path in place.rglob("*")}
    return {name: (s.st_mode, s.st_size, s.st_mtime_ns) for name, s in paths.items()}


def say(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)  # noqa: T201
    if cells[0] == "kind":
        print("|" + "---|" * len(cells))  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())

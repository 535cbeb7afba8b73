"""Model folders that mean harm: what comes of each, the memory and the time that it takes.

usage: python tests/faults/hostile.py

The kinds are those of the tests, and some of files beside the model. What commands read of each
folder is read by a fork of this process, beside a file that nothing may change. Memory is the
growth of the process beyond the size of the folder. Prints one JSON object.
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


def main() -> dict:
    import test_memory
    import test_saving

    groups = {
        "damaged or tampered with": {n: change for n, (change, _) in test_saving.HOSTILE.items()},
        "made to take memory": {change.__name__: change for change in test_memory.KINDS},
        "beside the model": BESIDE,
    }
    rows = []
    with tempfile.TemporaryDirectory() as place:
        good = Path(place) / "good"
        test_saving.fitted().calibrate(test_saving.X, test_saving.BAGS).save(good)
        for group, kinds in groups.items():
            for name, change in kinds.items():
                row = read(Path(place), good, change)
                rows.append({"group": group, "kind": name, **row})
        planted = plant(Path(place))
    wrong = [f"{row['kind']}: {row['wrong']}" for row in rows if row["wrong"]]
    return {"rows": rows, "planted": planted, "wrong": [*wrong, *planted["wrong"]]}


def beside(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


BESIDE = {  # what commands read beside the model itself; what cannot be read is as if not there
    "a report that is a pipe": lambda p: os.mkfifo(p / "report.json"),
    "a report that is a link": lambda p: (p / "report.json").symlink_to("/dev/zero"),
    "a report of deep lists": beside("report.json", b"[" * 50_000_000),
    "a report of many answers": beside(
        "report.json", b'{"answers": {"questions": [' + b"[]," * 15_000_000 + b"[]]}}"
    ),
    "a report of one text": beside("report.json", b'{"created": "' + b"x" * 60_000_000 + b'"}'),
    "options that are a pipe": lambda p: os.mkfifo(p / "config.toml"),
    "options that are a link": lambda p: (p / "config.toml").symlink_to("/dev/zero"),
    "options of deep lists": beside("config.toml", b"bag = " + b"[" * 19_000),
    "options of many tables": beside("config.toml", b"a." * 19_000 + b"b = 1"),
    "options that are large": beside("config.toml", b"bag = 1\n" * 200_000),
}


def read(place: Path, good: Path, change) -> dict:
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
    seconds = round(told["seconds"], 2)
    return {"came": told["came"], "mb": round(beyond / 1e6), "seconds": seconds, "wrong": wrong}


def forked(folder: Path, good: Path) -> dict:
    from unbag.exceptions import UnbagError
    from unbag.workflow import show_model
    from unbag.workflow.judging import bag_column

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        show_model(good)  # what is imported late
        start, before = time.perf_counter(), peak()
        try:
            bag_column(folder)
            show_model(folder)
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


if __name__ == "__main__":
    print(json.dumps(main()))  # noqa: T201

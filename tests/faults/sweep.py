"""Run commands of which the n-th write, new file, sync, rename, map or allocation fails.

usage: LD_PRELOAD=shim.so python sweep.py FOLDER COMMAND=POINTS ...

The folder has the files of ``small_files``, POINTS is the largest number of points per kind of
fault. Each run is a fork of this process, which has imported everything. Prints a line of JSON per
command: the points per kind, and what was wrong with which.
"""

import ctypes
import errno
import json
import os
import pickle
import re
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

KINDS = ("write", "create", "sync", "rename", "map", "allocation")
# Kind, error, whether it stays so, and what the message must say.
FAULTS = (
    ("write", errno.ENOSPC, True, "No space left on device"),
    ("write", errno.EDQUOT, True, "Disk quota exceeded"),
    ("write", errno.EIO, False, "Input/output error"),
    ("create", errno.ENOSPC, False, "No space left on device"),
    ("sync", errno.EIO, False, "Input/output error"),
    ("rename", errno.ENOSPC, False, "No space left on device"),
    ("map", errno.ENOMEM, False, "memory"),
    ("allocation", errno.ENOMEM, False, "memory"),
)
SQLITE = {
    "No space left on device": ("disk is full", "unable to open database file"),
    "Disk quota exceeded": ("disk I/O error", "disk is full"),
    "Input/output error": ("disk I/O error",),
    "memory": ("Cannot allocate",),
}
FIT = "--bag district --priors shares.csv --method prop --epochs 2 --width 8 --output made"
FILES = {"CSV": "rows.csv", "Parquet": "other.parquet", "odd CSV": "odd.csv"}
COMMANDS = {
    "export": ("export model --output made.onnx", "made.onnx"),
    "predict to a folder": (
        "predict model other.parquet --output made --key city --partition-by city",
        "made",
    ),
}
for kind, file in FILES.items():
    out = "made.parquet" if kind == "Parquet" else "made.csv"
    COMMANDS |= {
        f"fit {kind}": (f"fit {file} {FIT}", "made"),
        f"tune {kind}": (f"tune {file} {FIT} --trials 3 --at-once 2", "made"),
        f"predict {kind}": (f"predict model {file} --key id --output {out}", out),
        f"evaluate {kind}": (f"evaluate model {file} --report made.html", "made.html"),
    }


def write_odd(folder: Path) -> None:
    """A CSV file with blank lines, and line breaks in quotes."""
    lines = (folder / "rows.csv").read_text().splitlines()
    for i in range(1, len(lines), 3):
        before, end = lines[i].rsplit(",", 1)
        lines[i] = f'{before},"{end.strip(chr(34))}\n\n,"'
    text = "\n".join(line + "\n\r\n" * (i % 5 == 0) for i, line in enumerate(lines))
    (folder / "odd.csv").write_text(text, newline="")


def prepare(name: str, folder: Path) -> tuple[str, str]:
    """Import all that a command needs before the forks; the command, and what it makes."""
    import torch

    from unbag.methods import fitting
    from unbag.workflow import predicting

    if not name.startswith("predict"):
        import unbag.estimator.exporting
        import unbag.reporting
    if name == "export":
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    if name.startswith("tune"):
        import sqlite3  # noqa: F401

        import optuna.storages  # noqa: F401

        import unbag.selection.sampling  # noqa: F401
    fitting.fit_many.__kwdefaults__["checkpoint_seconds"] = 0.0
    predicting._BATCH_ROWS = predicting._PART_ROWS = 128
    torch.set_num_threads(1)
    os.chdir(folder)
    write_odd(folder)
    command, output = COMMANDS[name]
    from run_command import run

    run(f"{command.split()[0]} none none --priors none --output none.csv")  # imports what is lazy
    return command, output


def main(name: str, folder: Path, points: int) -> dict:
    command, _ = prepare(name, folder)
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    before = files(folder)
    whole = forked(shim, command, None)
    assert whole["code"] == 0, whole
    expected = result(folder)
    assert expected
    remove(folder)
    wrong, done, told_points, crashes = [], {}, 0, []
    for kind, error, stays, words in FAULTS:
        n = whole["counts"][KINDS.index(kind)]
        chosen = range(n) if n <= points else sorted({*np.linspace(0, n - 1, points).astype(int)})
        done[f"{kind} {errno.errorcode[error]}"] = len(chosen)
        for moment in chosen:
            fault = (KINDS.index(kind), int(moment), error, int(stays))
            told = forked(shim, command, fault)
            told_points += told["code"] == 1
            if told["code"] < 0:
                crashes.append([kind, errno.errorcode[error], int(moment), told["code"]])
            problem = problem_of(told, words, folder, expected, before)
            # Where nothing is left, the same command is the whole run that was there before.
            if any(folder.glob("*made*")):
                is_left = any(folder.glob(".*made*"))
                again = forked(shim, command, None) if told["code"] or is_left else told
                left = [path.name for path in folder.glob(".*made*")]
                if again["code"] != 0 or left or result(folder) != expected:
                    went = f"the same command did not go on: {again['text'][-500:]} {left}"
                    problem = problem or went
            if problem:
                wrong.append([kind, errno.errorcode[error], int(moment), problem])
            remove(folder)
    possible = sum(whole["counts"][KINDS.index(kind)] for kind, *_ in FAULTS)
    counts = {"points": done, "possible": possible, "told": told_points, "crashes": crashes}
    return {"command": name, **counts, "wrong": wrong}


def problem_of(told, words, folder, expected, before) -> str | None:
    """What is not as it must be after a fault; None where all is."""
    is_library = told["code"] < 0 and words == "memory"  # which ends the process by itself
    if told["code"] not in (0, 1) and not is_library:
        return f"exit code {told['code']}: {told['text'][-1500:]}"
    now = result(folder)
    if told["code"] == 0:
        return None if now == expected else "the result differs, and nobody was told"
    named = (words, *SQLITE.get(words, ()))
    if not is_library and not any(word in told["text"] for word in named):
        return f"the cause is not named: {told['text'][-500:]}"
    if any(name for name in now if not name.startswith(".")) and now != expected:
        return f"half of a result: {sorted(now)}"
    if {path: data for path, data in files(folder).items() if "made" not in path} != before:
        return f"other files changed: {sorted(set(files(folder)) - set(before))}"
    return None


def forked(shim, command: str, fault) -> dict:
    """Run a command in a fork of this process; what it told, its code, and the calls it made."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            from run_command import run

            warnings.simplefilter("ignore")
            sys.unraisablehook = lambda *_: None
            shim.fault_set(*(fault or (-1, 0, 0, 0)))
            ended = run(command)
            counts = [shim.fault_count(kind) for kind in range(len(KINDS))]
            shim.fault_set(-1, 0, 0, 0)
            text, code = ended.stderr + ended.stdout, ended.exit_code
            if ended.exception is not None and not isinstance(ended.exception, SystemExit):
                text, code = "".join(traceback.format_exception(ended.exception)), 99
            os.write(write, pickle.dumps({"code": code, "text": text, "counts": counts}))
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as file:  # noqa: PTH123
        data = file.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if data else {"code": -status, "text": "it crashed", "counts": []}


def for_each(measure, *more: object) -> None:
    """Measure what the arguments of this process name, and print what came of each command."""
    place, *named = sys.argv[1:]
    for command, number in (text.split("=") for text in named):
        start = time.perf_counter()
        found = measure(command, Path(place).resolve(), int(number), *more)
        found["seconds"] = round(time.perf_counter() - start)
        print(json.dumps(found), flush=True)  # noqa: T201


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def result(folder: Path) -> dict[str, bytes]:
    """All files that the command made, without dates and times."""
    made = {}
    for path, data in files(folder).items():
        if "made" in path.split("/")[0] and not path.startswith("."):
            if path.endswith((".json", ".html")):
                data = re.sub(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:[\d.+:]+)?", b"DATE", data)
                data = re.sub(rb'"(seconds|minutes)": [\d.e-]+', b"", data)
            made[path] = data
    return made


def remove(folder: Path) -> None:
    for path in folder.glob("*made*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for_each(main)

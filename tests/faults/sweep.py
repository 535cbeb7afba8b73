"""Run commands of which the n-th write, sync, rename, map or allocation fails, for every n.

usage: LD_PRELOAD=shim.so python sweep.py COMMAND FOLDER POINTS

The folder has the files of ``small_files``. Each run is a fork of this process, which has imported
everything. Prints one JSON object: the points per kind, and what was wrong with which.
"""

import ctypes
import errno
import json
import os
import pickle
import shutil
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np

KINDS = ("write", "sync", "rename", "map", "allocation")
# Kind, error, whether it stays so, and what the message must say.
FAULTS = (
    ("write", errno.ENOSPC, True, "No space left on device"),
    ("write", errno.EDQUOT, True, "Disk quota exceeded"),
    ("write", errno.EIO, False, "Input/output error"),
    ("sync", errno.EIO, False, "Input/output error"),
    ("rename", errno.ENOSPC, False, "No space left on device"),
    ("map", errno.ENOMEM, False, "memory"),
    ("allocation", errno.ENOMEM, False, "memory"),
)
FIT = "rows.csv --bag district --priors shares.csv --method prop --epochs 2 --width 8"
COMMANDS = {
    "fit": (f"fit {FIT} --output made", "made"),
    "tune": (f"tune {FIT} --trials 2 --output made", "made"),
    "predict": ("predict model other.parquet --key id --output made.parquet", "made.parquet"),
    "predict CSV": ("predict model rows.csv --output made.csv", "made.csv"),
    "evaluate": ("evaluate model other.parquet --report made.html", "made.html"),
    "export": ("export model --output made.onnx", "made.onnx"),
}
_SLACK = 400  # seconds after which a run is taken to hang


def main(name: str, folder: Path, points: int) -> dict:
    import torch

    from unbag.methods import fitting
    from unbag.workflow import predicting

    if name in ("export", "evaluate", "tune", "fit"):
        import unbag.estimator.exporting  # noqa: F401 — imported once, before the forks
        import unbag.report  # noqa: F401
    if name == "export":
        import onnx  # noqa: F401
    if name == "tune":
        import optuna.storages  # noqa: F401
        import sqlite3  # noqa: F401
    fitting.fit_many.__kwdefaults__["checkpoint_seconds"] = 0.0
    predicting._BATCH_ROWS = predicting._PART_ROWS = 128
    torch.set_num_threads(1)
    os.chdir(folder)
    command, output = COMMANDS[name]
    from commands import run

    run(f"{command.split()[0]} none none --priors none --output none.csv")  # imports what is lazy
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    before = files(folder)
    whole = forked(shim, command, None)
    assert whole["code"] == 0, whole
    expected = result(folder, output)
    assert expected
    remove(folder)
    wrong, done = [], {}
    for kind, error, stays, words in FAULTS:
        n = whole["counts"][KINDS.index(kind)]
        chosen = range(n) if n <= points else sorted({*np.linspace(0, n - 1, points).astype(int)})
        done[f"{kind} {errno.errorcode[error]}"] = len(chosen)
        for moment in chosen:
            fault = (KINDS.index(kind), int(moment), error, int(stays))
            told = forked(shim, command, fault)
            problem = problem_of(told, words, folder, output, expected, before)
            again = forked(shim, command, None) if told["code"] else told
            if again["code"] != 0 or result(folder, output) != expected:
                problem = problem or f"the same command did not go on: {again['text'][-500:]}"
            if problem:
                wrong.append([kind, errno.errorcode[error], int(moment), problem])
            remove(folder)
    return {"command": name, "points": done, "wrong": wrong}


def problem_of(told, words, folder, output, expected, before) -> str | None:
    """What is not as it must be after a fault; None where all is."""
    if told["code"] not in (0, 1):
        return f"exit code {told['code']}: {told['text'][-1500:]}"
    now = result(folder, output)
    if told["code"] == 0:
        return None if now == expected else "the result differs, and nobody was told"
    if words == "memory" and "memory" not in told["text"]:
        if "Cannot allocate" not in told["text"]:
            return f"the cause is not named: {told['text'][-500:]}"
    elif words.casefold() not in told["text"].casefold():
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
            from commands import run

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


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def result(folder: Path, output: str) -> dict[str, bytes]:
    """All files that the command made, without dates and times."""
    import re

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
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]).resolve(), int(sys.argv[3]))))

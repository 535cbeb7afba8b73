"""Whether `unbag fit` and `unbag predict` that were killed and run again give the same result.

usage: python benchmarks/kill.py [--record FILE.json] [--kills N] [--aimed N]
       python benchmarks/kill.py --table FILE.json

Each command runs once undisturbed. Then, N times with a new output each, it is killed (SIGKILL) at
a random moment of that time and run again, every fourth time killed twice more before; and some
times more in each of the short steps at the end, which random moments rarely meet. Its result is
compared with the undisturbed one, byte for byte but for the date in the report. So that short runs
have several steps, training is kept every second instead of every 30, and predictions every 131,072
rows instead of every million.
"""

import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from commands import BAG, machine, shares, write_priors, write_rows
from script import run_script

PROGRAM = """
from unbag.cli import app
from unbag.methods import fitting
from unbag.workflow import predicting
fitting.fit_many.__kwdefaults__["checkpoint_seconds"] = 1.0
predicting._PART_ROWS = 1 << 17
app()
"""
FIT = (
    f"fit ../rows.parquet --bag {BAG} --priors ../priors.csv --output model "
    "--method u-prr --epochs 8"
)
PREDICT = "predict ../first/model ../new.parquet --output out.parquet"
FIRST = {"fit": "first", "predict": "predicted"}  # folders of the undisturbed runs
Kill = dict[str, Any]


def write_files(root: Path) -> None:
    theta = shares(6, 5)
    write_priors(root / "priors.csv", theta)
    write_rows(root / "rows.parquet", 50_000, 40, theta)
    write_rows(root / "new.parquet", 1_500_000, 40, theta, seed=1)


def start(command: str, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-c", PROGRAM, *command.split()]
    return subprocess.Popen(arguments, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def fit_step(folder: Path) -> str:
    """Say how far a fit is, by what it has written."""
    work = folder / ".model.work"
    if (folder / "model/model.json").exists():
        return "writing the report" if work.is_dir() else "done"
    if (folder / ".model.saving").is_dir():
        return "saving the model"
    if any(work.glob("training/*.safetensors")):
        return "training, some epochs kept"
    if (work / "training").is_dir():
        return "training, no epoch kept"
    if any(work.glob("rows/*.partial-*")):
        return "encoding rows"
    if any(work.glob("rows/*")):
        return "inspecting and splitting"
    return "reading rows" if work.is_dir() else "starting"


def predict_step(folder: Path) -> str:
    """Say how far a prediction is, by what it has written."""
    parts = folder / ".out.parquet.parts"
    if (folder / "out.parquet").exists():
        return "removing parts" if parts.is_dir() else "done"
    if any(parts.glob("*.partial")):
        return "writing a part"
    if any(parts.glob("*.arrow")):
        return "predicting, some parts kept"
    return "before the first part"


COMMANDS: dict[str, tuple[str, Callable[[Path], str], list[str]]] = {
    "fit": (FIT, fit_step, ["encoding rows", "saving the model", "writing the report"]),
    "predict": (PREDICT, predict_step, ["writing a part", "removing parts"]),
}


def result(folder: Path) -> dict[str, bytes]:
    """Every file there, hidden ones too, without the date of a report."""
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.name in ("report.json", "report.html"):
            created = json.loads((path.parent / "report.json").read_text())["created"]
            for date in (created, f"{created[:10]} {created[11:16]} UTC"):
                content = content.replace(date.encode(), b"DATE")
        files[str(path.relative_to(folder))] = content
    return files


def run_to_end(command: str, folder: Path) -> None:
    if start(command, folder).wait():
        raise SystemExit(f"unbag {command} failed in {folder}")


def kill_at(command: str, folder: Path, step: Callable[[Path], str], moment: float) -> Kill | None:
    """Kill the command so many seconds after its start; None where it ended before."""
    process = start(command, folder)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        return end(process, step, folder, moment)
    return None


def kill_in(
    command: str, folder: Path, step: Callable[[Path], str], aim: str, delay: float
) -> Kill | None:
    """Kill the command so many seconds after a step began; None where it was not met."""
    process = start(command, folder)
    began = time.perf_counter()
    while step(folder) != aim:
        if process.poll() is not None:
            return None
        time.sleep(0.0005)
    time.sleep(delay)
    return end(process, step, folder, time.perf_counter() - began)


def end(
    process: subprocess.Popen[bytes], step: Callable[[Path], str], folder: Path, moment: float
) -> Kill | None:
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        return None
    return {"second": round(moment, 3), "step": step(folder)}


def undisturbed(
    command: str, folder: Path, step: Callable[[Path], str]
) -> tuple[float, dict[str, float]]:
    """Run the command to its end; seconds in all and of every step."""
    process = start(command, folder)
    began = before = time.perf_counter()
    steps: Counter[str] = Counter()
    while process.poll() is None:
        time.sleep(0.001)
        now = time.perf_counter()
        steps[step(folder)] += now - before  # type: ignore[assignment]
        before = now
    if process.returncode:
        raise SystemExit(f"unbag {command} failed")
    return before - began, {name: round(float(s), 3) for name, s in steps.items()}


def disturb(name: str, root: Path, kills: int, aimed: int) -> Iterator[dict[str, Any]]:
    """Run a command undisturbed, then kill it again and again; yield the record as it grows."""
    command, step, aims = COMMANDS[name]
    rng = np.random.default_rng(0)
    first = root / FIRST[name]
    seconds, steps = undisturbed(command, first, step)
    expected = result(first)
    runs: list[dict[str, Any]] = []
    at_work = seconds - steps.get("done", 0.0)
    for number in range(kills + aimed * len(aims)):
        folder = root / f"{name}-{number}"
        done: list[Kill | None] = []
        if number < kills:
            for again in range(3 if number % 4 == 3 else 1):
                moment = rng.uniform(0, at_work / 2 if again else at_work)
                if step(folder) != "done":
                    done.append(kill_at(command, folder, step, moment))
        else:
            aim = aims[(number - kills) % len(aims)]
            delay = rng.uniform(0, min(steps.get(aim, 0), 0.5))
            done.append(kill_in(command, folder, step, aim, delay))
        if step(folder) != "done":
            run_to_end(command, folder)
        found = result(folder)
        names = sorted({*found, *expected})
        differing = [file for file in names if found.get(file) != expected.get(file)]
        runs.append({"kills": [kill for kill in done if kill], "differing_files": differing})
        if not differing:
            for file in found:
                (folder / file).unlink()
        yield {"command": command, "seconds": round(seconds, 1), "steps": steps, "runs": runs}


def measure(kills: int, aimed: int) -> Iterator[dict[str, Any]]:
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        **machine(),
        "commands": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        write_files(root)
        for name in COMMANDS:
            for about in disturb(name, root, kills, aimed):
                record["commands"][name] = about
                yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = []
    for name, about in record["commands"].items():
        runs = about["runs"]
        kills = [kill for run in runs for kill in run["kills"]]
        wrong = sum(bool(run["differing_files"]) for run in runs)
        steps = Counter(kill["step"] for kill in kills)
        lines += [
            f"`unbag {name}`, {about['seconds']:.0f} s undisturbed: {len(kills)} kills in "
            f"{len(runs)} runs, {wrong} results that differ.",
            "",
            "| step | seconds undisturbed | kills in it |",
            "|---|---|---|",
        ]
        lines += [
            f"| {step} | {about['steps'].get(step, 0):.2f} | {steps.get(step, 0)} |"
            for step in dict.fromkeys([*about["steps"], *steps])
        ]
        lines.append("")
    return "\n".join(lines[:-1])


if __name__ == "__main__":
    run_script(__doc__, measure, table, kills=20, aimed=4)

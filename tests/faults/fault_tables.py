"""Tables of what faults and kills came to, by command and format of the rows.

usage: python tests/faults/fault_tables.py faults POINTS [COMMAND ...]
       python tests/faults/fault_tables.py kills KILLS SEED

``POINTS`` is the largest number of points per kind of fault and command (such as "fit CSV"; all by
default), ``KILLS`` the number of kills in all. Prints Markdown; ends with 1 where anything was
wrong.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))


def run(program: str, command: str, folder: Path, *arguments: object, **environment: str) -> dict:
    call = [sys.executable, HERE / program, command, folder, *arguments]
    ended = subprocess.run(
        list(map(str, call)),
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise SystemExit(f"{command}: {ended.stderr[-3000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def faults(folder: Path, points: str, *commands: str) -> int:
    from sweep import COMMANDS, FAULTS, errno

    shim = folder.parent / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, HERE / "shim.c", "-ldl"], check=True)
    kinds = [f"{kind} {errno.errorcode[number]}" for kind, number, *_ in FAULTS]
    numbers = [*kinds, "points", "possible", "told", "wrong"]
    print_row("command", *numbers, "seconds")
    total: Counter[str] = Counter()
    for command in commands or COMMANDS:
        start = time.perf_counter()
        found = run("sweep.py", command, folder, points, LD_PRELOAD=str(shim))
        counts = Counter(found["points"])
        counts |= {"points": counts.total(), "wrong": len(found["wrong"])}
        counts |= {name: found[name] for name in ("possible", "told")}
        total += counts
        cells = [counts[name] for name in numbers]
        print_row(command, *cells, f"{time.perf_counter() - start:.0f}")
        for problem in found["wrong"]:
            print("   ", problem, file=sys.stderr)  # noqa: T201
    print_row("all", *(total[name] for name in numbers), "")
    return total["wrong"]


def kills(folder: Path, number: str, seed: str) -> int:
    from kills import SIGNALS
    from sweep import COMMANDS

    names = [kind.name for kind in SIGNALS]
    print_row("command", *names, "kills", "wrong", "seconds")
    total: Counter[str] = Counter()
    shares = [1 if command.startswith("tune") else 4 for command in COMMANDS]  # it takes longest
    for i, command in enumerate(COMMANDS):
        start = time.perf_counter()
        each = -(-(int(number) - total["kills"]) * shares[i] // sum(shares[i:]))
        found = run("kills.py", command, folder, max(0, each), int(seed) + i)
        counts = Counter({name: found["kills"].get(name, 0) for name in names})
        counts |= {"kills": counts.total(), "wrong": len(found["wrong"])}
        total += counts
        cells = [counts[name] for name in (*names, "kills", "wrong")]
        print_row(command, *cells, f"{time.perf_counter() - start:.0f}")
        for problem in found["wrong"]:
            print("   ", problem, file=sys.stderr)  # noqa: T201
    print_row("all", *(total[name] for name in (*names, "kills", "wrong")), "")
    return total["wrong"]


def print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)  # noqa: T201
    if cells[0] == "command":
        print("|" + "---|" * len(cells))  # noqa: T201


if __name__ == "__main__":
    from small_files import train, write_files

    with tempfile.TemporaryDirectory() as place:
        work = Path(place) / "files"
        work.mkdir()
        write_files(work)
        train(work)
        sys.exit(bool({"faults": faults, "kills": kills}[sys.argv[1]](work, *sys.argv[2:])))

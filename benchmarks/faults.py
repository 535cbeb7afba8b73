"""What comes of faults, kills and hostile model folders; the programs are in tests/faults.

usage: python benchmarks/faults.py [--record FILE.json] [--points N] [--search-points N]
                                   [--kills N] [--seed N]
       python benchmarks/faults.py --table FILE.json

``points`` is the largest number of points per kind of fault and command, ``search-points`` that for
`unbag tune`, which makes the most calls and takes longest: where there are more, so many are taken
at equal steps. ``kills`` is the number of kills in all. Goes on from the record, if there is one;
ends with 1 where anything was wrong.
"""

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HERE = ROOT / "tests" / "faults"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
Record = dict[str, Any]


def measure(
    points: int, search_points: int, kills: int, seed: int, earlier: Record | None
) -> Iterator[Record]:
    from commands import machine

    sys.path[:0] = [str(ROOT / "tests"), str(HERE)]
    from sweep import COMMANDS

    from small_files import train, write_files

    record = earlier or {
        "date": str(datetime.date.today()),
        **machine(),
        "points": points,
        "search_points": search_points,
        "seed": seed,
        "faults": {},
        "kills": {},
        "hostile": {},
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        folder.mkdir()
        write_files(folder)
        train(folder)
        shim = Path(place) / "shim.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, HERE / "shim.c", "-ldl"], check=True)
        if not record["hostile"]:
            (record["hostile"],) = run("hostile.py")
            yield record
        each = kills_of(list(COMMANDS), kills)
        left = [f"{name}={each[name]}" for name in COMMANDS if name not in record["kills"]]
        for found in run("kills.py", folder, *left, FAULT_SEED=str(seed)):
            record["kills"][found["command"]] = found
            yield record
        most = {name: search_points if name.startswith("tune") else points for name in COMMANDS}
        left = [f"{name}={most[name]}" for name in sorted(most, key=most.get, reverse=True)
                if name not in record["faults"]]  # fmt: skip
        for found in run("sweep.py", folder, *left, LD_PRELOAD=str(shim)):
            record["faults"][found["command"]] = found
            yield record


def kills_of(commands: list[str], kills: int) -> dict[str, int]:
    """How many kills each command gets; a search takes longest, and gets fewer."""
    shares = {name: 1 if name.startswith("tune") else 4 for name in commands}
    each = {name: kills * share // sum(shares.values()) for name, share in shares.items()}
    return each | {commands[-1]: kills - sum(each.values()) + each[commands[-1]]}


def run(program: str, *arguments: object, **environment: str) -> Iterator[Record]:
    """Give each line of JSON that a program prints."""
    with subprocess.Popen(
        [sys.executable, str(HERE / program), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as ended:
        for line in ended.stdout:
            if line.startswith("{"):
                found = json.loads(line)
                for problem in found["wrong"]:
                    print(found.get("command", program), problem, file=sys.stderr)
                yield found
    if ended.returncode != 0:
        raise SystemExit(f"{program} ended with {ended.returncode}")


def table(record: Record) -> str:
    """Markdown of a record."""
    parts = [hostile_table(record["hostile"]), kill_table(record["kills"])]
    parts += [fault_table(record["faults"])] if record["faults"] else []
    return "\n\n".join(parts)


def hostile_table(found: Record) -> str:
    groups: dict[str, list[Record]] = {}
    for row in found["rows"]:
        groups.setdefault(row["group"], []).append(row)
    lines = ["| model folders | kinds | refused | most MB beyond the folder | most s | wrong |"]
    lines.append("|---|---|---|---|---|---|")
    for name, rows in groups.items():
        refused = sum(row["came"] == "refused" for row in rows)
        peak, seconds = (max(row[key] for row in rows) for key in ("mb", "seconds"))
        wrong = sum(bool(row["wrong"]) for row in rows)
        lines.append(f"| {name} | {len(rows)} | {refused} | {peak} | {seconds} | {wrong} |")
    planted = found["planted"]
    lines.append(
        f"| links planted under names that are written to | {planted['kinds']} |  |  |  | "
        f"{len(planted['wrong'])} |"
    )
    return "\n".join(lines)


def kill_table(found: dict[str, Record]) -> str:
    lines = ["| killed | " + " | ".join(SIGNALS) + " | all | wrong |", "|---|" + "---|" * 5]
    total: Counter[str] = Counter()
    for command, row in found.items():
        counts = Counter({name: row["kills"].get(name, 0) for name in SIGNALS})
        counts |= {"all": counts.total(), "wrong": len(row["wrong"])}
        total += counts
        lines.append(row_of(command, counts, (*SIGNALS, "all", "wrong")))
    return "\n".join([*lines, row_of("all", total, (*SIGNALS, "all", "wrong"))])


def fault_table(found: dict[str, Record]) -> str:
    names = list(next(iter(found.values()))["points"]) if found else []
    columns = (*names, "points", "of", "told", "ended by a library", "wrong")
    lines = ["| failing | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    total: Counter[str] = Counter()
    for command, row in found.items():
        counts = Counter(row["points"])
        counts |= {"points": counts.total(), "of": row["possible"]}
        counts |= {"told": row["told"], "wrong": len(row["wrong"])}
        counts["ended by a library"] = len(row.get("crashes", []))
        total += counts
        lines.append(row_of(command, counts, columns))
    return "\n".join([*lines, row_of("all", total, columns)])


def row_of(command: str, counts: Counter[str], columns: tuple[str, ...]) -> str:
    return "| " + " | ".join([command, *(f"{counts[name]:,}" for name in columns)]) + " |"


def is_clean(record: Record) -> bool:
    """Whether nothing was wrong."""
    parts = [record["hostile"], *record["kills"].values(), *record["faults"].values()]
    return not any(part["wrong"] for part in parts)


if __name__ == "__main__":
    from script import run_script

    record = run_script(__doc__, measure, table, points=1000, search_points=60, kills=500, seed=0)
    sys.exit(not is_clean(record))

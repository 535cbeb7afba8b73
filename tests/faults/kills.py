"""Kill commands at random moments, and run them again: the same result as without.

usage: python kills.py FOLDER COMMAND=KILLS ...

The folder has the files of ``small_files``. Each run is a fork of this process, which has imported
everything. Signals are SIGKILL, SIGTERM and SIGINT. FAULT_SEED draws them and the moments. Prints a
line of JSON per command.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from sweep import for_each, prepare, remove, result

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def main(name: str, folder: Path, kills: int, seed: int) -> dict:
    command, output = prepare(name, folder)
    rng, counts, wrong = random.Random(f"{seed} {name}"), Counter(), []
    start = time.perf_counter()
    assert end(begin(command)) == 0
    seconds = time.perf_counter() - start
    expected = result(folder)
    assert expected
    while counts.total() - counts["ended before"] < kills:
        remove(folder)
        killed = Counter()
        for _ in range(rng.choice([1, 3])):
            child, kind = begin(command), rng.choice(SIGNALS)
            time.sleep(rng.uniform(0, seconds))
            os.kill(child, kind)
            if end(child) != 0:
                killed[kind.name] += 1
        counts += killed or Counter({"ended before": 1})
        whole = result(folder)
        if whole != expected:
            if whole and any("model.json" in path or path == output for path in whole):
                wrong.append("half of a result")
            code = end(begin(command))
            left = [path.name for path in folder.glob(".*made*")]
            if code != 0 or left or result(folder) != expected:
                wrong.append(f"another result after {dict(killed)}, exit code {code}, {left}")
    remove(folder)
    return {"command": name, "kills": dict(counts), "wrong": wrong}


def begin(command: str) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            from run_command import run

            code = run(command).exit_code
        finally:
            os._exit(code)
    return child


def end(child: int) -> int:
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for_each(main, int(os.environ.get("FAULT_SEED", "0")))

"""Run a function in several processes of one group, and get what each returns."""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = """
import pickle, sys, torch, torch.distributed as dist
module, name, folder, rank, size = sys.argv[1:]
torch.set_num_threads(1)
dist.init_process_group("gloo", f"file://{folder}/group", rank=int(rank), world_size=int(size))
function = getattr(__import__(module), name)
with open(f"{folder}/arguments", "rb") as file:
    given = pickle.load(file)
try:
    result = function(*given)
except BaseException as error:
    result = error
with open(f"{folder}/{rank}", "wb") as file:
    pickle.dump(result, file)
dist.destroy_process_group()
"""


def run_together(function, *arguments, size=2):
    """Call a function of a test module in each process; an exception is returned, not raised."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "arguments").write_bytes(pickle.dumps(arguments))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
        common = [function.__module__, function.__name__, folder]
        running = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *common, str(rank), str(size)], env=environment
            )
            for rank in range(size)
        ]
        try:
            for process in running:
                process.wait(timeout=120)
        finally:
            for process in running:
                process.kill()
        results = [Path(folder, str(rank)) for rank in range(size)]
        return [pickle.loads(r.read_bytes()) if r.exists() else None for r in results]

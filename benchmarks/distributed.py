"""One fit on several processes: that it is the fit of one, and what it costs.

usage: python benchmarks/distributed.py [--record FILE.json] [--kills 10] [--ray PYTHON]
       python benchmarks/distributed.py --device cuda [--backend gloo] [--record FILE.json]
       python benchmarks/distributed.py --table FILE.json

Weights after three epochs on 1, 2 and 4 processes, of the default network and of one with smooth
units (SiLU); the same where PyTorch's DistributedDataParallel averages the gradients of every
process's own batch; through Ray's TorchTrainer, where PYTHON can import ray; a fit of four
processes, one of which is killed at a random moment, started again with two; and the time of a
step. With a GPU, two processes share it. Parts that are not measured again (--parts) stay in the
record.
"""

import argparse
import contextlib
import copy
import dataclasses
import json
import multiprocessing
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn

from script import read, write
from unbag.bags import Bags
from unbag.exceptions import LostProcessError
from unbag.methods import Job, fit_many, get_method
from unbag.models import MLP
from unbag.objectives import Objective
from unbag.processes import current_processes
from unbag.training import Replica, train
from unbag.training.batches import StratifiedBatches
from unbag.training.engine import Stack
from unbag.training.randomness import seed_keys

N_ROWS, N_COLUMNS, BATCH, EPOCHS = 12_000, 20, 1_000, 3
THETA = np.array(
    [
        [0.7, 0.2, 0.1],
        [0.2, 0.6, 0.2],
        [0.1, 0.2, 0.7],
        [0.4, 0.4, 0.2],
        [0.3, 0.1, 0.6],
        [0.5, 0.3, 0.2],
    ]
)
PRECISIONS = ("float32", "float64")
METHODS = ("u-prr", "prop", "matched-likelihood")
SOFT = "soft labels"
KILL_EPOCHS, LOST = 12, 3  # of the fit that is killed; how processes exit that lost another
STEP_BATCHES = (1_000, 16_000)
Record = dict[str, Any]


# ------------------------------------------------------------------------------- what is trained


def make_bags(n: int = N_ROWS) -> tuple[Bags, NDArray[np.float64]]:
    """Rows of Gaussian classes in bags, and the posterior of each row given its bag: (n, K)."""
    rng = np.random.default_rng(0)
    bag = rng.integers(0, len(THETA), n)
    y = (rng.random(n)[:, None] > THETA[bag].cumsum(1)[:, :-1]).sum(1)
    means = 0.6 * rng.normal(size=(THETA.shape[1], N_COLUMNS))
    X = (means[y] + rng.normal(size=(n, N_COLUMNS))).astype(np.float32)
    joint = THETA[bag] * np.exp(X @ means.T - (means**2).sum(1) / 2)
    return Bags(X, bag, THETA), joint / joint.sum(1, keepdims=True)


def replicas(epochs: int = EPOCHS) -> dict[str, Replica]:
    bags, targets = make_bags()
    found = {}
    for method in METHODS:
        job = Job(bags, method, batch_size=BATCH, epochs=epochs)
        found[method] = next(get_method(method).fit(job))[0]
    soft = {"objective": None, "targets": targets, "mixup": True, "batching": "shuffled"}
    found[SOFT] = Job(bags, "prop", batch_size=BATCH, epochs=epochs).replica(**soft)
    return found


def smooth_replicas() -> dict[str, Replica]:
    """Make the same of a network whose units have no kinks."""
    found = {}
    for name, replica in replicas().items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers: list[nn.Module] = []
            for width in (N_COLUMNS, 300):
                layers += [nn.Linear(width, 300), nn.SiLU(), nn.BatchNorm1d(300)]
            module = nn.Sequential(*layers, nn.Linear(300, THETA.shape[1]))
        found[f"{name}, smooth units"] = dataclasses.replace(replica, module=module)
    return found


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([v.double().cpu().flatten() for v in module.state_dict().values()])


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Length of the difference, relative to the length of what is expected."""
    return float((found - expected).norm() / expected.norm())


# ---------------------------------------------------------------- tasks, which run in all processes


def train_all(device: str) -> dict[str, dict[str, torch.Tensor]]:
    """Weights by precision and what they were trained on."""
    found = replicas() | smooth_replicas()
    return {
        precision: {
            name: weights(train([replica], device=device, precision=precision)[0].module)
            for name, replica in found.items()
        }
        for precision in PRECISIONS
    }


def train_by_averages(device: str) -> dict[str, torch.Tensor]:
    """Train as DistributedDataParallel does: every process its rows, then the mean gradient."""
    found = {}
    size, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    for name, replica in replicas().items():
        bags, objective = replica.bags, replica.objective
        x = torch.as_tensor(bags.X).double().to(device)
        index = torch.as_tensor(bags.bag_index).to(device)
        module = copy.deepcopy(replica.module).double().to(device)
        model = module if size == 1 else torch.nn.parallel.DistributedDataParallel(module)
        optimizer = torch.optim.Adam(module.parameters(), replica.learning_rate)
        for rows in global_batches(replica, device):
            mine = rows[rank * BATCH // size : (rank + 1) * BATCH // size]
            if objective is None:
                target = torch.as_tensor(np.asarray(replica.targets)).to(device)[mine]
                value = -(target * model(x[mine]).log_softmax(-1)).sum(-1).mean()
            else:
                value = objective.to(device)(model(x[mine]), index[mine])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        found[name] = weights(module)
    return found


def global_batches(replica: Replica, device: str = "cpu") -> Iterator[torch.Tensor]:
    """Stratified batches, which every process draws alike; their rows in random order."""
    index = torch.as_tensor(replica.bags.bag_index)[None].to(device)
    batches = StratifiedBatches(index, len(THETA), BATCH, seed_keys([0], index.device))
    order = torch.Generator().manual_seed(0)
    for epoch in range(EPOCHS):
        for plan in batches.epoch(epoch):
            for rows in plan[0]:
                yield rows[torch.randperm(BATCH, generator=order).to(device)]


def seconds_per_step(device: str, recorded: bool = True) -> list[float]:
    """Time of a step in milliseconds, by the rows of a batch."""
    return [_seconds_per_step(device, batch, recorded) for batch in STEP_BATCHES]


def _seconds_per_step(device: str, batch: int, recorded: bool) -> float:
    """Median in epochs after the first."""
    bags, _ = make_bags(max(4 * batch, 32_000))
    job = Job(bags, "u-prr", batch_size=batch, epochs=100)
    (replica,) = next(get_method("u-prr").fit(job))
    record = Stack._record
    if not recorded:
        Stack._record = lambda _: None  # type: ignore[method-assign]
    try:
        stack = Stack([replica], torch.device(device), "float32", processes=current_processes())
    finally:
        Stack._record = record  # type: ignore[method-assign]
    times = []
    for epoch in range(6):
        start = time.perf_counter()
        stack.run_epoch(epoch)  # ends with numbers on the CPU
        times.append((time.perf_counter() - start) / stack.batches.n_steps)
    return 1e3 * float(np.median(times[1:]))


TASKS = {f.__name__: f for f in (train_all, train_by_averages, seconds_per_step)}


def work(task: str, given: str, backend: str, result: str) -> None:
    """Do a task in one process of a group."""
    torch.set_num_threads(1)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        dist.init_process_group(backend)
    found = TASKS[task](**json.loads(given))
    if int(os.environ.get("RANK", "0")) == 0:
        torch.save(found, result)
    if size > 1:
        dist.destroy_process_group()


def told(rank: int, size: int, port: int) -> dict[str, str]:
    """Environment of a process, as torchrun sets it."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    values = (rank, rank, size, size, "127.0.0.1", port)
    here = dict(zip(names, map(str, values), strict=True))
    return {**os.environ, **here, "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run(task: str, size: int, backend: str = "gloo", **given: Any) -> Any:
    """Do a task in several processes, and return what the first one found."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result")
        arguments = [sys.executable, __file__, "--worker", task, json.dumps(given), backend, result]
        running = [
            subprocess.Popen([*map(str, arguments)], env=told(rank, size, port))
            for rank in range(size)
        ]
        try:
            codes = [process.wait(timeout=600) for process in running]
        finally:
            for process in running:
                process.kill()
        if any(codes):
            raise RuntimeError(f"{task} on {size} processes ended with {codes}")
        return torch.load(result, weights_only=True)


# ------------------------------------------------------------------------------------ the parts


def agreement(device: str, sizes: list[int], backend: str) -> list[Record]:
    """Compare weights of several processes with those of one."""
    one = run("train_all", 1, device=device)
    rows = []
    for size in sizes:
        some = run("train_all", size, backend, device=device)
        for precision in PRECISIONS:
            for name, expected in one[precision].items():
                row = {"of": name, "precision": precision, "processes": size}
                rows.append(row | {"difference": difference(some[precision][name], expected)})
    for name, exact in one["float64"].items():
        row = {"of": name, "precision": "rounding", "processes": 1}
        rows.append(row | {"difference": difference(one["float32"][name], exact)})
    return rows


def averages(size: int) -> list[Record]:
    """Measure what averages of gradients give: after training, and of one gradient."""
    one, some = (
        run("train_by_averages", 1, device="cpu"),
        run("train_by_averages", size, device="cpu"),
    )
    rows = []
    for name, replica in replicas().items():
        row = {"of": name, "processes": size, "difference": difference(some[name], one[name])}
        if replica.objective is not None:
            row["bias"] = bias(replica, replica.objective, size)
        rows.append(row)
    return rows


def bias(replica: Replica, objective: Objective, size: int) -> float:
    """Relative error of the mean gradient of parts, over all batches of the training.

    Without batch normalisation, whose moments of parts would add to it, and of a network that has
    learned for an epoch.
    """
    assert isinstance(replica.module, MLP)
    (fit,) = train([dataclasses.replace(replica, epochs=1)], device="cpu")
    model = fit.module.double().eval()
    x = torch.as_tensor(replica.bags.X).double()
    index = torch.as_tensor(replica.bags.bag_index)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def gradient(rows: torch.Tensor) -> torch.Tensor:
        value = objective(model(x[rows]), index[rows])
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)])

    exact, averaged = [], []
    for rows in global_batches(replica):
        exact.append(gradient(rows))
        averaged.append(torch.stack([gradient(part) for part in rows.chunk(size)]).mean(0))
    return difference(torch.stack(averaged).mean(0), torch.stack(exact).mean(0))


RAY = """
import sys, torch
sys.path[:0] = {path!r}
def loop():
    import sys, torch
    sys.path[:0] = {path!r}
    import distributed
    torch.set_num_threads(1)
    found = distributed.train_all("cpu")
    if distributed.current_processes().is_first:
        assert distributed.current_processes().size == {size}
        torch.save(found, {result!r})
import ray
from ray.train import ScalingConfig, RunConfig
from ray.train.torch import TorchTrainer
ray.init(num_cpus={size} + 1, include_dashboard=False, log_to_driver=False)
TorchTrainer(
    loop,
    scaling_config=ScalingConfig(num_workers={size}),
    run_config=RunConfig(storage_path={folder!r}),
).fit()
print(ray.__version__)
"""


def through_ray(python: str, size: int) -> Record:
    """Compare what TorchTrainer's workers train with what one process does."""
    with tempfile.TemporaryDirectory() as folder:
        result = str(Path(folder, "result"))
        path = [p for p in (str(Path(__file__).parent), *sys.path) if p]
        program = RAY.format(path=path, size=size, result=result, folder=folder)
        ended = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=900, check=False
        )
        if ended.returncode:
            return {"error": ended.stderr.strip().splitlines()[-1][:300]}
        found = torch.load(result, weights_only=True)
    one = run("train_all", 1, device="cpu")
    worst = {
        precision: max(difference(found[precision][name], one[precision][name]) for name in names)
        for precision, names in {"float64": [*one["float64"]], "float32": [*METHODS, SOFT]}.items()
    }
    record = {"ray": ended.stdout.split()[-1], "processes": size, "difference": worst["float64"]}
    return record | {"float32": worst["float32"]}


def fit_with_checkpoints(rank: int, size: int, port: int, folder: Path) -> None:
    """Fit in one of several processes, with a checkpoint after every epoch."""
    os.environ.update(told(rank, size, port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = Job(make_bags()[0], "u-prr", batch_size=BATCH, epochs=KILL_EPOCHS)
    try:
        options = {"checkpoint": folder / "kept", "checkpoint_seconds": 0}
        (fit,) = fit_many([job], device="cpu", precision="float64", **options)
    except LostProcessError:
        os._exit(LOST)
    if rank == 0:
        torch.save(weights(fit.module), folder / "result")
    dist.destroy_process_group()


def kills(count: int) -> Iterator[Record]:
    """Kill one of four processes at random moments, and go on with two."""
    rng = np.random.default_rng(0)
    context = multiprocessing.get_context("fork")  # so that the moments are not those of imports

    def start(size: int, folder: Path) -> list[Any]:
        port = free_port()
        given = [(rank, size, port, folder) for rank in range(size)]
        running = [context.Process(target=fit_with_checkpoints, args=each) for each in given]
        for process in running:
            process.start()
        return running

    def finish(running: list[Any]) -> list[int]:
        for process in running:
            process.join(timeout=300)
        return [process.exitcode for process in running]

    with tempfile.TemporaryDirectory() as root:
        begun = time.monotonic()
        finish(start(4, Path(root)))
        whole = time.monotonic() - begun
        expected = torch.load(Path(root, "result"), weights_only=True)
        number = rows = 0
        while rows < count:
            number += 1
            folder = Path(root, str(number))
            running, lost = start(4, folder), int(rng.integers(4))
            moment = float(rng.uniform(0.1, 0.95))
            time.sleep(moment * whole)
            if any(process.exitcode is not None for process in running):
                finish(running)  # the machine was faster than before
                continue
            running[lost].kill()
            killed = time.monotonic()
            codes = finish(running)
            row: Record = {
                "moment": round(moment, 2),
                "rank": lost,
                "others_ended_after": round(time.monotonic() - killed, 1),
                "others_told": codes.count(LOST),
                "result_left": (folder / "result").exists(),
                "epochs_kept": any(folder.glob("kept/*.safetensors")),
            }
            finish(start(2, folder))
            found = torch.load(folder / "result", weights_only=True)
            rows += 1
            yield row | {"difference": difference(found, expected)}


def steps(device: str, sizes: list[int], backend: str) -> list[Record]:
    """Measure the time of a step on one process and on several that share the machine."""
    times = {"one": run("seconds_per_step", 1, device=device)}
    if device != "cpu":
        times["one_unrecorded"] = run("seconds_per_step", 1, device=device, recorded=False)
    for size in sizes:
        times[str(size)] = run("seconds_per_step", size, backend, device=device)
    return [
        {"batch": batch, **{name: given[i] for name, given in times.items()}}
        for i, batch in enumerate(STEP_BATCHES)
    ]


def measure(arguments: argparse.Namespace) -> Iterator[Record]:
    device, file = arguments.device, arguments.record
    on_gpu = device != "cpu"
    sizes = [2] if on_gpu else [2, 4]
    name = torch.cuda.get_device_name() if on_gpu else _cpu()
    record: Record = read(file) if file and file.exists() else {}
    record |= {
        "hardware": name,
        "device": device,
        "backend": arguments.backend,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "load_before": round(os.getloadavg()[0], 1),
    }
    parts = arguments.parts.split(",")
    try:
        if "agreement" in parts:
            record["agreement"] = agreement(device, sizes, arguments.backend)
            yield record
        if "steps" in parts:
            record["steps"] = steps(device, sizes, arguments.backend)
            yield record
    except RuntimeError as error:  # NCCL takes one process for each GPU
        if arguments.backend != "nccl":
            raise
        record["error"] = str(error)
        yield record
    if not on_gpu and "averages" in parts:
        record["averages"] = averages(4)
        yield record
    if arguments.ray and "ray" in parts:
        record["ray"] = through_ray(arguments.ray, 2)
        yield record
    if not on_gpu and "kills" in parts:
        record["kills"] = []
        for row in kills(arguments.kills):
            record["kills"].append(row)
            yield record


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.split(':')[1].strip()}, {os.cpu_count()} cores"
    return platform.processor()


# ------------------------------------------------------------------------------------- the table


def table(record: Record) -> str:
    """Write the tables of a record in Markdown."""
    versions = record["versions"]
    backend = record["backend"]
    text = [f"{record['hardware']}, torch {versions['torch']}, {backend}."]
    if error := record.get("error"):
        text += ["", error]
    if rows := record.get("agreement"):
        sizes = sorted({row["processes"] for row in rows} - {1})
        keys = [(p, s) for p in PRECISIONS for s in sizes]
        values = {(r["of"], r["precision"], r["processes"]): r["difference"] for r in rows}
        text += [
            "",
            "Difference of the weights after 3 epochs from those of one process, relative:",
        ]
        heads = [f"{size} processes, {precision}" for precision, size in keys]
        heads.append("1 process, float32")
        text += ["", _line("trained on", *heads), "|---" * (len(keys) + 2) + "|"]
        keys.append(("rounding", 1))
        for name in dict.fromkeys(row["of"] for row in rows):
            text.append(_line(name, *(_number(values[name, *key]) for key in keys)))
    if rows := record.get("averages"):
        size = rows[0]["processes"]
        text += [
            "",
            f"With gradients averaged over {size} processes (DistributedDataParallel):",
            "",
        ]
        text += [_line("trained on", "difference after 3 epochs", "bias of the gradient")]
        text += ["|---|---|---|"]
        for row in rows:
            share = f"{row['bias']:.1%}" if "bias" in row else "—"
            text.append(_line(row["of"], f"{row['difference']:.1%}", share))
    if row := record.get("ray"):
        found = row.get("error") or f"{_number(row['difference'])}, float64"
        if "float32" in row:
            found += f"; {_number(row['float32'])}, float32, of the default network"
        text += ["", f"Through TorchTrainer of Ray {row.get('ray', '')}, two workers: {found}."]
    if rows := record.get("kills"):
        ended = max(row["others_ended_after"] for row in rows)
        worst = max(row["difference"] for row in rows)
        kept = sum(row["epochs_kept"] for row in rows)
        told_all = sum(row["others_told"] == 3 for row in rows)
        text += [
            "",
            f"One of four processes killed at {len(rows)} random moments of a fit by `u-prr`, "
            f"{kept} of them with a checkpoint, and started again with two: the weights differ "
            f"from those of the fit that was left alone by {worst:.0e} at most, in float64. The "
            f"other three had ended after {ended:.1f} s at most, in {told_all} cases all of them "
            "with a `LostProcessError`.",
        ]
    if rows := record.get("steps"):
        sizes = [key for key in rows[0] if key.isdigit()]
        one = ["1 process", *(["1 process, no graph"] if "one_unrecorded" in rows[0] else [])]
        heads = [*one, *(f"{size} processes" for size in sizes)]
        text += ["", "Time of a step of `u-prr` (MLP of depth 3), ms, all on this machine:", ""]
        text += [_line("rows in a batch", *heads), "|---" * (len(heads) + 1) + "|"]
        for row in rows:
            keys = [key for key in ("one", "one_unrecorded", *sizes) if key in row]
            text.append(_line(f"{row['batch']:,}", *(f"{row[key]:.1f}" for key in keys)))
    return "\n".join(text)


def _number(value: float) -> str:
    return f"{value:.0e}" if value else "0"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="gloo", choices=["gloo", "nccl"])
    parser.add_argument("--parts", default="agreement,averages,ray,kills,steps")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--ray", help="a Python that can import ray")
    parser.add_argument("--record", type=Path, help="write the results to this file")
    parser.add_argument("--table", type=Path, help="print the table of this record")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker)
        return
    if arguments.table:
        print(table(read(arguments.table)))
        return
    record: Record = {}
    for record in measure(arguments):
        if arguments.record:
            write(arguments.record, record)
    print(table(record))


if __name__ == "__main__":
    main()

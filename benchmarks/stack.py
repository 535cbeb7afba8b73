"""Speed of the stacked engine on the hardware at hand, against its ceilings and plain PyTorch.

usage: python benchmarks/stack.py [--record FILE.json] [--quick]
       python benchmarks/stack.py --table FILE.json

The first form measures (MNIST shapes with random bytes, so no data is needed) and prints the
tables; the second prints the tables of a record again. Every time is a median after warm-up.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import multiprocessing
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import unbag
from unbag.methods import Job, get_method
from unbag.models import MLP
from unbag.training import Replica, engine
from unbag.training.engine import Stack

engine._COMPILED_FROM = 0  # few steps are timed, of trainings that are long
N, FEATURES, CLASSES, WIDTH, DEPTH = 60_000, 784, 10, 300, 5
EPOCHS = 500  # of a model, as in the paper
METHODS = ("biased", "prop", "unbiased", "u-correct", "u-flood", "u-stop", "u-prr")
PRIORS = {
    "symmetric-0.5": unbag.priors.symmetric(CLASSES, 0.5),
    "symmetric-0.1": unbag.priors.symmetric(CLASSES, 0.1),
    "asymmetric": unbag.priors.asymmetric(CLASSES, random_state=0),
    "non-square": unbag.priors.non_square(CLASSES, random_state=0),
}


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_jobs(
    n: int, row_shape: tuple[int, ...], count: int, methods: tuple[str, ...], **settings: Any
) -> list[Job]:
    """Mix methods and prior settings over ``count`` jobs that share their rows."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (n, *row_shape), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, n)
    bags = [unbag.make_bags(rows, labels, theta, random_state=0) for theta in PRIORS.values()]
    return [
        Job(
            bags[i % len(bags)],
            method=methods[i // len(bags) % len(methods)],
            learning_rate=1e-4,
            batching="shuffled",
            seed=i,
            **settings,
        )
        for i in range(count)
    ]


class Clock:
    """A clock that waits for the device before it is read."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self) -> float:
        """Return seconds."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def median_seconds(run: Callable[[], object], clock: Clock, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats + 1):
        start = clock()
        run()
        times.append(clock() - start)
    return statistics.median(times[1:])


def ceilings(device: torch.device, precision: str, clock: Clock) -> dict[str, float]:
    """Measure a large matrix product and a large copy."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    size = 8192 if device.type == "cuda" else 2048
    a = torch.randn(size, size, device=device, dtype=dtype)
    source = torch.empty((1 << 30) if device.type == "cuda" else (1 << 27), dtype=torch.uint8)
    source = source.to(device)
    target = torch.empty_like(source)
    return {
        "matmul_tflops": 2 * size**3 / median_seconds(lambda: a @ a, clock) / 1e12,
        "copy_tb_per_s": 2
        * len(source)
        / median_seconds(lambda: target.copy_(source), clock)
        / 1e12,
    }


def flops_per_row() -> float:
    """Forward, gradients of weights and of inputs; nobody needs the gradient of the rows."""
    sizes = [FEATURES, *[WIDTH] * (DEPTH - 1), CLASSES]
    products = [a * b for a, b in itertools.pairwise(sizes)]
    return 2 * (3 * sum(products) - products[0])


def bytes_per_step(batch: int, number: int) -> float:
    """Count what a step has to move: numbers of ``number`` bytes, once for each pass over them.

    A hidden activation is written 4 times and read 11 times (product, two passes of statistics,
    normalisation, next product; backward: product, sums, gradient, two products). A row is read
    as bytes, written as numbers and read by two products. A weight costs Adam 28 bytes, and its
    gradient and its copy in the product's type 12 more.
    """
    hidden = (DEPTH - 1) * WIDTH * 15 * number
    rows = FEATURES * (1 + 3 * number)
    weights = flops_per_row() / 6 * 40
    return batch * (hidden + rows) + weights


def stack_jobs(replicas: int, divisor: int, methods: tuple[str, ...] = METHODS) -> list[Job]:
    return make_jobs(
        N,
        (FEATURES,),
        replicas,
        methods,
        batch_size=N // divisor,
        epochs=EPOCHS,
        model_options={"depth": DEPTH, "width": WIDTH},
    )


def resnet_jobs(batch: int) -> list[Job]:
    settings: dict[str, Any] = {"batch_size": batch, "epochs": 2, "model": "resnet20"}
    return make_jobs(4 * batch, (3, 32, 32), 1, ("u-prr",), **settings)


def first_replica(job: Job) -> Replica:
    """Describe the one training of a job."""
    (replica,) = next(get_method(job.method).fit(job))
    return replica


def time_epochs(
    jobs: list[Job], precision: str, steps: int, turn: Callable[[], Any]
) -> dict[str, Any]:
    """Time whole epochs of a stack (plan, steps, history), start-up apart, when it is its turn."""
    device = default_device()
    clock = Clock(device)
    torch.set_float32_matmul_precision("high")
    start = clock()
    stack = Stack([first_replica(job) for job in jobs], device, precision)
    stack.run_epoch(0)
    start_up = clock() - start
    per_epoch = stack.batches.n_steps
    with turn():
        repeats = max(3, steps // per_epoch)
        epoch = median_seconds(lambda: stack.run_epoch(0), clock, repeats)
    batch, replicas = stack.batches.batch_size, len(jobs)
    number = 2 if precision == "bf16" else 4
    rate = replicas * per_epoch / epoch
    return {
        "stack": replicas,
        "batch": batch,
        "start_up_s": start_up,
        "step_ms": epoch / per_epoch * 1e3,
        "s_per_model": epoch * EPOCHS / replicas,
        "model_steps_per_s": rate,
        "tflops": rate * batch * flops_per_row() / 1e12,
        "tb_per_s": rate * bytes_per_step(batch, number) / 1e12,
    }


def _worker(
    name: str, jobs: Any, precision: str, steps: int, ready: Any, lock: Any, results: Any
) -> None:
    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait(timeout=300)  # compilers of the other processes must have finished
        with lock:
            yield

    try:
        results.put((name, time_epochs(jobs[0](*jobs[1:]), precision, steps, turn)))
    except Exception as error:  # noqa: BLE001 - a stack that fails is reported, the others go on
        ready.abort()
        results.put((name, {"error": repr(error)}))


def time_all(tasks: dict[str, Any], precision: str, steps: int, parallel: bool) -> dict[str, Any]:
    """Time all stacks, one after another.

    With ``parallel`` they start up at the same time in processes of their own: compiling is work
    for the CPU, of which a machine with a GPU has many cores.
    """
    if not parallel:
        return {
            name: time_epochs(jobs[0](*jobs[1:]), precision, steps, contextlib.nullcontext)
            for name, jobs in tasks.items()
        }
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "2"
    context = multiprocessing.get_context("spawn")
    ready, lock, results = context.Barrier(len(tasks)), context.Lock(), context.Queue()
    workers = [
        context.Process(target=_worker, args=(name, jobs, precision, steps, ready, lock, results))
        for name, jobs in tasks.items()
    ]
    for worker in workers:
        worker.start()
    found = {}
    for _ in workers:
        name, result = results.get()
        found[name] = result
        print(name, json.dumps(result), flush=True)
    for worker in workers:
        worker.terminate()  # all have answered; some take long to let go of the GPU
    return found


def measure_whole(divisor: int, precision: str) -> dict[str, float]:
    """Train 96 models for all 500 epochs, nothing left out, after a start-up that is timed too."""
    device = default_device()
    clock = Clock(device)
    replicas = [first_replica(job) for job in stack_jobs(96, divisor)]
    start = clock()
    stack = Stack(replicas, device, precision)
    ready = clock()
    for epoch in range(EPOCHS):
        stack.run_epoch(epoch)
    seconds = clock() - ready
    return {
        "batch": N // divisor,
        "models": len(replicas),
        "start_up_s": ready - start,
        "s": seconds,
        "s_per_model": seconds / len(replicas),
    }


def looped_objective(
    logits: torch.Tensor, bags: torch.Tensor, theta: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """u-prr as a loop over bags and classes."""
    losses = -torch.log_softmax(logits, -1)
    predicted = logits.argmax(-1)
    total = logits.new_zeros(())
    for m in range(len(theta)):
        rows = bags == m
        for k in range(theta.shape[1]):
            risk = losses[rows, k].mean()
            share = (predicted[rows] != k).float().mean()
            sign = torch.where(share >= 1 - theta[m, k], 1.0, -5.0)
            total = total + 0.5 * weights[m, k] * risk
            total = total + 0.5 * weights[m, k].abs() * sign * (risk - (1 - theta[m, k]))
    return total


def measure_plain(device: torch.device, clock: Clock, looped: bool) -> float:
    """Seconds for one model of plain PyTorch: module, DataLoader, torch.optim.Adam, float32."""
    job = make_jobs(N, (FEATURES,), 1, ("u-prr",))[0]
    bags, theta = job.bags, job.bags.priors.values
    data = TensorDataset(torch.tensor(bags.X), torch.tensor(bags.bag_index))
    loader = DataLoader(data, batch_size=N // 10, shuffle=True, drop_last=True)
    objective = unbag.objectives.get("u-prr", priors=theta, test_prior=bags.pooled_prior)
    objective = objective.to(device)
    model = MLP(FEATURES, CLASSES, depth=DEPTH, width=WIDTH).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-5)
    table = torch.tensor(theta, dtype=torch.float32, device=device)
    weights = objective.get_buffer("risk_weights").float()

    def epoch() -> None:
        for x, bag in loader:
            logits = model(x.to(device).float() / 255)
            bag_index = bag.to(device)
            if looped:
                loss = looped_objective(logits, bag_index, table, weights)
            else:
                loss = objective(logits, bag_index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return median_seconds(epoch, clock, repeats=3) * EPOCHS


def measure(quick: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    device = default_device()
    cuda = device.type == "cuda"
    precision = "bf16" if cuda else "float32"
    clock = Clock(device)
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU",
        "cpu_threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "precision": precision,
        "model": f"MLP, depth {DEPTH}, width {WIDTH}, {FEATURES} features, {N} rows",
        "methods": METHODS,
        "settings": list(PRIORS),
        "ceilings": ceilings(device, precision, clock),
        "plain": measure_plain(device, clock, looped=False),
        "looped": measure_plain(device, clock, looped=True),
        "whole": [],
    }
    save(record)
    if cuda and not quick:
        record["whole"].append(measure_whole(10, precision))
        print("whole", json.dumps(record["whole"]), flush=True)
        save(record)
    small = quick or not cuda
    sizes, divisors = ((1, 8), (10, 100)) if small else ((1, 8, 40, 96, 160), (10, 100, 500))
    tasks: dict[str, Any] = {
        f"stack {size} n/{divisor}": (stack_jobs, size, divisor)
        for divisor in divisors
        for size in sizes
    }
    tasks["prop"] = (stack_jobs, 8, 10, ("prop",))
    tasks["prop-cr"] = (stack_jobs, 8, 10, ("prop-cr",))
    tasks["resnet20"] = (resnet_jobs, 5000 if cuda else 50)
    results = time_all(tasks, precision, 60 if cuda else 5, parallel=cuda)
    record["stacks"] = [r for name, r in results.items() if name.startswith("stack")]
    record["stacks"].sort(key=lambda r: (-r.get("batch", 0), r.get("stack", 0)))
    for name in ("prop", "prop-cr", "resnet20"):
        record[name] = results[name]
    save(record)
    return record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    top = record["ceilings"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        f"{record['hardware']}, {versions}, {record['precision']}, {record['date']}.",
        f"{record['model']}; {len(record['methods'])} methods and {len(record['settings'])} prior "
        f"settings mixed. Ceilings measured in the same run: large matrix product "
        f"{top['matmul_tflops']:.3g} TFLOP/s, large copy {top['copy_tb_per_s']:.3g} TB/s.",
        "",
        "| stack | batch | ms a step | s a model (500 epochs) | model-steps/s | TFLOP/s "
        "(of ceiling) | TB/s counted (of ceiling) |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['stack']} | {r['batch']:,} | {r['step_ms']:.2f} | {r['s_per_model']:.2f} "
        f"| {r['model_steps_per_s']:,.0f} | {r['tflops']:.3g} "
        f"({r['tflops'] / top['matmul_tflops']:.0%}) | {r['tb_per_s']:.3g} "
        f"({r['tb_per_s'] / top['copy_tb_per_s']:.0%}) |"
        for r in record["stacks"]
    ]
    best = min(r["s_per_model"] for r in record["stacks"] if r["batch"] == N // 10)
    net = record["resnet20"]
    consistency = record["prop-cr"]["step_ms"] / record["prop"]["step_ms"]
    lines += [
        "",
        "| one model, 500 epochs at batch n/10 | seconds | ratio to the stack |",
        "|---|---|---|",
        f"| best stack | {best:.2f} | 1 |",
        f"| plain PyTorch, DataLoader, vectorised objective | {record['plain']:,.0f} "
        f"| {record['plain'] / best:,.0f} |",
        f"| the same, loop over bags and classes | {record['looped']:,.0f} "
        f"| {record['looped'] / best:,.0f} |",
        "",
        f"ResNet-20, batch {net['batch']:,}: {net['step_ms']:.1f} ms for forward, backward and "
        f"step. `prop-cr` takes {consistency:.2f} "
        "times as long as `prop`.",
    ]
    lines += [
        f"\nAll {EPOCHS} epochs of {w['models']} models at batch {w['batch']:,}: {w['s']:.0f} s, "
        f"{w['s_per_model']:.2f} s a model, after a start-up of {w['start_up_s']:.0f} s."
        for w in record["whole"]
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="write the measurements to this file")
    parser.add_argument("--quick", action="store_true", help="fewer stacks")
    parser.add_argument("--table", type=Path, help="print the tables of this record")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text())))
        return

    def save(record: dict[str, Any]) -> None:
        if arguments.record:
            arguments.record.write_text(json.dumps(record, indent=1) + "\n")

    print(table(measure(arguments.quick, save)))


if __name__ == "__main__":
    main()

"""The vectorised objectives against plain loops: same numbers, far less time, little memory.

Run with ``make bench``. Exits with an error where one of the bars below is missed.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import unbag

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import naive  # the loops live with the tests that compare against them

LARGEST_DIFFERENCE = 1e-9
SPEEDUP = 20.0
SECONDS = 0.5
MEGABYTES = 500.0
WARM_UP = 3


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def build(name: str, batch: naive.Batch) -> unbag.objectives.Objective:
    needs_prior = issubclass(unbag.objectives.OBJECTIVES[name], unbag.objectives.RiskObjective)
    return unbag.objectives.get(
        name, batch.theta, **({"test_prior": batch.test_prior} if needs_prior else {})
    )


def median_seconds(trials: int, *functions: Callable[[], object]) -> list[float]:
    """Median time of each function; they take turns, so that a busy machine slows all alike."""
    times: list[list[float]] = [[] for _ in functions]
    for trial in range(WARM_UP + trials):
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if trial >= WARM_UP:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def differences() -> tuple[float, float]:
    """Largest relative difference of values and of gradients, over objectives and settings."""
    values, gradients = [], []
    for name, loop in naive.NAIVE.items():
        for n_bags, n_classes, absent in naive.SETTINGS:
            for weighted in (False, True):
                batch = naive.random_batch(n_bags, n_classes, absent=absent, weighted=weighted)
                objective = build(name, batch)
                # reduce, and not a call, because prop-cr would want a model.
                got = objective.reduce(
                    objective.statistics(batch.logits, batch.bag_index, batch.weight)
                )
                value, gradient = naive.value_and_gradient(got, batch)
                expected, expected_gradient = naive.value_and_gradient(loop(batch), batch)
                values.append(naive.relative_difference(value, expected))
                gradients.append(naive.relative_difference(gradient, expected_gradient))
    return max(values), max(gradients)


def careful_loop(batch: naive.Batch) -> torch.Tensor:
    """u-prr as a loop that selects rows once a bag and takes the log-softmax once a batch."""
    weights, theta = naive.risk_weights(batch), batch.theta
    losses, predicted = -torch.log_softmax(batch.logits, 1), batch.logits.argmax(1)
    total = torch.zeros(())
    for m in batch.present():
        rows = batch.bag_index == m
        bag_losses, bag_predicted = losses[rows], predicted[rows]
        for k in batch.classes():
            risk, level = bag_losses[:, k].mean(), 1 - theta[m, k]
            reached = (bag_predicted != k).float().mean() >= level - 1e-6
            sign = 1.0 if reached else -5.0
            term = 0.3 * weights[m, k].abs() * sign * (risk - level)
            total = total + 0.7 * weights[m, k] * risk + term
    return total


def speed(trials: int) -> list[float]:
    """Median seconds of one forward and backward of u-prr, in float32.

    Of the loop that computes every R_mk and E_mk from the rows anew, as the formulas read; of a
    careful loop; and of the objective.
    """
    batch = naive.random_batch(10, 10, n=6000)
    batch.logits = batch.logits.detach().float().requires_grad_()
    objective = build("u-prr", batch)

    def loop() -> None:
        naive.value_and_gradient(naive.u_prr(batch), batch)

    def vectorised() -> None:
        naive.value_and_gradient(objective(batch.logits, batch.bag_index), batch)

    def careful() -> None:
        naive.value_and_gradient(careful_loop(batch), batch)

    expected, got = naive.u_prr(batch), careful_loop(batch)
    if naive.relative_difference(got.detach(), expected.detach()) > 1e-4:
        sys.exit("The two loops disagree.")
    return median_seconds(trials, loop, careful, vectorised)


def memory(field: str) -> float:
    """Megabytes of this process now (VmRSS) or at most so far (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith(field))
    return int(kilobytes) * 1024 / 1e6


def large(trials: int) -> dict[str, float | None]:
    """Seconds and peak memory above the input of u-prr with 1,000 bags and 100 classes."""
    rng = np.random.default_rng(0)
    theta = naive.priors_of_shape(1000, 100, seed=0)
    objective = unbag.objectives.get("u-prr", theta, test_prior=np.full(100, 0.01))
    logits = torch.randn(50_000, 100, requires_grad=True)
    bag_index = torch.as_tensor(rng.integers(0, 1000, 50_000))

    def step(rows: int) -> None:
        logits.grad = None
        objective(logits[:rows], bag_index[:rows]).backward()

    step(10)  # loads what torch loads on a first call
    logits.grad = None
    measurable = Path("/proc/self/status").exists()
    before = memory("VmRSS") if measurable else 0.0
    step(50_000)
    peak = memory("VmHWM") - before if measurable else None
    (seconds,) = median_seconds(trials, lambda: step(50_000))
    return {"seconds": seconds, "megabytes": peak}


def in_own_process(trials: int) -> dict[str, float | None]:
    """Run :func:`large` where nothing else has raised the peak memory before."""
    command = [sys.executable, __file__, "--large", f"--trials={trials}"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float | None] = json.loads(result.stdout)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=15, help="repeats of every timing")
    parser.add_argument("--large", action="store_true", help="only the large case, as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # what other jobs on the machine disturb least
    if arguments.large:
        print(json.dumps(large(arguments.trials)))
        return 0

    print(
        f"torch {torch.__version__}, numpy {np.__version__}, "
        f"Python {platform.python_version()}\n{cpu_name()}, one thread; "
        f"medians of {arguments.trials} trials after {WARM_UP} to warm up\n"
    )
    value, gradient = differences()
    loop, careful, vectorised = speed(arguments.trials)
    big = in_own_process(arguments.trials)
    rows: list[tuple[str, float | None, str, bool, float]] = [
        ("largest relative difference, values", value, "", False, LARGEST_DIFFERENCE),
        ("largest relative difference, gradients", gradient, "", False, LARGEST_DIFFERENCE),
        ("speedup, u-prr, M=K=10, 6,000 rows", loop / vectorised, "×", True, SPEEDUP),
        ("time, u-prr, M=1,000, K=100, 50,000 rows", big["seconds"], " s", False, SECONDS),
        ("peak memory above the input, the same", big["megabytes"], " MB", False, MEGABYTES),
    ]
    missed = []
    for name, measured, unit, at_least, bar in rows:
        limit = f"{'≥' if at_least else '≤'} {bar:g}{unit}"
        if measured is None:
            print(f"{name:48}not measured (needs /proc)")
            continue
        print(f"{name:48}{measured:8.3g}{unit:4}{limit}")
        if not (measured >= bar if at_least else measured <= bar):
            missed.append(name)
    print(
        f"\nThe loop took {1e3 * loop:.1f} ms, the objective {1e3 * vectorised:.2f} ms. A careful "
        f"loop, which selects rows once a bag and takes the log-softmax once, took "
        f"{1e3 * careful:.1f} ms: {careful / vectorised:.1f}×."
    )
    if missed:
        print(f"Missed: {'; '.join(missed)}.", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

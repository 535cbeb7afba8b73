"""Eight Pendigits models in one stack against eight single fits, on the CPU.

usage: UNBAG_DATA=DIR python benchmarks/stack_cpu.py
"""

import statistics
import time

import torch

import unbag
from unbag.methods import Job, fit_many

EPOCHS, MODELS, REPEATS = 5, 8, 3


def seconds(jobs: list[Job]) -> float:
    start = time.perf_counter()
    fit_many(jobs, device="cpu")
    return time.perf_counter() - start


def main() -> None:
    data = unbag.datasets.load("pendigits")
    theta = unbag.priors.symmetric(n_classes=10, a=0.5)
    bags = unbag.make_bags(data.X_train, data.y_train, theta, random_state=0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {EPOCHS} epochs")
    print("| batch | single fits, s | one stack, s | ratio |\n|---|---|---|---|")
    for divisor in (10, 100, 500):
        jobs = [
            Job(bags, batch_size=len(bags) // divisor, epochs=EPOCHS, seed=seed)
            for seed in range(MODELS)
        ]
        seconds(jobs[:1])  # warm-up
        single = statistics.median(sum(seconds([job]) for job in jobs) for _ in range(REPEATS))
        stacked = statistics.median(seconds(jobs) for _ in range(REPEATS))
        print(f"| n/{divisor} | {single:.1f} | {stacked:.1f} | {single / stacked:.1f}× |")


if __name__ == "__main__":
    main()

"""Mixup and adversarial smoothing on images: both, one of the two per network, or no mixup.

usage: python -m study.checks mixup [--trials 2] [--epochs 0] [--record FILE.json]
       python -m study.checks mixup --table FILE.json

``crossfit`` with an MLP of the study, in the symmetric setting with a = 0.1 or 0.5. "both": every
training on soft labels has mixtures of rows. "either": only those that are not smoothed, which are
the networks of the first round and those of jobs whose trial of smoothing failed. "none": no
mixtures. ``--epochs 0`` stands for the default. To choose by: MNIST and Kuzushiji-MNIST, trial 0.
To judge by: all of Fashion-MNIST and USPS, and the other trials. All variants of a dataset are
trained together; a run that is stopped goes on from its record.
"""

import datetime
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from study.data import Data, make_job
from study.plan import STUDY, Run
from unbag.methods import CrossFit, Job, fit_many
from unbag.methods.base import Trainings

DATASETS = ("mnist", "kmnist", "fashion-mnist", "usps")
CHOSEN = ("symmetric-0.5", "symmetric-0.1")


@dataclass(frozen=True)
class Either(CrossFit):
    """Networks that are smoothed learn from rows as they are, all others from mixtures."""

    name = "either"

    def fit(self, job: Job) -> Trainings:
        """Change the replicas of cross-fitting."""
        trainings = super().fit(job)
        wanted = next(trainings)
        while True:
            changed = [replace(r, mixup=r.mixup and not r.adversarial_smoothing) for r in wanted]
            outcomes = yield changed
            try:
                wanted = trainings.send(outcomes)
            except StopIteration as end:
                return end.value


VARIANTS = {"both": CrossFit(), "either": Either(), "none": CrossFit(mixup=False)}


def measure(
    trials: int = 2, epochs: int = 0, done: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Fit the jobs of every dataset and setting that is not done, all together."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": device,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "runs": (done or {}).get("runs", []),
    }
    for name in DATASETS:
        data = Data(name)
        for setting in CHOSEN:
            where = {"data": name, "setting": setting, "epochs": epochs}
            if any(where.items() <= run.items() for run in record["runs"]):
                continue
            cases = [(variant, trial) for variant in VARIANTS for trial in range(trials)]
            jobs = [
                make_job(
                    data.bags(Run(name, setting, "crossfit", trial))[0],
                    VARIANTS[variant],
                    {},
                    test_prior=data.test_prior,
                    model=STUDY[name].model,
                    model_options=STUDY[name].model_options,
                    epochs=epochs or None,
                    seed=trial,
                    test=data.test,
                )
                for variant, trial in cases
            ]
            before = time.perf_counter()
            fits = fit_many(jobs, test_every=1000)
            seconds = round(time.perf_counter() - before, 1)
            for (variant, trial), fit in zip(cases, fits, strict=True):
                error = round(float(fit.history["test_error"][-1]), 5)
                run = {"mixup": variant, "trial": trial, "error": error, "seconds": seconds}
                record["runs"].append(where | run | {"stop_reason": fit.stop_reason})
            yield record


def table(record: dict[str, Any]) -> str:
    """Errors in percent of every trial."""
    variants = list(dict.fromkeys(r["mixup"] for r in record["runs"]))
    lines = [f"| dataset | setting | trial | {' | '.join(variants)} |"]
    lines.append(f"|---|---|---|{'---|' * len(variants)}")
    keys = dict.fromkeys((r["data"], r["setting"], r["trial"]) for r in record["runs"])
    for name, setting, trial in keys:
        errors = {
            r["mixup"]: 100 * r["error"]
            for r in record["runs"]
            if (r["data"], r["setting"], r["trial"]) == (name, setting, trial)
        }
        cells = " | ".join(f"{errors[variant]:.2f}" for variant in variants)
        lines.append(f"| {name} | {setting} | {trial} | {cells} |")
    return "\n".join(lines)

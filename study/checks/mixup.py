"""Mixup and adversarial smoothing on images: both, one of the two per network, or no mixup.

usage: python -m study.checks mixup [--datasets NAMES] [--settings NAMES] [--variants NAMES]
           [--trials 2] [--epochs 0] [--record FILE.json]
       python -m study.checks mixup --table FILE.json

``crossfit`` with an MLP, in settings of the study, or with all rows in random bags of one size
("bags of 16"). "both": every training on soft labels has mixtures of rows. "either": only those
that are not smoothed, which are the networks of the first round and those of jobs whose trial of
smoothing failed. "none": no mixtures. ``--epochs 0`` stands for the default of a CPU. All variants
and trials of a dataset and setting are trained together; a run that is stopped goes on from its
record.
"""

import datetime
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from study.checks.deep_bags import random_bags
from study.data import Data, make_job
from study.plan import STUDY, Run
from unbag.methods import CrossFit, Job, fit_many
from unbag.methods.base import Trainings

_BAGS_OF = "bags of "


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


VARIANTS = {
    "both": CrossFit(mixup=True),
    "either": Either(mixup=True),
    "none": CrossFit(mixup=False),
}


def make_case(data: Data, setting: str, method: CrossFit, trial: int, epochs: int) -> Job:
    """Build the job of a variant; small bags have the default network."""
    given: dict[str, Any] = {"seed": trial, "test": data.test, "epochs": epochs or None}
    if setting.startswith(_BAGS_OF):
        rows = data.rows
        size = int(setting.removeprefix(_BAGS_OF))
        bags = random_bags(rows.X_train, rows.y_train, size, rows.n_classes, trial)
        return make_job(bags, method, {}, **given)
    spec = STUDY[data.name]
    bags, _ = data.bags(Run(data.name, setting, "crossfit", trial))
    given |= {"model": spec.model, "model_options": spec.model_options}
    return make_job(bags, method, {}, test_prior=data.test_prior, **given)


def measure(
    datasets: str = "usps,kmnist",
    settings: str = "symmetric-0.5,symmetric-0.1,bags of 16,bags of 128",
    variants: str = "both,none",
    trials: int = 2,
    epochs: int = 0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Fit the jobs of every dataset and setting that is not done, all together."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": device,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "runs": (done or {}).get("runs", []),
    }
    for name in datasets.split(","):
        data = Data(name)
        for setting in settings.split(","):
            where = {"data": name, "setting": setting, "epochs": epochs}
            if any(where.items() <= run.items() for run in record["runs"]):
                continue
            cases = [(variant, trial) for variant in variants.split(",") for trial in range(trials)]
            jobs = [make_case(data, setting, VARIANTS[v], trial, epochs) for v, trial in cases]
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
        cells = " | ".join(f"{errors[v]:.2f}" if v in errors else "–" for v in variants)
        lines.append(f"| {name} | {setting} | {trial} | {cells} |")
    return "\n".join(lines)

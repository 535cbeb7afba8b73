"""What the library's default gives on images, by the five lines that a user types.

usage: python -m study.checks defaults [--datasets mnist,kmnist] [--seed 100] [--effort balanced]
           [--settings NAMES] [--record FILE.json]
       python -m study.checks defaults --table FILE.json

Bags of the study's settings with exact counts; ``UnbagClassifier(priors, random_state=seed)`` and
nothing else. Errors are those on the test rows. A run that is stopped goes on from its record.
"""

import datetime
import platform
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import unbag
from study.plan import SETTINGS

_KEYS = ("dataset", "setting", "seed", "effort")


def measure(
    datasets: str = "mnist,kmnist",
    settings: str = ",".join(SETTINGS),
    seed: int = 100,
    effort: str = "balanced",
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Fit what is not done, one model after another."""
    cuda = torch.cuda.is_available()
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    record = done or {
        "date": datetime.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if cuda else cpu,
        "versions": {"torch": str(torch.__version__), "numpy": np.__version__},
        "runs": [],
    }
    known = {tuple(run[key] for key in _KEYS) for run in record["runs"]}
    for name in datasets.split(","):
        data = unbag.datasets.load(name)
        for setting in settings.split(","):
            key = (name, setting, seed, effort)
            if key in known:
                continue
            theta = SETTINGS[setting](data.n_classes)
            bags = unbag.make_bags(data.X_train, data.y_train, theta, random_state=seed)
            before = time.perf_counter()
            clf = unbag.UnbagClassifier(priors=theta, effort=effort, random_state=seed)
            clf.fit(bags.X, bags.bag_ids)
            seconds = round(time.perf_counter() - before, 1)
            error = round(float((clf.predict(data.X_test) != data.y_test).mean()), 5)
            run = {"chosen": clf.method_, "epochs": clf.n_iter_, "error": error}
            record["runs"].append(dict(zip(_KEYS, key, strict=True)) | run | {"seconds": seconds})
            yield record
    yield record


def table(record: dict[str, Any]) -> str:
    """Errors in percent and seconds, one line per fit."""
    lines = [
        "| images | setting | effort | chosen | epochs on soft labels | error, % | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in record["runs"]:
        cells = [run["dataset"], run["setting"], run["effort"], run["chosen"], str(run["epochs"])]
        cells += [f"{100 * run['error']:.2f}", f"{run['seconds']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)

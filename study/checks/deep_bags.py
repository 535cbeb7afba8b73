"""Random disjoint bags of images and convolutional networks, as the field measures itself.

usage: python -m study.checks deep_bags --dataset kmnist --network lenet5 --sizes 128 --trials 5
           [--methods auto,prop] [--epochs 0] [--precision bf16] [--features FILE.pt]
           --record FILE.json
       python -m study.checks deep_bags --table FILE.json

All training rows are shuffled and cut into bags of one size, and the rest is dropped; only the
number of rows of each class in every bag is known. Nothing is chosen by labels: errors on the test
rows are those of the last epoch, and the smallest of any epoch that was tested stands beside them.
Of a run that was stopped, they are those of the last stage that ended.
A record is gone on with: what it holds is not trained again.

Features need no bags, so the networks for bags of several sizes may begin with the same ones. With
``--features`` they do: these are learned once, from the training rows of the dataset, and kept in
that file; the minutes of every run include theirs.
"""

import datetime
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unbag
from study.data import make_job
from unbag.callbacks import Callback, Epoch
from unbag.methods import fit_many
from unbag.methods.self_training import feature_replica
from unbag.methods.soft_labels import DESCENT
from unbag.models import take_features, with_projector
from unbag.training import TestSet, train

_TEST_EVERY = 5
_FEATURE_EPOCHS = 70
_KEYS = ("dataset", "network", "size", "method", "trial")


def random_bags(X: Any, y: Any, size: int, n_classes: int, seed: int) -> unbag.Bags:
    """Deal rows to bags of one size, and count the classes in every bag."""
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[: len(y) // size * size]
    bag = np.arange(len(order)) // size
    theta = np.zeros((len(order) // size, n_classes))
    np.add.at(theta, (bag, np.asarray(y, np.int64)[order]), 1 / size)
    return unbag.Bags(X[order], bag, unbag.ClassPriors(theta, shares_of="rows"))


def measure(
    dataset: str = "kmnist",
    network: str = "lenet5",
    sizes: str = "128",
    methods: str = "auto",
    trials: int = 1,
    first: int = 0,
    epochs: int = 0,
    effort: str = "balanced",
    precision: str = "bf16",
    features: str = "",
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Fit methods to bags of some sizes, trial by trial; 0 epochs are those of the method."""
    data = unbag.datasets.load(dataset)
    test = TestSet(data.X_test, data.y_test)
    cuda = torch.cuda.is_available()
    record = done or {
        "date": datetime.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU",
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "runs": [],
    }
    module = None
    if features:
        module = _features(features, data, network, precision, record)
    ended = {tuple(run[key] for key in _KEYS) for run in record["runs"]}
    for trial in range(first, first + trials):
        for size in map(int, sizes.split(",")):
            bags = random_bags(data.X_train, data.y_train, size, data.n_classes, trial)
            for method in methods.split(","):
                key = (dataset, network, size, method, trial)
                if key in ended:
                    continue
                given = {"epochs": epochs} if epochs else {}
                job = make_job(
                    bags,
                    method,
                    {},
                    model=network if module is None else module,
                    seed=trial,
                    test=test,
                    effort=effort,
                    accelerated=cuda,
                    **given,
                )
                curves = _Curves()
                (fit,) = fit_many(
                    [job], precision=precision, test_every=_TEST_EVERY, callbacks=[curves]
                )
                errors = fit.history["test_error"]
                tested = np.flatnonzero(np.isfinite(errors))
                run = dict(zip(_KEYS, key, strict=True)) | {
                    "rows": bags.n_rows,
                    "chosen": fit.method,
                    "precision": precision,
                    "effort": effort,
                    "epochs": fit.n_epochs,
                    "seconds": round(fit.seconds + record.get("feature_seconds", 0), 1),
                    "error": round(float(errors[tested[-1]]), 5),
                    "best_error": round(min(e for s in curves.stages for _, e in s["curve"]), 5),
                    "stages": curves.stages,
                    "why": fit.stop_reason,
                }
                print(run)
                record["runs"].append(run)
                yield record


class _Curves(Callback):
    """Test errors of every stage of a fit, epoch by epoch."""

    def __init__(self) -> None:
        self.stages: list[dict[str, Any]] = []

    def on_epoch(self, told: Epoch) -> None:
        """Note the error where there is one."""
        if "test_error" not in told.values:
            return
        if not self.stages or self.stages[-1]["stage"] != told.stage:
            self.stages.append({"stage": told.stage, "epochs": told.epochs, "curve": []})
        self.stages[-1]["curve"].append([told.epoch, round(told.values["test_error"], 4)])


def _features(
    path: str, data: Any, network: str, precision: str, record: dict[str, Any]
) -> torch.nn.Module:
    """Learn features, or take those of a file."""
    plain = unbag.Bags(
        data.X_train,
        np.zeros(len(data.X_train), int),
        unbag.ClassPriors(np.full((1, data.n_classes), 1 / data.n_classes)),
    )
    job = make_job(plain, "prop", {}, model=network, seed=0, accelerated=True)
    module = job.network()
    if not Path(path).exists():
        projected = with_projector(module, 0)
        assert projected is not None
        (fit,) = train(
            [feature_replica(job, projected, _FEATURE_EPOCHS, DESCENT)], precision=precision
        )
        learned = take_features(module, fit.module).state_dict()
        torch.save({"weights": learned, "seconds": fit.seconds}, path)
    saved = torch.load(path, weights_only=True)
    record["feature_epochs"], record["feature_seconds"] = _FEATURE_EPOCHS, round(saved["seconds"])
    module.load_state_dict(saved["weights"])
    return module


def table(record: dict[str, Any]) -> str:
    """One line per dataset, network, size and method: accuracies in percent."""
    lines = [
        "| images | network | rows of a bag | method | trials | accuracy, last epoch | "
        "best tested epoch | epochs | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in record["runs"]:
        groups.setdefault(tuple(run[key] for key in _KEYS[:-1]), []).append(run)
    for (dataset, network, size, method), runs in groups.items():
        last, best = (
            100 * (1 - np.array([run[name] for run in runs])) for name in ("error", "best_error")
        )
        spread = f" ({last.std(ddof=1):.2f})" if len(runs) > 1 else ""
        chosen = sorted({run["chosen"] for run in runs})
        name = f"auto: {', '.join(chosen)}" if method == "auto" else method
        stopped = {run["stopped"] for run in runs if "stopped" in run}
        name += f", stopped {', '.join(stopped)}" if stopped else ""
        cells = [dataset, network, str(size), name, str(len(runs))]
        epochs = "+".join(str(stage["epochs"]) for stage in runs[0].get("stages", ())[:4])
        cells += [f"{last.mean():.2f}{spread}", f"{best.mean():.2f}"]
        cells.append(epochs or f"{runs[0]['epochs']}")
        cells.append(f"{np.mean([run['seconds'] for run in runs]) / 60:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)

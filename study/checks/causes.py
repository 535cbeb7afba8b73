"""Why methods differ from the published numbers: the study's cells with one thing changed.

usage: UNBAG_DATA=DIR python -m study.checks causes [--record FILE.json] [--mnist 0|1] ...
       python -m study.checks causes --table FILE.json

Trial 0 of every cell is run as the study has it and with each change that might explain a
difference: what the authors' public demo does otherwise, and other learning rates and batch
sizes. Needs the choices of the study in results/study. Meant for a GPU; MNIST gets fewer changes.
With ``--mixed 1``, training and test rows are mixed instead, and with ``--draws N`` `unbiased` is
trained with N other Θ of the asymmetric setting.
"""

import datetime
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from study.choices import Choices
from study.data import Data
from study.formats import markdown
from study.plan import DATASET_NAMES, LEARNING_RATES, METHODS, SETTINGS, Run
from study.results import KEY, published
from unbag.methods import METHODS as METHOD_CLASSES
from unbag.methods import Fit, Job, Method, fit_many
from unbag.objectives import Corrected, Proportion, ProportionConsistency
from unbag.priors import asymmetric, risk_weights
from unbag.statistics import BagStatistics

RESULTS = Path(__file__).parents[2] / "results"
PLAIN, TRAINING_MODE, NO_PI = "as in the study", "tested in training mode", "no Π"
LOGITS, STANDARDISED = "mean of logits", "standardised inputs"
MIXED, MIXED_METHODS = "training and test rows mixed", ("prop", "unbiased", "u-stop", "u-prr")
SEED, ALL_DRAWS = "seed", 1000
Planned = tuple[str, Run]  # what is changed, and the run that it is changed in


class MeanLogits(Proportion):
    """Proportion loss on the softmax of a bag's mean logits."""

    def reduce(self, statistics: BagStatistics) -> Tensor:  # noqa: D102
        log_q = torch.log_softmax(statistics.bag_mean(statistics.logits), -1)
        return -(self.theta.to(log_q) * log_q * statistics.presence[..., None]).sum((-2, -1))


class MeanLogitsConsistency(ProportionConsistency):
    """The same with virtual adversarial consistency."""

    reduce = MeanLogits.reduce


class Rectified(Corrected):
    """Negative risks of a class dropped."""

    scale = 0.0

    def reduce(self, statistics: BagStatistics) -> Tensor:  # noqa: D102
        risks = self.weighted_risks(statistics).sum(-2)
        return torch.where(risks < 0, -self.scale * risks, risks).sum(-1)


class Ascending(Rectified):
    """Negative risks of a class turned round and multiplied."""

    scale = 5.0


CHANGED: dict[str, dict[str, type]] = {
    LOGITS: {"prop": MeanLogits, "prop-cr": MeanLogitsConsistency},
    "negative risks × 0": {"u-correct": Rectified},
    "negative risks × 5": {"u-correct": Ascending},
}


def changed_method(name: str, change: str) -> Method:
    """Make a method of the paper with a changed objective."""
    attributes = {"name": f"{name}, {change}", "objective": CHANGED[change][name]}
    return type(f"Changed{name}", (METHOD_CLASSES[name],), attributes)()


class Standardised(Data):
    """A dataset with features of mean 0 and deviation 1."""

    @cached_property
    def rows(self) -> Any:  # noqa: D102
        rows = super().rows
        flat = rows.X_train.reshape(len(rows.X_train), -1).astype(np.float32)
        mean, scale = flat.mean(0), flat.std(0)
        scale[scale == 0] = 1

        def scaled(x: Any) -> Any:
            return (x.reshape(len(x), -1) - mean) / scale

        return replace(rows, X_train=scaled(rows.X_train), X_test=scaled(rows.X_test))


class Mixed(Data):
    """A dataset whose rows are dealt to training and test part anew, in the same numbers."""

    @cached_property
    def rows(self) -> Any:  # noqa: D102
        rows = super().rows
        order = np.random.default_rng(0).permutation(len(rows.y_train) + len(rows.y_test))
        x = np.concatenate([rows.X_train, rows.X_test])[order]
        y = np.concatenate([rows.y_train, rows.y_test])[order]
        n = len(rows.y_train)
        return replace(rows, X_train=x[:n], y_train=y[:n], X_test=x[n:], y_test=y[n:])


@dataclass
class Redrawn(Data):
    """A dataset whose Θ of the asymmetric setting comes from another seed."""

    seed: int = 0

    def _make_bags(self, run: Run) -> Any:
        drawn = asymmetric(self.rows.n_classes, random_state=self.seed)
        with patch.dict(SETTINGS, asymmetric=lambda _: drawn):
            return super()._make_bags(run)


def load_choices(dataset: str) -> Choices:
    choices = Choices.load(RESULTS / "study", dataset)
    assert choices is not None, f"no choices of {dataset} in {RESULTS / 'study'}"
    return choices


def plan_changes(dataset: str) -> Iterator[Planned]:
    choices, large = load_choices(dataset), dataset == "mnist"
    rates = (2e-4,) if large else LEARNING_RATES
    for setting in SETTINGS:
        for method in METHODS:
            run = choices.run(setting, method, trial=0)
            yield PLAIN, run
            yield from ((change, run) for change in CHANGED if method in CHANGED[change])
            if METHOD_CLASSES[method].needs_rank:
                yield NO_PI, run
            if not large:
                yield STANDARDISED, run
            if method == "u-prr":  # it chose learning rate and batch size
                continue
            for rate in rates:
                if rate != run.learning_rate:
                    yield f"learning rate {rate:g}", replace(run, learning_rate=rate)
            if not large and method != "prop-cr":
                yield "batch n/50", replace(run, batch_divisor=50)


def plan_mixed(dataset: str) -> Iterator[Planned]:
    choices = load_choices(dataset)
    for setting in SETTINGS:
        for method in MIXED_METHODS:
            yield MIXED, choices.run(setting, method, trial=0)


def sum_of_weights(seed: int) -> float:
    """Sum of the absolute risk weights of a Θ of the asymmetric setting, with π uniform."""
    theta = asymmetric(10, random_state=seed)
    return float(np.abs(risk_weights(theta, np.full(10, 0.1), warn=False)).sum())


def plan_draws(dataset: str, number: int) -> Iterator[Planned]:
    """Plan runs with Θ from the easiest to the hardest of all draws, and that of the study."""
    choices = load_choices(dataset)
    ranked = sorted(range(ALL_DRAWS), key=sum_of_weights)
    steps = np.linspace(0, ALL_DRAWS - 1, number).astype(int)
    for seed in dict.fromkeys([0, *(ranked[step] for step in steps)]):
        yield f"{SEED} {seed}", choices.run("asymmetric", "unbiased", trial=0)


def make_data(dataset: str, changes: Iterable[str]) -> dict[str, Data]:
    """Make the data of every change; those that leave it as it is share one."""
    plain = Data(dataset)
    made: dict[str, Data] = {STANDARDISED: Standardised(dataset), MIXED: Mixed(dataset)}
    for change in changes:
        if change.startswith(SEED):
            made[change] = Redrawn(dataset, seed=int(change.removeprefix(SEED)))
    return {change: made.get(change, plain) for change in changes}


def changed_job(change: str, run: Run, data: Data) -> Job:
    if change in CHANGED:
        return data.job(run, method=changed_method(run.method, change))
    if change == NO_PI:
        # Without Π the risk is K times as large, and a level as much lower.
        k = data.rows.n_classes
        level = None if run.flood_level is None else run.flood_level / k
        return data.job(replace(run, flood_level=level), test_prior=np.full(k, 1 / k))
    return data.job(run)


@torch.no_grad()
def training_mode_error(fit: Fit, job: Job) -> float:
    """Test error when batch normalisation takes its statistics from the test rows."""
    assert job.test is not None
    x = torch.as_tensor(np.asarray(job.test.X))
    x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    predicted = fit.module.train()(x).argmax(1).numpy()
    return float((predicted != np.asarray(job.test.y)).mean())


def measure(
    pendigits: int = 1, usps: int = 1, mnist: int = 1, mixed: int = 0, draws: int = 0
) -> Iterator[dict[str, Any]]:
    wanted = {"pendigits": pendigits, "usps": usps, "mnist": mnist}
    record: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "precision": "bf16" if torch.cuda.is_available() else "float32",
        "trial": 0,
        "rows": [],  # dataset, setting, method, change, test error in percent
    }
    for dataset in (name for name, on in wanted.items() if on):
        if draws:
            planned = list(plan_draws(dataset, draws))
        else:
            planned = list(plan_mixed(dataset) if mixed else plan_changes(dataset))
        data = make_data(dataset, {change for change, _ in planned})
        jobs = [changed_job(change, run, data[change]) for change, run in planned]
        # Some at a time, so that what is done is kept; changed objectives never share a stack
        # with those that they change.
        kinds = [(run.batch_divisor, change in CHANGED) for change, run in planned]
        for kind in sorted(set(kinds)):
            part = [i for i, size in enumerate(kinds) if size == kind]
            fits = fit_many(
                [jobs[i] for i in part], precision=record["precision"], test_every=10_000
            )
            for i, fit in zip(part, fits, strict=True):
                change, run = planned[i]
                result = {change: fit.history["test_error"][-1]}
                if change == PLAIN:
                    result[TRAINING_MODE] = training_mode_error(fit, jobs[i])
                for name, error in result.items():
                    row = [dataset, run.setting, run.method, name, round(100 * float(error), 3)]
                    record["rows"].append(row)
            yield record


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    changes = {row[3] for row in record["rows"]}
    where = f"trial 0, {record['hardware']}, {record['precision']}, {record['date']}."
    if MIXED in changes:
        return table_of_mixed(record, where)
    if PLAIN in changes:
        return table_of_changes(record, where)
    return table_of_draws(record, where)


def errors_of(record: dict[str, Any]) -> pd.Series:
    """Errors of a record by dataset, setting, method and change."""
    frame = pd.DataFrame(record["rows"], columns=[*KEY, "change", "error"])
    return frame.set_index([*KEY, "change"])["error"]


def table_of_changes(record: dict[str, Any], where: str) -> str:
    errors = errors_of(record)
    apart = errors - published()["error_mean"].reindex(errors.index.droplevel("change")).to_numpy()
    groups = apart.groupby(["dataset", "change", "method"])
    distances = apart.abs().groupby(["dataset", "change", "method"])
    shown = groups.mean().map("{:+.1f}".format) + distances.mean().map(" ({:.1f})".format)
    shown = shown.str.replace("-", "−").unstack("method")[list(METHODS)].fillna("")
    parts = [
        "Test error less the published one in points, as the mean over the four settings; in "
        f"brackets the mean of the absolute differences; {where}"
    ]
    for dataset, part in errors.groupby("dataset", sort=False):
        rows = shown.loc[dataset].loc[part.index.unique("change")]
        headings = [DATASET_NAMES[dataset], *(f"`{method}`" for method in METHODS)]
        parts.append(markdown(rows.reset_index().set_axis(headings, axis=1)))
    return "\n\n".join(parts)


def table_of_mixed(record: dict[str, Any], where: str) -> str:
    errors = errors_of(record).droplevel("change")
    study = errors_of(json.loads((RESULTS / "causes.json").read_text(encoding="utf-8")))
    numbers = (
        pd.DataFrame({"errors": errors})
        .join(study.xs(PLAIN, level="change").rename("study"))
        .join(published()["error_mean"])
    )
    texts = numbers.apply(lambda n: f"{n.errors:.1f} ({n.study:.1f}, {n.error_mean:.1f})", axis=1)
    rows = errors.index.droplevel("setting").unique()
    table = texts.unstack("setting").loc[rows, list(SETTINGS)].reset_index()
    table = table.replace({"dataset": DATASET_NAMES}).assign(method="`" + table["method"] + "`")
    text = (
        "Test error in percent with training and test rows mixed; in brackets as in the study and "
        f"as published; {where}"
    )
    return f"{text}\n\n{markdown(table)}"


def table_of_draws(record: dict[str, Any], where: str) -> str:
    errors = errors_of(record).unstack("dataset").rename(columns=DATASET_NAMES)
    errors.index = errors.index.get_level_values("change").str.removeprefix(SEED).astype(int)
    sums = pd.Series([sum_of_weights(seed) for seed in range(ALL_DRAWS)])
    ranks = sums.rank(method="min") - 1  # how many draws have a smaller sum
    shown = {
        "seed": errors.index.astype(str),
        "sum of absolute risk weights": sums[errors.index].map("{:.2f}".format),
        f"share of {ALL_DRAWS:,} draws with a smaller sum": (100 * ranks / ALL_DRAWS)[
            errors.index
        ].map("{:.1f} %".format),
        **errors.map("{:.1f}".format),
    }
    table = pd.DataFrame(shown).loc[sums[errors.index].sort_values().index]
    text = (
        "Test error in percent of `unbiased` with Θ of the asymmetric setting drawn from other "
        f"seeds; the study has seed 0; {where}"
    )
    return f"{text}\n\n{markdown(table)}"

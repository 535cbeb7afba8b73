"""Hyperparameters of the study, chosen without a label.

Learning rate and batch size are one choice per dataset, shared by all methods: the smallest
label-free error of ``u-prr``, on a fifth of the rows of trial 0 that is held out, as the mean over
the four settings. A setting weighs as one over the variance of its label-free error: in
symmetric-0.1 that error has over three times the deviation of the others, and would decide by
chance.
α and s_GA are the library's defaults meanwhile, but in symmetric-0.1 a pair that learns there.
Batch sizes are tried from the largest down, until two in a row bring nothing. Then α and s_GA of
``u-prr`` and the level of ``u-flood`` are chosen for every setting in the same way, from the whole
grid. The best of the same models by test error is kept beside the choice, for comparison only.

Where the whole grid would take too long, only the learning rate is chosen, with the largest batch
and in symmetric-0.5, whose label-free error is the most precise: rates are tried from the smallest
up, until one is worse than the best before. α and s_GA stay as they are meanwhile, and the level is
the middle one.
"""

import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from study import plan
from study.plan import N_CLASSES, SETTINGS, STUDY, Run
from study.records import Record, Records
from unbag.files import write_whole
from unbag.priors import risk_weights
from unbag.validation import invalid

_PATIENCE = 2  # batch sizes in a row that bring nothing
# α and s_GA of u-prr while learning rate and batch size are chosen. With the defaults it does not
# learn in symmetric-0.1, whatever the learning rate: its label-free error there would be noise.
_START = {
    **{setting: {"alpha": 0.7, "ascent_scale": 5.0} for setting in SETTINGS},
    "symmetric-0.1": {"alpha": 0.5, "ascent_scale": 2.0},
}
_PRECISE = "symmetric-0.5"  # the setting with the most precise label-free error
_LEVEL = 0.05  # of u-flood, where it is not chosen
TUNED = ("u-flood", "u-prr")  # methods with hyperparameters
_Values = dict[str, float]  # hyperparameters of a method
Ensure = Callable[[Iterable[Run]], None]


@dataclass(frozen=True)
class Choices:
    """The hyperparameters of a dataset.

    Attributes
    ----------
    dataset : str
    learning_rate : float
    batch_divisor : int
    label_free : dict
        By setting and method, the hyperparameters with the smallest label-free error.
    by_test_error : dict
        The same with the smallest test error of the same models, for comparison only; no methods
        where there was no grid to choose from.
    epochs : int, optional
        Of quick runs; by default those of the study.
    """

    dataset: str
    learning_rate: float
    batch_divisor: int
    label_free: dict[str, dict[str, dict[str, float]]]
    by_test_error: dict[str, dict[str, dict[str, float]]]
    epochs: int | None = None

    def run(self, setting: str, method: str, trial: int, *, oracle: bool = False) -> Run:
        """Return the run of a cell with the chosen hyperparameters."""
        tables = self.by_test_error if oracle else self.label_free
        values: dict[str, Any] = tables[setting].get(method, {})
        shared = self.learning_rate, self.batch_divisor, self.epochs or STUDY[self.dataset].epochs
        return Run(self.dataset, setting, method, trial, *shared, **values)

    def save(self, folder: Path) -> None:
        """Write the choices beside the records."""
        path = folder / self.dataset / "choices.json"
        write_whole(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path, dataset: str) -> "Choices | None":
        """Read the choices of a dataset, or None where there are none."""
        path = folder / dataset / "choices.json"
        if not path.exists():
            return None
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            choices = cls(**values)
            for setting in SETTINGS:
                choices.run(setting, "u-prr", trial=0, oracle=True)
                choices.run(setting, "u-prr", trial=0)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            remedy = "restore the file, or delete it to make the choices again from the records."
            raise invalid(str(path), "a file of choices", repr(error), remedy) from None
        if choices.dataset != dataset:
            raise invalid(str(path), f"the choices of {dataset}", f"those of {choices.dataset}")
        return choices


def choose(datasets: Sequence[str], records: Records, ensure: Ensure) -> list[Choices]:
    """Choose the hyperparameters of datasets; ``ensure`` trains the runs that have no record."""
    shared = _choose_shared([d for d in datasets if STUDY[d].has_grid], records, ensure)
    for dataset in datasets:
        if dataset not in shared:
            shared[dataset] = _choose_rate(dataset, records, ensure), plan.BATCH_DIVISORS[0]
    grids = {
        (dataset, setting, method): _grid(dataset, setting, method, *shared[dataset])
        for dataset in datasets
        if STUDY[dataset].has_grid
        for setting in SETTINGS
        for method in TUNED
    }
    ensure(itertools.chain.from_iterable(grids.values()))

    def best(dataset: str, error: Callable[[Record], float]) -> dict[str, dict[str, _Values]]:
        return {
            s: {m: _best(grids[dataset, s, m], records, error) for m in TUNED} for s in SETTINGS
        }

    choices = []
    for dataset in datasets:
        if STUDY[dataset].has_grid:
            tables = best(dataset, _label_free_error), best(dataset, _test_error)
        else:
            fixed = {s: {"u-flood": {"flood_level": _LEVEL}, "u-prr": _START[s]} for s in SETTINGS}
            tables = fixed, {s: {} for s in SETTINGS}
        choices.append(Choices(dataset, *shared[dataset], *tables))
    return choices


def _choose_shared(
    datasets: Sequence[str], records: Records, ensure: Ensure
) -> dict[str, tuple[float, int]]:
    """Learning rate and batch divisor of every dataset."""
    best: dict[str, tuple[float, tuple[float, int]]] = {}
    waited = dict.fromkeys(datasets, 0)
    for divisor in plan.BATCH_DIVISORS:
        walking = [dataset for dataset in datasets if waited[dataset] < _PATIENCE]
        runs = {
            (dataset, rate): [_start(dataset, setting, rate, divisor) for setting in SETTINGS]
            for dataset in walking
            for rate in plan.LEARNING_RATES
        }
        ensure(itertools.chain.from_iterable(runs.values()))
        for dataset in walking:
            waited[dataset] += 1
            for rate in plan.LEARNING_RATES:
                error = sum(
                    share * _label_free_error(records[run])
                    for share, run in zip(setting_shares(), runs[dataset, rate], strict=True)
                )
                if dataset not in best or error < best[dataset][0]:
                    best[dataset] = error, (rate, divisor)
                    waited[dataset] = 0
    return {dataset: choice for dataset, (_, choice) in best.items()}


def _choose_rate(dataset: str, records: Records, ensure: Ensure) -> float:
    """Learning rate of a dataset without a grid."""
    errors: dict[float, float] = {}
    for rate in sorted(plan.LEARNING_RATES):
        run = _start(dataset, _PRECISE, rate, plan.BATCH_DIVISORS[0])
        ensure([run])
        error = _label_free_error(records[run])
        if error > min(errors.values(), default=math.inf):
            break
        errors[rate] = error
    return min(errors, key=errors.__getitem__)


@functools.cache
def setting_shares() -> list[float]:
    """Weights of the settings: one over the variance of the label-free error, summing to one.

    The variance is that of a model which predicts every class as often as it occurs, on bags of
    equal size: Σ_m Var(W[m, ŷ]), with ŷ drawn from θ_m.
    """
    variances = []
    for make in SETTINGS.values():
        theta = make(N_CLASSES)
        weights = risk_weights(theta, theta.mean(0), warn=False)
        square = (theta * weights**2).sum(1) - (theta * weights).sum(1) ** 2
        variances.append(len(theta) * square.sum())
    precision = 1 / np.array(variances)
    shares: list[float] = (precision / precision.sum()).tolist()
    return shares


def _start(dataset: str, setting: str, rate: float, divisor: int) -> Run:
    values: dict[str, Any] = {"held_out": True, **_START[setting]}
    return Run(dataset, setting, "u-prr", 0, rate, divisor, STUDY[dataset].epochs, **values)


def _grid(dataset: str, setting: str, method: str, rate: float, divisor: int) -> list[Run]:
    start = _start(dataset, setting, rate, divisor)
    if method == "u-prr":
        return [
            replace(start, alpha=alpha, ascent_scale=scale)
            for alpha in plan.ALPHAS
            for scale in plan.ASCENT_SCALES
        ]
    plain = replace(start, method="u-flood", alpha=None, ascent_scale=None)
    return [replace(plain, flood_level=level) for level in plan.FLOOD_LEVELS]


def _best(grid: Iterable[Run], records: Records, error: Callable[[Record], float]) -> _Values:
    return min((records[run] for run in grid), key=error).run.hyperparameters


def _label_free_error(record: Record) -> float:
    failed = record.diverged or record.label_free_error is None
    return math.inf if failed else float(record.label_free_error or 0.0)


def _test_error(record: Record) -> float:
    return math.inf if record.diverged else record.error

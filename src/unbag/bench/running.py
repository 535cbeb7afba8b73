"""The runs of the study: trained where no record is there, recorded as each stack ends."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unbag.bench.choices import Choices, choose
from unbag.bench.records import Environment, Record, Records
from unbag.bench.study import METHODS, OURS, SETTINGS, STUDY, TRIALS, Data, Run, our_run
from unbag.methods import Fit, fit_many
from unbag.training import Outcome, resolve_device
from unbag.validation import check_choice, check_number, invalid

__all__ = [
    "ABLATIONS",
    "DROPOUTS",
    "FIGURE_DATASET",
    "NOISE_RATES",
    "QUICK_DATASETS",
    "QUICK_RESULTS",
    "RESULTS",
    "SHARES",
    "SHARE_METHODS",
    "WEIGHT_DECAYS",
    "Report",
    "ablation_runs",
    "cell_runs",
    "figure_runs",
    "noise_runs",
    "quick_choices",
    "run_study",
]

RESULTS, QUICK_RESULTS = "results/bench", "bench-quick"  # folders, where none is given
QUICK_DATASETS = ("pendigits", "usps")
_QUICK_EPOCHS, _QUICK_TEST_EVERY = 50, 5
_QUICK_RATE, _QUICK_DIVISOR = 1e-3, 10

# What the figures vary, on MNIST.
FIGURE_DATASET = "mnist"
DROPOUTS = (0.0, 0.2, 0.4, 0.6, 0.8)  # of one trial, like the weight decays
WEIGHT_DECAYS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1)
NOISE_RATES = (0.0, 0.01, 0.03, 0.05)
SHARES = (1 / 27, 1 / 9, 1 / 3, 1.0)
SHARE_METHODS = ("u-prr", "unbiased")

# Dataset, setting and method; then what is changed, in words and as options.
_Change = tuple[str, dict[str, Any]]
_CROSSFIT: tuple[_Change, ...] = (
    ("no rounds", {"rounds": 0}),
    ("one round", {"rounds": 1}),
    ("two folds", {"folds": 2}),
    ("ten folds", {"folds": 10}),
    ("start by `bag-likelihood`", {"start": "bag-likelihood"}),
    ("start by `u-prr`", {"start": "u-prr"}),
    ("no temperature", {"calibrated": False}),
    ("labels not balanced", {"balanced": False}),
    ("no mixup", {"mixup": False}),
    ("no smoothing", {"smoothing": 0.0}),
)
_CONSISTENCY: tuple[_Change, ...] = (
    ("no pseudo-labels", {"weight": 0.0}),
    ("no teacher", {"teacher": False}),
    ("threshold 0.95", {"threshold": 0.95}),
    ("labels not balanced", {"balanced": False}),
)
ABLATIONS: dict[tuple[str, str, str], tuple[_Change, ...]] = {
    ("mnist", "symmetric-0.5", "crossfit"): _CROSSFIT,
    ("mnist", "symmetric-0.1", "crossfit"): _CROSSFIT,
    ("cifar10", "symmetric-0.5", "consistency"): _CONSISTENCY,
}


@dataclass(frozen=True)
class Report:
    """What a call of :func:`run_study` came to.

    Attributes
    ----------
    records : Records
        All records of the folder.
    trained, found : int
        Models trained now, and those of this study that had a record before.
    """

    records: Records
    trained: int
    found: int


@dataclass
class _Trainer:
    """Trains runs that have no record and adds theirs."""

    records: Records
    device: str
    precision: str
    verbose: bool
    test_every: int
    trained: set[Run] = field(default_factory=set)
    found: set[Run] = field(default_factory=set)
    _data: dict[str, Data] = field(default_factory=dict)

    def __call__(self, runs: Iterable[Run]) -> None:
        wanted = dict.fromkeys(runs)
        missing = [run for run in wanted if run not in self.records]
        self.found.update(wanted.keys() - self.trained - set(missing))
        for held_out in (True, False):
            part = [run for run in missing if run.held_out == held_out]
            if part:
                self._train(part)

    def _train(self, runs: list[Run]) -> None:
        device = resolve_device(self.device)
        environment = Environment.here(device, self.precision)
        for name in {run.dataset for run in runs}:
            self._data.setdefault(name, Data(name))

        # u-stop is unbiased with an end: where both are wanted, one training serves them.
        ends: dict[Run, Run] = {}
        if self.test_every == 1 and not runs[0].held_out:  # then every epoch is tested
            wanted = set(runs)
            pairs = [(replace(r, method="unbiased"), r) for r in runs if r.method == "u-stop"]
            ends = {run: end for run, end in pairs if run in wanted}
            runs = [run for run in runs if run not in set(ends.values())]

        def keep(fits: dict[int, Fit]) -> None:
            outcomes = {runs[i]: fit.outcome for i, fit in fits.items()}
            outcomes |= {
                ends[run]: _ended_when_negative(outcome)
                for run, outcome in outcomes.items()
                if run in ends
            }
            made = (Record.of(run, outcome, environment.key) for run, outcome in outcomes.items())
            self.records.add(made, environment)
            self.trained.update(outcomes)

        fit_many(
            [self._data[run.dataset].job(run) for run in runs],
            device=device,
            precision=self.precision,
            # The drop needs errors of every epoch; runs that choose need the last one only.
            test_every=max(r.epochs or 1 for r in runs) if runs[0].held_out else self.test_every,
            verbose=self.verbose,
            checkpoint=self.records.folder / ".checkpoints",
            checkpoint_seconds=300.0,
            on_finish=keep,
        )


def _ended_when_negative(outcome: Outcome) -> Outcome:
    """Return the same training, had it ended as u-stop does; it took no time of its own."""
    negative = outcome.history["empirical_risk"] < 0
    n_epochs = int(negative.argmax()) + 1 if negative.any() else outcome.n_epochs
    return replace(
        outcome,
        history={name: values[:n_epochs] for name, values in outcome.history.items()},
        n_epochs=n_epochs,
        diverged=outcome.diverged and n_epochs == outcome.n_epochs,
        seconds=0.0,
    )


def run_study(
    results: str | os.PathLike[str],
    *,
    datasets: Sequence[str] = tuple(STUDY),
    settings: Sequence[str] = tuple(SETTINGS),
    methods: Sequence[str] = METHODS,
    trials: int = TRIALS,
    figures: bool = False,
    ablations: bool = False,
    quick: bool = False,
    device: str = "auto",
    precision: str = "auto",
    verbose: bool = False,
) -> Report:
    """Run the study, or what is missing of it.

    Hyperparameters are chosen first, where ``results`` has no choices of a dataset. What has a
    record is not run again, so a run that was killed goes on when it is started once more.

    Parameters
    ----------
    results : path
        Folder of records and choices.
    datasets, settings, methods : sequences of str
        Methods of our own and "supervised" have to be named; all others are the default.
    trials : int, default=5
    figures : bool, default=False
        Also run what only the figures need (MNIST).
    ablations : bool, default=False
        Also run our own methods with parts changed, and with noise of the priors (MNIST,
        CIFAR-10), whatever settings and methods are named.
    quick : bool, default=False
        A first try without choices: fixed hyperparameters and 50 epochs.
    device : str, default="auto"
    precision : {"auto", "float32", "tf32", "bf16"}, default="auto"
        "auto" is bf16 on CUDA and float32 on the CPU.
    verbose : bool, default=False
        Show progress.

    Returns
    -------
    Report
    """
    for name, given, known in (
        ("datasets", datasets, STUDY),
        ("settings", settings, SETTINGS),
        ("methods", methods, (*METHODS, *OURS)),
    ):
        if not given:
            raise invalid(name, f"some of {', '.join(known)}", "none")
        for value in given:
            check_choice(name, value, known)
    check_number("trials", trials, low=1, integer=True)
    ours = [method for method in methods if method in OURS]
    theirs = [method for method in methods if method in METHODS]
    if quick and ablations:
        raise invalid("ablations", "False in quick runs", True, "run the full study.")
    if quick and ours:
        remedy = "leave it out, or run the full study."
        raise invalid("methods", f"some of {', '.join(METHODS)} in quick runs", ours[0], remedy)
    if precision == "auto":
        precision = "bf16" if resolve_device(device).type == "cuda" else "float32"
    records = Records(results)
    ensure = _Trainer(records, device, precision, verbose, _QUICK_TEST_EVERY if quick else 1)
    choices = _choices(datasets, records, ensure, quick) if theirs or figures else []
    for oracle in (False, True):
        ensure(
            run
            for made in choices
            for run in cell_runs(made, settings, theirs, trials, oracle=oracle)
        )
        if figures and not oracle:
            ensure(
                run
                for made in choices
                if made.dataset == FIGURE_DATASET
                for run in figure_runs(made, trials)
            )
    ensure(
        our_run(dataset, setting, method, trial)
        for dataset in datasets
        for setting in settings
        for method in ours
        for trial in range(trials)
    )
    if ablations:
        ensure(ablation_runs(datasets))
        ensure(run for run in noise_runs(trials) if run.dataset in datasets)
    return Report(records, len(ensure.trained), len(ensure.found))


def _choices(
    datasets: Sequence[str], records: Records, ensure: _Trainer, quick: bool
) -> list[Choices]:
    """Choices of datasets: those of the folder, else made now and kept there."""
    folder = Path(records.folder)
    found = {name: Choices.load(folder, name) for name in datasets}
    others = [made.dataset for made in found.values() if made and (made.epochs is None) == quick]
    others += [r.run.dataset for r in records if (r.run.epochs != _QUICK_EPOCHS) == quick]
    if others:
        kinds = ("quick runs", "the full study")
        allowed, other = kinds if quick else kinds[::-1]
        got = f"{folder}, which has {other} of {others[0]}"
        raise invalid("results", f"a folder of {allowed}", got, "name another folder.")
    missing = [name for name, made in found.items() if made is None]
    new = map(quick_choices, missing) if quick else choose(missing, records, ensure)
    for made in new:
        made.save(folder)
        found[made.dataset] = made
    return [made for made in found.values() if made is not None]


def quick_choices(dataset: str) -> Choices:
    """Default hyperparameters and few epochs, for a first try on a laptop."""
    own: dict[str, dict[str, dict[str, float]]] = {setting: {} for setting in SETTINGS}
    return Choices(dataset, _QUICK_RATE, _QUICK_DIVISOR, own, own, epochs=_QUICK_EPOCHS)


def cell_runs(
    choices: Choices,
    settings: Iterable[str] = tuple(SETTINGS),
    methods: Iterable[str] = METHODS,
    trials: int = TRIALS,
    *,
    oracle: bool = False,
) -> list[Run]:
    """Make the runs of the cells of a dataset.

    ``oracle`` means those best by test error, of the methods that a grid was run of.
    """
    return [
        choices.run(setting, method, trial, oracle=oracle)
        for setting in settings
        for method in methods
        if not oracle or method in choices.by_test_error[setting]
        for trial in range(trials)
    ]


def figure_runs(choices: Choices, trials: int) -> list[Run]:
    """Make the runs that only the figures need."""
    plain = choices.run("asymmetric", "unbiased", trial=0)
    runs = [replace(plain, dropout=rate) for rate in DROPOUTS]
    runs += [replace(plain, weight_decay=decay) for decay in WEIGHT_DECAYS]
    runs += [
        replace(choices.run(setting, "u-prr", trial), prior_noise=rate)
        for setting in SETTINGS
        for rate in NOISE_RATES
        for trial in range(trials)
    ]
    runs += [
        replace(choices.run("symmetric-0.5", method, trial), share=share)
        for share in SHARES
        for method in SHARE_METHODS
        for trial in range(trials)
    ]
    return runs


def ablation_runs(datasets: Iterable[str]) -> list[Run]:
    """Make the runs of the ablations, trial 0 of each."""
    wanted = set(datasets)
    return [
        our_run(*where, 0, **options)
        for where, changes in ABLATIONS.items()
        if where[0] in wanted
        for _, options in (("as it is", {}), *changes)
    ]


def noise_runs(trials: int) -> list[Run]:
    """Make the runs with noise of the priors."""
    return [
        replace(our_run(FIGURE_DATASET, setting, "crossfit", trial), prior_noise=rate)
        for setting in SETTINGS
        for rate in NOISE_RATES
        for trial in range(trials)
    ]

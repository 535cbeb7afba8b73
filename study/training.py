"""Training of the study's runs: those without a record, recorded as each stack ends."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from study import plan
from study.choices import Choices, choose
from study.data import Data
from study.plan import FIGURE_DATASET, METHODS, OURS, SETTINGS, STUDY, TRIALS, Run
from study.records import Record, Records, describe_environment, key_of
from unbag.methods import Fit, fit_many
from unbag.training import resolve_device
from unbag.validation import check_choice, check_number, invalid

RESULTS, QUICK_RESULTS = "results/study", "study-quick"  # folders, where none is given
QUICK_DATASETS = ("pendigits", "usps")
_QUICK_EPOCHS, _QUICK_TEST_EVERY = 50, 5
_QUICK_RATE, _QUICK_DIVISOR = 1e-3, 10


@dataclass
class Trainer:
    """Trains runs that have no record, and adds theirs.

    Attributes
    ----------
    records : Records
        All records of the folder.
    trained, found : set of Run
        What was trained now, and what was asked for and had a record before.
    """

    records: Records
    device: str
    precision: str
    verbose: bool
    test_every: int
    trained: set[Run] = field(default_factory=set)
    found: set[Run] = field(default_factory=set)
    _data: dict[str, Data] = field(default_factory=dict)

    def __call__(self, runs: Iterable[Run]) -> None:
        """Train those of some runs that have no record."""
        wanted = dict.fromkeys(runs)
        missing = [run for run in wanted if run not in self.records]
        self.found.update(wanted.keys() - self.trained - set(missing))
        for held_out in (True, False):
            part = [run for run in missing if run.held_out == held_out]
            if part:
                self._train(part)

    def _train(self, runs: list[Run]) -> None:
        device = resolve_device(self.device)
        environment = describe_environment(device, self.precision)
        for name in {run.dataset for run in runs}:
            self._data.setdefault(name, Data(name))

        # u-stop is unbiased with an end: where both are wanted, one training serves them.
        stopped: dict[Run, Run] = {}
        if self.test_every == 1 and not runs[0].held_out:  # then every epoch is tested
            wanted = set(runs)
            pairs = [(replace(r, method="unbiased"), r) for r in runs if r.method == "u-stop"]
            stopped = {run: stop for run, stop in pairs if run in wanted}
            runs = [run for run in runs if run not in set(stopped.values())]

        def keep(fits: dict[int, Fit]) -> None:
            ended = {runs[i]: fit for i, fit in fits.items()}
            ended |= {
                stopped[run]: _stopped_when_negative(fit)
                for run, fit in ended.items()
                if run in stopped
            }
            records = (Record.of(run, fit, key_of(environment)) for run, fit in ended.items())
            self.records.add(records, environment)
            self.trained.update(ended)

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


def _stopped_when_negative(fit: Fit) -> Fit:
    """Return the same training, had it ended as u-stop does; it counts no seconds twice."""
    negative = fit.history["empirical_risk"] < 0
    n_epochs = int(negative.argmax()) + 1 if negative.any() else fit.n_epochs
    return replace(
        fit,
        history={name: values[:n_epochs] for name, values in fit.history.items()},
        n_epochs=n_epochs,
        diverged=fit.diverged and n_epochs == fit.n_epochs,
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
) -> Trainer:
    """Run the study, or what is missing of it.

    Hyperparameters are chosen first, where ``results`` has no choices of a dataset. What has a
    record is not run again, so a run that was killed goes on when it is started once more.

    The arguments are the options of ``python -m study run``. Methods of `OURS` have to be named.
    The `Trainer` that comes back says what was ``trained`` now and ``found`` in the records.
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
    papers = [method for method in methods if method in METHODS]
    if quick and ablations:
        raise invalid("ablations", "False in quick runs", True, "run the full study.")
    if quick and ours:
        remedy = "leave it out, or run the full study."
        raise invalid("methods", f"some of {', '.join(METHODS)} in quick runs", ours[0], remedy)
    if precision == "auto":
        precision = "bf16" if resolve_device(device).type == "cuda" else "float32"
    records = Records(results)
    train = Trainer(records, device, precision, verbose, _QUICK_TEST_EVERY if quick else 1)
    choices = _choices(datasets, records, train, quick) if papers or figures else []
    train(run for c in choices for run in plan.cell_runs(c, settings, papers, trials))
    if figures:
        of_figures = [c for c in choices if c.dataset == FIGURE_DATASET]
        train(run for c in of_figures for run in plan.figure_runs(c, trials))
    train(run for c in choices for run in plan.cell_runs(c, settings, papers, trials, oracle=True))
    train(
        plan.our_run(dataset, setting, method, trial)
        for dataset in datasets
        for setting in settings
        for method in ours
        for trial in range(trials)
    )
    if ablations:
        train(plan.ablation_runs(datasets))
        train(run for run in plan.noise_runs(trials) if run.dataset in datasets)
    return train


def _choices(
    datasets: Sequence[str], records: Records, train: Trainer, quick: bool
) -> list[Choices]:
    """Choices of datasets: those of the folder, else new ones, which are saved there."""
    folder = records.folder
    present = {name: Choices.load(folder, name) for name in datasets}
    others = [c.dataset for c in present.values() if c and (c.epochs is None) == quick]
    others += [r.run.dataset for r in records if (r.run.epochs != _QUICK_EPOCHS) == quick]
    if others:
        kinds = ("quick runs", "the full study")
        allowed, other = kinds if quick else kinds[::-1]
        got = f"{folder}, which has {other} of {others[0]}"
        raise invalid("results", f"a folder of {allowed}", got, "name another folder.")
    missing = [name for name, choices in present.items() if choices is None]
    for choices in map(quick_choices, missing) if quick else choose(missing, records, train):
        choices.save(folder)
        present[choices.dataset] = choices
    return [choices for choices in present.values() if choices is not None]


def quick_choices(dataset: str) -> Choices:
    """Default hyperparameters and few epochs, for a first try on a laptop."""
    none: dict[str, dict[str, dict[str, float]]] = {setting: {} for setting in SETTINGS}
    return Choices(dataset, _QUICK_RATE, _QUICK_DIVISOR, none, none, epochs=_QUICK_EPOCHS)

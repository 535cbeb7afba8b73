"""From files to a saved model with its evaluation and report."""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbag.bags import Bags
from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation
from unbag.files import remove_folder, write_whole
from unbag.inspection import Inspection
from unbag.io import TableEncoding
from unbag.methods import METHODS, get_method
from unbag.selection import TuningResult, tune
from unbag.training import resolve_device
from unbag.validation import check_choice, check_number, invalid
from unbag.workflow.config import CONFIG, to_toml
from unbag.workflow.judging import (
    EVALUATED,
    EVALUATION,
    INSPECTION,
    REPORT,
    judge,
    write_report,
)
from unbag.workflow.reading import Inputs, inspect_rows, paths_of, read_inputs, shares_by_class

__all__ = ["TrainedModel", "fit_files", "tune_files"]

_TRIALS = "tuning.json"
_MODEL = "model.json"
_OF_METHODS = sorted({name for method in METHODS.values() for name in method.hyperparameters})
_CALIBRATION_ROWS = 50  # a class, below which calibration is left out unless it is asked for


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """What :func:`fit_files` and :func:`tune_files` made.

    Attributes
    ----------
    folder : Path
        The model, its report and all else that was written.
    classifier : UnbagClassifier
    inspection : Inspection
        Of the rows and priors, before training.
    evaluation : Evaluation or None
        On rows that took no part in training; None where there are none, or too few.
    warnings, notes : tuples of str
        What speaks against trusting the model; what else a user should know.
    tuning : TuningResult or None
        The search, of :func:`tune_files`.
    """

    folder: Path
    classifier: UnbagClassifier
    inspection: Inspection
    evaluation: Evaluation | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tuning: TuningResult | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        made: dict[str, Any] = {
            "model": str(self.folder),
            "report": str(self.folder / REPORT),
            "method": self.classifier.method,
            "epochs": self.classifier.n_iter_,
            "verdict": self.inspection.verdict,
            "reasons": self.inspection.reasons,
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }
        if self.tuning is not None:
            made["best_params"] = self.tuning.best_params
            made["trials"] = len(self.tuning.trials)
        return made


def fit_files(
    rows: Any,
    *,
    bag: str | None = None,
    priors: str | os.PathLike[str],
    output: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    images: str | os.PathLike[str] | None = None,
    evaluation_share: float = 0.2,
    validation_share: float = 0.1,
    calibrate: bool | None = None,
    sampling: str = "iid",
    level: float = 0.95,
    title: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    verbose: bool = False,
    **settings: Any,
) -> TrainedModel:
    """Train a classifier from files and write a model folder with its evaluation and report.

    A run that was killed or interrupted goes on when it is started again with the same arguments:
    encoded rows and training are kept in a hidden folder beside ``output`` until it is done.

    Parameters
    ----------
    rows : path or list of paths
        Parquet or CSV files or folders of them, an ``.npz`` file, or with ``images`` the table
        that names the image files.
    bag : str
        Column of bag ids.
    priors : path
        Parquet or CSV file of class shares or counts, one row a bag or in long form.
    output : path
        Folder of the model.
    columns, leave_out : sequences of str
        Columns to learn from, by default all that can be encoded; and columns not to use.
    images : path, optional
        Folder of the images.
    evaluation_share : float, default=0.2
        Share of the rows that takes no part in training and judges the model; 0 for none.
    validation_share : float, default=0.1
        Share of the rows whose label-free error is recorded in every epoch; ``early_stopping``
        and ``calibrate`` use them too. 0 for none.
    calibrate : bool, optional
        Correct probabilities by the validation rows, without labels; by default where these are
        at least 50 a class.
    sampling, level
        Of the evaluation, as in :func:`unbag.evaluate_predictions`.
    title : str, optional
        Of the report.
    seed : int, default=0
        Of splits, initial weights and batches.
    overwrite : bool, default=False
        Replace a model that is there.
    verbose : bool, default=False
        Show progress.
    **settings
        Of :class:`UnbagClassifier`, such as ``method``, ``epochs`` and ``device``.

    Returns
    -------
    TrainedModel
    """
    options = _named(locals())
    _check(evaluation_share, validation_share, seed, sampling, level, settings)
    if not validation_share and (calibrate or settings.get("early_stopping")):
        given = "calibrate" if calibrate else "early_stopping"
        raise invalid("validation_share", f"above 0 with {given}", 0)
    clf = UnbagClassifier(**settings, random_state=seed, verbose=verbose)
    with _Work(Path(output), overwrite, options) as work:
        inputs = read_inputs(
            rows,
            bag=bag,
            priors=priors,
            verbose=verbose,
            columns=columns,
            leave_out=leave_out,
            images=images,
            cache=work.folder / "rows",
        )
        inspection = inspect_rows(inputs, seed, sampling=sampling, level=level)
        train, validation, untouched = _split(inputs, evaluation_share, validation_share, seed)
        clf.checkpoint = work.folder / "training"
        _adapt(clf, inputs)
        clf.fit_bags(train, held_out=validation)
        clf.checkpoint = None
        if validation is not None and _is_calibrated(calibrate, validation):
            clf.calibrate(validation)
        return work.finish(clf, inputs, inspection, train, untouched, title, sampling, level)


def tune_files(
    rows: Any,
    *,
    bag: str | None = None,
    priors: str | os.PathLike[str],
    output: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    images: str | os.PathLike[str] | None = None,
    trials: int = 32,
    scoring: str = "accuracy",
    evaluation_share: float = 0.2,
    validation_share: float = 0.2,
    storage: str | None = None,
    at_once: int = 8,
    sampling: str = "iid",
    level: float = 0.95,
    title: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    verbose: bool = False,
    **settings: Any,
) -> TrainedModel:
    """Search for a method and its hyperparameters without labels, and write the best model.

    Parameters are those of :func:`fit_files` and :func:`unbag.tune` (``trials`` is ``n_trials``).
    By default trials are kept beside ``output`` until the search is done, so that one that was
    killed goes on; ``storage`` names another Optuna storage. ``tuning.json`` in the model folder
    lists them.
    """
    options = _named(locals())
    _check(evaluation_share, validation_share, seed, sampling, level, settings)
    for name, share in (("evaluation", evaluation_share), ("validation", validation_share)):
        check_number(f"{name}_share", share, low=0, high=1, low_open=True, high_open=True)
    with _Work(Path(output), overwrite, options) as work:
        inputs = read_inputs(
            rows,
            bag=bag,
            priors=priors,
            verbose=verbose,
            columns=columns,
            leave_out=leave_out,
            images=images,
            cache=work.folder / "rows",
        )
        inspection = inspect_rows(inputs, seed, sampling=sampling, level=level)
        bags = inputs.bags()
        clf = UnbagClassifier(priors=bags.priors, **settings)
        _adapt(clf, inputs)
        result = tune(
            inputs.rows.X,
            inputs.bag_ids,
            clf,
            n_trials=trials,
            scoring=scoring,
            validation_size=validation_share,
            evaluation_size=evaluation_share,
            storage=storage or f"sqlite:///{work.folder.resolve() / 'trials.db'}",
            at_once=at_once,
            random_state=seed,
            verbose=verbose,
        )
        best = result.best_estimator
        return work.finish(
            best,
            inputs,
            inspection,
            result.training,
            result.held_out,
            title,
            sampling,
            level,
            result,
        )


class _Work:
    """The folder beside a model in which a run keeps what is done until it is finished.

    Parameters
    ----------
    output : Path
        The model folder.
    overwrite : bool
        Whether a finished model may be replaced.
    options : dict
        Of the run; a stopped one with the same options may go on replacing its model.
    """

    def __init__(self, output: Path, overwrite: bool, options: Mapping[str, Any]) -> None:
        name = output.resolve().name
        self.output = output
        self.folder = output.resolve().parent / f".{name}.work"
        self._config = to_toml(options)
        unfinished = _text(self.folder / CONFIG) == self._config
        if (output / _MODEL).exists() and not (overwrite or unfinished):
            remedy = "replace it with --overwrite (overwrite=True), or name another folder."
            raise invalid("output", "a free path", f"{output}, which holds a model", remedy)
        if not (output / _MODEL).exists() and output.exists():
            if not output.is_dir():
                raise invalid("output", "a folder to make", f"{output}, which is a file")
            if any(output.iterdir()):
                got = f"{output}, a folder with other files"
                raise invalid("output", "a free path", got, "name a new folder.")

    def __enter__(self) -> "_Work":
        self._new = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        try:
            write_whole(self.folder / CONFIG, self._config)
        except OSError as error:
            got = f"{self.output} ({error.strerror})"
            raise invalid("output", "a folder that can be made", got) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Kept where a run was stopped, so that it can go on. An error of a new run leaves nothing.
        if kind is None or (self.folder in self._new and issubclass(kind, Exception)):
            with contextlib.suppress(OSError):
                remove_folder(self.folder, last=CONFIG)  # by which the next run knows its own
        with contextlib.suppress(OSError):  # folders above it stay where something is in them
            for path in self._new[1:]:
                path.rmdir()

    def finish(
        self,
        clf: UnbagClassifier,
        inputs: Inputs,
        inspection: Inspection,
        train: Bags,
        untouched: Bags | None,
        title: str | None,
        sampling: str,
        level: float,
        tuning: TuningResult | None = None,
    ) -> TrainedModel:
        """Judge the model and write all that belongs to it."""
        clf.encoding_ = inputs.rows.encoding
        evaluation, warnings, report = judge(
            clf,
            untouched,
            inputs,
            inspection,
            training_bag_ids=train.bag_ids,
            title=title,
            sampling=sampling,
            level=level,
        )
        folder = clf.save(self.output)
        for name in (_TRIALS, EVALUATED, Path(EVALUATED).with_suffix(".json").name):
            (folder / name).unlink(missing_ok=True)  # of a model that was replaced
        write_whole(folder / CONFIG, self._config)
        found = None if evaluation is None else evaluation.to_dict()
        for name, content in ((INSPECTION, inspection.to_dict()), (EVALUATION, found)):
            write_whole(folder / name, json.dumps(content, indent=1) + "\n")
        if tuning is not None:
            write_whole(folder / _TRIALS, json.dumps(tuning.trials, indent=1) + "\n")
        write_report(report, folder / REPORT)
        return TrainedModel(
            folder, clf, inspection, evaluation, warnings, inputs.notes, tuning=tuning
        )


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they were resolved, to be kept with the result."""
    # The address of a storage may hold a password, and does not change the result.
    unnamed = ("settings", "overwrite", "verbose", "storage")
    options = {k: v for k, v in given.items() if k not in unnamed}
    options["rows"] = [str(path) for path in paths_of(options["rows"])]
    options["leave_out"] = list(options["leave_out"])
    options |= given["settings"]
    if isinstance(options.get("test_prior"), Mapping):
        shares = options["test_prior"].items()
        options["test_prior"] = ",".join(f"{name}={share!r}" for name, share in shares)
    return options


def _check(
    evaluation: float,
    validation: float,
    seed: int,
    sampling: str,
    level: float,
    settings: Mapping[str, Any],
) -> None:
    """Refuse what is known to be wrong before rows are read, which may take long."""
    check_number("seed", seed, low=0, integer=True)
    check_choice("sampling", sampling, ("iid", "exact"))
    check_number("level", level, low=0, high=1, low_open=True, high_open=True)
    check_number("n_iter_no_change", settings.get("n_iter_no_change", 1), low=1, integer=True)
    resolve_device(settings.get("device", "auto"))
    method = settings.get("method", "u-prr")
    own = get_method(method).hyperparameters
    for name in _OF_METHODS:
        if settings.get(name) is not None and name not in own:
            allowed = f"left out with method {method!r}, which does not have it"
            raise invalid(name, allowed, settings[name])
    for name, share in (("evaluation_share", evaluation), ("validation_share", validation)):
        check_number(name, share, low=0, high=1, high_open=True)
    if evaluation + validation >= 1:
        got = f"{evaluation + validation:g} together with validation_share"
        raise invalid("evaluation_share", "below 1 together with validation_share", got)


def _is_calibrated(wanted: bool | None, validation: Bags) -> bool:
    enough = validation.n_rows >= _CALIBRATION_ROWS * validation.priors.n_classes
    return enough if wanted is None else wanted


def _adapt(clf: UnbagClassifier, inputs: Inputs) -> None:
    """Set what depends on the rows and priors that were read."""
    if isinstance(inputs.rows.encoding, TableEncoding):
        clf.standardize = False  # the encoding has done it
    if isinstance(clf.test_prior, Mapping):
        clf.test_prior = shares_by_class("test_prior", clf.test_prior, inputs.priors.classes)


def _split(
    inputs: Inputs, evaluation: float, validation: float, seed: int
) -> tuple[Bags, Bags | None, Bags | None]:
    """Rows to train on, to watch training by, and to judge by."""
    train, watched, untouched = inputs.bags(), None, None
    if evaluation:
        train, untouched = train.train_test_split(evaluation, random_state=seed)
    if validation:
        train, watched = train.train_test_split(validation / (1 - evaluation), random_state=seed)
    return train, watched, untouched

"""From files to a saved model with its evaluation and report."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unbag.bags import Bags
from unbag.estimator import UnbagClassifier
from unbag.estimator.folder import staged
from unbag.estimator.saving import write_model
from unbag.evaluation import Evaluation
from unbag.files import real_path, write_whole
from unbag.inspection import Inspection
from unbag.priors import SharesOf, read_shares_of, risk_weights
from unbag.processes import current_processes
from unbag.selection import TuningResult, tune
from unbag.selection.tuning import SCORERS
from unbag.validation import check_choice, check_number, import_optional, invalid
from unbag.workflow.config import CONFIG, METHOD_SETTINGS, SET, to_toml
from unbag.workflow.judging import (
    EVALUATION,
    INSPECTION,
    REPORT,
    evaluate_watched,
    judge,
    pages,
)
from unbag.workflow.outputs import hidden_folder
from unbag.workflow.reading import (
    Inputs,
    inspect_rows,
    paths_of,
    read_label_column,
    read_training_inputs,
    shares_by_class,
)
from unbag.workflow.settings import check_intervals, check_settings, check_shares, make_classifier
from unbag.workflow.trained import TrainedModel
from unbag.workflow.trials import kept_trials, naming_the_cause
from unbag.workflow.work import work_folder

__all__ = ["fit_files", "tune_files"]

_TRIALS = "tuning.json"
# What may lie in a model folder beside the model; a new model takes all of it away.
_RESULTS = (
    CONFIG,
    INSPECTION,
    EVALUATION,
    _TRIALS,
    *pages(REPORT),
    *pages("evaluation-report.html"),
)
_CALIBRATION_ROWS = 50  # per class, below which calibration is left out unless it is asked for


def fit_files(
    rows: Any,
    *,
    bag: str | None = None,
    priors: str | os.PathLike[str],
    output: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    keep: Sequence[str] = (),
    labels: str | None = None,
    images: str | os.PathLike[str] | None = None,
    where: str | None = None,
    evaluation_share: float = 0.2,
    validation_share: float = 0.1,
    calibrate: bool | None = None,
    shares_of: SharesOf | None = None,
    level: float = 0.95,
    title: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    verbose: bool = False,
    sampling: str | None = None,
    **options: Any,
) -> TrainedModel:
    """Train a classifier from files and write a model folder with its evaluation and report.

    A run that was killed or interrupted goes on when it is started again with the same arguments:
    encoded rows and training are kept in a hidden folder beside ``output`` until it is done.

    The processes of a group of torch.distributed train together; all of them must call this with
    the same arguments, and see the same files. The first one reads, judges and writes.

    Parameters
    ----------
    rows : path or list of paths
        Parquet or CSV files or folders of them, also in a store (``s3://bucket/rows``), an
        ``.npz`` file, or with ``images`` the table that names the image files.
    bag : str
        Column of bag ids.
    priors : path
        Parquet or CSV file of class shares or counts, one row per bag or in long form.
    output : path
        Folder of the model.
    columns, leave_out : sequences of str
        Columns to learn from, by default all that can be encoded; and columns not to use.
    keep : sequence of str
        Columns to use though they tell which bag a row is in, such as a date where bags are days;
        others are left out by default, with a note.
    labels : str, optional
        A column of classes, empty where they are not known. It is learned from, tells more of how
        good the model is, and is no feature.
    images : path, optional
        Folder of the images.
    where : str, optional
        A condition that rows must meet, such as ``"year = 2024 and age >= 18"``: comparisons,
        ``in``, ``between``, ``is null``, ``and``, ``or`` and ``not``, of columns of a table.
    evaluation_share : float, default=0.2
        Share of the rows that takes no part in training and judges the model; 0 for none.
    validation_share : float, default=0.1
        Share of the rows whose label-free error is recorded in every epoch; ``early_stopping``
        and ``calibrate`` use them too. 0 for none.
    calibrate : bool, optional
        Correct probabilities by the validation rows, without labels; by default where these are
        at least 50 per class.
    shares_of, level
        As in :func:`unbag.evaluate_predictions`; the first by default as the file of priors says.
    title : str, optional
        Of the report.
    seed : int, default=0
        Of splits, initial weights and batches.
    overwrite : bool, default=False
        Replace a model that is there.
    verbose : bool, default=False
        Show progress.
    sampling : optional
        Replaced by ``shares_of``.
    **options
        Parameters of :class:`UnbagClassifier`, such as ``method``, ``epochs`` and ``device``, and
        ``method_settings``, a dict of the settings of the method.

    Returns
    -------
    TrainedModel
    """
    arguments = dict(locals())
    arguments["shares_of"] = read_shares_of(shares_of, arguments.pop("sampling"))
    _check(arguments, low_open=False)
    if not validation_share and (calibrate or options.get("early_stopping")):
        needs = "calibrate" if calibrate else "early_stopping"
        raise invalid("validation_share", f"above 0 with {needs}", 0)
    clf = make_classifier({**options, "random_state": seed, "verbose": verbose})
    with _run(arguments) as run:
        train, validation, untouched = _split(
            run.inputs.bags(), evaluation_share, validation_share, seed
        )
        if validation is not None:  # its error cannot be estimated where this fails
            risk_weights(validation.priors, validation.pooled_prior, warn=False)
        clf.checkpoint = run.work / "training"
        _adapt(clf, run.inputs)
        labels = run.labels
        clf.fit_bags(train, held_out=validation, labels=_part(labels, train))
        clf.checkpoint = None

        def judge_and_write() -> TrainedModel:
            watched = None
            if validation is not None:
                watched = evaluate_watched(clf, validation, level=level)
                if _is_calibrated(calibrate, validation):
                    clf.calibrate(validation, labels=_part(labels, validation))
            return run.finish(clf, untouched, train, watched)

        return current_processes().once(judge_and_write)


def tune_files(
    rows: Any,
    *,
    bag: str | None = None,
    priors: str | os.PathLike[str],
    output: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    keep: Sequence[str] = (),
    images: str | os.PathLike[str] | None = None,
    where: str | None = None,
    trials: int = 32,
    scoring: str = "likelihood",
    evaluation_share: float = 0.2,
    validation_share: float = 0.2,
    storage: str | None = None,
    at_once: int = 8,
    shares_of: SharesOf | None = None,
    level: float = 0.95,
    title: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    verbose: bool = False,
    sampling: str | None = None,
    **options: Any,
) -> TrainedModel:
    """Search for a method and its hyperparameters without labels, and write the best model.

    Parameters are those of :func:`fit_files` and :func:`unbag.tune` (``trials`` is ``n_trials``).
    By default trials are kept beside ``output`` until the search is done, so that one that was
    killed goes on; ``storage`` names another Optuna storage. ``tuning.json`` in the model folder
    lists them.
    """
    arguments = dict(locals())
    arguments["shares_of"] = read_shares_of(shares_of, arguments.pop("sampling"))
    _check(arguments, low_open=True)
    if (size := current_processes().size) > 1:
        got = f"a group of {size}"
        remedy = "fit can use several; or run this one with `unbag.processes.alone()`."
        raise invalid("a search", "run by one process", got, remedy)
    optuna = import_optional("optuna", "tune")
    check_choice("scoring", scoring, SCORERS)
    check_number("trials", trials, low=1, integer=True)
    check_number("at_once", at_once, low=1, integer=True)
    with _run(arguments) as run:
        clf = make_classifier({**options, "priors": run.inputs.bags().priors})
        _adapt(clf, run.inputs)
        with naming_the_cause():
            result = tune(
                run.inputs.bags(),
                None,
                clf,
                n_trials=trials,
                scoring=scoring,
                validation_size=validation_share,
                evaluation_size=evaluation_share,
                storage=storage or kept_trials(optuna, run.work / "trials.db"),
                at_once=at_once,
                random_state=seed,
                verbose=verbose,
            )
        return run.finish(result.best_estimator, result.held_out, result.training, tuning=result)


def _check(arguments: Mapping[str, Any], *, low_open: bool) -> None:
    """Check what does not depend on the files; whether the shares of rows must be above 0."""
    check_intervals(arguments["shares_of"], None, arguments["level"])
    check_shares(arguments["evaluation_share"], arguments["validation_share"], low_open=low_open)
    check_settings(arguments["options"], arguments["seed"])


@dataclass(frozen=True, eq=False)
class _Run:
    """What a run reads, and how it ends.

    Attributes
    ----------
    arguments
        Arguments of the public function.
    config
        Its options as TOML.
    work
        The folder where it keeps what is done.
    inputs, inspection
        What it read, and the check of that.
    """

    arguments: Mapping[str, Any]
    config: str
    work: Path
    inputs: Inputs
    inspection: Inspection

    @cached_property
    def labels(self) -> Any:
        """Class of every row where it is known, (n,); None without labels."""
        given, read = self.arguments, self.inputs
        if given.get("labels") is None:
            return None
        return read_label_column(
            given["rows"], given["labels"], read.priors.classes, given["where"]
        )

    def finish(
        self,
        clf: UnbagClassifier,
        untouched: Bags | None,
        train: Bags,
        watched: Evaluation | None = None,
        tuning: TuningResult | None = None,
    ) -> TrainedModel:
        """Judge the model, and write all that belongs to it: at once, or nothing."""
        shown: dict[str, Any] = {name: self.arguments[name] for name in ("title", "level")}
        shown["labels"] = None if untouched is None else _part(self.labels, untouched)
        judgement = judge(clf, self.inputs, self.inspection, untouched, train, watched, **shown)
        evaluation = judgement.evaluation
        results: dict[str, Any] = {
            INSPECTION: self.inspection.to_dict(),
            EVALUATION: None if evaluation is None else evaluation.to_dict(),
        }
        if tuning is not None:
            results[_TRIALS] = tuning.trials
        output = Path(self.arguments["output"])
        with staged(output, _RESULTS) as folder:
            write_model(clf, folder)
            write_whole(folder / CONFIG, self.config)
            for name, content in results.items():
                write_whole(folder / name, json.dumps(content, indent=1) + "\n")
            judgement.save(folder / REPORT)
        return TrainedModel(
            output,
            clf,
            self.inspection,
            evaluation,
            judgement.verdict,
            judgement.warnings,
            self.inputs.notes,
            tuning,
        )


@contextmanager
def _run(arguments: Mapping[str, Any]) -> Iterator[_Run]:
    """Hold the folder of a run, and read and inspect its rows and priors."""
    config = to_toml(_named(arguments))
    names = ("rows", "bag", "priors", "columns", "leave_out", "keep", "where", "seed", "images")
    read = {name: arguments[name] for name in (*names, "shares_of")}
    processes, output = current_processes(), Path(arguments["output"])
    read["verbose"] = arguments["verbose"] and processes.is_first
    if arguments.get("labels") is not None:
        read["leave_out"] = [*read["leave_out"], arguments["labels"]]
    with processes.together(), ExitStack() as held:
        with processes.first():  # the others find what it has encoded
            work = hidden_folder(real_path(output))
            if processes.is_first:
                held.enter_context(work_folder(output, config, overwrite=arguments["overwrite"]))
            inputs = read_training_inputs(**read, cache=work / "rows")
        seed, level = arguments["seed"], arguments["level"]
        inspection = processes.once(lambda: inspect_rows(inputs, seed, level=level))
        yield _Run(arguments, config, work, inputs, inspection)


def _named(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they were resolved, to be kept with the result."""
    # The address of a storage may hold a password, and does not change the result.
    unnamed = ("options", "overwrite", "verbose", "storage")
    options: dict[str, Any] = {k: v for k, v in arguments.items() if k not in unnamed}
    options |= arguments["options"]
    options["rows"] = [str(path) for path in paths_of(options["rows"])]
    options |= {name: list(options[name]) for name in ("leave_out", "keep")}
    options[SET] = options.pop(METHOD_SETTINGS, None) or None
    if isinstance(options.get("test_prior"), Mapping):
        shares = options["test_prior"].items()
        options["test_prior"] = ",".join(f"{name}={share!r}" for name, share in shares)
    return options


def _is_calibrated(wanted: bool | None, validation: Bags) -> bool:
    enough = validation.n_rows >= _CALIBRATION_ROWS * validation.priors.n_classes
    return enough if wanted is None else wanted


def _adapt(clf: UnbagClassifier, inputs: Inputs) -> None:
    """Set what depends on the rows and priors that were read."""
    if isinstance(clf.test_prior, Mapping):
        clf.test_prior = shares_by_class("test_prior", clf.test_prior, inputs.priors.classes)


def _part(labels: Any, bags: Bags) -> Any:
    """Labels of the rows of bags, which are some of all."""
    return labels if labels is None or bags.rows is None else labels[np.asarray(bags.rows)]


def _split(
    train: Bags, evaluation: float, validation: float, seed: int
) -> tuple[Bags, Bags | None, Bags | None]:
    """Rows to train on, to watch training by, and to judge by."""
    watched, untouched = None, None
    if evaluation:
        train, untouched = train.train_test_split(evaluation, random_state=seed)
    if validation:
        train, watched = train.train_test_split(validation / (1 - evaluation), random_state=seed)
    return train, watched, untouched

"""The label-free evaluation of a model on rows from files, and its report."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unbag.bags import Bags
from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation, evaluate
from unbag.exceptions import InvalidInputError, UnbagWarning
from unbag.inspection import Inspection
from unbag.io import read_priors
from unbag.priors import ClassPriors, SharesOf
from unbag.reporting import ModelVerdict, Report
from unbag.reporting import report as make_report
from unbag.validation import invalid, shorten
from unbag.workflow.config import CONFIG, text_option
from unbag.workflow.outputs import check_free, hidden_folder, hold
from unbag.workflow.reading import (
    Inputs,
    inspect_rows,
    load_for_files,
    read_inputs,
    read_label_column,
    text_column,
)
from unbag.workflow.settings import check_intervals

__all__ = [
    "EVALUATION",
    "INSPECTION",
    "REPORT",
    "EvaluatedModel",
    "bag_column",
    "evaluate_files",
    "evaluate_watched",
    "judge",
    "pages",
]

REPORT, INSPECTION, EVALUATION = "report.html", "inspection.json", "evaluation.json"
_SHOWN_FEATURES = 500
_SHOWN_NOTES = 100


@dataclass(frozen=True, eq=False)
class EvaluatedModel:
    """What :func:`evaluate_files` found.

    Attributes
    ----------
    evaluation : Evaluation
    verdict : ModelVerdict
        Whether to use the model.
    report : Path or None
        The page, where one was asked for; a JSON file of the same name has its content.
    warnings, notes : tuples of str
        What speaks against trusting the numbers; what else a user should know.
    """

    evaluation: Evaluation
    verdict: ModelVerdict
    report: Path | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {
            "evaluation": self.evaluation.to_dict(),
            "model_verdict": self.verdict.to_dict(),
            "report": None if self.report is None else str(self.report),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def evaluate_files(
    model: str | os.PathLike[str],
    rows: Any,
    *,
    bag: str | None = None,
    priors: str | os.PathLike[str] | None = None,
    by: str | None = None,
    labels: str | None = None,
    images: str | os.PathLike[str] | None = None,
    where: str | None = None,
    report: str | os.PathLike[str] | None = None,
    shares_of: SharesOf | None = None,
    level: float = 0.95,
    title: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    verbose: bool = False,
    sampling: str | None = None,
) -> EvaluatedModel:
    """Evaluate a saved model without labels on other rows of bags, and write a report if asked.

    Parameters
    ----------
    model : path
        A model folder.
    rows : path or list of paths
        Rows that the model was not trained on.
    bag : str, optional
        Column of bag ids; by default that of training.
    priors : path, optional
        Class shares of the bags; by default those of training.
    by : str, optional
        A column of groups: accuracy, recall and shares of each are estimated too.
    labels : str, optional
        A column of classes, empty where they are not known: labelled rows narrow the intervals and
        test whether the bags are right.
    images : path, optional
        Folder of the images that the table in ``rows`` names.
    where : str, optional
        A condition that rows must meet, such as ``"year = 2024 and age >= 18"``: comparisons,
        ``in``, ``between``, ``is null``, ``and``, ``or`` and ``not``, of columns of a table.
    report : path, optional
        The page to write, such as ``evaluation.html``; by default none. A JSON file beside it has
        the same content.
    shares_of, level
        As in :func:`unbag.evaluate_predictions`. By default the first is as the file of priors
        says; shares of training are a population's for other rows.
    title : str, optional
        Of the report.
    device : str, default="auto"
    overwrite : bool, default=False
        Replace a report that is there.
    verbose : bool, default=False
    sampling : optional
        Replaced by ``shares_of``.

    Returns
    -------
    EvaluatedModel
    """
    told = check_intervals(shares_of, sampling, level)
    if told is None and priors is None:
        told = "population"
    clf = load_for_files(model, device)
    with _held(None if report is None else Path(report), overwrite) as page:
        bag = bag_column(model) if bag is None else bag
        notes: tuple[str, ...] = ()
        table = clf.known_priors_
        if priors is not None:
            file = read_priors(priors, bag=bag)
            table, notes = _in_order_of(clf, file.priors), file.notes
            clf.priors = table
        options: dict[str, Any] = {
            "images": images,
            "where": where,
            "encoding": clf.encoding_,
            "verbose": verbose,
        }
        options["shares_of"] = told
        inputs = read_inputs(rows, bag, table, **options)
        inspection = inspect_rows(inputs, 0, level=level)
        known: dict[str, Any] = {}
        if by is not None:
            known["by"] = text_column("by", rows, by, where)
        if labels is not None:
            known["labels"] = read_label_column(rows, labels, table.classes, where)
        judgement = judge(clf, inputs, inspection, inputs.bags(), title=title, level=level, **known)
        if judgement.evaluation is None:  # the reason stands last
            raise InvalidInputError(judgement.warnings[-1])
        if page is not None:
            judgement.save(page, overwrite=True)
    return EvaluatedModel(
        judgement.evaluation,
        judgement.verdict,
        page,
        judgement.warnings,
        (*notes, *inputs.notes),
    )


@contextmanager
def _held(page: Path | None, overwrite: bool) -> Iterator[Path | None]:
    """Check where a report goes, and keep other runs from writing it."""
    if page is None:
        yield None
        return
    if page.suffix.lower() not in (".html", ".htm"):
        raise invalid("report", "a file name that ends in .html", page)
    with hold(hidden_folder(page), page):
        for path in (page, page.with_suffix(".json")):
            check_free("report", path, overwrite=overwrite)
        yield page


def judge(
    clf: UnbagClassifier,
    inputs: Inputs,
    inspection: Inspection,
    untouched: Bags | None,
    train: Bags | None = None,
    watched: Evaluation | None = None,
    *,
    title: str | None,
    level: float,
    by: Any = None,
    labels: Any = None,
) -> Report:
    """Evaluate a model on rows that it was not trained on, and make its report.

    Parameters
    ----------
    clf, inputs, inspection
        The model, and what it was made from.
    untouched : Bags or None
        Rows that it was not trained on.
    train : Bags, optional
        Rows that it was trained on.
    watched : Evaluation, optional
        Of the rows of the error curve.
    title, level
        As in :func:`evaluate_files`.
    by, labels : array, optional
        Group of every row that is evaluated, and its class where it is known.
    """
    encoding = clf.encoding_
    data = {
        "files": list(inputs.files),
        "rows": len(inputs.rows.X),
        "held_out_rows": 0 if untouched is None else untouched.n_rows,
        "features": list(getattr(encoding, "feature_names", ()))[:_SHOWN_FEATURES],
        "left_out": getattr(encoding, "left_out", {}),
        "notes": _first(inputs.notes),
    }
    return make_report(
        clf,
        untouched,
        inspection=inspection,
        training_bag_ids=None if train is None else train.bag_ids,
        watched=watched,
        by=by,
        labels=labels,
        level=level,
        title=title,
        data=data,
    )


def evaluate_watched(clf: UnbagClassifier, validation: Bags, *, level: float) -> Evaluation:
    """Evaluate a model on the rows of its error curve, by the formula of the curve."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UnbagWarning
        )  # the user is told those of the evaluation rows
        return evaluate(
            clf,
            validation,
            test_prior=clf.test_prior_,
            level=level,
        )


def _first(notes: tuple[str, ...]) -> list[str]:
    more = len(notes) - _SHOWN_NOTES
    return [*notes[:_SHOWN_NOTES], *([f"And {more:,} more."] if more > 0 else [])]


def pages(page: str) -> tuple[str, str]:
    """Name the files of a report: the page, and its content as JSON."""
    return page, Path(page).with_suffix(".json").name


def bag_column(model: str | os.PathLike[str]) -> str | None:
    """Name the column of bag ids that a model was trained with, where its folder says so."""
    return text_option(Path(model, CONFIG), "bag")


def _in_order_of(clf: UnbagClassifier, given: ClassPriors) -> ClassPriors:
    """Columns of the priors in the order of the classes of a model."""
    names = [str(name) for name in clf.classes_]
    has = [str(name) for name in given.classes]
    if sorted(names) != sorted(has):
        raise invalid("priors", f"of the classes {shorten(clf.classes_)}", shorten(given.classes))
    order = np.array([has.index(name) for name in names])
    return given.in_class_order(order)

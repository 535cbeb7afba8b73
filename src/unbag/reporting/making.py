"""The report of a classifier: evaluated, judged, and shown in a notebook or saved as a page."""

import html
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unbag.bags import Bags
from unbag.estimator import UnbagClassifier
from unbag.evaluation import (
    Evaluation,
    Importances,
    evaluate,
    permutation_importance,
)
from unbag.exceptions import RankError, UnbagWarning
from unbag.files import write_together
from unbag.inspection import Inspection, inspect, trivial_model
from unbag.reporting.building import build_report
from unbag.reporting.rendering import render_html
from unbag.reporting.verdict import ModelVerdict, judge_model
from unbag.validation import invalid, is_table, reads_tables

__all__ = ["Report", "report"]

_ROWS_SHUFFLED, _SHUFFLES, _MOST_SHUFFLED = 500, 2, 100  # rows, times and columns
_HEIGHT = 720  # of the page in a notebook, in pixels


@dataclass(frozen=True, eq=False)
class Report:
    """What :func:`report` gives. A notebook shows its page; ``print`` gives numbers and verdict.

    Attributes
    ----------
    evaluation : Evaluation or None
        None without held-out rows, or with rows that do not allow one.
    verdict : ModelVerdict
        Whether to use the model.
    warnings : tuple of str
        What speaks against trusting it.
    content : dict
        All that the page shows, as plain values fit for JSON.
    """

    evaluation: Evaluation | None
    verdict: ModelVerdict
    warnings: tuple[str, ...]
    content: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Give the content."""
        return self.content

    def to_html(self) -> str:
        """Give the page: one file without network, to be written as UTF-8."""
        return render_html(self.content)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page, such as ``report.html``, and its content as JSON beside it."""
        page = Path(path)
        if page.suffix.lower() not in (".html", ".htm"):
            raise invalid("path", "a file name that ends in .html", page)
        files = {page: self.to_html(), page.with_suffix(".json"): json_text(self.content)}
        for file in files:
            if file.exists() and not overwrite:
                raise invalid(
                    "path", "a file that does not exist yet", file, "give overwrite=True."
                )
        write_together(files)

    def _repr_html_(self) -> str:
        page = html.escape(self.to_html(), quote=True)
        return (
            f'<iframe srcdoc="{page}" title="Report" sandbox="allow-scripts" loading="lazy" '
            f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
        )

    def __str__(self) -> str:
        known = [] if self.evaluation is None else [str(self.evaluation)]
        return "\n\n".join([*known, str(self.verdict)])


def json_text(content: dict[str, Any]) -> str:
    """Write the content of a report as JSON."""
    return json.dumps(content, ensure_ascii=False) + "\n"


def report(
    clf: UnbagClassifier,
    X: Any = None,
    bag_ids: Any = None,
    *,
    inspection: Inspection | None = None,
    training_bag_ids: Any = None,
    watched: Evaluation | None = None,
    by: Any = None,
    labels: Any = None,
    level: float = 0.95,
    title: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> Report:
    """Evaluate a classifier on rows that it was not trained on, judge it, and make its page.

    Parameters
    ----------
    clf : UnbagClassifier
        Fitted.
    X : array or table of shape (n, ...), or Bags, optional
        Rows that the classifier was not trained on. Without them the page says what the model is.
    bag_ids : array of shape (n,)
        Left out where X is Bags.
    inspection : Inspection, optional
        By default that of these rows.
    training_bag_ids : array, optional
        Bag of every training row, for the number of rows of every bag.
    watched : Evaluation, optional
        Of the rows whose error was recorded in every epoch.
    by : array of shape (n,), optional
        Group of every row: the page then has a section on groups.
    labels : array of shape (n,), optional
        Classes of rows where they are known, and None or NaN elsewhere.
    level : float, default=0.95
        Of the intervals.
    title : str, optional
    data : dict, optional
        Where the rows come from, as :func:`build_report` describes it.

    Returns
    -------
    Report
    """
    held_out = _held_out(clf, X, bag_ids)
    evaluation, predicted, importances = None, None, None
    found: list[str] = []
    if held_out is None:
        found.append("No rows were kept for an evaluation.")
    else:
        if inspection is None:
            columns = getattr(clf.encoding_, "feature_columns", None)
            inspection = inspect(
                held_out.priors,
                X=held_out.X,
                bag_ids=held_out.bag_ids,
                columns=columns,
                level=level,
            )
        chances, known = clf.predict_proba(held_out), {"level": level, "by": by, "labels": labels}
        predicted = clf.classes_[chances.argmax(1)]
        found += trivial_model(predicted, held_out.bag_ids, held_out.priors).reasons
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UnbagWarning)
                evaluation = evaluate(clf, held_out, probabilities=chances, **known)
            found += evaluation.warnings
            for warning in caught:
                if issubclass(warning.category, UnbagWarning):
                    found.append(str(warning.message))
                else:
                    warnings.warn_explicit(warning.message, warning.category, "", 0)
        except RankError as error:
            found.append(f"The rows do not allow an evaluation without labels: {error}")
        importances = _importances(clf, held_out)
    content = build_report(
        clf,
        evaluation,
        inspection,
        bag_ids=None if held_out is None else held_out.bag_ids,
        predicted=predicted,
        training_bag_ids=training_bag_ids,
        watched=watched,
        importances=importances,
        data=data,
        warnings=found,
        title=title,
    )
    return Report(evaluation, judge_model(evaluation, inspection, found), tuple(found), content)


def _held_out(clf: UnbagClassifier, X: Any, bag_ids: Any) -> Bags | None:
    if X is None or isinstance(X, Bags):
        if bag_ids is not None:
            raise invalid("bag_ids", "left out where X is Bags, or None", "given")
        return X
    names = None
    if reads_tables(clf.encoding_):
        names = clf.encoding_.feature_names
        X = clf.encoding_.transform(X) if is_table(X) else X
    return Bags(X, bag_ids, clf.priors_, feature_names=names)


def _importances(clf: UnbagClassifier, held_out: Bags) -> Importances | None:
    """Measure how much the columns of a table matter, in some of its rows; None for images."""
    encoding = clf.encoding_
    if not reads_tables(encoding) or len(encoding.columns) > _MOST_SHUFFLED:
        return None
    few = np.linspace(0, held_out.n_rows - 1, min(_ROWS_SHUFFLED, held_out.n_rows)).astype(int)
    return permutation_importance(clf, held_out.take(few), n_repeats=_SHUFFLES)

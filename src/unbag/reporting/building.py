"""From a fitted classifier and what is known of it to the content of a report."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation, Importances
from unbag.inspection import Inspection
from unbag.plain import to_plain
from unbag.reporting.sections import SECTIONS
from unbag.reporting.sections.settings import versions
from unbag.reporting.sources import Sources
from unbag.reporting.text import text

__all__ = ["FORMAT", "VERSION", "build_report"]

FORMAT, VERSION = "unbag-report", 2
_DIGITS = 6  # of numbers: more would only make the file larger


def build_report(
    clf: UnbagClassifier,
    evaluation: Evaluation | None,
    inspection: Inspection | None,
    *,
    bag_ids: Any = None,
    predicted: Any = None,
    training_bag_ids: Any = None,
    watched: Evaluation | None = None,
    importances: Importances | None = None,
    data: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    title: str | None = None,
    date: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Collect all that a report shows, as plain values fit for JSON.

    Ids and classes become text, NaN and infinite numbers None. A section about which nothing is
    known is None. Estimates are unbiased and not cut: by chance a share may leave [0, 1].

    Parameters
    ----------
    clf : UnbagClassifier
        Fitted.
    evaluation : Evaluation or None
        Of held-out rows.
    inspection : Inspection or None
    bag_ids : array of shape (n,), optional
        Bag of every held-out row.
    predicted : array of shape (n,), optional
        Predicted class of every held-out row, as ``clf.predict`` gives it.
    training_bag_ids : array, optional
        Bag of every training row, for the number of rows of every bag.
    watched : Evaluation, optional
        Of the rows whose label-free error was recorded in every epoch. Its interval gives the
        width of the band around that curve; without it the curve has none.
    importances : Importances, optional
        Of the columns, for held-out rows.
    data : dict, optional
        Where the rows come from: ``files`` (list), ``rows``, ``held_out_rows`` (int),
        ``features`` (list), ``left_out`` (dict of column to reason), ``encoding`` (list of
        sentences), ``notes`` (list of sentences).
    warnings : sequence of str
        What the reader must know before all else, one sentence each.
    title : str, optional
    date : datetime, optional
        Now by default.

    Returns
    -------
    dict
        ``format`` is "unbag-report"; ``version`` changes when the meaning of a key does. Beside
        these and other plain values it has one key per section.
    """
    sources = Sources.check(
        clf,
        evaluation=evaluation,
        inspection=inspection,
        bag_ids=bag_ids,
        predicted=predicted,
        training_bag_ids=training_bag_ids,
        watched=watched,
        importances=importances,
        data=data,
        warnings=warnings,
        date=datetime.datetime.now(datetime.UTC) if date is None else date,
    )
    report: dict[str, Any] = to_plain(
        {
            "format": FORMAT,
            "version": VERSION,
            "title": title or "Classifier learned from bags",
            "created": sources.date.isoformat(timespec="seconds"),
            "method": clf.method_,
            "warnings": sources.warnings,
            "sizes": _sizes(sources),
            "versions": versions(),
            **{section.key: section.content(sources) for section in SECTIONS},
        },
        text=text,
        digits=_DIGITS,
    )
    return report


def _sizes(sources: Sources) -> dict[str, int]:
    sizes = {"bags": sources.priors.n_bags, "classes": sources.priors.n_classes}
    if sources.training_rows is not None:
        sizes["training rows"] = int(sources.training_rows.sum())
    if sources.evaluation is not None:
        sizes["held-out rows"] = sources.evaluation.n_rows
    return sizes

"""From a fitted classifier and what is known of it to the content of a report."""

import datetime
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation, Reliability
from unbag.ids import index_ids, match_ids
from unbag.inspection import Inspection
from unbag.priors import ClassPriors
from unbag.report import sections
from unbag.report.plain import plain, text
from unbag.validation import invalid, shorten

__all__ = ["FORMAT", "VERSION", "build_report"]

FORMAT, VERSION = "unbag-report", 1
DATA_KEYS = ("files", "rows", "held_out_rows", "features", "left_out", "encoding", "notes")
_PACKAGES = ("unbag", "torch", "numpy", "scipy", "scikit-learn", "pyarrow")
_PAPER = """\
@inproceedings{tang2022multi,
  title     = {Multi-class Classification from Multiple Unlabeled Datasets
               with Partial Risk Regularization},
  author    = {Tang, Yuting and Lu, Nan and Zhang, Tianyi and Sugiyama, Masashi},
  booktitle = {Proceedings of the 14th Asian Conference on Machine Learning},
  year      = {2022},
  eprint    = {2207.01555},
  archiveprefix = {arXiv}
}"""
_SOFTWARE = """\
@software{{unbag,
  title   = {{unbag: classifiers from unlabeled bags and class shares}},
  author  = {{{{The unbag developers}}}},
  version = {{{version}}},
  year    = {{{year}}}
}}"""


def build_report(
    clf: UnbagClassifier,
    evaluation: Evaluation | None,
    inspection: Inspection | None,
    *,
    bag_ids: Any = None,
    predicted: Any = None,
    training_bag_ids: Any = None,
    watched: Evaluation | None = None,
    reliability: Reliability | None = None,
    data: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
    title: str | None = None,
    date: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Collect all that a report shows, as plain values fit for JSON.

    Ids and classes become text, NaN and infinite numbers None. A part that is not known is a dict
    with the key ``missing``, which says why.

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
    reliability : Reliability, optional
        Of the probabilities of the held-out rows.
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
        ``format`` is "unbag-report"; ``version`` changes when the meaning of a key does.
    """
    table = clf.priors_ if clf.priors is None else ClassPriors.of(clf.priors)
    given = _check_data(data)
    bag_index = None if bag_ids is None else table.encode(bag_ids)
    guesses = None
    if predicted is not None and bag_index is not None:
        known = index_ids("classes", table.classes)
        what = "classes of the priors"
        guesses = match_ids("predicted", predicted, known, source="predicted has", what=what)
        if len(guesses) != len(bag_index):
            allowed = f"one class for each of the {len(bag_index)} bag_ids"
            raise invalid("predicted", allowed, f"{len(guesses)}")
    counts = None
    if bag_index is not None:
        counts = np.bincount(bag_index, minlength=table.n_bags)
    training_counts = None
    if training_bag_ids is not None:
        training_counts = np.bincount(table.encode(training_bag_ids), minlength=table.n_bags)
    moment = datetime.datetime.now(datetime.UTC) if date is None else date
    versions = _versions()
    report = {
        "format": FORMAT,
        "version": VERSION,
        "title": title or "Classifier learned from bags",
        "created": moment.isoformat(timespec="seconds"),
        "method": clf.method_,
        "warnings": list(warnings),
        "inspection": sections.verdict(inspection),
        "headline": sections.headline(clf, evaluation, table, training_counts),
        "priors": sections.priors(table, training_counts, counts),
        "training": sections.training(clf, evaluation, watched),
        "confusion": sections.confusion(evaluation, table, bag_index, guesses),
        "bag_shares": sections.bag_shares(table, bag_index, guesses),
        "calibration": sections.calibration(clf, reliability),
        "hyperparameters": sections.hyperparameters(clf),
        "data": given,
        "versions": versions,
        "citation": {
            "paper": "Y. Tang, N. Lu, T. Zhang, M. Sugiyama. Multi-class Classification from "
            "Multiple Unlabeled Datasets with Partial Risk Regularization. ACML 2022.",
            "paper_bibtex": _PAPER,
            "software_bibtex": _SOFTWARE.format(
                version=versions.get("unbag", "?"), year=moment.year
            ),
        },
    }
    checked: dict[str, Any] = plain(report)
    return checked


def _check_data(data: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(data or {})
    unknown = [key for key in given if key not in DATA_KEYS]
    if unknown:
        raise invalid("data", f"a dict of {shorten(DATA_KEYS, limit=20)}", shorten(unknown))
    for key in ("files", "features", "encoding", "notes"):
        given[key] = [text(item) for item in given.get(key) or []]
    left_out = given.get("left_out") or {}
    given["left_out"] = {text(column): text(reason) for column, reason in left_out.items()}
    return given


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
    return {**found, "Python": platform.python_version()}

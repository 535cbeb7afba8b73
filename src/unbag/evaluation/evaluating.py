"""Evaluation of predictions and of fitted classifiers without labels."""

import contextlib
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.bags import Bags
from unbag.evaluation.checks import (
    check_clusters,
    check_cost,
    check_held_out_share,
    check_predictions,
)
from unbag.evaluation.core import Core
from unbag.evaluation.estimate import Estimate
from unbag.evaluation.groups import column_of, group_numbers
from unbag.evaluation.labelled import bags_of_labels, gathering, labelled_rows, reweighted
from unbag.evaluation.metrics import OVERALL_METRICS
from unbag.evaluation.probabilities import (
    check_probabilities,
    probability_metrics,
)
from unbag.evaluation.reliability import binned
from unbag.evaluation.report import SHOWN_MOVE, Evaluation
from unbag.evaluation.residuals import Residuals
from unbag.evaluation.row_sample import SampledRows
from unbag.evaluation.trust import (
    beyond_limits_warning,
    misfit_warning,
    row_drift_warning,
    untestable_note,
)
from unbag.evaluation.variances import BagSample
from unbag.exceptions import InvalidInputError, TrainingRowsWarning
from unbag.identity import hash_rows, identify, share_known
from unbag.io.frames import rows_of
from unbag.priors import (
    ClassPriors,
    SharesOf,
    check_test_prior,
    priors_as_told,
    read_labels,
    read_shares_of,
)
from unbag.rows import check_rows
from unbag.validation import (
    arrow_table,
    as_float_array,
    check_number,
    invalid,
    is_frame,
    is_table,
    reads_tables,
)

__all__ = ["evaluate", "evaluate_predictions"]

_Floats = NDArray[np.float64]


def evaluate_predictions(
    y_pred: Any,
    bag_ids: Any,
    *,
    priors: Any,
    test_prior: Any = None,
    probabilities: Any = None,
    cost: Any = None,
    level: float = 0.95,
    shares_of: SharesOf | None = None,
    held_out_share: Any = None,
    inverse: str = "size-weighted",
    row_ids: Any = None,
    by: Any = None,
    labels: Any = None,
    X: Any = None,
    sampling: str | None = None,
    prior_errors: Any = None,
) -> Evaluation:
    """Evaluate the predictions of any library on rows that it was not trained on, without labels.

    Parameters
    ----------
    y_pred : array of shape (n,)
        Predicted class of every row; classes as in ``priors``. May be None with probabilities.
    bag_ids : array of shape (n,)
        Bag of every row.
    priors : ClassPriors, array, dict or DataFrame
        Θ, of full column rank for the bags that have rows.
    test_prior : array of shape (K,) or dict, optional
        π; by default the pooled prior of these rows.
    probabilities : array of shape (n, K), optional
        Predicted probabilities, for log-loss, Brier score and ROC. The intervals of these are
        those of a sample of a population, so they are too wide with ``shares_of="rows"``.
    cost : array of shape (K, K), optional
        Cost of predicting class k (column) where the class is y (row).
    level : float, default=0.95
        Confidence level of the intervals.
    shares_of : {"rows", "population"}, optional
        "rows" if the shares count these very rows, as in a census; intervals are then narrower.
        "population" if the rows of a bag are a sample of a population with these shares. By
        default as the priors say, else "population".
    inverse : {"size-weighted", "pseudo-inverse", "least-variance"}
    by : array of shape (n,), optional
        The group of every row, such as the sex of a person. ``groups`` then has accuracy, recall
        and class shares of each group, with intervals that hold for all groups at once.
    labels : array of shape (n,), optional
        The classes of rows where they are known, and None or NaN elsewhere. Draw these rows at
        random. They narrow the intervals, count more if bags differ, and tell whether the bags
        are right: ``labelled`` has what they say by themselves.
    X : array, table or Bags of n rows, optional
        The rows themselves. If the rows of a class differ between bags, the intervals reach as far
        as that may move the numbers (``row_drift``). Without rows nobody can tell.
    row_ids : array of shape (n,), optional
        The same id for rows that are the same record, also in different bags. The variance is
        then that of records.
    sampling, prior_errors : optional
        Replaced by ``shares_of`` and by the ``errors`` of :class:`ClassPriors`.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> theta = [[0.9, 0.1], [0.2, 0.8]]
    >>> predicted = [0] * 88 + [1] * 12 + [0] * 25 + [1] * 75
    >>> report = evaluate_predictions(predicted, [0] * 100 + [1] * 100, priors=theta)
    >>> round(float(report.accuracy), 3), report.accuracy.low < 0.95 < report.accuracy.high
    (0.952, True)
    """
    check_number("level", level, low=0, high=1, low_open=True, high_open=True)
    table = priors_as_told(priors, shares_of, sampling, prior_errors)
    bag_index = table.encode(bag_ids)
    if len(bag_index) == 0:
        raise invalid("bag_ids", "ids of at least one row", "none")
    if table.n_classes < 2:
        raise invalid("priors", "a table of at least two classes", f"{table.n_classes}")
    chances = None
    if probabilities is not None:
        chances = check_probabilities(probabilities, len(bag_index), table.n_classes)
    predicted = check_predictions(y_pred, chances, len(bag_index), table)
    held_out = check_held_out_share(held_out_share, table)
    costs = check_cost(cost, table)

    found = None if X is None else _residuals(X, bag_ids, bag_index, table)
    codes = None if labels is None else read_labels(labels, table, len(bag_index))
    n_bags, gathered = len(np.unique(bag_index)), None
    if codes is not None:
        gathered = gathering(bag_index, codes, table.n_bags, table.n_classes)
        table, bag_index, held_out = bags_of_labels(table, bag_index, codes, held_out)
    rest, bag_index, present = table.with_rows(bag_index)
    held_out = None if held_out is None else held_out[present]
    pi = None if test_prior is None else check_test_prior(test_prior, table.classes)
    clusters = None if row_ids is None else check_clusters(row_ids, len(predicted))
    m, k = rest.n_bags, rest.n_classes
    table_of_counts = np.bincount(bag_index * k + predicted, minlength=m * k).reshape(m, k)
    rows = None if clusters is None else (predicted, bag_index, clusters)
    sample = BagSample.of(rest, table_of_counts.sum(1), held_out)
    if gathered is not None:
        sample = replace(sample, gathered=gathered[present])
    core = Core(table_of_counts, rest, sample, pi, inverse, rows)
    labelled, is_label = None, None
    if codes is not None:
        is_label = np.flatnonzero(present) >= table.n_bags - table.n_classes
        labelled = labelled_rows(table_of_counts, core, is_label, level)
        core = reweighted(core, inverse)
    z = float(stats.norm.ppf(0.5 + level / 2))
    beyond = core.errors_beyond_limits(OVERALL_METRICS["accuracy"])  # by chance alone
    core.allow_misfit(level)
    row_drift = None if found is None else core.allow_row_drift(found, z, is_label)
    overall = {name: core.overall(metric, z) for name, metric in OVERALL_METRICS.items()}
    by_class = core.by_class(z)
    accuracy = overall["accuracy"]
    impossible, note = beyond_limits_warning(accuracy, beyond), untestable_note(rest)
    warnings = (
        impossible,
        misfit_warning(core.misfit),
        row_drift_warning(row_drift),
        None if labelled is None else labelled.warning,
    )
    extra, reliability = None, None
    if chances is not None:
        updated = core.inverse.matrix if rest.errors is not None or labelled is not None else None
        extra = probability_metrics(
            chances, bag_index, rest, core.pi, level, clusters, core.excess, updated
        )
        reliability = binned(chances, bag_index, rest, core.pi)
    return Evaluation(
        classes=table.classes,
        confusion=core.raw,
        error=Estimate(1 - accuracy, 1 - accuracy.high, 1 - accuracy.low),
        accuracy=accuracy,
        balanced_accuracy=overall["balanced_accuracy"],
        macro_f1=overall["macro_f1"],
        recall=by_class["recall"],
        precision=by_class["precision"],
        f1=by_class["f1"],
        predicted_share=by_class["predicted_share"],
        projected=core.projected,
        cost=None if costs is None else core.cost(costs, z),
        probabilities=extra,
        reliability=reliability,
        test_prior=core.pi,
        n_rows=len(predicted),
        n_bags=n_bags,
        level=level,
        shares_of=rest.shares_of or "population",
        inverse=core.inverse.kind,
        held_out_share=held_out,
        design_effect=core.design_effect_of_accuracy,
        groups=None if by is None else group_numbers(core, predicted, bag_index, by, level),
        labelled=labelled,
        misfit=core.misfit,
        row_drift=row_drift,
        tolerated_drift=core.tolerated_drift(SHOWN_MOVE),
        trustworthy=impossible is None,
        warnings=tuple(warning for warning in warnings if warning is not None),
        notes=() if note is None else (note,),
    )


def _residuals(
    X: Any, bag_ids: Any, bag_index: NDArray[np.int64], table: ClassPriors
) -> Residuals | None:
    """Test whether rows of a class are alike in all bags; None where they are too few."""
    rows, places = (X.source, X.rows) if isinstance(X, Bags) else (rows_of(X, bag_ids)[0], None)
    n = len(rows if places is None else places)
    if n != len(bag_index):
        raise invalid("X", f"of {len(bag_index)} rows, one for each of bag_ids", n)
    found = SampledRows.draw(rows, bag_index, table, places=places).residuals()
    return None if isinstance(found, str) else found


def evaluate(
    estimator: Any,
    X: Any,
    bag_ids: Any = None,
    *,
    priors: Any = None,
    test_prior: Any = None,
    by: Any = None,
    probabilities: Any = None,
    bag: str | None = None,
    **options: Any,
) -> Evaluation:
    """Evaluate a fitted classifier on held-out rows, without labels.

    Parameters
    ----------
    estimator : UnbagClassifier, a Pipeline that ends in one, or any classifier
        It needs ``predict``; with ``predict_proba`` and ``classes_`` as well, probabilities are
        evaluated too.
    X : array or table of shape (n, ...), or Bags
        Rows that the classifier was not trained on; a warning tells how many were. They may be
        memory-mapped and larger than memory.
    bag_ids : array of shape (n,)
        Left out where X is Bags, which hold them, and also know which share of each bag they are:
        where the shares are of the rows, that is the default of ``held_out_share``.
    priors : optional
        By default those of the bags, else of the estimator.
    test_prior : optional
        By default that of the estimator, if it was given one, else the pooled prior of the rows.
    by : array of shape (n,) or str, optional
        A group of every row, or the name of a column of X that holds it.
    probabilities : array of shape (n, K), optional
        What ``estimator.predict_proba(X)`` gave, where you have it: rows are not predicted again.
    bag : str, optional
        The name of the column of X that holds the bag ids, in place of ``bag_ids``.
    **options
        Of :func:`evaluate_predictions`. Rows that occur more than once are recognised, unless
        ``row_ids`` says which do.

    Returns
    -------
    Evaluation
    """
    default_priors, selected, of_other_rows = None, None, priors is None
    if is_table(X) and not is_frame(X):  # what gives its rows once, or in another order each time
        X = arrow_table("X", X)
    if by is not None:
        options["by"] = column_of(X, by)
    if bag is not None:
        if bag_ids is not None or isinstance(X, Bags) or not is_table(X):
            raise invalid("bag", "given where X is a table, without bag_ids", repr(bag))
        bag_ids = column_of(X, bag, "bag")
    if isinstance(X, Bags):
        if bag_ids is not None:
            raise invalid("bag_ids", "left out where X is Bags, which hold them", "both")
        bag_ids, default_priors, selected = X.bag_ids, X.priors, X
        if not hasattr(estimator, "output_prior_"):  # only ours reads Bags part by part
            X = X.X
    last, rows = _last_step(estimator, X)
    if is_table(rows) and reads_tables(getattr(last, "encoding_", None)):
        rows = last.encoding_.transform(rows)  # once, instead of in every prediction
        X = rows if last is estimator else X
    if probabilities is None and hasattr(estimator, "predict_proba"):
        probabilities = estimator.predict_proba(X)
    best = probabilities is not None and getattr(last, "predicts_most_probable", False)
    predicted = None if best else estimator.predict(X)
    if priors is None and hasattr(last, "output_prior_"):  # other libraries' priors are no tables
        priors = last.known_priors_ if default_priors is None else default_priors
        test_prior = last.test_prior if test_prior is None else test_prior
    priors = default_priors if priors is None else priors
    if priors is None:
        raise invalid("priors", "given, or known to the estimator", "None")
    table = ClassPriors.of(priors)
    chances = None if probabilities is None else _in_order(probabilities, estimator, table)
    told = read_shares_of(options.pop("shares_of", None), options.pop("sampling", None))
    if told is None and selected is None and of_other_rows:
        told = "population"  # rows beside those of training: an unknown part of their bags
    table = table.with_errors(shares_of=told)
    if selected is not None and table.shares_of == "rows":
        options.setdefault("held_out_share", _held_out_share(selected, table))
    numbers, index = (rows.source, rows.rows) if isinstance(rows, Bags) else (_numbers(rows), None)
    if numbers is not None:
        _warn_of_training_rows(last, numbers, index)
        if "row_ids" not in options:
            options["row_ids"] = _repeated(numbers, index)
        options.setdefault("X", rows if isinstance(rows, Bags) else numbers)
    return evaluate_predictions(
        predicted, bag_ids, priors=table, test_prior=test_prior, probabilities=chances, **options
    )


def _held_out_share(bags: Bags, table: ClassPriors) -> _Floats:
    """(M,) share of each bag that a selection of its rows is; 1 for bags that have none."""
    bag_index = table.encode(bags.bag_ids)
    rows, whole = np.bincount(bag_index, minlength=table.n_bags), np.ones(table.n_bags)
    whole[bag_index] = bags.whole_counts[bags.bag_index]
    return np.where(rows > 0, np.minimum(rows / whole, 1), 1)


def _last_step(estimator: Any, rows: Any) -> tuple[Any, Any]:
    """Find the classifier inside pipelines and searches, and the rows that reach it."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            rows = estimator[:-1].transform(rows) if len(estimator) > 1 else rows
            estimator = estimator[-1]
        else:
            return estimator, rows


def _numbers(rows: Any) -> Any:
    """Rows as an array or tensor, else None: a text or a sparse row is not recognised."""
    if hasattr(rows, "toarray"):
        return None
    with contextlib.suppress(InvalidInputError):
        return check_rows(rows)[0]
    return None


def _in_order(chances: Any, estimator: Any, table: ClassPriors) -> Any:
    """Columns in the order of the priors' classes."""
    classes = getattr(estimator, "classes_", table.classes)
    place = table.encode_classes("classes_", classes, source="the estimator has")
    chances = as_float_array("probabilities", chances, ndim=2)
    if chances.shape[1] != len(place):
        allowed = f"an array with {len(place)} columns, one for each of the estimator's classes"
        raise invalid("probabilities", allowed, f"shape {chances.shape}")
    ordered = np.zeros((len(chances), table.n_classes))
    ordered[:, place] = chances
    return ordered


def _warn_of_training_rows(estimator: Any, rows: Any, index: Any) -> None:
    known = getattr(estimator, "row_hashes_", None)
    if known is None:
        return
    seen = share_known(hash_rows(rows, index), known)
    if seen > 0:
        message = (
            f"{seen:.1%} of these rows have the values of a training row; if they are the same "
            "records, the numbers mean nothing. Split first and evaluate on the rest. If few "
            "values merely coincide, as coarse ones do, nothing is wrong."
        )
        warnings.warn(message, TrainingRowsWarning, stacklevel=3)


def _repeated(rows: Any, index: Any) -> NDArray[np.int64] | None:
    """Record number of every row where some occur twice, else None."""
    numbers = identify(rows, index)
    return numbers if numbers.max() + 1 < len(numbers) else None

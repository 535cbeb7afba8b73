"""Recognise a model that learned nothing: its predictions are the same in all bags."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.evaluation.probabilities import check_probabilities
from unbag.evaluation.residuals import bag_features, residual_test
from unbag.evaluation.row_sample import MIN_FREEDOM
from unbag.inspection.rules import ALARM, NO_SLOPE, ONE_CLASS
from unbag.plain import p_text
from unbag.priors import ClassPriors
from unbag.validation import detached, invalid, shorten

__all__ = ["TrivialTest", "trivial_model"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TrivialTest:
    """Result of :func:`trivial_model`.

    Attributes
    ----------
    trivial
        Whether the model looks like one that learned nothing.
    p_value
        Chance that predictions differ as much between bags if they know nothing of them.
    slope
        How far predicted shares follow the priors: 1 for a perfect model, 0 for a trivial one;
        None where the priors of all bags are the same.
    top_class, top_share
        The class predicted most often, and the share of rows that get it.
    reasons
        Why it looks trivial, as sentences.
    """

    trivial: bool
    p_value: float
    slope: float | None
    top_class: Any
    top_share: float
    reasons: list[str]


def trivial_model(predictions: Any, bag_ids: Any, priors: Any) -> TrivialTest:
    r"""Tell whether predictions carry any information on the bags.

    A model that learned nothing gives (nearly) everybody one class, or predicts alike in all
    bags although the priors differ. It is called trivial where one class takes more than
    ``ONE_CLASS`` of the rows while the priors do not say so; where a test of homogeneity over
    the bags has a p-value above ``ALARM``; or where predicted shares hardly follow the priors,
    \|b\| < ``NO_SLOPE``:

    .. math:: b = \frac{\sum_m n_m (V_m - \bar{V}) \cdot (\theta_m - p)}
                       {\sum_m n_m \lVert \theta_m - p \rVert^2}

    with predicted shares V (M×K), their mean over rows and the pooled prior p. For predicted
    classes the test is the χ² test of the M×K counts; for probabilities that of
    :func:`~unbag.inspection.alike_test` with one class in place of Θ: equal means in all bags.

    Parameters
    ----------
    predictions
        (n,) predicted classes, or (n, K) probabilities in the order of the priors' classes, of
        rows that the model was not trained on.
    bag_ids
        (n,) bag of every row.
    priors
        Class priors Θ, anything that :meth:`ClassPriors.of` takes.

    Returns
    -------
    TrivialTest

    Examples
    --------
    >>> theta = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> bag = np.repeat([0, 1], 100)
    >>> trivial_model(np.zeros(200, dtype=int), bag, theta).reasons[0]
    'Class 0 is predicted for 100% of the rows, but its known share is 55%.'
    >>> good = trivial_model(np.r_[[0] * 90, [1] * 10, [0] * 20, [1] * 80], bag, theta)
    >>> good.trivial, round(good.slope, 6)
    (False, 1.0)
    """
    table = ClassPriors.of(priors)
    index = table.encode(bag_ids)
    plain = detached("predictions", predictions)
    probabilities = None
    if np.ndim(plain) == 2:
        probabilities = check_probabilities(plain, len(index), table.n_classes, "predictions")
        labels = probabilities.argmax(1)
    else:
        labels = table.encode_classes("predictions", plain, source="the predictions have")
    if len(labels) != len(index):
        raise invalid("predictions", f"of length {len(index)}, one for each bag id", len(labels))
    table, place, _ = table.with_rows(index)
    if table.n_bags < 2:
        raise invalid("bag_ids", "of at least two bags", shorten(table.bag_ids))
    sizes = np.bincount(place)
    n_bags, n_classes = table.values.shape
    cells = np.bincount(place * n_classes + labels, minlength=n_bags * n_classes)
    counts = cells.reshape(n_bags, n_classes)
    order = np.argsort(place, kind="stable")
    if probabilities is None:
        p_value = _homogeneity(counts)
        shares = counts / sizes[:, None]
    else:
        sorted_rows = probabilities[order]
        p_value = _equal_means(sorted_rows, sizes, table)
        shares = np.add.reduceat(sorted_rows, np.cumsum(sizes) - sizes) / sizes[:, None]

    pooled = table.pooled(sizes)
    weight = sizes[:, None] / sizes.sum()
    apart = table.values - pooled
    length = float((weight * apart**2).sum())
    follows = float((weight * apart * (shares - (weight * shares).sum(0))).sum())
    slope = follows / length if length > 1e-12 else None
    top = int(counts.sum(0).argmax())
    top_share = float(counts[:, top].sum() / sizes.sum())
    top_class = table.classes[[top]].tolist()[0]
    reasons = []
    if top_share > ONE_CLASS > pooled[top]:
        reasons.append(
            f"Class {top_class!r} is predicted for {100 * top_share:.3g}% of the rows, but its "
            f"known share is {100 * pooled[top]:.3g}%."
        )
    if slope is not None and p_value > ALARM:
        reasons.append(
            f"Predictions differ between bags no more than by chance ({p_text(p_value)}): the "
            "model learned nothing, or there are too few rows to tell."
        )
    elif slope is not None and abs(slope) < NO_SLOPE:
        reasons.append(
            "Predicted shares hardly follow the known ones: from bag to bag they move by "
            f"{100 * slope:.2g}% of the known differences."
        )
    return TrivialTest(bool(reasons), p_value, slope, top_class, top_share, reasons)


def _homogeneity(counts: Ints) -> float:
    """p-value of the χ² test that all bags have the same predicted shares; 1 for one class."""
    seen = counts[:, counts.sum(0) > 0].astype(np.float64)
    if seen.shape[1] < 2:
        return 1.0
    expected = np.outer(seen.sum(1), seen.sum(0)) / seen.sum()
    statistic = ((seen - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, (len(seen) - 1) * (seen.shape[1] - 1)))


def _equal_means(probabilities: Floats, sizes: Ints, table: ClassPriors) -> float:
    """p-value of the test that probabilities, bag by bag, have the same means in all bags."""
    if sizes.sum() - len(sizes) < MIN_FREEDOM:
        need = f"at least {MIN_FREEDOM + len(sizes)} rows for {len(sizes)} bags"
        raise invalid("predictions", need, int(sizes.sum()), "give predicted classes instead.")
    features = bag_features(probabilities, sizes)
    if features.shape[1] == 0:  # the same for all rows of a bag
        return 1.0 if (probabilities == probabilities[0]).all() else 0.0
    one = ClassPriors(np.ones((len(sizes), 1)), table.bag_ids)
    return residual_test(features, sizes, one).p_value

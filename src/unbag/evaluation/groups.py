"""Numbers of groups of rows, such as of men and women, without labels."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unbag.evaluation.core import Core
from unbag.evaluation.estimate import Estimate
from unbag.evaluation.inverses import LeftInverse
from unbag.evaluation.variances import BagSample
from unbag.ids import id_array
from unbag.plain import to_plain
from unbag.validation import arrow_table, invalid, is_frame, is_table, shorten

__all__ = ["GroupNumbers", "column_of", "group_numbers", "read_groups"]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_MOST_GROUPS = 100


@dataclass(frozen=True, eq=False)
class GroupNumbers:
    """What is known of the predictions on one group of rows.

    Attributes
    ----------
    group : object
        Its value in the column.
    n_rows : int
    accuracy : Estimate
        Under the class shares of the group.
    recall, class_share, predicted_share : lists of Estimate
        One per class: the share of the rows of a class that is found, the share of the class in
        the group, and the share of its rows that is predicted as the class.
    """

    group: Any
    n_rows: int
    accuracy: Estimate
    recall: list[Estimate]
    class_share: list[Estimate]
    predicted_share: list[Estimate]

    def to_plain(self) -> dict[str, Any]:
        """Names and values."""
        return {name: to_plain(value) for name, value in vars(self).items()}


def column_of(X: Any, by: Any, name: str = "by") -> Any:
    """Give a number or name of every row, where these may be named by a column of X."""
    if not isinstance(by, str):
        return by
    if not is_table(X):
        raise invalid(name, "an array of groups where X is no table", repr(by))
    is_arrow = not is_frame(X) or hasattr(X, "column_names")
    table = arrow_table("X", X) if is_arrow else X
    if by not in (names := list(table.column_names if is_arrow else table.columns)):
        raise invalid(name, "a column of X", repr(by), f"it has {shorten(names)}.")
    if not is_arrow:
        return np.asarray(table[by])
    column = table[by]
    if hasattr(column.type, "value_type") and hasattr(column.type, "index_type"):  # a dictionary
        column = column.cast(column.type.value_type)
    return column.to_numpy()


def read_groups(by: Any, n: int) -> tuple[list[Any], _Ints]:
    """Read the group of every row: the groups, in order of their first row, and their numbers."""
    ids = id_array("by", by)
    if len(ids) != n:
        raise invalid("by", f"one group for each of {n} rows", f"{len(ids)}")
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(value, len(places)) for value in ids.tolist()])
    if len(places) > _MOST_GROUPS:
        remedy = "join values, or cut numbers into ranges."
        raise invalid("by", f"of at most {_MOST_GROUPS} groups", f"{len(places)}", remedy)
    return list(places), codes


def group_numbers(
    core: Core,
    predicted: _Ints,
    bag_index: _Ints,
    by: Any,
    level: float,
) -> list[GroupNumbers]:
    r"""Estimate the numbers of every group.

    The shares of bag m that are in group g and predicted as class k have mean
    :math:`\sum_y \theta_{my} C_{y,kg}` with :math:`C_{y,kg} = P(\hat y = k, g \mid y)`, if rows of
    a class are alike in all bags, their groups included. With the left inverse of Θ this gives C,
    and from it

    .. math:: \text{recall}_{kg} = \frac{C_{k,kg}}{\sum_j C_{k,jg}}, \qquad
        \text{accuracy}_g = \frac{\sum_k \pi_k C_{k,kg}}{\sum_{ky} \pi_y C_{y,kg}}.

    Their variances are those of the linear part of these ratios. Intervals hold for all groups at
    once: the level is corrected for their number (Bonferroni).

    Parameters
    ----------
    core : Core
        Of all rows, with the allowances for misfit and for drift of the rows.
    predicted, bag_index : integer arrays of shape (n,)
    by : array of shape (n,)
        Group of every row.
    level : float
    """
    groups, codes = read_groups(by, len(predicted))
    m, k = core.theta.shape
    n_groups = len(groups)
    cells = (bag_index * n_groups + codes) * k + predicted
    counts = np.bincount(cells, minlength=m * n_groups * k).reshape(m, -1)  # (M, GK)
    inverse = LeftInverse(core.priors, core.counts).matrix  # (K, M)
    shares = counts / core.counts[:, None]
    raw = (inverse @ shares).reshape(k, n_groups, k)  # true class, group, predicted class
    likely = np.clip(raw, 0, None)
    likely /= np.maximum(likely.sum((1, 2), keepdims=True), 1e-12)
    sample = _of_groups(core.sample, likely)
    z = float(stats.norm.ppf(1 - (1 - level) / 2 / n_groups))
    numbers = []
    for g, name in enumerate(groups):

        def ratio(top: _Floats, bottom: _Floats, g: int = g) -> Estimate:
            """Estimate Σ top·C_g / Σ bottom·C_g, for weights (K, K) of true and predicted."""
            below = float((bottom * raw[:, g]).sum())
            if below <= 0:
                return Estimate(np.nan)
            value = float((top * raw[:, g]).sum()) / below
            gradient = np.zeros_like(raw)
            gradient[:, g] = (top - value * bottom) / below
            weights = inverse.T @ gradient.reshape(k, -1)  # (M, GK)
            variance = sample.variance(weights, likely.reshape(k, -1))
            half = z * float(np.sqrt(variance * core.design_effect_of_accuracy))
            centre = min(max(value, 0.0), 1.0)  # as wide where the estimate is beyond a limit
            plain = Estimate(value, max(centre - half, 0.0), min(centre + half, 1.0))
            return core.reach(plain, weights, raw.reshape(k, -1))

        eye, everything = np.eye(k), np.repeat(core.pi[:, None], k, axis=1)
        rows = [np.outer(e, np.ones(k)) for e in eye]
        numbers.append(
            GroupNumbers(
                group=name,
                n_rows=int((codes == g).sum()),
                accuracy=ratio(np.diag(core.pi), everything),
                recall=[ratio(np.outer(e, e), row) for e, row in zip(eye, rows, strict=True)],
                class_share=[ratio(everything * e[:, None], everything) for e in eye],
                predicted_share=[ratio(everything * e, everything) for e in eye],
            )
        )
    return numbers


def _of_groups(sample: BagSample, likely: _Floats) -> BagSample:
    """Spread a drift of a class over its groups, in proportion to its rows in them."""
    if sample.directions is None:
        return sample
    share = likely.sum(2)  # (K, G)
    directions = share[:, :, None] * sample.directions[:, None, :]
    return replace(sample, directions=directions.reshape(len(likely), -1))

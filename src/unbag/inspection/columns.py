"""Each column of a table by itself: whether it differs between bags, or gives the bag away."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.residuals import bag_features, bag_means, residual_test
from unbag.inspection.rules import ALARM, NEAR_COPY
from unbag.priors import ClassPriors

__all__ = [
    "ColumnTest",
    "bag_copies",
    "column_tests",
    "combined",
    "differing",
    "features_of",
    "holm",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_COLUMNS = 1_000  # of more columns a sample is tested


@dataclass(frozen=True)
class ColumnTest:
    """A column whose rows of a class differ between bags.

    Attributes
    ----------
    column
        Its name, or its number where it has none.
    p_value
        Corrected for the number of columns (Holm).
    deviation
        How far bag means of the ranked column are from mixes of class means, beyond chance, in
        standard deviations within bags.
    """

    column: Any
    p_value: float
    deviation: float


def column_tests(
    rows: NDArray[Any],
    sizes: Ints,
    columns: Sequence[Any],
    table: ClassPriors,
    most: int,
    rng: np.random.Generator,
) -> list[ColumnTest]:
    """Test each column of rows, (n, D) bag by bag; those that differ most come first.

    Parameters
    ----------
    columns
        (D,) name of the column that each feature comes from: features of one name are one column,
        as those of a categorical column are.
    most
        Features of a column that are tested, of more those that vary most within bags.
    """
    groups = features_of(columns)
    if len(groups) > MAX_COLUMNS:
        names = list(groups)
        groups = {names[i]: groups[names[i]] for i in rng.permutation(len(names))[:MAX_COLUMNS]}
    found = []
    for name, features in groups.items():
        block = rows[:, features].astype(np.float64)
        if len(features) > most:
            means = np.repeat(bag_means(block, sizes), sizes, axis=0)
            block = block[:, np.argsort(-((block - means) ** 2).sum(0), kind="stable")[:most]]
        whitened = bag_features(block, sizes)
        if whitened.shape[1]:
            result = residual_test(whitened, sizes, table)
            found.append((name, result.p_value, result.deviation))
    corrected = holm([p for _, p, _ in found])
    tests = [ColumnTest(n, p, d) for (n, _, d), p in zip(found, corrected, strict=True)]
    return sorted(tests, key=lambda test: (test.p_value, -test.deviation))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's method.

    Examples
    --------
    >>> [round(p, 6) for p in holm([0.01, 0.5, 0.02])]
    [0.03, 0.5, 0.04]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected[order] = np.minimum(steps, 1)
    return [float(value) for value in corrected]


def combined(joint: float, columns: Sequence[ColumnTest]) -> float:
    """Combine the p-value of all columns together with the smallest of each by itself (Bonferroni).

    Examples
    --------
    >>> combined(0.2, [ColumnTest("age", 0.001, 0.3)]), combined(0.2, [])
    (0.002, 0.2)
    """
    if not columns:
        return joint
    return min(1.0, 2 * min(joint, min(test.p_value for test in columns)))


def bag_copies(
    rows: NDArray[Any], sizes: Ints, columns: Sequence[Any], table: ClassPriors
) -> dict[Any, float]:
    r"""Find columns that tell which bag a row is in, with the share of variance between bags.

    Rows of a class that are alike in all bags can only tell the bag by the class. The share of the
    variance of a feature that lies between bags is then at most the squared canonical correlation
    of bags and classes: with bag sizes :math:`w_m = n_m / n` and pooled prior p, the second largest
    eigenvalue of :math:`\sum_m w_m \theta_{mj} \theta_{mk} / \sqrt{p_j p_k}`. A column is a near
    copy where one of its features leaves little of the rest within bags.
    """
    weight = sizes / sizes.sum()
    pooled = np.maximum(weight @ table.values, 1e-12)
    scaled = table.values / np.sqrt(pooled)
    limit = float(np.clip(np.linalg.eigvalsh((scaled.T * weight) @ scaled)[-2], 0, 1))
    copies: dict[Any, float] = {}
    if 1 - limit < 1e-6:  # bags of one class each: they may differ in all columns
        return copies
    spare = len(rows) - len(sizes)
    for name, features in features_of(columns).items():
        block = rows[:, features].astype(np.float64)
        means = bag_means(block, sizes)
        total = ((block - block.mean(0)) ** 2).sum(0) / (len(rows) - 1)
        within = ((block - np.repeat(means, sizes, axis=0)) ** 2).sum(0) / spare
        shares = 1 - within / np.where(total > 0, total, np.inf)
        share = float(shares[total > 0].max(initial=0.0))
        if share > limit + NEAR_COPY * (1 - limit):
            copies[name] = share
    return copies


def features_of(columns: Sequence[Any]) -> dict[Any, list[int]]:
    """Features of every column, by its name."""
    groups: dict[Any, list[int]] = {}
    for j, name in enumerate(columns):
        groups.setdefault(name, []).append(j)
    return groups


def differing(tests: Sequence[ColumnTest]) -> list[ColumnTest]:
    """Those that differ beyond doubt."""
    return [test for test in tests if test.p_value < ALARM]

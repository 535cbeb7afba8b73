"""Estimates with intervals from the counts of predictions in bags."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.estimate import Estimate
from unbag.evaluation.intervals import (
    class_path,
    error_pattern,
    overall_path,
    score_interval,
    share_variance,
    variance,
)
from unbag.evaluation.inverses import LeftInverse, prediction_covariance
from unbag.evaluation.metrics import (
    CLASS_METRICS,
    OVERALL_METRICS,
    ClassMetric,
    Metric,
    cost_metric,
)
from unbag.evaluation.probabilities import clustering
from unbag.priors import ClassPriors

__all__ = ["Core"]

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _ClassPath:
    """The path of class k, and what all its numbers share.

    Attributes
    ----------
    columns : array of shape (G, K)
        Column k of confusion matrices.
    recall_weights, share_weights : arrays of shape (M, K)
        Weights of the shares of predictions for the recall of the class and its predicted share.
    share_variances : array of shape (G, M)
        Of the share of each bag that is predicted as the class.
    matrices : array of shape (G, K, K) or None
        Whole confusion matrices, for the least-variance inverse: it uses all predictions.
    """

    k: int
    columns: _Floats
    recall_weights: _Floats
    share_weights: _Floats
    share_variances: _Floats
    matrices: _Floats | None


class Core:
    """Counts of predictions in bags, and estimates with intervals from them.

    Parameters
    ----------
    table : integer array of shape (M, K)
        Rows of every bag that are predicted as each class; every bag has rows.
    priors : ClassPriors
    test_prior : array of shape (K,), optional
    sampling, inverse : str
    prior_variance : array of shape (M, K), optional
    rows : three integer arrays of shape (n,), optional
        Predicted class, bag and record of every row, where records are repeated.
    """

    def __init__(
        self,
        table: NDArray[np.int64],
        priors: ClassPriors,
        test_prior: _Floats | None = None,
        sampling: str = "iid",
        inverse: str = "size-weighted",
        prior_variance: _Floats | None = None,
        rows: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        self.rows, self.sampling, self.prior_variance = rows, sampling, prior_variance
        self.theta = priors.values
        self.table = table.astype(np.float64)
        self.counts = self.table.sum(1)
        self.shares = self.table / self.counts[:, None]
        self.pooled = priors.pooled(self.counts)
        self.pi = self.pooled if test_prior is None else test_prior
        self.total_shares = self.table.sum(0) / self.counts.sum()
        plain = LeftInverse(priors, self.counts)
        first = plain.confusion(self.shares)
        self.pattern = error_pattern(
            first, self.theta, self.counts, self.total_shares, plain.matrix
        )
        covariance = prediction_covariance(self.theta, self.pattern, sampling)
        self.inverse = LeftInverse(priors, self.counts, inverse, covariance)
        self.raw = self.inverse.confusion(self.shares)
        self.path = overall_path(self.pattern, self.pooled, self.total_shares)
        self._last_path: _ClassPath | None = None

    def overall(
        self, metric: Metric, z: float, limits: tuple[float, float] = (0.0, 1.0)
    ) -> Estimate:
        """Estimate a number of the whole confusion matrix that lies within limits."""
        value = float(metric.value(self.raw, self.pi))
        weights = self.inverse.weights(metric.gradient(self.path, self.pi))
        own = self.inverse.weights(metric.gradient(self.pattern, self.pi))
        values = metric.value(self.path, self.pi)
        spread = self._variance(weights, self.path)
        return self._estimate(value, values, spread, own, z, limits)

    def cost(self, cost: _Floats, z: float) -> Estimate:
        """Estimate the mean cost, for a table of costs (K, K)."""
        metric = cost_metric(cost)
        right = np.diag(cost)[:, None]
        if (cost >= right).all() or (cost <= right).all():
            limits = float(self.pi @ cost.min(1)), float(self.pi @ cost.max(1))
            return self.overall(metric, z, limits)
        # Errors may as well cost as gain something: the path has no order of costs.
        own = self.inverse.weights(metric.gradient(self.pattern, self.pi))
        return self._plain_estimate(float(metric.value(self.raw, self.pi)), own, z)

    def by_class(self, z: float) -> dict[str, list[Estimate]]:
        """Estimate the numbers of every class: lists of K."""
        values = {n: metric.value(self.raw, self.pi) for n, metric in CLASS_METRICS.items()}
        values["precision"] = np.where(self.total_shares > 0, values["precision"], np.nan)
        found: dict[str, list[Estimate]] = {name: [] for name in CLASS_METRICS}
        for k in range(len(self.pi)):  # outside, since the path of a class serves all its numbers
            for name, metric in CLASS_METRICS.items():
                found[name].append(self.of_class(name, k, float(values[name][k]), metric, z))
        return found

    def of_class(self, name: str, k: int, value: float, metric: ClassMetric, z: float) -> Estimate:
        """Give a number of class k its interval."""
        if not np.isfinite(value):
            return Estimate(value)
        path = self._class_path(k)
        pi = self.pi[k]
        here = self.pattern[:, k]
        by_recall, by_share = metric.partials(here[k], here @ self.pi, pi)
        own = by_recall * path.recall_weights + by_share * path.share_weights  # (M, K)
        if name == "predicted_share":  # it hardly varies along the path: the plain interval
            return self._plain_estimate(value, own, z)
        recall, share = path.columns[:, k], path.columns @ self.pi  # (G,)
        by_recall, by_share = (d[:, None] for d in metric.partials(recall, share, pi))
        if path.matrices is None:  # weights of class k alone are not zero
            weights = by_recall * path.recall_weights[:, k] + by_share * path.share_weights[:, k]
            spread = (weights**2 * path.share_variances).sum(-1)
        else:
            by_recall, by_share = by_recall[..., None], by_share[..., None]
            weights = by_recall * path.recall_weights + by_share * path.share_weights
            spread = self._variance(weights, path.matrices)
        return self._estimate(value, metric.function(recall, share, pi), spread, own, z)

    def _class_path(self, k: int) -> "_ClassPath":
        if self._last_path is None or self._last_path.k != k:
            n = self.counts.sum()
            columns = class_path(k, self.pattern, self.pooled, self.total_shares, n)
            eye = np.eye(len(self.pi))
            self._last_path = _ClassPath(
                k=k,
                columns=columns,
                recall_weights=self.inverse.weights(np.outer(eye[k], eye[k])),
                share_weights=self.inverse.weights(np.outer(self.pi, eye[k])),
                share_variances=share_variance(
                    columns, self.theta, self.counts, self.sampling, self.prior_variance
                ),
                matrices=_with_column(self.pattern, k, columns)
                if self.inverse.kind == "least-variance"
                else None,
            )
        return self._last_path

    def _variance(self, weights: _Floats, confusion: _Floats) -> _Floats:
        return variance(
            weights, confusion, self.theta, self.counts, self.sampling, self.prior_variance
        )

    def _estimate(
        self,
        value: float,
        values: _Floats,
        spread: _Floats,
        own: _Floats,
        z: float,
        limits: tuple[float, float] = (0.0, 1.0),
    ) -> Estimate:
        """Form the interval from values and variances (G,) along a path."""
        usable = np.isfinite(values) & np.isfinite(spread)
        spread = spread * self.design_effect(own)
        low, high = score_interval(value, values[usable], spread[usable], z, limits)
        return Estimate(value, low, high)

    def _plain_estimate(self, value: float, own: _Floats, z: float) -> Estimate:
        """Form the interval from the variance at the pattern alone."""
        half = z * math.sqrt(float(self._variance(own, self.pattern)) * self.design_effect(own))
        return Estimate(value, value - half, value + half)

    def design_effect(self, weights: _Floats) -> float:
        """Variance with repeated rows taken as one over that with all taken as distinct, or 1."""
        if self.rows is None:
            return 1.0
        predicted, bag_index, record = self.rows
        own = weights[bag_index, predicted]
        mean = (weights * self.shares).sum(1)[bag_index]
        residual = (own - mean) / self.counts[bag_index]
        return clustering(residual, record)

    def projected(self, iterations: int = 500) -> dict[str, Any]:
        """Numbers of the likeliest valid confusion matrix, found by expectation maximisation."""
        k = self.theta.shape[1]
        confusion = 0.98 * self.pattern + 0.02 / k
        for _ in range(iterations):
            ratio = self.table / np.maximum(self.theta @ confusion, 1e-300)
            confusion = confusion * (self.theta.T @ ratio)
            confusion /= np.maximum(confusion.sum(1, keepdims=True), 1e-300)
        numbers = {
            name: metric.value(confusion, self.pi)
            for name, metric in (OVERALL_METRICS | CLASS_METRICS).items()
        }
        plain = {n: float(v) if np.ndim(v) == 0 else v for n, v in numbers.items()}
        return {"confusion": confusion, **plain}


def _with_column(pattern: _Floats, k: int, column: _Floats) -> _Floats:
    """Replace column k of a confusion matrix (K, K) by each of (G, K); rows still sum to 1."""
    rest = np.where(np.arange(len(pattern)) == k, 0, pattern)  # (K, K)
    rest = rest / np.maximum(rest.sum(1, keepdims=True), 1e-12)
    path = rest * (1 - column)[:, :, None]
    path[:, :, k] = column
    return np.asarray(path)

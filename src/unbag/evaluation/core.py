"""Estimates with intervals from the counts of predictions in bags."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.evaluation.estimate import Estimate
from unbag.evaluation.intervals import (
    EstimatePath,
    class_path,
    error_pattern,
    errors_beyond_limits,
    overall_path,
    score_interval,
)
from unbag.evaluation.inverses import LeftInverse
from unbag.evaluation.metrics import (
    CLASS_METRICS,
    OVERALL_METRICS,
    ClassMetric,
    Metric,
    cost_metric,
)
from unbag.evaluation.misfit import Misfit, drift_directions, measure_misfit
from unbag.evaluation.probabilities import clustering
from unbag.evaluation.residuals import Residuals
from unbag.evaluation.row_drift import RowDrift, mixing, part_of_bags
from unbag.evaluation.updating import update_inverse
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors

__all__ = ["Core"]

_Floats = NDArray[np.float64]
_ROUGH_PART = 0.25  # simulated: none covers 1 to 3 points less, all of it 1 to 3 points more
_PROJECTION_STEPS = 500
_LEAST_VARIANCE = 1e-6  # of the prediction for a row; drift over none at all would be infinite


@dataclass(frozen=True, eq=False)
class _ClassPath:
    """The path of class k, and what all its numbers share.

    Attributes
    ----------
    columns : array of shape (G, K)
        Column k of confusion matrices.
    recall_weights, share_weights : arrays of shape (M, K)
        Weights of the shares of predictions for the recall of the class and its predicted share.
    share_variances, share_third_moments : arrays of shape (G, M)
        Of the share of each bag that is predicted as the class.
    matrices : array of shape (G, K, K) or None
        Whole confusion matrices, for the least-variance inverse: it uses all predictions.
    """

    k: int
    columns: _Floats
    recall_weights: _Floats
    share_weights: _Floats
    share_variances: _Floats
    share_third_moments: _Floats
    matrices: _Floats | None


class Core:
    """Counts of predictions in bags, and estimates with intervals from them.

    Parameters
    ----------
    table : array of shape (M, K)
        Rows of every bag that are predicted as each class; every bag has rows.
    priors : ClassPriors
    sample : BagSample
        How the rows of the bags were drawn.
    test_prior : array of shape (K,), optional
    inverse : str
    rows : three integer arrays of shape (n,), optional
        Predicted class, bag and record of every row, where records are repeated.
    excess : array of shape (M,), optional
        Variance of the shares of each bag by drift over that of one row, for its weight.
    """

    def __init__(
        self,
        table: NDArray[Any],
        priors: ClassPriors,
        sample: BagSample,
        test_prior: _Floats | None = None,
        inverse: str = "size-weighted",
        rows: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None,
        excess: _Floats | None = None,
    ) -> None:
        self.rows, self.priors, self.theta = rows, priors, priors.values
        self.table = table.astype(np.float64)
        self.counts = self.table.sum(1)
        self.shares = self.table / self.counts[:, None]
        self.pooled = priors.pooled(self.counts)
        self.pi = self.pooled if test_prior is None else test_prior
        self.total_shares = self.table.sum(0) / self.counts.sum()
        plain = LeftInverse(priors, self.counts, excess=excess)
        first = plain.confusion(self.shares)
        self.pattern = error_pattern(
            first, self.theta, sample.counts, self.total_shares, plain.matrix
        )
        covariance = sample.prediction_covariance(self.pattern)
        self.inverse = update_inverse(
            LeftInverse(priors, self.counts, inverse, covariance, excess),
            priors,
            sample,
            self.shares,
            self.total_shares,
        )
        self.raw = self.inverse.confusion(self.shares)
        if priors.errors is not None:
            self.pattern = error_pattern(
                self.raw, self.theta, sample.counts, self.total_shares, self.inverse.matrix
            )
        self.sample = replace(sample, directions=drift_directions(self.pattern))
        self.path = overall_path(self.pattern, self.pooled, self.total_shares)
        self._last_path: _ClassPath | None = None
        self.moved: _Floats | None = None  # (M, K, K), what row drift may do to C in each bag

    @cached_property
    def misfit(self) -> Misfit | None:
        """How much bags disagree beyond chance; None with as many bags as classes."""
        assert self.sample.directions is not None
        plain = LeftInverse(self.priors, self.counts)
        return measure_misfit(
            self.shares,
            (self.inverse if self.sample.errors is not None else plain).matrix,
            replace(self.sample, drift=0.0),
            self.projected["confusion"],
            self.sample.directions,
            self.priors.bag_ids,
            self.design_effect_of_accuracy,
        )

    @cached_property
    def design_effect_of_accuracy(self) -> float:
        """Variance of the accuracy with repeated rows taken as one over that of distinct rows."""
        return self.design_effect(self.inverse.weights(np.diag(self.pi)))

    def allow_misfit(self, level: float) -> None:
        """Widen all intervals from here on by the disagreement of the bags."""
        if self.misfit is not None:
            self.sample = replace(self.sample, drift=self.misfit.allowance(level))
            self._last_path = None

    def allow_row_drift(
        self, found: Residuals, z: float, of_labels: NDArray[np.bool_] | None = None
    ) -> RowDrift:
        """Let all intervals from here on reach as far as the drift of the rows may take them.

        Parameters
        ----------
        found : Residuals
            Of the rows in bags.
        z : float
        of_labels : bool array of shape (M,), optional
            Which bags are labelled rows of a class: these tell of all bags.
        """
        counts = self.counts if of_labels is None else np.where(of_labels, 0.0, self.counts)
        away = mixing(self.theta, counts) - np.eye(len(self.pi))  # (K, K)
        part = part_of_bags(found.deviation, z, self.shares, self.theta, counts, self.raw)
        drift = RowDrift.of(found, part, float(self.pi @ np.diag(self.raw + away @ self.raw)))
        if drift.part > 0:
            self.moved = (counts > 0)[:, None, None] * drift.part * away
        return drift

    def reach(
        self,
        estimate: Estimate,
        weights: _Floats,
        confusion: _Floats,
        limits: tuple[float, float] = (0.0, 1.0),
    ) -> Estimate:
        """Extend an interval to where the drift of the rows may take its number.

        Parameters
        ----------
        estimate : Estimate
        weights : array of shape (M, J)
            Of the shares of predictions (or of predictions and groups) for the number.
        confusion : array of shape (K, J)
        limits : (float, float)
            Beyond which the number cannot be moved.
        """
        if self.moved is None or math.isnan(estimate.low):
            return estimate
        shift = float(
            (weights * np.einsum("my,myk,kj->mj", self.theta, self.moved, confusion)).sum()
        )
        low = min(estimate.low, max(estimate.low + shift, limits[0]))
        high = max(estimate.high, min(estimate.high + shift, limits[1]))
        return Estimate(estimate, low, high)

    @property
    def excess(self) -> _Floats:
        """Variance by drift of a bag's shares of predictions over that of one row, (M,)."""
        covariance = self.sample.prediction_covariance(self.projected["confusion"])
        alone = np.trace(covariance, axis1=1, axis2=2)
        return np.asarray(self.sample.drift_in_shares().sum(1) / np.maximum(alone, _LEAST_VARIANCE))

    def tolerated_drift(self, move: float) -> dict[str, Any]:
        """Drift between bags that would move each number by this much, one standard deviation.

        One per overall number, and a list of K per number of the classes; infinite where no drift
        would.
        """
        eye = np.eye(len(self.pi))
        tolerated: dict[str, Any] = {}
        for name, metric in OVERALL_METRICS.items():
            gradient = metric.gradient(self.pattern, self.pi)
            tolerated[name] = self._tolerated(gradient, move)
        for name, by_class in CLASS_METRICS.items():
            gradient = by_class.gradient(self.pattern, self.pi)
            tolerated[name] = [self._tolerated(gradient * column, move) for column in eye]
        return tolerated

    def _tolerated(self, gradient: _Floats, move: float) -> float:
        variance = float(self.sample.drift_variance(self.inverse.weights(gradient)))
        return move / math.sqrt(variance) if variance > 0 else math.inf

    def overall(
        self, metric: Metric, z: float, limits: tuple[float, float] = (0.0, 1.0)
    ) -> Estimate:
        """Estimate a number of the whole confusion matrix that lies within limits."""
        value = float(metric.value(self.raw, self.pi))
        estimate = Estimate(value, *score_interval(value, self._overall_path(metric), z, limits))
        at_pattern = self.inverse.weights(metric.slope(self.pattern, self.pi, self.raw))
        return self.reach(estimate, at_pattern, self.raw, limits)

    def errors_beyond_limits(self, metric: Metric) -> float:
        """Count by how many standard errors the estimate lies outside [0, 1]; 0 inside."""
        value = float(metric.value(self.raw, self.pi))
        return errors_beyond_limits(value, self._overall_path(metric))

    def _overall_path(self, metric: Metric) -> EstimatePath:
        """Follow a number along the path."""
        weights = self.inverse.weights(metric.slope(self.path, self.pi, self.raw))
        at_pattern = self.inverse.weights(metric.slope(self.pattern, self.pi, self.raw))
        # The path does not know which classes are poor, so the slope of a number that is no sum
        # over C differs along it: the larger variance counts. For sums both are the same.
        variances = self.sample.variance(weights, self.path)
        others = self.sample.variance(at_pattern, self.path)
        thirds = np.where(
            variances >= others,
            self.sample.third_moment(weights, self.path),
            self.sample.third_moment(at_pattern, self.path),
        )
        values = metric.value(self.path, self.pi)
        return self._usable(values, np.maximum(variances, others), thirds, at_pattern)

    def cost(self, cost: _Floats, z: float) -> Estimate:
        """Estimate the mean cost, for a table of costs (K, K)."""
        metric = cost_metric(cost)
        right = np.diag(cost)[:, None]
        if (cost >= right).all() or (cost <= right).all():
            limits = float(self.pi @ cost.min(1)), float(self.pi @ cost.max(1))
            return self.overall(metric, z, limits)
        # Errors may as well cost as gain something: the path has no order of costs.
        weights = self.inverse.weights(metric.gradient(self.pattern, self.pi))
        value, limits = float(metric.value(self.raw, self.pi)), (-math.inf, math.inf)
        return self._plain_estimate(value, weights, z, limits)

    def by_class(self, z: float) -> dict[str, list[Estimate]]:
        """Estimate the numbers of every class: lists of K."""
        values = {n: metric.value(self.raw, self.pi) for n, metric in CLASS_METRICS.items()}
        values["precision"] = np.where(self.total_shares > 0, values["precision"], np.nan)
        estimates: dict[str, list[Estimate]] = {name: [] for name in CLASS_METRICS}
        for k in range(len(self.pi)):  # outside, since the path of a class serves all its numbers
            for name, metric in CLASS_METRICS.items():
                estimates[name].append(self.of_class(name, k, float(values[name][k]), metric, z))
        return estimates

    def of_class(self, name: str, k: int, value: float, metric: ClassMetric, z: float) -> Estimate:
        """Give a number of class k its interval."""
        if not np.isfinite(value):
            return Estimate(value)
        path = self._class_path(k)
        pi = self.pi[k]
        column = self.pattern[:, k]
        estimated = self.pi @ self.raw[:, k]
        by_recall, by_share = metric.slopes(column[k], column @ self.pi, pi, estimated)
        at_pattern = by_recall * path.recall_weights + by_share * path.share_weights  # (M, K)
        if name == "predicted_share":  # it varies little along the path: the plain interval
            return self._plain_estimate(value, at_pattern, z)
        recall, share = path.columns[:, k], path.columns @ self.pi  # (G,)
        slopes = metric.slopes(recall, share, pi, estimated)
        by_recall, by_share = (slope[:, None] for slope in slopes)
        if path.matrices is None:  # weights of class k alone are not zero
            weights = by_recall * path.recall_weights[:, k] + by_share * path.share_weights[:, k]
            variances = (weights**2 * path.share_variances).sum(-1)
            thirds = (weights**3 * path.share_third_moments).sum(-1)
        else:
            by_recall, by_share = by_recall[..., None], by_share[..., None]
            weights = by_recall * path.recall_weights + by_share * path.share_weights
            variances = self.sample.variance(weights, path.matrices)
            thirds = self.sample.third_moment(weights, path.matrices)
        usable = self._usable(metric.function(recall, share, pi), variances, thirds, at_pattern)
        estimate = Estimate(value, *score_interval(value, usable, z))
        return self.reach(estimate, at_pattern, self.raw)

    def _class_path(self, k: int) -> "_ClassPath":
        if self._last_path is None or self._last_path.k != k:
            n = self.sample.counts.sum()
            columns = class_path(k, self.pattern, self.pooled, self.total_shares, n)
            eye = np.eye(len(self.pi))
            self._last_path = _ClassPath(
                k=k,
                columns=columns,
                recall_weights=self.inverse.weights(np.outer(eye[k], eye[k])),
                share_weights=self.inverse.weights(np.outer(self.pi, eye[k])),
                share_variances=self.sample.share_variance(columns)
                + self.sample.drift_in_shares()[:, k],
                share_third_moments=self.sample.share_third_moment(columns),
                matrices=_with_column(self.pattern, k, columns)
                if self.inverse.kind == "least-variance"
                else None,
            )
        return self._last_path

    def _usable(
        self, values: _Floats, variances: _Floats, thirds: _Floats, at_pattern: _Floats
    ) -> EstimatePath:
        """Keep the part of a path on which all is defined; repeated rows vary more."""
        usable = np.isfinite(values) & np.isfinite(variances) & np.isfinite(thirds)
        effect = self.design_effect(at_pattern)
        total = variances[usable] * effect + self.unknown_confusion(at_pattern)
        return EstimatePath(values[usable], total, thirds[usable] * effect**2)

    def _plain_estimate(
        self,
        value: float,
        weights: _Floats,
        z: float,
        limits: tuple[float, float] = (0.0, 1.0),
    ) -> Estimate:
        """Form the interval from the variance at the pattern alone."""
        variance = float(self.sample.variance(weights, self.pattern))
        variance = variance * self.design_effect(weights) + self.unknown_confusion(weights)
        half = z * math.sqrt(variance)
        return self.reach(Estimate(value, value - half, value + half), weights, self.raw, limits)

    def unknown_confusion(self, weights: _Floats) -> float:
        """Variance as errors of shares meet an estimated confusion matrix, not the true one.

        The pattern is smoother than the true matrix, the raw estimate rougher by its own errors;
        a part of what this adds to the variance is what both lack.
        """
        if self.sample.errors is None:
            return 0.0
        raw, smooth = (
            float(self.sample.errors.added_variance(weights @ confusion.T))
            for confusion in (self.raw, self.pattern)
        )
        return _ROUGH_PART * max(raw - smooth, 0.0)

    def design_effect(self, weights: _Floats) -> float:
        """Variance with repeated rows taken as one over that with all taken as distinct, or 1."""
        if self.rows is None:
            return 1.0
        predicted, bag_index, record = self.rows
        mean = (weights * self.shares).sum(1)[bag_index]
        residual = (weights[bag_index, predicted] - mean) / self.counts[bag_index]
        return clustering(residual, record)

    @cached_property
    def projected(self) -> dict[str, Any]:
        """Numbers of the likeliest valid confusion matrix, found by expectation maximisation."""
        k = self.theta.shape[1]
        theta = np.maximum(self.inverse.instruments, 0)
        confusion = 0.98 * self.pattern + 0.02 / k
        for _ in range(_PROJECTION_STEPS):
            ratio = self.table / np.maximum(theta @ confusion, 1e-300)
            confusion = confusion * (theta.T @ ratio)
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

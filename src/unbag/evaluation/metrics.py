"""Numbers that depend on the confusion matrix, with their gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLASS_METRICS", "OVERALL_METRICS", "ClassMetric", "Metric", "cost_metric"]

_Floats = NDArray[np.float64]
_LEAST_SHARE = 1e-3  # of the share of a class, that is predicted as it


@dataclass(frozen=True)
class Metric:
    """A number that depends on the confusion matrix C (..., K, K) and the test prior π (K,).

    Parameters
    ----------
    value : callable
        (C, π) to values (...).
    gradient : callable
        (C, π) to derivatives by C, (..., K, K).
    denominator : callable, optional
        (C, π) to what column k of the gradient was divided by, (..., K), for means of ratios.
    """

    value: Callable[[_Floats, _Floats], _Floats]
    gradient: Callable[[_Floats, _Floats], _Floats]
    denominator: Callable[[_Floats, _Floats], _Floats] | None = None

    def slope(self, C: _Floats, pi: _Floats, estimated: _Floats) -> _Floats:
        """Differentiate at C (..., K, K), where an estimated matrix is what one divides by.

        That an estimated ratio a/b is t says that a − t b is 0, which is linear, and the error of
        the ratio is that of a − t b over the estimate of b (Fieller, 1954). Where chance makes b
        small, the ratio is as far off as this says; the b of C would know nothing of it.
        """
        gradient = self.gradient(C, pi)
        if self.denominator is None:
            return gradient
        part = self.denominator(C, pi) / self.denominator(estimated, pi)
        return gradient * part[..., None, :]


@dataclass(frozen=True)
class ClassMetric:
    """One number per class: a function of its recall, its predicted share and its test prior.

    Of class k the recall is r = C_kk and the predicted share s = Σ_y π_y C_yk, so that the number
    depends on column k of C alone.

    Parameters
    ----------
    function : callable
        (r, s, π_k) to values; arrays that broadcast.
    partials : callable
        (r, s, π_k) to the derivatives by r and by s.
    denominator : callable
        (s, π_k) to what the function divides by.
    """

    function: Callable[[_Floats, _Floats, _Floats], _Floats]
    partials: Callable[[_Floats, _Floats, _Floats], tuple[_Floats, _Floats]]
    denominator: Callable[[_Floats, _Floats], _Floats] = lambda s, p: np.ones_like(s)  # noqa: ARG005

    def slopes(
        self, r: _Floats, s: _Floats, p: _Floats, estimated_s: _Floats
    ) -> tuple[_Floats, _Floats]:
        """Give the partials with the denominator of an estimate, as :meth:`Metric.slope` does."""
        part = self.denominator(s, p) / self.denominator(estimated_s, p)
        by_recall, by_share = self.partials(r, s, p)
        return part * by_recall, part * by_share

    def value(self, C: _Floats, pi: _Floats) -> _Floats:
        """Values (..., K) of confusion matrices (..., K, K)."""
        return self.function(_recall(C), pi @ C, pi)

    def gradient(self, C: _Floats, pi: _Floats) -> _Floats:
        """Differentiate by C (..., K, K): column k holds what class k has by column k of C."""
        by_recall, by_share = self.partials(_recall(C), pi @ C, pi)
        eye = np.eye(len(pi))
        return np.asarray(by_recall[..., None, :] * eye + by_share[..., None, :] * pi[:, None])


def _recall(C: _Floats) -> _Floats:
    return np.asarray(np.einsum("...kk->...k", C))


def _nonzero(value: _Floats) -> _Floats:
    """Denominators; none where zero: a class that is never predicted has no precision."""
    return np.where(np.abs(value) > 1e-12, value, np.nan)


def _constant(matrix: Callable[[_Floats], _Floats]) -> Callable[[_Floats, _Floats], _Floats]:
    return lambda C, pi: np.broadcast_to(matrix(pi), C.shape)


def cost_metric(cost: _Floats) -> Metric:
    """Mean cost Σ_yk π_y C_yk cost_yk of predicting class k where the class is y."""
    return Metric(
        lambda C, pi: np.asarray((pi[:, None] * cost * C).sum((-2, -1))),
        _constant(lambda pi: pi[:, None] * cost),
    )


def _both_shares(s: _Floats, p: _Floats) -> _Floats:
    """Denominator of F1; a share that chance takes below zero is none."""
    return _unless_absent(_nonzero(p + np.maximum(s, 0)), s, p)


def _own_share(s: _Floats, p: _Floats) -> _Floats:
    """Denominator of the precision; one that chance takes below zero is the least there may be."""
    return _unless_absent(np.maximum(_nonzero(s), _LEAST_SHARE * p), s, p)


def _unless_absent(denominator: _Floats, s: _Floats, p: _Floats) -> _Floats:
    """One for a class that the test prior lacks, of which a share below zero is predicted."""
    return np.where((s < 0) & (p <= 0), 1.0, denominator)


_F1 = ClassMetric(
    lambda r, s, p: 2 * p * r / _both_shares(s, p),
    lambda r, s, p: (2 * p / _both_shares(s, p), -2 * p * r / _both_shares(s, p) ** 2),
    _both_shares,
)
OVERALL_METRICS: dict[str, Metric] = {
    "accuracy": Metric(lambda C, pi: _recall(C) @ pi, _constant(np.diag)),
    "balanced_accuracy": Metric(
        lambda C, _: _recall(C).mean(-1), _constant(lambda pi: np.eye(len(pi)) / len(pi))
    ),
    "macro_f1": Metric(
        lambda C, pi: _F1.value(C, pi).mean(-1),
        lambda C, pi: _F1.gradient(C, pi) / len(pi),
        lambda C, pi: _both_shares(pi @ C, pi),
    ),
}
CLASS_METRICS: dict[str, ClassMetric] = {
    "recall": ClassMetric(
        lambda r, s, p: r,  # noqa: ARG005
        lambda r, s, p: (np.ones_like(r), np.zeros_like(s)),  # noqa: ARG005
    ),
    "precision": ClassMetric(
        lambda r, s, p: p * r / _own_share(s, p),
        lambda r, s, p: (p / _own_share(s, p), -p * r / _own_share(s, p) ** 2),
        _own_share,
    ),
    "f1": _F1,
    "predicted_share": ClassMetric(
        lambda r, s, p: s,  # noqa: ARG005
        lambda r, s, p: (np.zeros_like(r), np.ones_like(s)),  # noqa: ARG005
    ),
}

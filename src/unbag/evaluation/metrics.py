"""Numbers that depend on the confusion matrix, with their gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLASS_METRICS", "OVERALL_METRICS", "ClassMetric", "Metric", "cost_metric"]

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """A number that depends on the confusion matrix C (..., K, K) and the test prior π (K,).

    Parameters
    ----------
    value : callable
        (C, π) to values (...).
    gradient : callable
        (C, π) to derivatives by C, (..., K, K).
    """

    value: Callable[[_Floats, _Floats], _Floats]
    gradient: Callable[[_Floats, _Floats], _Floats]


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
    """

    function: Callable[[_Floats, _Floats, _Floats], _Floats]
    partials: Callable[[_Floats, _Floats, _Floats], tuple[_Floats, _Floats]]

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


_F1 = ClassMetric(
    lambda r, s, p: 2 * p * r / _nonzero(p + s),
    lambda r, s, p: (2 * p / _nonzero(p + s), -2 * p * r / _nonzero(p + s) ** 2),
)
OVERALL_METRICS: dict[str, Metric] = {
    "accuracy": Metric(lambda C, pi: _recall(C) @ pi, _constant(np.diag)),
    "balanced_accuracy": Metric(
        lambda C, _: _recall(C).mean(-1), _constant(lambda pi: np.eye(len(pi)) / len(pi))
    ),
    "macro_f1": Metric(
        lambda C, pi: _F1.value(C, pi).mean(-1), lambda C, pi: _F1.gradient(C, pi) / len(pi)
    ),
}
CLASS_METRICS: dict[str, ClassMetric] = {
    "recall": ClassMetric(
        lambda r, s, p: r,  # noqa: ARG005
        lambda r, s, p: (np.ones_like(r), np.zeros_like(s)),  # noqa: ARG005
    ),
    "precision": ClassMetric(
        lambda r, s, p: p * r / _nonzero(s),
        lambda r, s, p: (p / _nonzero(s), -p * r / _nonzero(s) ** 2),
    ),
    "f1": _F1,
    "predicted_share": ClassMetric(
        lambda r, s, p: s,  # noqa: ARG005
        lambda r, s, p: (np.zeros_like(r), np.ones_like(s)),  # noqa: ARG005
    ),
}

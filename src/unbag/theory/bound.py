"""The second theorem of the paper, term by term."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.priors import ClassPriors, risk_weights
from unbag.theory.constants import LossConstants
from unbag.validation import as_float_array, check_number, detached, invalid, shorten

__all__ = ["Complexity", "EstimationErrorBound", "estimation_error_bound"]

Complexity: TypeAlias = Callable[[int], ArrayLike] | ArrayLike


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimationErrorBound:
    r"""The bound of :func:`estimation_error_bound`, term by term.

    Attributes
    ----------
    n_bags, n_classes : int
        M and K.
    smallest_bag : int
        N_min, the rows of the smallest bag.
    largest_weight : float
        C_w, the largest absolute risk weight.
    condition_number : float
        Of Θ; C_w grows with it.
    loss_bound, lipschitz : float
        C_ℓ and L.
    complexity_sum : float
        Σ ℜ, the Rademacher complexities summed over bags and classes.
    delta : float
        δ; the bound holds with probability at least 1 − δ.
    complexity_term, confidence_term : float
        The two terms of the paper; ``total`` is their sum.
    tighter_complexity_term, tighter_confidence_term : float
        The two terms of the same proof without its last, coarse steps; ``tighter_total`` is their
        sum.
    """

    n_bags: int
    n_classes: int
    smallest_bag: int
    largest_weight: float
    condition_number: float
    loss_bound: float
    lipschitz: float
    complexity_sum: float
    delta: float
    complexity_term: float
    confidence_term: float
    tighter_complexity_term: float
    tighter_confidence_term: float

    @property
    def total(self) -> float:
        """Bound on R(ĝ) − R(g*)."""
        return self.complexity_term + self.confidence_term

    @property
    def tighter_total(self) -> float:
        """Bound on R(ĝ) − R(g*), never above ``total``."""
        return self.tighter_complexity_term + self.tighter_confidence_term

    @property
    def deviation(self) -> float:
        """Half of ``total``: bounds the error of the risk estimate for all functions at once."""
        return self.total / 2

    @property
    def vacuous(self) -> bool:
        """Whether even ``tighter_total`` says nothing: no two risks differ by more than C_ℓ."""
        return self.tighter_total >= self.loss_bound

    def to_dict(self) -> dict[str, Any]:
        """Every number by its name, those derived from the terms too."""
        derived = ("total", "tighter_total", "deviation", "vacuous")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    def __str__(self) -> str:
        verdict = "not below C_ℓ, so it tells nothing" if self.vacuous else "below C_ℓ"
        return "\n".join(
            (
                f"R(ĝ) − R(g*) ≤ {self.total:.4g} with probability {1 - self.delta:g}",
                f"  complexity term  {self.complexity_term:.4g} = 4√2 L K C_w Σℜ",
                f"  confidence term  {self.confidence_term:.4g} = "
                "2 C_w K C_ℓ √(M ln(2/δ) / (2 N_min))",
                f"  tighter form     {self.tighter_total:.4g} = {self.tighter_complexity_term:.4g}"
                f" + {self.tighter_confidence_term:.4g}, {verdict}",
                f"  bags             M = {self.n_bags}, N_min = {self.smallest_bag}",
                f"  class priors     K = {self.n_classes}, C_w = {self.largest_weight:.4g}, "
                f"condition number {self.condition_number:.4g}",
                f"  loss             L = {self.lipschitz:.4g}, C_ℓ = {self.loss_bound:.4g}",
                f"  functions        Σℜ = {self.complexity_sum:.4g}",
            )
        )


def estimation_error_bound(
    priors: Any,
    bag_sizes: ArrayLike,
    *,
    loss: Any,
    complexity: Complexity,
    test_prior: Any = None,
    delta: float = 0.05,
) -> EstimationErrorBound:
    r"""Bound how much worse the learned classifier can be than the best function of its class.

    With probability at least :math:`1 - \delta` over rows drawn independently within every bag,

    .. math:: R(\hat{g}) - R(g^*) \le
        4 \sqrt{2} L K C_w \sum_{m,k} \mathfrak{R}_{n_m}(\mathcal{H}_k)
        + 2 C_w K C_\ell \sqrt{\frac{M \ln(2/\delta)}{2 N_{\min}}}

    where :math:`\hat{g}` minimises the unbiased risk estimate over a class of functions,
    :math:`g^*` the risk R itself, :math:`C_w = \max_{m,k} |W_{mk}|` over the risk weights,
    :math:`N_{\min} = \min_m n_m`, and :math:`\mathfrak{R}_{n_m}(\mathcal{H}_k)` is the Rademacher
    complexity of output k of the functions at :math:`n_m` rows of bag m. The same proof,
    without the steps that only shorten the formula, gives the tighter

    .. math:: R(\hat{g}) - R(g^*) \le
        2 \sqrt{2} L \sum_m \|W_m\|_1 \sum_k \mathfrak{R}_{n_m}(\mathcal{H}_k)
        + 2 C_\ell \sqrt{\frac{\ln(1/\delta)}{2} \sum_m \frac{\|W_m\|_1^2}{n_m}},
        \qquad \|W_m\|_1 = \sum_k |W_{mk}|.

    Parameters
    ----------
    priors
        Class priors Θ of shape (M, K), anything that :meth:`ClassPriors.of` takes.
    bag_sizes : M whole numbers
        n_m, in the order of Θ's bags; ``bags.counts`` of :class:`unbag.Bags`.
    loss : LossConstants, str or callable
        C_ℓ and L, or a loss whose constants :meth:`LossConstants.of` knows.
    complexity : callable or array of shape (M, K)
        :math:`\mathfrak{R}_{n_m}(\mathcal{H}_k)`: a function of the sample size to one number or
        to K (:class:`NormComplexity` is one), or all of them.
    test_prior : array of shape (K,) or dict, optional
        π; by default the pooled prior of the bags.
    delta : float in (0, 1), default=0.05

    Raises
    ------
    RankError
        If Θ cannot tell some classes apart.

    Examples
    --------
    >>> import unbag
    >>> theta = unbag.priors.symmetric(n_classes=2, a=0.5)
    >>> constants = LossConstants.generalized_cross_entropy(q=1.0)
    >>> linear = unbag.theory.NormComplexity(depth=1, products=(1.0, 1.0))
    >>> print(estimation_error_bound(theta, [9000, 10000], loss=constants, complexity=linear))
    R(ĝ) − R(g*) ≤ 0.1888 with probability 0.95
      complexity term  0.1265 = 4√2 L K C_w Σℜ
      confidence term  0.06233 = 2 C_w K C_ℓ √(M ln(2/δ) / (2 N_min))
      tighter form     0.07661 = 0.04107 + 0.03554, below C_ℓ
      bags             M = 2, N_min = 9000
      class priors     K = 2, C_w = 0.7697, condition number 2
      loss             L = 0.3536, C_ℓ = 1
      functions        Σℜ = 0.04108
    """
    table = ClassPriors.of(priors)
    sizes = _check_sizes(bag_sizes, table)  # (M,)
    check_number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    constants = LossConstants.of(loss)
    rademacher = _check_complexity(complexity, sizes, table.n_classes)  # (M, K)
    pi = table.pooled(sizes) if test_prior is None else test_prior
    weights = np.abs(risk_weights(table, pi, warn=False))  # (M, K); the bound shows what they do
    by_bag = weights.sum(1)  # (M,)
    m, k = weights.shape
    c_w, n_min = float(weights.max()), int(sizes.min())
    c_l, slope = float(constants.bound), float(constants.lipschitz)
    total_complexity = float(rademacher.sum())
    spread = float((by_bag**2 / sizes).sum())
    return EstimationErrorBound(
        n_bags=m,
        n_classes=k,
        smallest_bag=n_min,
        largest_weight=c_w,
        condition_number=table.condition_number,
        loss_bound=c_l,
        lipschitz=slope,
        complexity_sum=total_complexity,
        delta=float(delta),
        complexity_term=4 * math.sqrt(2) * slope * k * c_w * total_complexity,
        confidence_term=2 * c_w * k * c_l * math.sqrt(m * math.log(2 / delta) / (2 * n_min)),
        tighter_complexity_term=2 * math.sqrt(2) * slope * float(by_bag @ rademacher.sum(1)),
        tighter_confidence_term=2 * c_l * math.sqrt(math.log(1 / delta) * spread / 2),
    )


def _check_sizes(bag_sizes: Any, table: ClassPriors) -> NDArray[np.int64]:
    sizes = as_float_array("bag_sizes", detached("bag_sizes", bag_sizes), ndim=1)
    if len(sizes) != table.n_bags:
        raise invalid("bag_sizes", f"{table.n_bags} numbers, one for each bag", len(sizes))
    if not (np.isfinite(sizes).all() and (sizes >= 1).all() and (sizes % 1 == 0).all()):
        remedy = "leave bags without rows out of the priors: Bags.present(), ClassPriors.subset()."
        raise invalid("bag_sizes", "whole numbers of at least 1", shorten(sizes), remedy)
    return sizes.astype(np.int64)


def _check_complexity(
    complexity: Any, sizes: NDArray[np.int64], n_classes: int
) -> NDArray[np.float64]:
    """(M, K) complexities, one per bag size and class."""
    shape = (len(sizes), n_classes)
    if callable(complexity):
        rows = [np.asarray(complexity(int(n)), dtype=np.float64) for n in sizes]
        if any(row.shape not in ((), (n_classes,)) for row in rows):
            allowed = f"a function of the sample size to one number or {n_classes}, one per class"
            raise invalid("complexity", allowed, f"shape {rows[0].shape}")
        table = np.stack([np.broadcast_to(row, (n_classes,)) for row in rows])
    else:
        table = as_float_array("complexity", detached("complexity", complexity), ndim=2)
        if table.shape != shape:
            allowed = f"of shape {shape}, one number per bag and class"
            raise invalid("complexity", allowed, f"shape {table.shape}")
    if not (np.isfinite(table).all() and (table >= 0).all()):
        raise invalid("complexity", "finite and non-negative", shorten(table.ravel()))
    return table

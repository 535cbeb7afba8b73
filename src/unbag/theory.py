r"""The estimation error bound: how far the learned classifier can be from the best of its class.

:func:`estimation_error_bound` is the second theorem of the paper, term by term. It needs the
constants of a bounded loss (:class:`LossConstants`) and the Rademacher complexity of the class of
functions, which :func:`mlp_complexity` bounds by the norms of a network. docs/theory.md has the
derivations, and what the bound is good for.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from unbag.models import MLP
from unbag.objectives.losses import GeneralizedCrossEntropy, get_loss
from unbag.priors import ClassPriors, risk_weights
from unbag.validation import as_float_array, check_number, detached, invalid, shorten

__all__ = [
    "Complexity",
    "EstimationErrorBound",
    "LossConstants",
    "NormComplexity",
    "estimation_error_bound",
    "fold_batch_norm",
    "mlp_complexity",
]

Complexity: TypeAlias = Callable[[int], ArrayLike] | ArrayLike


@dataclass(frozen=True, slots=True)
class LossConstants:
    r"""What the bound needs to know of a loss ℓ(z, k) ≥ 0 of logits z: C_ℓ and L.

    Parameters
    ----------
    bound : float
        :math:`C_\ell`, which no loss exceeds.
    lipschitz : float
        L in :math:`|\ell(z, k) - \ell(z', k)| \le L \|z - z'\|_2` for every class k.

    Examples
    --------
    >>> LossConstants.clipped_cross_entropy(level=5.0).bound
    5.0
    """

    bound: float
    lipschitz: float

    def __post_init__(self) -> None:
        check_number("bound", self.bound, low=0, low_open=True)
        check_number("lipschitz", self.lipschitz, low=0, low_open=True)

    @classmethod
    def of(cls, loss: Any) -> Self:
        """Constants of a loss of :mod:`unbag.objectives`, by name or by function.

        Constants come back as they are. Cross-entropy is refused: it has no bound.

        Examples
        --------
        >>> LossConstants.of("generalized-cross-entropy").bound  # q = 0.7
        1.4285714285714286
        >>> LossConstants.of("cross-entropy")
        Traceback (most recent call last):
        ...
        unbag.exceptions.InvalidInputError: loss must be bounded, got cross-entropy, which has no \
finite C_ℓ; clip it and give LossConstants.clipped_cross_entropy(level), or train with \
generalized-cross-entropy.
        """
        if isinstance(loss, cls):
            return loss
        function = get_loss(loss)
        if isinstance(function, GeneralizedCrossEntropy):
            return cls.generalized_cross_entropy(function.q)
        if function is get_loss("cross-entropy"):
            got = "cross-entropy, which has no finite C_ℓ"
            remedy = (
                "clip it and give LossConstants.clipped_cross_entropy(level), or train with "
                "generalized-cross-entropy."
            )
            raise invalid("loss", "bounded", got, remedy)
        remedy = "give its LossConstants(bound, lipschitz)."
        raise invalid("loss", "one with known constants", repr(loss), remedy)

    @classmethod
    def clipped_cross_entropy(cls, level: float) -> Self:
        r"""Cross-entropy cut off at a level c: :math:`\ell_k = \min(-\log \eta_k, c)`.

        .. math:: C_\ell = c, \qquad L = \sqrt{2} \, (1 - e^{-c})

        The gradient of :math:`-\log \eta_k` is :math:`\eta - e_k`, of length at most
        :math:`\sqrt{2} (1 - \eta_k)`, and it counts only where :math:`\eta_k > e^{-c}`.

        Examples
        --------
        >>> round(LossConstants.clipped_cross_entropy(level=5.0).lipschitz, 4)
        1.4047
        """
        check_number("level", level, low=0, low_open=True)
        return cls(float(level), -math.sqrt(2) * math.expm1(-level))

    @classmethod
    def generalized_cross_entropy(cls, q: float = 0.7) -> Self:
        r"""Generalised cross-entropy :math:`\ell_k = (1 - \eta_k^q) / q`.

        .. math:: C_\ell = \frac{1}{q}, \qquad L = \frac{\sqrt{2} \, q^q}{(1 + q)^{1 + q}}

        The gradient is :math:`\eta_k^q (\eta - e_k)`, of length at most
        :math:`\sqrt{2} \, \eta_k^q (1 - \eta_k)`, which is largest at :math:`\eta_k = q/(1+q)`.

        Examples
        --------
        >>> round(LossConstants.generalized_cross_entropy(q=1.0).lipschitz, 4)  # √2/4
        0.3536
        """
        check_number("q", q, low=0, high=1, low_open=True)
        return cls(1 / q, math.sqrt(2) * q**q / (1 + q) ** (1 + q))


@dataclass(frozen=True, slots=True)
class NormComplexity:
    r"""Rademacher complexity of ReLU networks whose weights have bounded norms.

    .. math:: \mathfrak{R}_n(\mathcal{H}_k) \le
        \frac{P_k}{\sqrt{n}} \bigl(1 + \sqrt{2 (d - 1) \ln 2}\bigr), \qquad
        P_k = B \, \|w_{d,k}\|_2 \prod_{j=1}^{d-1} \|W_j\|_F

    for :math:`g(x) = W_d \, \sigma(W_{d-1} \cdots \sigma(W_1 x))` without biases, σ = ReLU, rows of
    length at most B and :math:`w_{d,k}` row k of the last layer (Golowich, Rakhlin and Shamir,
    "Size-Independent Sample Complexity of Neural Networks", COLT 2018, theorem 1, which has d where
    d − 1 suffices). For d = 1 it is that of linear functions, :math:`B \|w_k\| / \sqrt{n}`.

    Parameters
    ----------
    depth : int
        d, the number of layers.
    products : K numbers
        :math:`P_k` of every class.

    Examples
    --------
    Linear functions of length 2 of rows of length 3, at 36 rows:

    >>> NormComplexity(depth=1, products=(6.0, 6.0))(36)
    array([1., 1.])
    """

    depth: int
    products: tuple[float, ...]

    def __post_init__(self) -> None:
        check_number("depth", self.depth, low=1, integer=True)
        for product in self.products:
            check_number("products", product, low=0)

    def __call__(self, n: int) -> NDArray[np.float64]:
        """(K,) complexities at n rows."""
        check_number("n", n, low=1, integer=True)
        factor = 1 + math.sqrt(2 * (self.depth - 1) * math.log(2))
        return np.asarray(self.products) * factor / math.sqrt(n)


def fold_batch_norm(module: MLP) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    r"""Write an MLP as ReLU between affine layers: the weight and bias of each of them.

    Batch normalisation in evaluation mode is :math:`a h + s` for every unit, with
    :math:`a = \gamma / \sqrt{v + \epsilon}` and :math:`s = \beta - a \mu`. It follows the ReLU, so
    it goes into the next layer: :math:`W (a h + s) + b = (W \operatorname{diag} a) h + (W s + b)`.

    Returns
    -------
    d pairs of a (h_j, h_{j-1}) weight and an (h_j,) bias, in float64.

    Examples
    --------
    >>> [weight.shape for weight, _ in fold_batch_norm(MLP(4, 2, depth=3, width=5))]
    [(5, 4), (5, 5), (2, 5)]
    """
    linears, norms = module.blocks()
    layers = []
    scale, shift = np.ones(linears[0].in_features), np.zeros(linears[0].in_features)
    for j, linear in enumerate(linears):
        weight, bias = _numbers(linear.weight), _numbers(linear.bias)
        layers.append((weight * scale, weight @ shift + bias))
        if j < len(norms):
            norm = norms[j]
            scale = _numbers(norm.weight) / np.sqrt(_numbers(norm.running_var) + norm.eps)
            shift = _numbers(norm.bias) - scale * _numbers(norm.running_mean)
    return layers


def mlp_complexity(module: nn.Module, radius: float) -> NormComplexity:
    r"""Bound the Rademacher complexity of MLPs with norms like those of a given one.

    Batch normalisation is folded into the layers (:func:`fold_batch_norm`). A constant unit that
    every layer passes on carries the biases, so layer j becomes
    :math:`\begin{pmatrix} W_j & b_j \\ 0 & 1 \end{pmatrix}`, and a row gets a 1 at its end. Scaling
    what enters a unit by t and what leaves it by 1/t changes no function; all units, the constant
    ones too, are scaled so that the product of the Frobenius norms is least.

    The class that the result speaks of, all networks with such norms, is thus chosen by the data,
    while the theorem wants it fixed before: see docs/theory.md.

    Parameters
    ----------
    module : MLP
        For instance ``clf.module_`` of a fitted :class:`unbag.UnbagClassifier`.
    radius : float
        B, which no row exceeds in length, as the network sees it (scaled, where the estimator
        standardises). The root of the mean squared length over a bag will do too.

    Examples
    --------
    >>> import torch
    >>> net = MLP(2, 2, depth=1)
    >>> with torch.no_grad():
    ...     _ = net.linears[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    ...     _ = net.linears[0].bias.zero_()
    >>> [round(product, 6) for product in mlp_complexity(net, radius=10.0).products]
    [30.0, 40.0]
    """
    if not isinstance(module, MLP):
        remedy = "give the complexity as a function of the sample size."
        raise invalid("module", "an unbag.models.MLP", type(module).__name__, remedy)
    check_number("radius", radius, low=0, low_open=True)
    layers = fold_batch_norm(module)
    # Only squares matter: S_0 is the squared length of a row, first as it is, then its constant.
    squares = [np.array([[float(radius) ** 2], [1.0]])]
    for j, (weight, bias) in enumerate(layers):
        entering = (weight**2).sum(1, keepdims=True) if j == 0 else weight**2
        square = np.column_stack([entering, bias**2])
        if j < len(layers) - 1:
            square = np.vstack([square, np.eye(1, square.shape[1], square.shape[1] - 1)])
        squares.append(square)
    _balance(squares)
    inner = math.prod(math.sqrt(square.sum()) for square in squares[:-1])
    products = inner * np.sqrt(squares[-1].sum(1))  # (K,)
    return NormComplexity(len(layers), tuple(products.tolist()))


def _balance(squares: list[NDArray[np.float64]], sweeps: int = 200) -> None:
    """Scale the units between matrices of squared entries, in place: the least product of sums.

    In the logarithms of the scales the product is convex, and over the units between two matrices
    the best scale is √(q/r), r and q being the sums of what enters and leaves a unit: exact steps,
    one pair of matrices after another. A unit that nothing enters or leaves adds nothing.
    """
    best = np.inf
    for _ in range(sweeps):
        for first, second in itertools.pairwise(squares):
            entering, leaving = first.sum(1), second.sum(0)
            used = (entering > 0) & (leaving > 0)
            first[~used], second[:, ~used] = 0, 0
            scale = np.sqrt(leaving[used] / entering[used])
            first[used] *= scale[:, None]
            second[:, used] /= scale
        product = math.prod(float(square.sum()) for square in squares)
        if product >= best * (1 - 1e-12):
            return
        best = product


def _numbers(tensor: Any) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.detach().cpu().double().numpy()
    return array


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
        Of Θ; what C_w grows with.
    loss_bound, lipschitz : float
        C_ℓ and L.
    complexity_sum : float
        Σ ℜ, the Rademacher complexities summed over bags and classes.
    delta : float
        δ; the bound holds with probability at least 1 − δ.
    complexity_term, confidence_term : float
        The two terms of the paper; ``total`` is their sum.
    tighter_complexity_term, tighter_confidence_term : float
        Those of the same proof without its last, coarse steps; ``tighter_total`` is their sum.
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
        """Every number by its name, what follows from the terms too."""
        derived = ("total", "tighter_total", "deviation", "vacuous")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    def __str__(self) -> str:
        trivial = "not below C_ℓ: it says nothing" if self.vacuous else "below C_ℓ"
        return "\n".join(
            (
                f"R(ĝ) − R(g*) ≤ {self.total:.4g} with probability {1 - self.delta:g}",
                f"  complexity term  {self.complexity_term:.4g} = 4√2 L K C_w Σℜ",
                f"  confidence term  {self.confidence_term:.4g} = "
                "2 C_w K C_ℓ √(M ln(2/δ) / (2 N_min))",
                f"  tighter form     {self.tighter_total:.4g} = {self.tighter_complexity_term:.4g}"
                f" + {self.tighter_confidence_term:.4g}, {trivial}",
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
    r"""Bound how much worse than the best of its class the learned classifier can be.

    With probability at least :math:`1 - \delta` over rows drawn independently within every bag,

    .. math:: R(\hat{g}) - R(g^*) \le
        4 \sqrt{2} L K C_w \sum_{m,k} \mathfrak{R}_{n_m}(\mathcal{H}_k)
        + 2 C_w K C_\ell \sqrt{\frac{M \ln(2/\delta)}{2 N_{\min}}}

    where :math:`\hat{g}` minimises the unbiased risk estimate over a class of functions,
    :math:`g^*` the risk R itself, :math:`C_w = \max_{m,k} |W_{mk}|` over the risk weights,
    :math:`N_{\min} = \min_m n_m`, and :math:`\mathfrak{R}_{n_m}(\mathcal{H}_k)` is the Rademacher
    complexity of output k of the functions at :math:`n_m` rows of bag m. The same proof, with the
    steps spared that only shorten the formula, gives the tighter

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
        C_ℓ and L; or a loss of which :meth:`LossConstants.of` knows them.
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
    >>> linear = NormComplexity(depth=1, products=(1.0, 1.0))
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
    sizes = as_float_array("bag_sizes", detached(bag_sizes), ndim=1)
    if len(sizes) != table.n_bags:
        raise invalid("bag_sizes", f"{table.n_bags} numbers, one for each bag", len(sizes))
    if not (np.isfinite(sizes).all() and (sizes >= 1).all() and (sizes % 1 == 0).all()):
        remedy = "leave bags without rows out of the priors: Bags.present(), ClassPriors.subset()."
        raise invalid("bag_sizes", "whole numbers of at least 1", shorten(sizes), remedy)
    return sizes.astype(np.int64)


def _check_complexity(
    complexity: Any, sizes: NDArray[np.int64], n_classes: int
) -> NDArray[np.float64]:
    """(M, K) complexities, one for every bag's size and every class."""
    shape = (len(sizes), n_classes)
    if callable(complexity):
        rows = [np.asarray(complexity(int(n)), dtype=np.float64) for n in sizes]
        if any(row.shape not in ((), (n_classes,)) for row in rows):
            allowed = f"a function of the sample size to one number or {n_classes}, one a class"
            raise invalid("complexity", allowed, f"shape {rows[0].shape}")
        table = np.stack([np.broadcast_to(row, (n_classes,)) for row in rows])
    else:
        table = as_float_array("complexity", detached(complexity), ndim=2)
        if table.shape != shape:
            allowed = f"of shape {shape}, one number a bag and class"
            raise invalid("complexity", allowed, f"shape {table.shape}")
    if not (np.isfinite(table).all() and (table >= 0).all()):
        raise invalid("complexity", "finite and non-negative", shorten(table.ravel()))
    return table

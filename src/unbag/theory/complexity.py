"""Rademacher complexity of a network, bounded by its norms."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unbag.models import MLP
from unbag.validation import check_number, invalid

__all__ = ["NormComplexity", "fold_batch_norm", "mlp_complexity"]


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
    r"""Bound the Rademacher complexity of all MLPs with the norms of a given one.

    Batch normalisation is folded into the layers (:func:`fold_batch_norm`). Biases are the
    weights of a constant unit that every layer passes on, so layer j becomes
    :math:`\begin{pmatrix} W_j & b_j \\ 0 & 1 \end{pmatrix}`, and a row gets a 1 at its end. Scaling
    what enters a unit by t and what leaves it by 1/t changes no function; all units, the constant
    ones too, are scaled so that the product of the Frobenius norms is least.

    The result is about all networks with such norms. The data choose this class, while the theorem
    requires it to be fixed before; see docs/how/theory.md.

    Parameters
    ----------
    module : MLP
        For instance ``clf.module_`` of a fitted :class:`unbag.UnbagClassifier`.
    radius : float
        B, the largest length of a row as the network gets it (after scaling, where the estimator
        standardises). The root of the mean squared length over a bag is enough.

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
    # Only squares matter. S_0 holds the squared length of a row and that of its constant unit.
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
    """Scale the units between matrices of squared entries in place, to the least product of sums.

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

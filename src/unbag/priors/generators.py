"""Class priors of the paper's settings, and inaccurate ones."""

from collections.abc import Mapping
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.priors.table import ClassPriors
from unbag.validation import as_generator, check_number, invalid, is_frame, shorten

__all__ = ["asymmetric", "non_square", "perturb", "symmetric"]


def symmetric(n_classes: int, a: float) -> NDArray[np.float64]:
    """Make K bags, each rich in its own class: Θ = a I + (1-a)/K.

    Examples
    --------
    >>> symmetric(2, a=0.5)
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    check_number("n_classes", n_classes, low=2, integer=True)
    check_number("a", a, low=0, high=1, low_open=True)
    theta: NDArray[np.float64] = a * np.eye(n_classes) + (1 - a) / n_classes
    return theta


def asymmetric(n_classes: int, random_state: Any = None) -> NDArray[np.float64]:
    """Make K bags whose off-diagonal shares are U[0, 1/K]; the diagonal takes the rest.

    Examples
    --------
    >>> asymmetric(3, random_state=0).round(2)
    array([[0.9 , 0.09, 0.01],
           [0.01, 0.69, 0.3 ],
           [0.2 , 0.24, 0.55]])
    """
    check_number("n_classes", n_classes, low=2, integer=True)
    theta = as_generator(random_state).uniform(0, 1 / n_classes, (n_classes, n_classes))
    np.fill_diagonal(theta, 0)
    np.fill_diagonal(theta, 1 - theta.sum(axis=1))
    return theta


def non_square(n_classes: int, random_state: Any = None) -> NDArray[np.float64]:
    """Stack two :func:`asymmetric` tables: M = 2K bags."""
    rng = as_generator(random_state)
    return np.vstack([asymmetric(n_classes, rng), asymmetric(n_classes, rng)])


@overload
def perturb(
    theta: ClassPriors | Mapping[Any, Any], rate: float, random_state: Any = None
) -> ClassPriors: ...
@overload
def perturb(theta: ArrayLike, rate: float, random_state: Any = None) -> NDArray[np.float64]: ...
def perturb(theta: Any, rate: float, random_state: Any = None) -> Any:
    """Make priors inaccurate: every share times 1 + rate or 1 - rate, each sign at random.

    The largest share of a row takes up the difference, so that the row still sums to 1. An (M, K)
    array gives an array; what has bag ids (see :meth:`ClassPriors.of`) gives ClassPriors with
    the same ids.

    Examples
    --------
    >>> perturb([[0.5, 0.3, 0.2]], rate=0.1, random_state=0).round(3)
    array([[0.45, 0.33, 0.22]])
    """
    check_number("rate", rate, low=0, high=1, high_open=True)
    table = ClassPriors.of(theta)
    signs = as_generator(random_state).choice([-1.0, 1.0], table.values.shape)
    noisy = table.values * (1 + rate * signs)
    rows, largest = np.arange(table.n_bags), table.values.argmax(axis=1)
    noisy[rows, largest] += 1 - noisy.sum(axis=1)
    if (noisy < 0).any():
        m = np.argwhere(noisy < 0)[0, 0]
        got = f"{rate}, which makes a share of bag {shorten([table.bag_ids[m]])} negative"
        raise invalid("rate", "small enough for the row's largest share", got, "lower it.")
    if isinstance(theta, ClassPriors | Mapping) or is_frame(theta):
        return ClassPriors(noisy, table.bag_ids, table.classes)
    return noisy

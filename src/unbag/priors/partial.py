r"""Shares that are known in part: bags without shares, and classes that are merged in some bags.

In a bag whose classes U have unknown shares, these sum to what the known ones leave, s. With the
proportions :math:`\rho_{mk} = \theta_{mk} / \sum_{j \in U} \theta_{mj}` of the n bags in which all
are known, and weights :math:`w_m = \sum_{j \in U} \theta_{mj}`,

.. math:: \theta_k = s \bar\rho_k, \qquad \bar\rho = \frac{\sum_m w_m \rho_m}{\sum_m w_m}, \qquad
          \sigma_k^2 = s^2 \Bigl(1 + \frac1n\Bigr) \frac{n}{n-1}
          \frac{\sum_m w_m (\rho_{mk} - \bar\rho_k)^2}{\sum_m w_m} .

So a share that nobody knows has the error of a guess by the other bags, and everything that knows
errors of shares knows what to do with it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.validation import invalid, shorten

__all__ = ["Merged", "complete", "from_ranges"]

_Floats = NDArray[np.float64]
_CLOSE = 0.005  # shares of a bag may be rounded
# The classes that are merged, by position, and the sum of their shares in each bag, or NaN.
Merged = Sequence[tuple[list[int], _Floats]]


def complete(
    shares: _Floats, bag_ids: Sequence[Any], classes: Sequence[Any], merged: Merged = ()
) -> tuple[_Floats, _Floats]:
    """Fill in shares that are not known, with their standard errors.

    Parameters
    ----------
    shares : array of shape (M, K)
        NaN where unknown.
    bag_ids, classes : sequences
        Their names, for messages.
    merged : sequence of (positions of classes, array of shape (M,))
        Sums of shares that are known together; NaN for bags where they are not.

    Returns
    -------
    shares, standard_errors : arrays of shape (M, K)

    Examples
    --------
    >>> shares = np.array([[0.2, 0.2, 0.6], [0.1, 0.3, 0.6], [np.nan, np.nan, 0.5]])
    >>> filled, errors = complete(shares, "abc", "xyz")
    >>> filled[2].round(3), errors[2].round(3)
    (array([0.188, 0.312, 0.5  ]), array([0.108, 0.108, 0.   ]))
    """
    filled, errors = shares.copy(), np.zeros_like(shares)
    for m in np.flatnonzero(np.isnan(shares).any(1)).tolist():
        groups = [(k, float(sums[m])) for k, sums in merged if np.isfinite(sums[m])]
        block, total = _unknown_block(filled[m], groups, bag_ids[m], classes)
        if len(block):
            mean, spread = _proportions(shares, block, bag_ids[m], classes)
            filled[m, block], errors[m, block] = total * mean, total * spread
    return filled, errors


def _unknown_block(
    row: _Floats, groups: list[tuple[list[int], float]], bag: Any, classes: Sequence[Any]
) -> tuple[NDArray[np.int64], float]:
    """Fill in what follows from the sum; return the classes left, and what they sum to."""
    where = f"bag {shorten([bag])}"
    free = set(np.flatnonzero(np.isnan(row)).tolist())
    left = 1 - float(np.nansum(row))
    blocks: list[tuple[list[int], float]] = []
    for members, total in groups:
        if not set(members) <= free:
            names = shorten([classes[k] for k in members])
            got = f"others for {where} and classes {names}"
            remedy = "a class is known by itself, or in one sum."
            raise invalid("merged classes", "of classes without shares of their own", got, remedy)
        free -= set(members)
        left -= total
        blocks.append((members, total))
    if left < -_CLOSE or (not free and abs(left) > _CLOSE):
        got = f"the sum {1 - left:.6g} for {where}"
        raise invalid("priors", "known shares that sum to 1, or less where some are unknown", got)
    if free:
        blocks.append((sorted(free), max(left, 0.0)))
    open_blocks = []
    for members, total in blocks:
        if len(members) == 1 or total == 0:
            row[members] = total / len(members)
        else:
            open_blocks.append((members, total))
    if len(open_blocks) > 1:
        several = " and ".join(shorten([classes[k] for k in some]) for some, _ in open_blocks)
        got = f"{several} in {where}"
        remedy = "merge them to one, or leave the bag without shares."
        raise invalid("merged classes", "one group of unknown shares per bag", got, remedy)
    block, total = open_blocks[0] if open_blocks else ([], 0.0)
    return np.array(block, dtype=np.int64), total


def _proportions(
    shares: _Floats, block: NDArray[np.int64], bag: Any, classes: Sequence[Any]
) -> tuple[_Floats, _Floats]:
    """Mean proportions of some classes, and how far a bag of which nothing is known may be off."""
    known = shares[np.isfinite(shares[:, block]).all(1)][:, block]
    weight = known.sum(1)
    known, weight = known[weight > 0], weight[weight > 0]
    n = len(known)
    if n < 2:
        names = shorten([classes[k] for k in block])
        got = f"{n} to tell those of bag {shorten([bag])} by"
        remedy = "merge these classes in all bags, or leave the bag out."
        raise invalid("priors", f"at least two bags with known shares of {names}", got, remedy)
    mean = known.sum(0) / weight.sum()
    square = weight @ (known / weight[:, None] - mean) ** 2 / weight.sum()
    return mean, np.sqrt(square * (1 + 1 / n) * n / (n - 1))


def from_ranges(low: _Floats, high: _Floats, bag_ids: Sequence[Any]) -> tuple[_Floats, _Floats]:
    """Shares in the middle of ranges that sum to 1, with standard errors, all (M, K).

    A share of which nothing is known but its range has the variance (high - low)² / 12.

    Examples
    --------
    >>> from_ranges(np.array([[0.1, 0.5]]), np.array([[0.4, 0.8]]), ["a"])[0].round(2)
    array([[0.3, 0.7]])
    """
    wide = high.sum(1) - low.sum(1)
    wrong = ~((low >= 0) & (low <= high) & (high <= 1 + _CLOSE)).all(1)
    wrong |= (low.sum(1) > 1 + _CLOSE) | (high.sum(1) < 1 - _CLOSE)
    if wrong.any():
        got = f"others for bag {shorten([bag_ids[m] for m in np.flatnonzero(wrong).tolist()])}"
        raise invalid("ranges of shares", "0 <= low <= high <= 1, with 1 between the sums", got)
    part = np.clip((1 - low.sum(1)) / np.where(wide > 0, wide, 1), 0, 1)
    middle = low + part[:, None] * (high - low)
    return middle / middle.sum(1, keepdims=True), (high - low) / np.sqrt(12)

"""Rules that depend on shares and sizes of bags alone: batches, epochs, what bags can teach.

Every function is a rule; its numbers are the named constants below. The table in
docs/records/rules.md lists the reasons.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ADAM_RATE",
    "EFFORTS",
    "LEAST_BATCH",
    "SMALLEST_SHARE",
    "are_pure",
    "are_weak",
    "choose_batching",
    "default_batch_size",
    "default_epochs",
    "default_learning_rate",
    "kept_out_share",
    "limited_epochs",
    "matching_batch_size",
    "noise_of_shares",
    "whole_bag_batch_size",
]

_Floats = NDArray[np.float64]
EFFORTS = ("fast", "balanced", "best")
ADAM_RATE = 1e-3  # that Adam is mostly used with
SMALLEST_SHARE = 1e-9  # of a class, where logarithms or quotients are taken
LEAST_BATCH, _MANY_ROWS = 512, 2048  # zero-one partial risks of fewer rows say little
_STEPS, _FEW_EPOCHS, _MANY_EPOCHS = 1000, 20, 100
_WEAK_NOISE = 10.0  # rows of a bag by whose chance shares bags must differ
_MATCHED_ROWS, _MATCHED_NOISE, _MOST_MATCHED = 200.0, 60.0, 20_480
_SMALL_BAGS = 30  # with fewer bags, none is kept whole
_LEAST_BAGS_PER_BATCH = 2
_KEPT_OUT_ROWS, _MOST_KEPT_OUT = 200, 0.3


def noise_of_shares(theta: _Floats) -> float:
    r"""How far rows of a bag differ from each other, compared with how far bags do.

    .. math:: \sum_{mk} \theta_{mk} (1 - \theta_{mk}) \Big/
        \sum_{mk} (\theta_{mk} - \overline{\theta_k})^2

    The shares of this many rows of a bag have as much noise as bags have signal.

    Examples
    --------
    >>> from unbag.priors import symmetric
    >>> [round(noise_of_shares(symmetric(10, a)), 1) for a in (0.9, 0.5, 0.1)]
    [0.2, 3.0, 99.0]
    """
    signal = ((theta - theta.mean(0)) ** 2).sum()
    return float((theta * (1 - theta)).sum() / signal) if signal > 0 else np.inf


def are_weak(theta: _Floats) -> bool:
    """Whether bags differ by less than the shares of ten rows of a bag differ by chance.

    Examples
    --------
    >>> from unbag.priors import symmetric
    >>> [are_weak(symmetric(10, a)) for a in (0.5, 0.1)]
    [False, True]
    """
    return noise_of_shares(theta) > _WEAK_NOISE


def are_pure(theta: _Floats) -> bool:
    """Whether every bag has one class, so that the bags of rows are their labels.

    Examples
    --------
    >>> are_pure(np.array([[1.0, 0.0], [0.0, 1.0]])), are_pure(np.array([[0.9, 0.1]]))
    (True, False)
    """
    return bool((theta.max(1) == 1).all())


def default_batch_size(n_rows: int) -> int:
    """Batch size for n rows: about a tenth, but near 512 to 2,048, in batches of equal size.

    The zero-one partial risks of u-prr are shares of a bag in a batch; of few rows they say
    little, so small tables are trained in one batch.

    Examples
    --------
    >>> [default_batch_size(n) for n in (50, 1_300, 7_490, 60_000)]
    [50, 433, 749, 2068]
    """
    target = float(np.clip(n_rows / 10, LEAST_BATCH, _MANY_ROWS))
    return n_rows // max(1, round(n_rows / target))


def matching_batch_size(n_rows: int, theta: _Floats) -> int:
    """Batch size where the shares of bags are compared with the known ones.

    200 rows per bag, or 60 times :func:`noise_of_shares` where that is more; but at most a third
    of the rows and at most 20,480; and at least 512.

    Examples
    --------
    >>> from unbag.priors import symmetric
    >>> clear, weak = symmetric(10, a=0.5), symmetric(10, a=0.1)
    >>> [matching_batch_size(n, clear) for n in (50, 7_480, 60_000)]
    [50, 1870, 2000]
    >>> [matching_batch_size(n, weak) for n in (50, 7_480, 60_000)]
    [50, 2493, 20000]
    """
    rows = max(_MATCHED_ROWS, _MATCHED_NOISE * noise_of_shares(theta))
    target = float(np.clip(min(rows * len(theta), n_rows // 3), LEAST_BATCH, _MOST_MATCHED))
    return max(1, n_rows // max(1, round(n_rows / target)))


def choose_batching(counts: NDArray[np.int64]) -> str:
    """``"whole-bags"`` for 30 bags or more with 512 rows or fewer on average, else stratified.

    The shares of a bag are those of all its rows. They say little of a part of a small bag, and
    nearly as much of a part of a large one.

    Parameters
    ----------
    counts : array of shape (M,)
        Rows of every bag.

    Examples
    --------
    >>> choose_batching(np.full(100, 64)), choose_batching(np.full(10, 64))
    ('whole-bags', 'stratified')
    """
    sizes = counts[counts > 0]
    small = len(sizes) >= _SMALL_BAGS and sizes.mean() <= LEAST_BATCH
    return "whole-bags" if small else "stratified"


def whole_bag_batch_size(counts: NDArray[np.int64]) -> int:
    """Batch size where bags are kept whole: 512 rows, but two of the largest bags at least.

    Where all bags have the same size it is a multiple of that, so that no bag is cut.

    Examples
    --------
    >>> whole_bag_batch_size(np.full(1000, 60)), whole_bag_batch_size(np.arange(1, 300))
    (540, 598)
    """
    largest, n = int(counts.max()), int(counts.sum())
    target = max(LEAST_BATCH, _LEAST_BAGS_PER_BATCH * largest)
    if len(set(counts[counts > 0].tolist())) == 1:
        target = -(-target // largest) * largest
    return min(n, target)


def default_epochs(n_rows: int) -> int:
    """Epochs for n rows: 1,000 steps of the default batch, but 20 to 100 epochs.

    Examples
    --------
    >>> [default_epochs(n) for n in (50, 7_490, 60_000)]
    [100, 100, 34]
    """
    return limited_epochs(_STEPS, n_rows, default_batch_size(n_rows), _FEW_EPOCHS, _MANY_EPOCHS)


def limited_epochs(steps: int, n_rows: int, batch_size: int, low: int, high: int) -> int:
    """Epochs that make this number of steps, but at least ``low`` and at most ``high``.

    Examples
    --------
    >>> [limited_epochs(1000, n, 500, 20, 100) for n in (300, 10_000, 60_000)]
    [100, 50, 20]
    """
    return int(np.clip(steps // max(1, n_rows // batch_size), low, high))


def kept_out_share(n_rows: int, usual: float) -> float:
    """Share of the rows that are kept out of training: more where that is below 200 rows.

    It is 0.3 at most.

    Examples
    --------
    >>> [kept_out_share(n, usual=0.1) for n in (60_000, 1000, 100)]
    [0.1, 0.2, 0.3]
    """
    return float(np.clip(_KEPT_OUT_ROWS / n_rows, usual, _MOST_KEPT_OUT))


def default_learning_rate(n_rows: int) -> float:
    """Adam's learning rate for n rows: 0.001, and more where the default batch is above 512.

    Examples
    --------
    >>> [round(default_learning_rate(n), 5) for n in (50, 7_490, 60_000)]
    [0.001, 0.00121, 0.00201]
    """
    return ADAM_RATE * float(np.sqrt(max(default_batch_size(n_rows), LEAST_BATCH) / LEAST_BATCH))

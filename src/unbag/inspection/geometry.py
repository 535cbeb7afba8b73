"""What Θ alone shows: classes that cannot be told apart, and bags that would separate them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from unbag.priors import ClassPriors

__all__ = ["hidden_directions", "same_bags", "strongest_bag", "weakest_direction"]

Floats = NDArray[np.float64]
ADDED_SHARE = 0.5  # of a suggested bag that is the class it separates from the others


def hidden_directions(theta: Floats, rank: int, pooled: Floats) -> tuple[Floats, Floats]:
    r"""List the differences between classes that no bag shows, and bags that would show them.

    Class averages :math:`\mu_k` enter the bags only through :math:`\Theta\mu`, so nothing
    shows if they move along a v with :math:`\Theta v = 0`. Every v is solved for one class: it
    is 1 there, and 0 for the classes that other v are solved for. Read as an equation, it says
    that in every bag the share of its class is :math:`-\sum_{j \ne k} v_j \theta_{mj}`.

    A bag with shares θ shows what v hides if :math:`\theta \cdot v \ne 0`. The bags suggested
    are half class k and half the pooled prior p: as :math:`p \cdot v = 0`, :math:`\theta \cdot v`
    is 1/2 for one v and 0 for the others, and all of them together give Θ full rank.

    Parameters
    ----------
    theta
        (M, K) Θ.
    rank
        Its rank r.
    pooled
        (K,) p, any mix of the bags.

    Returns
    -------
    (K−r, K) directions v and (K−r, K) shares of suggested bags.

    Examples
    --------
    >>> theta = np.array([[0.6, 0.2, 0.2], [0.2, 0.4, 0.4]])
    >>> v, bags = hidden_directions(theta, 2, theta.mean(0))
    >>> (v + 0.0).round(6), bags.round(6)
    (array([[ 0.,  1., -1.]]), array([[0.2 , 0.65, 0.15]]))
    """
    n_bags, n_classes = theta.shape
    right = np.linalg.svd(theta, full_matrices=n_bags < n_classes)[2]  # (K, K)
    null = right[rank:].T  # (K, K−r)
    # The classes to solve for: the largest one in the null space, then in what remains of it.
    rest, solved = null @ null.T, []
    for _ in range(n_classes - rank):
        diagonal = np.diag(rest)
        k = int(np.flatnonzero(diagonal > diagonal.max() - 1e-9)[0])  # of equal ones the first
        solved.append(k)
        rest = rest - np.outer(rest[:, k], rest[k]) / rest[k, k]
    solved.sort()
    directions = np.linalg.solve(null[solved].T, null.T) if solved else np.zeros((0, n_classes))
    directions[np.abs(directions) < 1e-9] = 0
    bags = (1 - ADDED_SHARE) * pooled + ADDED_SHARE * np.eye(n_classes)[solved]
    return directions, bags


def weakest_direction(theta: Floats) -> Floats:
    """(K,) unit vector v with the smallest ‖Θv‖: the difference that the bags show least."""
    right: Floats = np.linalg.svd(theta, full_matrices=False)[2][-1]
    return right * (np.sign(right[np.abs(right).argmax()]) or 1.0)


def strongest_bag(theta: Floats, pooled: Floats) -> Floats:
    """(K,) shares of the bag, half one class and half p, that raises the smallest σ of Θ most."""
    n_classes = theta.shape[1]
    bags = (1 - ADDED_SHARE) * pooled + ADDED_SHARE * np.eye(n_classes)  # one per class
    gram = theta.T @ theta
    smallest = [np.linalg.eigvalsh(gram + np.outer(bag, bag))[0] for bag in bags]
    best: Floats = bags[int(np.argmax(smallest))]
    return best


def same_bags(priors: ClassPriors, tolerance: float) -> list[list[Any]]:
    """Group bags none of whose shares is further than ``tolerance`` from the first of the group.

    Examples
    --------
    >>> same_bags(ClassPriors([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5]], ["a", "b", "c"]), 1e-6)
    [['a', 'c']]
    """
    tree = cKDTree(priors.values)
    free = np.ones(priors.n_bags, dtype=bool)
    groups = []
    for m in range(priors.n_bags):
        if free[m]:
            near = tree.query_ball_point(priors.values[m], tolerance, p=np.inf)
            group = [i for i in sorted(near) if free[i]]
            free[group] = False
            if len(group) > 1:
                groups.append(priors.bag_ids[group].tolist())
    return groups

"""Tree ensembles as tensors: what scikit-learn has grown, in a module that holds numbers only.

A forest that is a module predicts, is saved and is evaluated like a network, and nothing of it has
to be unpickled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["SMALLEST_CHANCE", "UNSEEN", "Tree", "TreeEnsemble", "log_chances", "logit_columns"]

UNSEEN = -1e9  # logit of a class that a model has not seen
_SIDES = ("left", "right")
_SMALL = 1 << 31
_LEVELS = 4  # after which rows that are at a leaf are left out
SMALLEST_CHANCE = 1e-4  # such a class is unlikely, not impossible


def log_chances(chances: Tensor) -> Tensor:
    """Log-probabilities of probabilities (n, K), none of which is below 0.0001 before scaling."""
    return torch.log_softmax(chances.clamp_min(SMALLEST_CHANCE).log(), -1)


def logit_columns(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Classes that have a logit; of two classes only the second has one."""
    return classes if len(classes) > 2 else classes[1:]


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree of N nodes; node 0 is the root, and children come after their parent.

    Parameters
    ----------
    feature, threshold : arrays of shape (N,)
        A row goes left where its feature is at most the threshold.
    left, right : integer arrays of shape (N,)
        Numbers of the children; negative for a leaf.
    value : array of shape (N, K)
        Of leaves.
    missing_left : array of bool of shape (N,)
        Whether a row goes left where its feature is missing (not a number).
    """

    feature: NDArray[Any]
    threshold: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    value: NDArray[Any]
    missing_left: NDArray[Any]

    @classmethod
    def of_scikit_learn(cls, tree: Any, value: NDArray[Any]) -> Self:
        """Take over the nodes of a tree of a forest of scikit-learn, with values (N, K)."""
        left, right = tree.children_left, tree.children_right
        return cls(
            tree.feature, tree.threshold, left, right, value, tree.missing_go_to_left.astype(bool)
        )

    @property
    def depth(self) -> int:
        """Edges from the root to the deepest leaf."""
        level, depth = np.array([0]), -1
        while len(level):
            depth += 1
            level = np.concatenate([self.left[level], self.right[level]])
            level = level[level > 0]
        return depth


class TreeEnsemble(nn.Module):
    r"""Binary trees with a value per class in every leaf; the logits are log-probabilities.

    With :math:`\ell_t(x)` the leaf of tree t that row x falls in, and v the values of leaves,

    .. math:: P_k(x) = \frac1T \sum_t v_{t, \ell_t(x), k} \quad \text{(a forest)}, \qquad
        P(x) = \mathrm{softmax}\Bigl(b + \sum_t v_{t, \ell_t(x)}\Bigr) \quad \text{(boosted)}.

    From the root, a row goes left where its feature is at most the threshold, or where it is
    missing (not a number) and the node sends missing ones left. Rows of any shape are flattened.
    No probability is below 0.0001 before they are scaled to sum to 1.

    Parameters
    ----------
    n_classes : int
        K.
    n_trees, n_nodes : int
        T, and the nodes of the largest tree; smaller ones are padded with leaves.
    depth : int
        Edges from a root to its deepest leaf, at most.
    is_boosted : bool
        Whether values are summed as logits, and not averaged as probabilities.
    in_float32 : bool
        Whether features are rounded to float32 before they are compared.

    Attributes
    ----------
    feature : Tensor of shape (T, N)
        The feature that a node compares.
    threshold : Tensor of shape (T, N)
    missing_left : Tensor of shape (T, N)
    left, right : Tensors of shape (T, N)
        Numbers of the children, which come after their parent; a leaf is its own child.
    value : Parameter of shape (T, N, K)
    baseline : Tensor of shape (K,)
        b; 0 for a forest.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, q = np.arange(8.0)[:, None], np.eye(2)[[0, 0, 0, 0, 1, 1, 1, 1]]
    >>> forest = RandomForestRegressor(10, random_state=0).fit(X, q)
    >>> TreeEnsemble.from_forest(forest)(torch.tensor([[1.0], [7.0]])).argmax(1)
    tensor([0, 1])
    """

    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    baseline: Tensor

    def __init__(
        self,
        n_classes: int,
        n_trees: int,
        n_nodes: int,
        depth: int,
        *,
        is_boosted: bool = False,
        in_float32: bool = True,
    ) -> None:
        super().__init__()
        self.depth = depth
        self.is_boosted = is_boosted
        self.in_float32 = in_float32
        table = (n_trees, n_nodes)
        itself = torch.arange(n_nodes).expand(table)
        self.register_buffer("feature", torch.zeros(table, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(table, dtype=torch.float64))
        self.register_buffer("missing_left", torch.zeros(table, dtype=torch.bool))
        self.register_buffer("left", itself.clone())
        self.register_buffer("right", itself.clone())
        self.register_buffer("baseline", torch.zeros(n_classes, dtype=torch.float64))
        self.value = nn.Parameter(torch.zeros(*table, n_classes, dtype=torch.float64))

    @classmethod
    def of(
        cls,
        trees: Sequence[Tree],
        baseline: NDArray[Any] | None = None,
        *,
        in_float32: bool = True,
    ) -> Self:
        """Join trees: a forest of probabilities, or boosted trees from a baseline (K,)."""
        ensemble = cls(
            trees[0].value.shape[1],
            len(trees),
            max(len(tree.left) for tree in trees),
            max(tree.depth for tree in trees),
            is_boosted=baseline is not None,
            in_float32=in_float32,
        )
        if baseline is not None:
            ensemble.baseline.copy_(torch.as_tensor(baseline))
        for number, tree in enumerate(trees):
            n, is_leaf = len(tree.left), tree.left < 0
            itself = np.arange(n)
            parts = {
                "feature": np.where(is_leaf, 0, tree.feature).astype(np.int64),
                "threshold": np.where(is_leaf, 0.0, tree.threshold),
                "missing_left": tree.missing_left & ~is_leaf,
                "left": np.where(is_leaf, itself, tree.left).astype(np.int64),
                "right": np.where(is_leaf, itself, tree.right).astype(np.int64),
                "value": np.where(is_leaf[:, None], tree.value, 0.0),
            }
            with torch.no_grad():
                for name, part in parts.items():
                    getattr(ensemble, name)[number, :n] = torch.as_tensor(part)
        return ensemble

    @classmethod
    def from_forest(cls, forest: Any) -> Self:
        """Take over a fitted forest of scikit-learn.

        Parameters
        ----------
        forest : RandomForestRegressor or ExtraTreesRegressor
            Of soft labels: one output per class.
        """
        trees = [estimator.tree_ for estimator in forest.estimators_]
        return cls.of([Tree.of_scikit_learn(tree, tree.value[:, :, 0]) for tree in trees])

    @classmethod
    def from_boosting(
        cls, model: Any, n_classes: int, classes: NDArray[np.int64] | None = None
    ) -> Self:
        """Take over a fitted HistGradientBoostingClassifier of scikit-learn.

        Parameters
        ----------
        model : HistGradientBoostingClassifier
            Without categorical features.
        n_classes : int
            K.
        classes : integer array, optional
            Which of the classes 0 to K−1 those of the model are, by default those that they name.
        """
        classes = model.classes_.astype(np.int64) if classes is None else classes
        columns = logit_columns(classes)
        trees = []
        for predictors in model._predictors:  # one per class and iteration
            for predictor, column in zip(predictors, columns, strict=True):
                nodes = predictor.nodes
                is_leaf = nodes["is_leaf"].astype(bool)
                value = np.zeros((len(nodes), n_classes))
                value[:, column] = nodes["value"]
                left, right = (np.where(is_leaf, -1, nodes[s].astype(int)) for s in _SIDES)
                missing = nodes["missing_go_to_left"].astype(bool)
                trees.append(
                    Tree(nodes["feature_idx"], nodes["num_threshold"], left, right, value, missing)
                )
        baseline = np.full(n_classes, UNSEEN)
        baseline[classes] = 0.0
        baseline[columns] = np.ravel(model._baseline_prediction)
        return cls.of(trees, baseline, in_float32=False)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, ...)."""
        x = x.flatten(1).float().double() if self.in_float32 else x.flatten(1).double()
        leaf = self._leaves(x)  # (n, T), of nodes in one row
        value = nn.functional.embedding_bag(leaf, self.value.flatten(0, 1), mode="sum")  # (n, K)
        if self.is_boosted:
            return log_chances(torch.softmax(self.baseline + value, -1))
        return log_chances(value / leaf.shape[1])

    def _leaves(self, x: Tensor) -> Tensor:
        """Leaf of every row (n, d) and tree: (n, T), where nodes of all trees stand in one row."""
        (n, d), (trees, nodes) = x.shape, self.left.shape
        small = 2 * max(trees * nodes, n * d) < _SMALL
        kind = torch.int32 if small else torch.int64  # smaller indices are faster
        first = nodes * torch.arange(trees, device=x.device)  # the roots
        children = torch.stack([self.left, self.right], -1) + first[:, None, None]
        children, feature = children.flatten().to(kind), self.feature.flatten().to(kind)
        threshold, missing_right = self.threshold.flatten(), ~self.missing_left.flatten()
        numbers, has_missing = x.flatten(), bool(x.isnan().any())
        # Pairs of row and tree that are not known to be at a leaf yet, and where their row begins.
        node = first.to(kind).repeat(n)
        start = (d * torch.arange(n, device=x.device, dtype=kind)).repeat_interleave(trees)
        leaf, pair = node, torch.arange(len(node), device=x.device)
        for level in range(1, self.depth + 1):
            number = numbers.index_select(0, feature.index_select(0, node) + start)
            goes_right = number > threshold.index_select(0, node)
            if has_missing:
                goes_right |= number.isnan() & missing_right.index_select(0, node)
            node = children.index_select(0, 2 * node + goes_right)
            if level % _LEVELS == 0 or level == self.depth:
                leaf[pair] = node
                moving = (children.index_select(0, 2 * node) != node).nonzero().squeeze(1)
                pair, node, start = pair[moving], node[moving], start[moving]
        return leaf.view(n, trees)

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments of an empty ensemble of the same form."""
        trees, nodes = self.left.shape
        return {
            "n_trees": trees,
            "n_nodes": nodes,
            "depth": self.depth,
            "is_boosted": self.is_boosted,
            "in_float32": self.in_float32,
        }

    def find_problem(self, n_features: int) -> str:
        """Say what is wrong with nodes that were read from a file; empty where nothing is."""
        nodes = torch.arange(self.left.shape[1])
        for child in (self.left, self.right):
            if bool((child < nodes).any()) or bool((child >= len(nodes)).any()):
                return "a node of a tree has a child that does not come after it"
        if bool((self.feature < 0).any()) or bool((self.feature >= n_features).any()):
            return f"a node of a tree compares none of the {n_features} features"
        return ""

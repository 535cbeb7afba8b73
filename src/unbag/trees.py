"""Tree ensembles as tensors: what scikit-learn has grown, in a module that holds numbers only.

A forest that is a module predicts, is saved and is evaluated like a network, and nothing of it has
to be unpickled.
"""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["TreeEnsemble"]

_SMALLEST = 1e-4  # a class that no leaf has seen is unlikely, not impossible
_UNSEEN = -1e9  # logit of a class that boosted trees have not seen


class TreeEnsemble(nn.Module):
    r"""Binary trees with a value per class in every leaf; the logits are log-probabilities.

    With :math:`\ell_t(x)` the leaf of tree t that row x falls in, and v the values of leaves,

    .. math:: P_k(x) = \frac1T \sum_t v_{t, \ell_t(x), k} \quad \text{(a forest)}, \qquad
        P(x) = \mathrm{softmax}\Bigl(b + \sum_t v_{t, \ell_t(x)}\Bigr) \quad \text{(boosted)}.

    From the root, a row goes left where its feature is at most the threshold. Rows of any shape are
    flattened. No probability is below 0.0001 before they are scaled to sum to 1.

    Parameters
    ----------
    n_trees, n_nodes : int
        T, and the nodes of the largest tree; smaller ones are padded with leaves.
    n_classes : int
        K.
    depth : int
        Edges from a root to its deepest leaf, at most.
    is_boosted : bool
        Whether values are summed as logits, and not averaged as probabilities.

    Attributes
    ----------
    feature : Tensor of shape (T, N)
        The feature that a node compares.
    threshold : Tensor of shape (T, N)
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
    left: Tensor
    right: Tensor
    baseline: Tensor

    def __init__(
        self, n_trees: int, n_nodes: int, n_classes: int, depth: int, *, is_boosted: bool = False
    ) -> None:
        super().__init__()
        self.depth = depth
        self.is_boosted = is_boosted
        table = (n_trees, n_nodes)
        itself = torch.arange(n_nodes).expand(table)
        self.register_buffer("feature", torch.zeros(table, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(table, dtype=torch.float64))
        self.register_buffer("left", itself.clone())
        self.register_buffer("right", itself.clone())
        self.register_buffer("baseline", torch.zeros(n_classes, dtype=torch.float64))
        self.value = nn.Parameter(torch.zeros(*table, n_classes, dtype=torch.float64))

    @classmethod
    def from_forest(cls, forest: Any) -> Self:
        """Take over a fitted forest of scikit-learn.

        Parameters
        ----------
        forest : RandomForestRegressor or ExtraTreesRegressor
            Of soft labels: one output per class.
        """
        trees = [estimator.tree_ for estimator in forest.estimators_]
        size = max(tree.node_count for tree in trees)
        depth = max(int(tree.max_depth) for tree in trees)
        ensemble = cls(len(trees), size, trees[0].value.shape[1], depth)
        for t, tree in enumerate(trees):
            is_leaf = tree.children_left < 0
            ensemble._set_tree(
                t, is_leaf, tree.feature, tree.threshold, tree.children_left, tree.children_right
            )
            with torch.no_grad():
                ensemble.value[t, : tree.node_count] = torch.as_tensor(tree.value[:, :, 0])
        return ensemble

    @classmethod
    def from_boosting(cls, model: Any, n_classes: int) -> Self:
        """Take over a fitted HistGradientBoostingClassifier of scikit-learn.

        Parameters
        ----------
        model : HistGradientBoostingClassifier
            Of classes 0 to K−1, some of which may be missing; without categorical features.
        n_classes : int
            K.
        """
        classes = model.classes_.astype(np.int64)
        # Of two classes there is one tree per iteration, for the second.
        columns = classes if len(classes) > 2 else classes[1:]
        pairs = [
            (tree.nodes, column)
            for trees in model._predictors
            for tree, column in zip(trees, columns, strict=True)
        ]
        size = max(len(nodes) for nodes, _ in pairs)
        depth = max(int(nodes["depth"].max()) for nodes, _ in pairs)
        ensemble = cls(len(pairs), size, n_classes, depth, is_boosted=True)
        missing = np.setdiff1d(np.arange(n_classes), classes)
        with torch.no_grad():
            baseline = np.zeros(n_classes)
            baseline[columns] = np.ravel(model._baseline_prediction)
            baseline[missing] = _UNSEEN
            ensemble.baseline.copy_(torch.as_tensor(baseline))
            for t, (nodes, column) in enumerate(pairs):
                is_leaf = nodes["is_leaf"].astype(bool)
                ensemble._set_tree(
                    t,
                    is_leaf,
                    nodes["feature_idx"],
                    nodes["num_threshold"],
                    nodes["left"],
                    nodes["right"],
                )
                value = np.where(is_leaf, nodes["value"], 0.0)
                ensemble.value[t, : len(nodes), int(column)] = torch.as_tensor(value)
        return ensemble

    def _set_tree(
        self,
        number: int,
        is_leaf: NDArray[np.bool_],
        feature: NDArray[Any],
        threshold: NDArray[Any],
        left: NDArray[Any],
        right: NDArray[Any],
    ) -> None:
        """Write the nodes of a tree; a leaf becomes its own child."""
        itself, n = np.arange(len(is_leaf)), len(is_leaf)
        parts = {
            "feature": np.where(is_leaf, 0, feature).astype(np.int64),
            "threshold": np.where(is_leaf, 0.0, threshold),
            "left": np.where(is_leaf, itself, left).astype(np.int64),
            "right": np.where(is_leaf, itself, right).astype(np.int64),
        }
        for name, part in parts.items():
            getattr(self, name)[number, :n] = torch.as_tensor(part)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, ...)."""
        # A forest compares rows of float32.
        x = x.flatten(1).double() if self.is_boosted else x.flatten(1).float().double()
        trees, nodes = self.left.shape
        first = nodes * torch.arange(trees, device=x.device)  # the roots, of nodes in one row
        node = first.repeat(len(x))  # (n T,)
        moving = torch.arange(len(node), device=x.device)  # pairs of row and tree not at a leaf yet
        for _ in range(self.depth):
            at, tree = node[moving], moving % trees
            number = x[moving // trees, self.feature.take(at)]
            goes_left = number <= self.threshold.take(at)
            child = torch.where(goes_left, self.left.take(at), self.right.take(at))
            node[moving] = first[tree] + child
            moving = moving[first[tree] + child != at]
        value = self.value.flatten(0, 1)[node.view(len(x), trees)]  # (n, T, K)
        if self.is_boosted:
            share = torch.softmax(self.baseline + value.sum(1), -1)
        else:
            share = value.mean(1)
        return torch.log_softmax(share.clamp_min(_SMALLEST).log(), -1)

    def find_problem(self, n_features: int) -> str:
        """Say what is wrong with nodes that were read from a file; empty where nothing is."""
        nodes = torch.arange(self.left.shape[1])
        for child in (self.left, self.right):
            if bool((child < nodes).any()) or bool((child >= len(nodes)).any()):
                return "a node of a tree has a child that does not come after it"
        if bool((self.feature < 0).any()) or bool((self.feature >= n_features).any()):
            return f"a node of a tree compares none of the {n_features} features"
        return ""

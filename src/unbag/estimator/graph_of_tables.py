"""Models of tables as ONNX graphs: trees as the tree operator, all else as sums and products."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unbag.estimator.graph import Graph, add_mlp
from unbag.learners import STORED, Layers, LearnerModel, Scaled
from unbag.models import MLP
from unbag.tabular import Features, Networks, ShareModels, TabularModel
from unbag.trees import SMALLEST_CHANCE, TreeEnsemble
from unbag.validation import invalid

__all__ = ["add_tabular"]

_ACTIVATIONS = {"logistic": "Sigmoid", "relu": "Relu", "tanh": "Tanh"}


def add_tabular(graph: Graph, model: TabularModel, x: str) -> str:
    """Add a model of tables, from rows of float32 to log-probabilities of float32."""
    x = graph.cast(x, "DOUBLE")
    parts = [
        graph.add("Mul", _add_part(graph, part, x), _double(graph, model.trust * weight))
        for part, weight in zip(model.parts.values(), model.weights, strict=True)
    ]
    total = graph.add("Sum", *parts, _double(graph, (1 - model.trust) * model.log_shares))
    return graph.cast(graph.add("LogSoftmax", total), "FLOAT")


def _double(graph: Graph, tensor: Any) -> str:
    return graph.constant(np.asarray(tensor.detach().cpu(), dtype=np.float64))


def _add_part(graph: Graph, part: nn.Module, x: str) -> str:
    """Add a part, from rows of float64 to log-probabilities of float64."""
    if isinstance(part, ShareModels):
        return _add_shares(graph, part, x)
    if isinstance(part, TreeEnsemble):
        return _add_trees(graph, part, x)
    if isinstance(part, Layers):
        return _add_layers(graph, part, x)
    if isinstance(part, Scaled):
        centred = graph.add("Sub", x, _double(graph, part.center))
        return _add_part(graph, part.inner, graph.add("Mul", centred, _double(graph, part.factor)))
    if isinstance(part, Networks):
        return _add_networks(graph, part, x)
    kind = type(part.learner if isinstance(part, LearnerModel) else part).__name__
    raise invalid("learner", f"one that can be exported ({STORED})", kind)


def _add_shares(graph: Graph, models: ShareModels, x: str) -> str:
    total = [_double(graph, models.constant)]
    for features, matrix, offset, mixing in zip(
        models.features, models.matrix, models.offset, models.mixing, strict=True
    ):
        assert isinstance(features, Features)
        scores = graph.add("MatMul", _add_features(graph, features, x), _double(graph, matrix))
        scores = graph.add("Add", scores, _double(graph, offset[:, None]))  # (J, n, K)
        log_p = graph.add("LogSoftmax", scores)
        weighted = graph.add("Mul", log_p, _double(graph, mixing[:, None, None]))
        total.append(graph.add("ReduceSum", weighted, graph.constant(np.array([0])), keepdims=0))
    return graph.add("LogSoftmax", graph.add("Sum", *total))


def _add_features(graph: Graph, features: Features, x: str) -> str:
    if features.kind == "steps":
        numbers = graph.add("Gather", x, graph.constant(features.column.numpy()), axis=1)
        raw = graph.cast(graph.add("Greater", numbers, _double(graph, features.cut)), "DOUBLE")
    else:
        centred = graph.add("Sub", x, _double(graph, features.mean))
        standard = graph.add("Div", centred, _double(graph, features.deviation))
        limits = [graph.constant(np.float64(sign * features.farthest)) for sign in (-1, 1)]
        raw = graph.add("Clip", standard, *limits)
    if features.kind == "waves":
        angle = graph.add("MatMul", raw, _double(graph, features.direction))
        raw = graph.add("Cos", graph.add("Add", angle, _double(graph, features.phase)))
    centred = graph.add("Sub", raw, _double(graph, features.center))
    return graph.add("Mul", centred, _double(graph, features.factor))


def _add_trees(graph: Graph, trees: TreeEnsemble, x: str) -> str:
    if trees.in_float32:
        x = graph.cast(graph.cast(x, "FLOAT"), "DOUBLE")
    tree, node = _reachable(trees)
    tensors = (trees.left, trees.right, trees.value.detach())
    left, right, value = (tensor[tree, node].numpy() for tensor in tensors)
    is_leaf = left == node
    leaf, target = np.nonzero(value * is_leaf[:, None])
    as_tensor = graph.numpy_helper.from_array
    total = graph.add(
        "TreeEnsembleRegressor",
        x,
        domain="ai.onnx.ml",
        n_targets=trees.value.shape[-1],
        nodes_treeids=tree,
        nodes_nodeids=node,
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_featureids=trees.feature[tree, node].numpy(),
        nodes_values_as_tensor=as_tensor(trees.threshold[tree, node].numpy()),
        nodes_truenodeids=np.where(is_leaf, 0, left),
        nodes_falsenodeids=np.where(is_leaf, 0, right),
        nodes_missing_value_tracks_true=trees.missing_left[tree, node].numpy().astype(np.int64),
        target_treeids=tree[leaf],
        target_nodeids=node[leaf],
        target_ids=target,
        target_weights_as_tensor=as_tensor(value[leaf, target]),
    )
    total = graph.cast(total, "DOUBLE")
    if trees.is_boosted:
        chances = graph.add("Softmax", graph.add("Add", total, _double(graph, trees.baseline)))
    else:
        chances = graph.add("Div", total, graph.constant(np.float64(len(trees.left))))
    return _add_log_chances(graph, chances)


def _reachable(trees: TreeEnsemble) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Trees and numbers of the nodes that rows can come to; others only fill up the tensors."""
    reached = torch.zeros_like(trees.missing_left)
    reached[:, 0] = True
    for _ in range(trees.depth):
        tree, node = torch.nonzero(reached, as_tuple=True)
        for child in (trees.left, trees.right):
            reached[tree, child[tree, node]] = True
    tree, node = torch.nonzero(reached, as_tuple=True)
    return tree.numpy(), node.numpy()


def _add_log_chances(graph: Graph, chances: str) -> str:
    least = graph.constant(np.float64(SMALLEST_CHANCE))
    return graph.add("LogSoftmax", graph.add("Log", graph.add("Max", chances, least)))


def _add_layers(graph: Graph, layers: Layers, x: str) -> str:
    last = len(layers.layers) - 1
    for number, layer in enumerate(layers.layers):
        assert isinstance(layer, nn.Linear)
        product = graph.add("MatMul", x, _double(graph, layer.weight.T))
        x = graph.add("Add", product, _double(graph, layer.bias))
        if number < last and layers.activation in _ACTIVATIONS:
            x = graph.add(_ACTIVATIONS[layers.activation], x)
    return _add_log_chances(graph, graph.add("Softmax", x))


def _add_networks(graph: Graph, part: Networks, x: str) -> str:
    x = graph.cast(x, "FLOAT")
    each = []
    for network in part.networks:
        assert isinstance(network, MLP)
        each.append(graph.add("LogSoftmax", add_mlp(graph, network, x)))
    return graph.cast(graph.add("LogSoftmax", graph.add("Mean", *each)), "DOUBLE")

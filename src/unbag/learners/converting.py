"""Fitted learners as modules of tensors, where they consist of trees or layers."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.pipeline import Pipeline
from torch import nn

from unbag.learners.modules import Layers, LearnerModel, Scaled
from unbag.trees import UNSEEN, Tree, TreeEnsemble, logit_columns

__all__ = ["STORED", "as_module"]

_Classes = NDArray[np.int64]
STORED = (
    "RandomForest, ExtraTrees, GradientBoosting, HistGradientBoosting (without categories), "
    "DecisionTree, LogisticRegression or MLP of scikit-learn, LightGBM, XGBoost or CatBoost, or a "
    "Pipeline of scalers and one of these"
)
_COMPARED_ROWS, _TOLERANCE = 1000, 1e-4  # of a learner and its tensors, in probabilities
_SCALERS = ("MaxAbsScaler", "MinMaxScaler", "RobustScaler", "StandardScaler")


def as_module(learner: Any, classes: _Classes, n_classes: int, x: NDArray[np.float64]) -> nn.Module:
    """Make tensors of a fitted learner, compared with it on rows; or wrap it as it is.

    Parameters
    ----------
    learner : classifier
        Fitted to the classes 0, 1, ...
    classes : integer array
        Which of the classes 0 to K−1 these are.
    n_classes : int
        K.
    x : array of shape (n, d)
        Rows to compare on.
    """
    wrapped = LearnerModel(learner, classes, n_classes)
    module = _convert(learner, classes, n_classes)
    if module is None:
        return wrapped
    rows = torch.as_tensor(x[:: max(1, len(x) // _COMPARED_ROWS)])
    with torch.no_grad():
        difference = (module(rows).exp() - wrapped(rows).exp()).abs().max()
    return module if difference < _TOLERANCE else wrapped


def _convert(learner: Any, classes: _Classes, k: int) -> nn.Module | None:
    if isinstance(learner, Pipeline):
        return _convert_pipeline(learner, classes, k)
    for kind in type(learner).__mro__:
        if kind.__name__ in _CONVERTERS:
            return _CONVERTERS[kind.__name__](learner, classes, k)
    return None


def _convert_pipeline(pipeline: Any, classes: _Classes, k: int) -> nn.Module | None:
    """Join scalers to one; None where a step is something else."""
    *scalers, (_, last) = pipeline.steps
    inner = _convert(last, classes, k)
    scalers = [step for _, step in scalers if step not in (None, "passthrough")]
    if inner is None or not scalers:
        return inner
    d = scalers[0].n_features_in_
    points = np.stack([np.zeros(d), np.ones(d)])
    for scaler in scalers:
        if type(scaler).__name__ not in _SCALERS:
            return None
        points = scaler.transform(points)
    module = Scaled(d, inner)
    factor = points[1] - points[0]
    module.factor.copy_(torch.as_tensor(factor))
    module.center.copy_(torch.as_tensor(-points[0] / np.where(factor == 0, 1, factor)))
    return module


def _forest(learner: Any, classes: _Classes, k: int) -> nn.Module:
    place = np.eye(k)[classes]
    trees = [tree.tree_ for tree in getattr(learner, "estimators_", [learner])]
    return TreeEnsemble.of([Tree.of_scikit_learn(tree, tree.value[:, 0] @ place) for tree in trees])


def _gradient_boosting(learner: Any, classes: _Classes, k: int) -> nn.Module:
    columns = logit_columns(classes)
    trees = [
        Tree.of_scikit_learn(
            each.tree_, learner.learning_rate * each.tree_.value[:, 0] @ np.eye(k)[[column]]
        )
        for stage in learner.estimators_
        for each, column in zip(stage, columns, strict=True)
    ]
    start = learner._raw_predict_init(np.zeros((1, learner.n_features_in_), dtype=np.float32))
    return TreeEnsemble.of(trees, _baseline(np.ravel(start), classes, k))


def _hist_gradient_boosting(learner: Any, classes: _Classes, k: int) -> nn.Module | None:
    if learner.is_categorical_ is not None:
        return None
    return TreeEnsemble.from_boosting(learner, k, classes)


def _lightgbm(learner: Any, classes: _Classes, k: int) -> nn.Module:
    columns = logit_columns(classes)
    dumped = learner.booster_.dump_model()["tree_info"]

    def split(node: Any) -> tuple[Any, ...] | None:
        if "left_child" not in node:
            return None
        threshold, sides = node["threshold"], (node["left_child"], node["right_child"])
        by_default = threshold >= 0 if node["missing_type"] == "None" else node["default_left"]
        return node["split_feature"], threshold, *sides, by_default

    trees = [
        _tree(each["tree_structure"], split, "leaf_value", columns[i % len(columns)], k)
        for i, each in enumerate(dumped)
    ]
    return TreeEnsemble.of(trees, _baseline(0.0, classes, k), in_float32=False)


def _xgboost(learner: Any, classes: _Classes, k: int) -> nn.Module:
    columns = logit_columns(classes)
    booster = learner.get_booster()
    about = json.loads(booster.save_config())["learner"]["learner_model_param"]
    start = np.array(json.loads(about["base_score"]), dtype=np.float64)
    start = logit(start) if len(columns) == 1 else start

    def split(node: Any) -> tuple[Any, ...] | None:
        if "children" not in node:
            return None
        sides = {child["nodeid"]: child for child in node["children"]}
        # It goes left where a number of float32 is below the condition, not at it.
        threshold = np.nextafter(np.float32(node["split_condition"]), np.float32(-np.inf))
        left, right = sides[node["yes"]], sides[node["no"]]
        return names[node["split"]], float(threshold), left, right, node["missing"] == node["yes"]

    names = {f"f{i}": i for i in range(learner.n_features_in_)}
    trees = [
        _tree(json.loads(text), split, "leaf", columns[i % len(columns)], k)
        for i, text in enumerate(booster.get_dump(dump_format="json"))
    ]
    return TreeEnsemble.of(trees, _baseline(start, classes, k))


def _catboost(learner: Any, classes: _Classes, k: int) -> nn.Module | None:
    """Make trees of its symmetric ones, which compare one feature per level."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        learner.save_model(str(file), format="json")
        model = json.loads(file.read_text(encoding="utf-8"))
    scale, bias = model["scale_and_bias"]
    columns = classes if len(bias) == len(classes) else logit_columns(classes)
    missing_right = [
        feature["nan_value_treatment"] == "AsTrue"
        for feature in model["features_info"].get("float_features", [])
    ]
    trees = []
    for each in model.get("oblivious_trees", []):
        splits = each["splits"][::-1]  # the last one tells the half of the leaves
        if any(split["split_type"] != "FloatFeature" for split in splits):
            return None
        inner = np.arange(2 ** len(splits) - 1)
        level = [split for depth, split in enumerate(splits) for _ in range(2**depth)]
        feature = np.array([split["float_feature_index"] for split in level], dtype=np.int64)
        leaves = scale * np.reshape(each["leaf_values"], (len(inner) + 1, -1)) @ np.eye(k)[columns]
        no_child = np.full(len(leaves), -1)
        trees.append(
            Tree(
                np.append(feature, 0 * no_child),
                np.append([split["border"] for split in level], 0.0 * no_child),
                np.append(2 * inner + 1, no_child),
                np.append(2 * inner + 2, no_child),
                np.concatenate([np.zeros((len(inner), k)), leaves]),
                np.append(~np.take(missing_right, feature), no_child == 0),
            )
        )
    if not trees:
        return None
    baseline = np.full(k, UNSEEN)
    baseline[classes] = 0.0
    baseline[columns] = bias
    return TreeEnsemble.of(trees, baseline)


def _tree(root: Any, split: Callable[[Any], Any], leaf: str, column: int, k: int) -> Tree:
    """Make a tree of nested nodes; ``split`` tells what a node compares, None for a leaf."""
    nodes: list[list[Any]] = []  # feature, threshold, left, right, missing left, value
    waiting: list[tuple[Any, int, int]] = [(root, -1, 0)]  # node, its parent, place of its number
    while waiting:
        node, parent, side = waiting.pop()
        if parent >= 0:
            nodes[parent][side] = len(nodes)
        parts = split(node)
        if parts is None:
            nodes.append([0, 0.0, -1, -1, False, node[leaf]])
            continue
        feature, threshold, left, right, missing_left = parts
        waiting += [(left, len(nodes), 2), (right, len(nodes), 3)]
        nodes.append([feature, threshold, -1, -1, missing_left, 0.0])
    feature, threshold, left, right, missing_left, value = map(np.array, zip(*nodes, strict=True))
    return Tree(feature, threshold, left, right, value[:, None] * np.eye(k)[column], missing_left)


def _baseline(start: Any, classes: _Classes, k: int) -> NDArray[np.float64]:
    """Logits of all classes before any tree, where those that have one start so."""
    baseline = np.full(k, UNSEEN)
    baseline[classes] = 0.0
    baseline[logit_columns(classes)] = start
    return baseline


def _linear(learner: Any, classes: _Classes, k: int) -> nn.Module:
    return Layers.of([learner.coef_.T], [learner.intercept_], "identity", classes, k)


def _mlp(learner: Any, classes: _Classes, k: int) -> nn.Module:
    return Layers.of(learner.coefs_, learner.intercepts_, learner.activation, classes, k)


_CONVERTERS: dict[str, Callable[[Any, _Classes, int], nn.Module | None]] = {
    "CatBoostClassifier": _catboost,
    "DecisionTreeClassifier": _forest,
    "ExtraTreesClassifier": _forest,
    "GradientBoostingClassifier": _gradient_boosting,
    "HistGradientBoostingClassifier": _hist_gradient_boosting,
    "LGBMClassifier": _lightgbm,
    "LogisticRegression": _linear,
    "MLPClassifier": _mlp,
    "RandomForestClassifier": _forest,
    "XGBClassifier": _xgboost,
}

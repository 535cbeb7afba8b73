"""Which classifiers can be learners, and how they learn soft labels."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from unbag.validation import check_choice, invalid

__all__ = ["LEARNERS", "check_learner", "fit_learner"]

LEARNERS: dict[str, Callable[[int], Any]] = {  # by name, given the number of trees
    "trees": lambda n: RandomForestClassifier(n, min_samples_leaf=3, n_jobs=-1),
    "extra-trees": lambda n: ExtraTreesClassifier(n, min_samples_leaf=3, n_jobs=-1),
    "boosting": lambda n: HistGradientBoostingClassifier(
        max_iter=n,
        learning_rate=0.08,
        max_leaf_nodes=15,
        l2_regularization=1.0,
        early_stopping=False,
    ),
    "linear": lambda _: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "mlp": lambda _: make_pipeline(
        StandardScaler(), MLPClassifier((128, 128), max_iter=100, early_stopping=True)
    ),
}


def check_learner(learner: Any) -> None:
    """Refuse what is neither a name nor a classifier that can learn soft labels."""
    if isinstance(learner, str):
        check_choice("learner", learner, LEARNERS)
        return
    allowed = (
        f"one of {', '.join(map(repr, LEARNERS))}, or a classifier in the form of scikit-learn "
        "with predict_proba and sample_weight"
    )
    # A class is no learner; a Pipeline has predict_proba if its last step has.
    methods = ("fit", "predict_proba", "get_params", "set_params")
    if isinstance(learner, type) or not all(hasattr(learner, name) for name in methods):
        raise invalid("learner", allowed, repr(learner))
    if not has_fit_parameter(_last_step(learner), "sample_weight"):
        raise invalid("learner", allowed, f"{learner!r}, whose fit takes no sample_weight")


def _last_step(learner: Any) -> Any:
    return _last_step(learner.steps[-1][1]) if isinstance(learner, Pipeline) else learner


def fit_learner(
    learner: Any,
    x: NDArray[np.float64],
    label: NDArray[np.int64],
    weight: NDArray[np.float64],
    seed: int,
    n_trees: int,
) -> tuple[Any, NDArray[np.int64]]:
    """Fit a copy of a learner to weighted labels; return it with the classes that it has seen.

    It is given the classes as 0, 1, ... without a gap, which some libraries need.
    """
    fitted = LEARNERS[learner](n_trees) if isinstance(learner, str) else clone(learner)
    seeds = {
        name: seed
        for name, value in fitted.get_params().items()
        if value is None and name.rpartition("__")[2] == "random_state"
    }
    if seeds:
        fitted.set_params(**seeds)
    steps, last = [], fitted
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        steps.append(name)
    classes, codes = np.unique(label, return_inverse=True)
    fitted.fit(x, codes, **{"__".join([*steps, "sample_weight"]): weight})
    return fitted, classes

"""Train classifiers from unlabeled bags of rows and the share of each class in every bag."""

from unbag import datasets, exceptions, methods, objectives, priors, theory
from unbag.bags import Bags, make_bags
from unbag.estimator import UnbagClassifier, export_onnx, load_model
from unbag.evaluation import (
    Evaluation,
    bag_log_loss,
    estimate_prior,
    evaluate,
    evaluate_predictions,
)
from unbag.inspection import inspect
from unbag.priors import ClassPriors
from unbag.selection import cross_val_predict, tune

__all__ = [
    "Bags",
    "ClassPriors",
    "Evaluation",
    "UnbagClassifier",
    "bag_log_loss",
    "cross_val_predict",
    "datasets",
    "estimate_prior",
    "evaluate",
    "evaluate_predictions",
    "exceptions",
    "export_onnx",
    "inspect",
    "load_model",
    "make_bags",
    "methods",
    "objectives",
    "priors",
    "theory",
    "tune",
]

"""Train classifiers from unlabeled bags of rows and the share of each class in every bag."""

from unbag import datasets, exceptions, methods, objectives, priors
from unbag.bags import Bags, make_bags
from unbag.estimator import UnbagClassifier
from unbag.priors import ClassPriors
from unbag.selection import cross_val_predict

__all__ = [
    "Bags",
    "ClassPriors",
    "UnbagClassifier",
    "cross_val_predict",
    "datasets",
    "exceptions",
    "make_bags",
    "methods",
    "objectives",
    "priors",
]

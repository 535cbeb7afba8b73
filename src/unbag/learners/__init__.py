"""Classifiers of other libraries: how they learn soft labels, and their tensors.

A fitted learner becomes a module of tensors where it consists of trees or layers, so that it is
saved and exported like a network, and nothing of it has to be unpickled.
"""

from unbag.learners.converting import STORED, as_module
from unbag.learners.learning import LEARNERS, check_learner, fit_learner
from unbag.learners.modules import ACTIVATIONS, Layers, LearnerModel, Scaled

__all__ = [
    "ACTIVATIONS",
    "LEARNERS",
    "STORED",
    "Layers",
    "LearnerModel",
    "Scaled",
    "as_module",
    "check_learner",
    "fit_learner",
]

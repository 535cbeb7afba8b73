"""Methods: names to recipes, and the fitting of many models by name."""

from unbag.methods.choosing import Choice, choose_method
from unbag.methods.fitting import fit_many
from unbag.methods.jobs import (
    Fit,
    Job,
    default_batch_size,
    default_epochs,
    default_learning_rate,
)
from unbag.methods.recipes import soft_epochs
from unbag.methods.registry import METHODS, Method, get_method

__all__ = [
    "METHODS",
    "Choice",
    "Fit",
    "Job",
    "Method",
    "choose_method",
    "default_batch_size",
    "default_epochs",
    "default_learning_rate",
    "fit_many",
    "get_method",
    "soft_epochs",
]

"""Methods: names to recipes, and the fitting of many models by name."""

from unbag.methods.fitting import (
    Fit,
    Job,
    default_batch_size,
    default_epochs,
    default_learning_rate,
    fit_many,
)
from unbag.methods.registry import METHODS, Method, get_method

__all__ = [
    "METHODS",
    "Fit",
    "Job",
    "Method",
    "default_batch_size",
    "default_epochs",
    "default_learning_rate",
    "fit_many",
    "get_method",
]

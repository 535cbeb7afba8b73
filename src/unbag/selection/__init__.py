"""Model selection without labels."""

from unbag.selection.cross_validation import cross_val_predict
from unbag.selection.result import TuningResult
from unbag.selection.scorers import accuracy_scorer, likelihood_scorer
from unbag.selection.tuning import DEFAULT_SEARCH, tune

__all__ = [
    "DEFAULT_SEARCH",
    "TuningResult",
    "accuracy_scorer",
    "cross_val_predict",
    "likelihood_scorer",
    "tune",
]

"""Methods that learn from bags, by name or as objects, and the fitting of many models at once."""

from unbag.methods.auto import Auto
from unbag.methods.base import Method, Task, Trainings
from unbag.methods.consistency import Consistency
from unbag.methods.crossfit import CrossFit
from unbag.methods.fitting import check_job, fit_many, rehearse, shortened
from unbag.methods.job import Job
from unbag.methods.labelled_rows import read_labels
from unbag.methods.registry import METHODS, get_method
from unbag.methods.self_training import SelfTraining
from unbag.methods.single import (
    UPRR,
    BagLikelihood,
    Biased,
    CountLikelihood,
    MatchedLikelihood,
    Prop,
    PropCR,
    SingleTraining,
    UCorrect,
    UFlood,
    Unbiased,
    UStop,
)
from unbag.methods.sizes import default_batch_size, default_epochs, default_learning_rate
from unbag.methods.tables import Tables
from unbag.training import Fit

__all__ = [
    "METHODS",
    "UPRR",
    "Auto",
    "BagLikelihood",
    "Biased",
    "Consistency",
    "CountLikelihood",
    "CrossFit",
    "Fit",
    "Job",
    "MatchedLikelihood",
    "Method",
    "Prop",
    "PropCR",
    "SelfTraining",
    "SingleTraining",
    "Tables",
    "Task",
    "Trainings",
    "UCorrect",
    "UFlood",
    "UStop",
    "Unbiased",
    "check_job",
    "default_batch_size",
    "default_epochs",
    "default_learning_rate",
    "fit_many",
    "get_method",
    "read_labels",
    "rehearse",
    "shortened",
]

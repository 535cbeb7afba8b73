"""Evaluation without labels: from predictions, bags and priors alone."""

from unbag.evaluation.accuracy import accuracy_warning, error_table, label_free_accuracy
from unbag.evaluation.calibration import (
    Calibration,
    calibrate,
    calibrate_log,
    likeliest_temperature,
    likeliest_temperature_by_counts,
)
from unbag.evaluation.estimate import Estimate
from unbag.evaluation.evaluating import evaluate, evaluate_predictions
from unbag.evaluation.groups import GroupNumbers
from unbag.evaluation.importance import Importances, permutation_importance
from unbag.evaluation.inverses import INVERSES, LeftInverse
from unbag.evaluation.labelled import LabelledRows
from unbag.evaluation.likelihood import bag_log_loss
from unbag.evaluation.misfit import Misfit
from unbag.evaluation.probabilities import ProbabilityMetrics, RocCurve
from unbag.evaluation.reliability import Reliability, ReliabilityCurve, reliability_diagram
from unbag.evaluation.report import Evaluation
from unbag.evaluation.row_drift import RowDrift
from unbag.evaluation.target import PriorEstimate, estimate_prior

__all__ = [
    "INVERSES",
    "Calibration",
    "Estimate",
    "Evaluation",
    "GroupNumbers",
    "Importances",
    "LabelledRows",
    "LeftInverse",
    "Misfit",
    "PriorEstimate",
    "ProbabilityMetrics",
    "Reliability",
    "ReliabilityCurve",
    "RocCurve",
    "RowDrift",
    "accuracy_warning",
    "bag_log_loss",
    "calibrate",
    "calibrate_log",
    "error_table",
    "estimate_prior",
    "evaluate",
    "evaluate_predictions",
    "label_free_accuracy",
    "likeliest_temperature",
    "likeliest_temperature_by_counts",
    "permutation_importance",
    "reliability_diagram",
]

"""From files to a saved model, predictions and a page: what the commands call."""

from unbag.workflow.inspecting import InspectedFiles, inspect_files
from unbag.workflow.judging import EvaluatedModel, evaluate_files
from unbag.workflow.predicting import PredictedFile, predict_files
from unbag.workflow.showing import ShownModel, show_model
from unbag.workflow.trained import TrainedModel
from unbag.workflow.training import fit_files, tune_files

__all__ = [
    "EvaluatedModel",
    "InspectedFiles",
    "PredictedFile",
    "ShownModel",
    "TrainedModel",
    "evaluate_files",
    "fit_files",
    "inspect_files",
    "predict_files",
    "show_model",
    "tune_files",
]

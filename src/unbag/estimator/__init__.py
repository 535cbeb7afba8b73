"""The methods as a scikit-learn classifier: saved, loaded again and exported."""

from unbag.estimator.classifier import UnbagClassifier
from unbag.estimator.exporting import export_onnx
from unbag.estimator.loading import load_model

__all__ = ["UnbagClassifier", "export_onnx", "load_model"]

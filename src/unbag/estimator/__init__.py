"""The methods as a scikit-learn classifier."""

from unbag.estimator.classifier import UnbagClassifier

__all__ = ["UnbagClassifier"]

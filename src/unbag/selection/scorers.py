"""Scores without labels, for ``scoring=`` of scikit-learn; ``y`` is the bag id, or X is Bags."""

from typing import Any

from unbag.evaluation import bag_log_loss

__all__ = ["accuracy_scorer", "likelihood_scorer"]


def accuracy_scorer(estimator: Any, X: Any, y: Any = None) -> float:
    """Label-free accuracy; also the default score of the estimator."""
    return float(estimator.score(X, y))


def likelihood_scorer(estimator: Any, X: Any, y: Any = None) -> float:
    """Negative bag log-loss: a proper score of the probabilities, larger is better.

    On few rows it is less noisy than the label-free accuracy.
    """
    last = estimator[-1] if hasattr(estimator, "steps") else estimator
    chances = estimator.predict_proba(X)
    ids = X.bag_ids if y is None else y
    return -bag_log_loss(chances, ids, priors=last.known_priors_, output_prior=last.test_prior_)

"""Charts of what is known without labels, in the manner of scikit-learn's displays.

Each display has ``from_estimator(clf, X, bag_ids)``, for rows that the classifier was not trained
on, and ``from_evaluation(evaluation)`` where an evaluation has all that it shows. Both
draw at once; ``plot(ax=...)`` draws again. ``ax_`` and ``figure_`` are matplotlib's.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unbag.drawing import draw_curve, draw_matrix, draw_reliability, draw_shares
from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation, Reliability, evaluate, reliability_diagram
from unbag.priors import ClassPriors
from unbag.validation import invalid

__all__ = ["ConfusionMatrixDisplay", "CurveDisplay", "ReliabilityDisplay", "SharesDisplay"]

_Floats = NDArray[np.float64]


class _Display:
    """What all displays share: they remember where they were drawn."""

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw on the given axes, or on those of a new figure; return the display."""
        self.ax_ = self._draw(ax)
        self.figure_ = self.ax_.figure
        return self

    @abstractmethod
    def _draw(self, ax: Any) -> Any:
        """Draw, and return the axes."""


@dataclass
class ConfusionMatrixDisplay(_Display):
    """The share of each true class (row) that is predicted as each class, without labels.

    Parameters
    ----------
    confusion_matrix : array of shape (K, K)
    classes : array of shape (K,)

    Examples
    --------
    >>> display = ConfusionMatrixDisplay(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array(["a", "b"]))
    >>> display.plot().ax_.get_xlabel()
    'predicted class'
    """

    confusion_matrix: _Floats
    classes: NDArray[Any]

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, *, ax: Any = None) -> Self:
        """Draw the likeliest valid confusion matrix of an evaluation."""
        matrix = np.asarray(evaluation.projected["confusion"])
        return cls(matrix, evaluation.classes).plot(ax)

    @classmethod
    def from_estimator(cls, clf: UnbagClassifier, X: Any, bag_ids: Any, *, ax: Any = None) -> Self:
        """Evaluate a classifier on rows that it was not trained on, and draw the result."""
        return cls.from_evaluation(evaluate(clf, X, bag_ids), ax=ax)

    def _draw(self, ax: Any) -> Any:
        return draw_matrix(self.confusion_matrix, self.classes.tolist(), ax)


@dataclass
class SharesDisplay(_Display):
    """The shares of classes that a classifier predicts, one bar per bag or group.

    Parameters
    ----------
    shares : array of shape (M, K)
    names : array of shape (M,)
        Of the bars.
    classes : array of shape (K,)
    """

    shares: _Floats
    names: NDArray[Any]
    classes: NDArray[Any]

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, *, ax: Any = None) -> Self:
        """Draw the shares of the predictions beside those of the classes."""
        predicted = np.array([float(share) for share in evaluation.predicted_share])
        shares = np.stack([np.clip(predicted, 0, 1), evaluation.test_prior])
        return cls(shares, np.array(["predicted", "known"]), evaluation.classes).plot(ax)

    @classmethod
    def from_estimator(cls, clf: UnbagClassifier, X: Any, bag_ids: Any, *, ax: Any = None) -> Self:
        """Draw the predicted shares of each bag: the mean probabilities of its rows."""
        chances = clf.predict_proba(X)
        priors, bag_index, _ = clf.priors_.with_rows(clf.priors_.encode(bag_ids))
        sums = np.zeros((priors.n_bags, priors.n_classes))
        np.add.at(sums, bag_index, chances)
        counts = np.bincount(bag_index, minlength=priors.n_bags)
        return cls(sums / counts[:, None], priors.bag_ids, priors.classes).plot(ax)

    def _draw(self, ax: Any) -> Any:
        return draw_shares(self.shares, self.names.tolist(), self.classes.tolist(), ax)


@dataclass
class ReliabilityDisplay(_Display):
    """How often predictions come true against their probability, without labels.

    Parameters
    ----------
    reliability : Reliability
        What :func:`unbag.evaluation.reliability_diagram` gives.
    """

    reliability: Reliability

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, *, ax: Any = None) -> Self:
        """Draw the reliability that an evaluation of probabilities found."""
        if evaluation.reliability is None:
            raise invalid("evaluation", "one of probabilities", "one without probabilities")
        return cls(evaluation.reliability).plot(ax)

    @classmethod
    def from_estimator(cls, clf: UnbagClassifier, X: Any, bag_ids: Any, *, ax: Any = None) -> Self:
        """Draw the reliability of a classifier on rows that it was not trained on."""
        return cls.from_predictions(clf.predict_proba(X), bag_ids, clf.priors_, ax=ax)

    @classmethod
    def from_predictions(
        cls, probabilities: Any, bag_ids: Any, priors: ClassPriors | Any, *, ax: Any = None
    ) -> Self:
        """Draw the reliability of the probabilities of any library."""
        return cls(reliability_diagram(probabilities, bag_ids, priors=priors)).plot(ax)

    def _draw(self, ax: Any) -> Any:
        overall = self.reliability.overall
        return draw_reliability(overall.predicted, overall.frequency, overall.error, ax)


@dataclass
class CurveDisplay(_Display):
    """The ROC curve of two classes, without labels.

    Parameters
    ----------
    false_positive_rate, true_positive_rate : arrays of shape (B,)
    positive_class : Any
        The class whose probability is the score.
    """

    false_positive_rate: _Floats
    true_positive_rate: _Floats
    positive_class: Any

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation, *, ax: Any = None) -> Self:
        """Draw the curve of an evaluation of probabilities for two classes."""
        roc = None if evaluation.probabilities is None else evaluation.probabilities.roc
        if roc is None:
            got = f"one of {len(evaluation.classes)} classes"
            if evaluation.probabilities is None:
                got = "one without probabilities"
            raise invalid("evaluation", "one of probabilities for two classes", got)
        false, true = (np.clip(r, 0, 1) for r in (roc.false_positive_rate, roc.true_positive_rate))
        return cls(false, true, evaluation.classes[1]).plot(ax)

    @classmethod
    def from_estimator(cls, clf: UnbagClassifier, X: Any, bag_ids: Any, *, ax: Any = None) -> Self:
        """Evaluate a classifier on rows that it was not trained on, and draw the curve."""
        return cls.from_evaluation(evaluate(clf, X, bag_ids), ax=ax)

    def _draw(self, ax: Any) -> Any:
        lines = {f"“{self.positive_class}”, estimated without labels": self.true_positive_rate}
        ax = draw_curve(
            self.false_positive_rate, lines, "false positive rate", "true positive rate", ax
        )
        ax.plot([0, 1], [0, 1], color="grey", linewidth=1)
        return ax

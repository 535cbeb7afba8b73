"""What a search found, and how it shows itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unbag.bags import Bags
from unbag.drawing import draw_curve
from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation
from unbag.summary import Shown, Summary, data_frame

__all__ = ["TuningResult"]


@dataclass(frozen=True, eq=False)
class TuningResult(Shown):
    """What a search found.

    Attributes
    ----------
    best_params : dict
        Settings of the best trial, by the score on validation rows; empty where that is the
        estimator as it was given.
    best_score : float
        That score; it chose the model, so it flatters it.
    best_estimator : UnbagClassifier
        Fitted with these settings on training and validation rows.
    evaluation : Evaluation
        Of that estimator on rows that neither trained nor chose anything.
    trials : list of dict
        ``number``, ``params``, ``score`` (None where pruned or failed) and ``state`` of each trial
        that ended.
    training, held_out : Bags
        The rows that the estimator was fitted on, and those that it was evaluated on.
    """

    best_params: dict[str, Any]
    best_score: float
    best_estimator: UnbagClassifier
    evaluation: Evaluation
    trials: list[dict[str, Any]]
    training: Bags
    held_out: Bags

    def summary(self) -> Summary:
        """Give the trials, best first, and the evaluation of the chosen model."""
        ended = [trial for trial in self.trials if trial["score"] is not None]
        ended.sort(key=lambda trial: -trial["score"])
        rows = [(t["number"], f"{t['score']:.4f}", _settings_text(t)) for t in ended]
        title = f"{len(self.trials)} trials; the best score is {self.best_score:.4f}"
        accuracy = self.evaluation.accuracy
        sentence = (
            f"On rows that chose nothing the accuracy is {min(accuracy, 1):.1%} "
            f"({accuracy.low:.1%} to {accuracy.high:.1%}), estimated without labels."
        )
        columns = ("trial", "score", "settings")
        return Summary(title, columns, rows, [sentence, *self.evaluation.warnings])

    def to_frame(self) -> Any:
        """Give a DataFrame of pandas with one row per trial: number, score, state, settings."""
        names = sorted({name for trial in self.trials for name in trial["params"]})
        columns = {key: [t[key] for t in self.trials] for key in ("score", "state")}
        settings = {name: [t["params"].get(name) for t in self.trials] for name in names}
        return data_frame({**columns, **settings}, [t["number"] for t in self.trials], "number")

    def plot(self, ax: Any = None) -> Any:
        """Draw the score of each trial, and the best so far, with matplotlib; return the axes."""
        ended = [trial for trial in self.trials if trial["score"] is not None]
        numbers = [trial["number"] for trial in ended]
        scores = np.array([trial["score"] for trial in ended])
        lines = {"best so far": np.maximum.accumulate(scores)}
        ax = draw_curve(numbers, lines, "trial", "score (larger is better)", ax)
        ax.plot(numbers, scores, "o", color="grey", markersize=4)
        return ax


def _settings_text(trial: dict[str, Any]) -> str:
    def shown(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else repr(value)

    return ", ".join(f"{n}={shown(v)}" for n, v in trial["params"].items()) or "as given"

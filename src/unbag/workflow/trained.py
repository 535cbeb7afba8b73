"""What training from files made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbag.estimator import UnbagClassifier
from unbag.evaluation import Evaluation
from unbag.inspection import Inspection
from unbag.reporting import ModelVerdict
from unbag.selection import TuningResult
from unbag.workflow.judging import REPORT

__all__ = ["TrainedModel"]


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """What :func:`fit_files` and :func:`tune_files` made.

    Attributes
    ----------
    folder : Path
        The model, its report and all else that was written.
    classifier : UnbagClassifier
    inspection : Inspection
        Of the rows and priors, before training.
    evaluation : Evaluation or None
        On rows that took no part in training; None where there are none, or too few.
    verdict : ModelVerdict
        Whether to use the model.
    warnings, notes : tuples of str
        What speaks against trusting the model; what else a user should know.
    tuning : TuningResult or None
        The search, of :func:`tune_files`.
    """

    folder: Path
    classifier: UnbagClassifier
    inspection: Inspection
    evaluation: Evaluation | None
    verdict: ModelVerdict
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tuning: TuningResult | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        plain: dict[str, Any] = {
            "model": str(self.folder),
            "report": str(self.folder / REPORT),
            "method": self.classifier.method_,
            "epochs": self.classifier.n_iter_,
            "verdict": self.inspection.verdict,
            "reasons": self.inspection.reasons,
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
            "model_verdict": self.verdict.to_dict(),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }
        if self.tuning is not None:
            plain["best_params"] = self.tuning.best_params
            plain["trials"] = len(self.tuning.trials)
        return plain

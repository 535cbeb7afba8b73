"""The verdict on a model: use it, use it with care, or do not use it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unbag.evaluation import Evaluation
from unbag.inspection import Inspection
from unbag.inspection.rules import ALARM
from unbag.reporting.formatting import percent, range_text, short
from unbag.reporting.sources import share_part
from unbag.reporting.text import text
from unbag.validation import shorten

__all__ = ["ModelVerdict", "judge_model", "most_common_class"]

_STATUSES = ("go", "care", "stop")  # in the order of their weight
_VERDICTS = {"go": "use it", "care": "use it with care", "stop": "do not use it"}
_WIDE = 0.05  # half-width of the interval of the accuracy above which it is called wide
_HAND_LABELS = 100
_LABEL_SOME = f"Label about {_HAND_LABELS} rows by hand and evaluate with these labels."
_LEARN_MORE = (
    "Add bags whose shares differ more, more rows, or columns that tell the classes apart."
)
_PREDICT = (
    "Predict new rows with “unbag predict”. Where class shares differ from those here, give the "
    "new ones with --prior."
)
_BAG_STEPS = {
    "go": "",
    "care": "Follow the advice of the check of bags and shares where you can.",
    "stop": "Change bags or shares as the check of bags and shares advises, then fit again.",
}


@dataclass(frozen=True)
class ModelVerdict:
    """Whether to use a model; print it to read it.

    Attributes
    ----------
    status : {"go", "care", "stop"}
    reasons : tuple of str
        What speaks for care or against the model, then what could not be tested.
    next_steps : tuple of str
        What to do about it.
    """

    status: str
    reasons: tuple[str, ...]
    next_steps: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """In words: "use it", "use it with care" or "do not use it"."""
        return _VERDICTS[self.status]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "next_steps": list(self.next_steps),
        }

    @property
    def short_reasons(self) -> list[str]:
        """The first sentence of every reason."""
        return [f"{reason.split('. ')[0].rstrip('.')}." for reason in self.reasons]

    def __str__(self) -> str:
        lines = [f"verdict on the model: {self.verdict}"]
        # Warnings and reasons were told in full where they arose.
        lines += [f"  - {reason}" for reason in self.short_reasons]
        lines += [f"  next: {step}" for step in self.next_steps]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Finding:
    """Something a reader should know before using the model, and what to do about it.

    ``status`` says how much it weighs; "go" is for what is no reason against using the model.
    """

    status: str
    reason: str
    step: str = ""


def judge_model(
    evaluation: Evaluation | None,
    inspection: Inspection | None = None,
    warnings: Sequence[str] = (),
) -> ModelVerdict:
    """Say whether to use a model, why, and what to do next.

    Parameters
    ----------
    evaluation : Evaluation or None
        On rows that the model was not trained on.
    inspection : Inspection, optional
        Of the bags it was trained on.
    warnings : sequence of str
        What else speaks against it, one sentence each.

    Returns
    -------
    ModelVerdict

    Examples
    --------
    >>> from unbag.evaluation import evaluate_predictions
    >>> predicted = [0] * 640 + [1] * 360 + [0] * 300 + [1] * 700
    >>> shares = [[0.6, 0.4], [0.4, 0.6]]
    >>> evaluation = evaluate_predictions(predicted, [0] * 1000 + [1] * 1000, priors=shares)
    >>> judge_model(evaluation).verdict
    'do not use it'
    """
    findings = list(_findings(evaluation, inspection, warnings))
    status = max((f.status for f in findings), key=_STATUSES.index, default="go")
    steps = list(dict.fromkeys(f.step for f in findings if f.step))
    if status != "stop":
        steps.append(_PREDICT)
    reasons = tuple(dict.fromkeys(f.reason for f in findings))
    return ModelVerdict(status, reasons, tuple(steps))


def most_common_class(evaluation: Evaluation) -> tuple[str, float]:
    """Name the most common class, safe to show, and its share."""
    k = int(evaluation.test_prior.argmax())
    return short(text(evaluation.classes[k]), 60), float(evaluation.test_prior[k])


def _findings(
    evaluation: Evaluation | None, inspection: Inspection | None, warnings: Sequence[str]
) -> Iterator[_Finding]:
    if evaluation is not None:
        for warning in evaluation.warnings:
            status = "care" if evaluation.trustworthy else "stop"
            yield _Finding(status, warning, _LABEL_SOME if _has_drift(evaluation) else "")
        yield from _about_accuracy(evaluation)
    for warning in warnings:
        if evaluation is None or warning not in evaluation.warnings:
            yield _Finding("care", warning)
    if inspection is not None:
        yield from _about_bags(inspection, evaluation)
    if evaluation is None:
        yield _Finding(
            "care",
            "How good the model is was not estimated.",
            "Keep rows apart from training and evaluate the model on them, with “unbag evaluate”.",
        )


def _has_drift(evaluation: Evaluation) -> bool:
    """Whether intervals reach as far as rows that differ between bags may take the numbers."""
    return evaluation.row_drift is not None and evaluation.row_drift.part > 0


def _about_accuracy(evaluation: Evaluation) -> Iterator[_Finding]:
    common, base = most_common_class(evaluation)
    low, high = evaluation.interval
    if not evaluation.trustworthy:
        yield _Finding(
            "stop",
            "How good the model is cannot be said.",
            "Leave out columns that depend on the bag, such as dates, places and ids. Check the "
            "shares. Then fit again.",
        )
    elif evaluation.accuracy <= base:
        yield _Finding(
            "stop",
            f"It is no better than always answering “{common}”, which would be right for "
            f"{percent(base)} of the rows.",
            _LEARN_MORE,
        )
    elif low <= base and evaluation.balanced_accuracy.low <= 1 / len(evaluation.classes):
        yield _Finding(
            "stop",
            "Nothing shows that it tells the classes apart: it is clearly better neither than "
            f"always answering “{common}” (right for {percent(base)}) nor than guessing.",
            "" if _has_drift(evaluation) else _LEARN_MORE,
        )
    elif low <= base:
        yield _Finding(
            "care",
            f"It is not clearly better than always answering “{common}”: the interval of its "
            f"accuracy includes {percent(base)}.",
            "" if _has_drift(evaluation) else "Evaluate it on more rows before you rely on it.",
        )
    half = (high - low) / 2
    if evaluation.trustworthy and half > _WIDE:
        interval = range_text({"low": low, "high": high})
        # More rows do not narrow what bags that differ have widened, nor make a model better.
        useless = _has_drift(evaluation) or evaluation.accuracy <= base
        step = "" if useless else _narrow(half)
        yield _Finding("care", f"The interval of the accuracy is wide: {interval}.", step)
    recalls = [share_part(e, evaluation.level, len(evaluation.recall)) for e in evaluation.recall]
    outside = [evaluation.classes[k] for k, p in enumerate(recalls) if p and not p["trusted"]]
    if outside:
        yield _Finding(
            "care",
            f"The recall of {shorten(outside)} is outside 0 to 100% by more than its error.",
            f"Check the shares of {shorten(outside)}, and whether rows of "
            f"{'this class' if len(outside) == 1 else 'these classes'} differ between bags.",
        )


def _narrow(half: float) -> str:
    times = (half / _WIDE) ** 2
    shown = f"{times:.1f}" if times < 10 else f"{times:,.0f}"
    return (
        f"For ± {100 * _WIDE:.0f} points, evaluate it on about {shown} times as many rows of "
        "these bags."
    )


def _about_bags(inspection: Inspection, evaluation: Evaluation | None) -> Iterator[_Finding]:
    for reason in inspection.reasons:
        yield _Finding(inspection.verdict, reason, _BAG_STEPS[inspection.verdict])
    told = evaluation is not None and _has_drift(evaluation)  # by a warning of its own
    if inspection.alike is not None and inspection.alike.p_value < ALARM and not told:
        yield _Finding(
            "care",
            "The intervals do not allow for rows that differ between bags along with the shares, "
            "so the truth may lie outside of them.",
            _LABEL_SOME,
        )
    if inspection.alike is None:
        yield _Finding(
            "go",
            "It was not tested whether rows of a class look alike in all bags, as everything here "
            f"assumes: {inspection.alike_untested}.",
            f"Label about {_HAND_LABELS} rows by hand and compare, since one assumption could not "
            "be tested.",
        )

"""The three questions that the page answers first: how good, can I trust it, what next."""

from collections.abc import Iterator
from dataclasses import dataclass

from unbag.evaluation import Evaluation
from unbag.report.formatting import level_text, number, percent, range_text, short
from unbag.report.sources import Part, Sources, share_part
from unbag.validation import shorten

__all__ = ["answers"]

_STATUSES = ("go", "care", "stop")  # in the order of their weight
_WIDE = 0.05  # half-width of the interval of the accuracy above which it is called wide
_HAND_LABELS = 100
_BAG_STEPS = {
    "go": "",
    "care": "Follow the advice in “Check of bags and shares” where you can.",
    "stop": "Change bags or shares as “Check of bags and shares” advises, then fit again.",
}


@dataclass(frozen=True)
class _Finding:
    """Something a reader should know before using the model, and what to do about it.

    ``status`` says how much it weighs; "go" is for what is no reason against using the model.
    """

    status: str
    reason: str
    step: str = ""


def answers(sources: Sources) -> Part:
    """Answer the three questions, each with a status and sentences."""
    findings = list(_findings(sources))
    status = max((f.status for f in findings), key=_STATUSES.index, default="go")
    return {
        "status": status,
        "questions": [
            {"question": "How good is it?", **_how_good(sources)},
            {
                "question": "Can I trust it?",
                "answer": {
                    "go": "Yes, as far as it can be tested without labels.",
                    "care": "With care. These points limit what the numbers say:",
                    "stop": "No. These points speak against it:",
                }[status],
                "points": [f.reason for f in findings],
            },
            {
                "question": "What should I do next?",
                "answer": {
                    "go": "Use it.",
                    "care": "Use it with care.",
                    "stop": "Do not use it yet.",
                }[status],
                "points": _steps(findings, status),
            },
        ],
    }


def _how_good(sources: Sources) -> Part:
    evaluation = sources.evaluation
    if evaluation is None:
        return {"answer": "Unknown: it was not evaluated on held-out rows.", "points": []}
    accuracy = share_part(evaluation.accuracy, evaluation.level)
    if accuracy is None or not accuracy["trusted"]:
        answer = (
            "This cannot be said: the estimated accuracy is outside 0 to 100% by more than its "
            "error."
        )
        return {"answer": answer, "points": []}
    common, share = _most_common(sources, evaluation)
    points = [
        f"This is estimated without labels from {number(evaluation.n_rows)} held-out rows "
        f"({level_text(evaluation.level)} interval: {range_text(accuracy)}).",
        f"Always answering the most common class, “{common}”, would be right for {percent(share)}.",
    ]
    recalls = [
        share_part(e, evaluation.level, among=len(evaluation.recall)) for e in evaluation.recall
    ]
    known = [(p["value"], p, k) for k, p in enumerate(recalls) if p is not None and p["trusted"]]
    if len(recalls) > 2 and known:
        _, worst, k = min(known, key=lambda item: item[0])
        points.append(
            f"Class “{short(sources.classes[k], 60)}” is found least often: in "
            f"{percent(worst['value'])} of its rows ({range_text(worst)})."
        )
    return {
        "answer": f"It is right for about {percent(accuracy['value'])} of new rows.",
        "points": points,
    }


def _most_common(sources: Sources, evaluation: Evaluation) -> tuple[str, float]:
    k = int(evaluation.test_prior.argmax())
    return short(sources.classes[k], 60), float(evaluation.test_prior[k])


def _steps(findings: list[_Finding], status: str) -> list[str]:
    steps = list(dict.fromkeys(f.step for f in findings if f.step))
    if status != "stop":
        steps.append(
            "Predict new rows with “unbag predict”. Where class shares differ from those here, "
            "give the new ones with --prior."
        )
    return steps


def _findings(sources: Sources) -> Iterator[_Finding]:
    """List what speaks for care or against the model, then what could not be tested."""
    evaluation = sources.evaluation
    if evaluation is not None:
        yield from _about_accuracy(sources, evaluation)
    for warning in sources.warnings:
        yield _Finding("care", warning)
    yield from _about_bags(sources)
    if evaluation is None:
        yield _Finding(
            "care",
            "How good the model is was not estimated.",
            "Keep rows apart from training and evaluate the model on them, with “unbag evaluate”.",
        )


def _about_accuracy(sources: Sources, evaluation: Evaluation) -> Iterator[_Finding]:
    accuracy = share_part(evaluation.accuracy, evaluation.level)
    if accuracy is None:
        return
    common, base = _most_common(sources, evaluation)
    low, high = evaluation.interval
    if not accuracy["trusted"]:
        yield _Finding(
            "stop",
            "No classifier has an accuracy outside 0 to 100%. So shares are wrong, rows of a "
            "class differ between bags, or a column gives the bag away.",
            "Leave out columns that depend on the bag, such as dates, places and ids; check the "
            "shares; then fit again.",
        )
    elif accuracy["value"] <= base:
        yield _Finding(
            "stop",
            f"Always answering “{common}” would be right for {percent(base)} of the rows, which is "
            "no worse.",
            "Add bags whose shares differ more, more rows, or columns that tell the classes apart.",
        )
    elif low <= base:
        yield _Finding(
            "care",
            f"It is not clearly better than always answering “{common}” would be: the interval "
            f"includes {percent(base)}.",
            "Evaluate it on more rows before you rely on it.",
        )
    half = (high - low) / 2
    if accuracy["trusted"] and half > _WIDE:
        factor = (half / _WIDE) ** 2
        yield _Finding(
            "care",
            f"The interval of the accuracy is wide: {range_text(accuracy)}.",
            f"For ± {100 * _WIDE:.0f} points, evaluate it on about {factor:.2g} times as many rows "
            "of these bags.",
        )
    parts = [
        share_part(e, evaluation.level, among=len(evaluation.recall)) for e in evaluation.recall
    ]
    outside = [sources.classes[k] for k, p in enumerate(parts) if p and not p["trusted"]]
    if outside:
        yield _Finding(
            "care",
            f"The recall of {shorten(outside)} is outside 0 to 100% by more than its error.",
            "Check the shares of these classes, and whether their rows differ between bags.",
        )


def _about_bags(sources: Sources) -> Iterator[_Finding]:
    inspection = sources.inspection
    if inspection is None:
        return
    for reason in inspection.reasons:
        yield _Finding(inspection.verdict, reason, _BAG_STEPS[inspection.verdict])
    if inspection.alike is None:
        yield _Finding(
            "go",
            "Everything here assumes that rows of a class look alike in all bags. That was not "
            f"tested: {inspection.alike_untested}.",
            f"Label about {_HAND_LABELS} rows by hand and compare, since one assumption could not "
            "be tested.",
        )

"""The three questions that the page answers first: how good, can I trust it, what next."""

from unbag.reporting.formatting import level_text, number, percent, range_text, short
from unbag.reporting.sources import Part, Sources, share_part
from unbag.reporting.verdict import judge_model, most_common_class

__all__ = ["answers"]

_SAYS_NOTHING = 0.5  # width of an interval of the accuracy


def answers(sources: Sources) -> Part:
    """Answer the three questions, each with a status and sentences."""
    judged = judge_model(sources.evaluation, sources.inspection, sources.warnings)
    return {
        "status": judged.status,
        "questions": [
            {"question": "How good is it?", **_how_good(sources)},
            {
                "question": "Can I trust it?",
                "answer": {
                    "go": "Yes, as far as it can be tested without labels.",
                    "care": "With care. These points limit what the numbers say:",
                    "stop": "No. These points speak against it:",
                }[judged.status],
                "points": judged.short_reasons,
                "in_full": [
                    reason
                    for reason, short in zip(judged.reasons, judged.short_reasons, strict=True)
                    if reason != short
                ],
            },
            {
                "question": "What should I do next?",
                "answer": f"{judged.verdict.capitalize()}.",
                "points": list(judged.next_steps),
            },
        ],
    }


def _how_good(sources: Sources) -> Part:
    evaluation = sources.evaluation
    if evaluation is None:
        return {"answer": "Unknown: it was not evaluated on held-out rows.", "points": []}
    accuracy = share_part(evaluation.accuracy, evaluation.level)
    if accuracy is None or not evaluation.trustworthy:
        answer = (
            "This cannot be said: the estimated accuracy is outside 0 to 100% by more than its "
            "error."
        )
        return {"answer": answer, "points": []}
    common, share = most_common_class(evaluation)
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
    is_possible = 0 <= evaluation.accuracy <= 1
    about = f"about {percent(accuracy['value'])}" if is_possible else range_text(accuracy)
    right = f"right for {about} of new rows"
    low, high = evaluation.interval
    if high - low >= _SAYS_NOTHING:
        answer = (
            "These rows cannot tell: it may be right for anything from "
            f"{range_text(accuracy)} of new rows."
        )
    elif evaluation.accuracy <= share:
        answer = f"It is {right}, no better than always giving the same answer."
    elif low <= share:
        answer = f"It seems {right}, but may be no better than always giving the same answer."
    else:
        answer = f"It is {right}."
    return {"answer": answer, "points": points}

"""What speaks against trusting label-free numbers, in sentences for an analyst."""

from unbag.evaluation.misfit import Misfit
from unbag.evaluation.row_drift import RowDrift
from unbag.plain import p_text
from unbag.priors import ClassPriors
from unbag.validation import shorten

__all__ = ["beyond_limits_warning", "misfit_warning", "row_drift_warning", "untestable_note"]

# Standard errors from any possible value at which an accuracy is not to be trusted. On rows drawn
# freely, chance takes about 1 in 14 perfect models so far, and 1 in 50 of those right in 95%.
_ERRORS = 1.5


def beyond_limits_warning(accuracy: float, errors: float) -> str | None:
    """Say what is wrong with an accuracy outside [0, 1] by more than its error, else None.

    Parameters
    ----------
    accuracy : float
    errors : float
        By how many standard errors it differs from any value in [0, 1].
    """
    if errors <= _ERRORS:
        return None
    side = "above 100%" if accuracy > 1 else "below 0%"
    return (
        f"The accuracy is estimated as {accuracy:.1%}, which is {min(errors, 99):.1f} standard "
        f"errors {side}. No model can have that accuracy, and chance rarely takes an estimate so "
        "far: do not rely on any of these numbers. Usually the rows of a class differ between "
        "bags, the class shares are wrong, or the model was trained on these rows. Run "
        "unbag.inspect with the rows, leave out columns that tell which bag a row is in (such as "
        "dates), check the shares, and evaluate again."
    )


def misfit_warning(misfit: Misfit | None) -> str | None:
    """Say that bags disagree more than chance allows, which ones, and what to do, else None."""
    if misfit is None or not misfit.is_significant:
        return None
    bags = shorten([bag for bag, _ in misfit.bags], limit=5)
    which = f" Bags that stand out: {bags}." if misfit.bags else ""
    return (
        "The bags disagree about this model more than chance allows "
        f"({p_text(misfit.p_value)}): from bag to bag, the recall of a class differs by about "
        f"{100 * misfit.drift:.2g} points. All intervals are wider for it.{which} Leave out "
        "columns that differ between bags for other reasons than the classes, check how bags and "
        "their shares were collected, or leave bags out, and evaluate again."
    )


def row_drift_warning(drift: RowDrift | None) -> str | None:
    """Say that rows differ between bags, what it may do to the numbers, and what to do, or None."""
    if drift is None or drift.part == 0:
        return None
    part = "all" if drift.part == 1 else f"up to {drift.part:.0%}"
    return (
        f"Rows of a class differ between bags ({p_text(drift.p_value)}; bag means are "
        f"{drift.deviation:.2g} standard deviations off). So {part} of how well predictions follow "
        "the shares may come from the bags and not from the classes, and the intervals reach "
        f"towards what would hold then, an accuracy of {min(max(drift.accuracy, 0), 1):.1%}. Only "
        "labels can tell: label about 100 rows drawn at random and evaluate with them, or leave "
        "out columns that differ between bags for other reasons than the classes."
    )


def untestable_note(priors: ClassPriors) -> str | None:
    """Say that the assumption cannot be tested where bags are as many as classes, else None."""
    if priors.n_bags > priors.n_classes or (priors.values.max(1) == 1).all():
        return None
    return (
        "There are as many bags as classes. Nothing in these rows can show whether the rows of a "
        "class are alike in all bags; the numbers hold only if they are."
    )

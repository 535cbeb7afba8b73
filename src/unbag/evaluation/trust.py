"""What speaks against trusting label-free numbers, in sentences for an analyst."""

from unbag.priors import ClassPriors

__all__ = ["beyond_limits_warning", "untestable_note"]

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


def untestable_note(priors: ClassPriors) -> str | None:
    """Say that the assumption cannot be tested where bags are as many as classes, else None."""
    if priors.n_bags > priors.n_classes or (priors.values.max(1) == 1).all():
        return None
    return (
        "There are as many bags as classes. Nothing in these rows can show whether the rows of a "
        "class are alike in all bags; the numbers hold only if they are."
    )

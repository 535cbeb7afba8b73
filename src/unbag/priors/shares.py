"""What follows from Θ and the class shares where a classifier will be used, the test prior.

:func:`risk_weights` makes partial risks add up to the classification risk under the test prior;
:func:`prior_shift` carries probabilities from one prior to another.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unbag.exceptions import ConditioningWarning
from unbag.ids import index_ids, match_ids
from unbag.priors.errors import SharesOf, read_shares_of
from unbag.priors.table import SUM_TOLERANCE, ClassPriors
from unbag.validation import as_float_array, detached, invalid, shorten, warn_replaced

__all__ = ["ILL_CONDITIONED", "check_test_prior", "prior_shift", "priors_as_told", "risk_weights"]

ILL_CONDITIONED = 100.0  # condition number of Θ above which its inverse magnifies noise much


def priors_as_told(
    priors: Any, shares_of: SharesOf | None, sampling: str | None, prior_errors: Any
) -> ClassPriors:
    """Read class priors with what arguments say of their shares, the replaced ones too."""
    table = ClassPriors.of(priors).with_errors(shares_of=read_shares_of(shares_of, sampling))
    if prior_errors is None:
        return table
    new = "priors=ClassPriors.of(priors).with_errors(errors)"
    warn_replaced("prior_errors", new, stacklevel=4)
    return table.with_errors(prior_errors)


def check_test_prior(
    test_prior: Any, classes: NDArray[Any], name: str = "test_prior"
) -> NDArray[np.float64]:
    """Check a test prior π: K shares in the order of the classes, or keyed by class.

    A dict or a pandas Series is matched by name, strictly, and put in the order of ``classes``.
    ``name`` is what messages call it.

    Examples
    --------
    >>> check_test_prior({"no": 0.9, "yes": 0.1}, np.array(["yes", "no"]))
    array([0.1, 0.9])
    """
    if hasattr(test_prior, "keys"):
        names = list(test_prior.keys())
        known = index_ids("classes", classes)
        order = match_ids(name, names, known, source=f"{name} has", what="keyed by class")
        absent = np.delete(classes, order)
        if len(absent):
            raise invalid(name, "a share for every class", f"none for {shorten(absent)}")
        test_prior = [test_prior[names[i]] for i in np.argsort(order)]
    shares = as_float_array(name, detached(name, test_prior), ndim=1)
    if len(shares) != len(classes):
        raise invalid(name, f"{len(classes)} shares, one for each class", len(shares))
    if not (np.isfinite(shares).all() and (shares >= 0).all()):
        raise invalid(name, "finite and non-negative", shorten(shares))
    total = float(shares.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise invalid(name, "shares that sum to 1", f"the sum {total:.8g}")
    return shares / total


def prior_shift(to_prior: ArrayLike, from_prior: ArrayLike) -> NDArray[np.float64]:
    r"""Give what must be added to log-probabilities, so that they hold under another prior.

    .. math:: P'(k \mid x) \propto P(k \mid x) \, \frac{t_k}{f_k}, \qquad
        s_k = \log t_k - \log f_k

    The sums are log-odds: take their softmax for probabilities.

    Parameters
    ----------
    to_prior : array of shape (..., K)
        t, the class shares under which the result holds. A class of share 0 gets −inf: it is never
        predicted.
    from_prior : array of shape (..., K)
        f, the class shares under which the probabilities hold. A class of share 0, of which a model
        has seen nothing, is taken as it is.

    Returns
    -------
    array of shape (..., K)

    Examples
    --------
    >>> shifted = np.log([0.5, 0.5]) + prior_shift([0.9, 0.1], [0.5, 0.5])
    >>> np.exp(shifted) / np.exp(shifted).sum()
    array([0.9, 0.1])
    >>> prior_shift([1.0, 0.0], [0.5, 0.5])
    array([0.69314718,       -inf])
    """
    new, old = np.asarray(to_prior, dtype=np.float64), np.asarray(from_prior, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(new) - np.log(np.where((new > 0) & (old > 0), old, 1.0)))


def risk_weights(theta: Any, test_prior: Any, *, warn: bool = True) -> NDArray[np.float64]:
    """Weigh the partial risks so that they add up to the classification risk.

    W = (Π Θ†)ᵀ with Π = diag(π), so that WᵀΘ = Π and the risk under the test prior π is
    Σ_mk W_mk R_mk, where R_mk is the mean loss of bag m if all its rows were class k.

    Parameters
    ----------
    theta
        Class priors Θ, anything that :meth:`ClassPriors.of` takes.
    test_prior
        Class shares π where the classifier will be used: K numbers, or a dict keyed by class.
    warn
        Warn where Θ is so ill-conditioned that the weights magnify noise.

    Returns
    -------
    (M, K) weights W.

    Raises
    ------
    RankError
        If Θ cannot tell some classes apart.

    Examples
    --------
    >>> risk_weights([[0.75, 0.25], [0.25, 0.75]], [0.5, 0.5])
    array([[ 0.75, -0.25],
           [-0.25,  0.75]])
    """
    table = ClassPriors.of(theta)
    pi = check_test_prior(test_prior, table.classes)  # (K,)
    table.check_rank()
    weights: NDArray[np.float64] = np.linalg.pinv(table.values).T * pi  # (M, K)
    condition = table.condition_number
    if warn and condition > ILL_CONDITIONED:
        message = (
            f"the class shares barely tell some classes apart: condition number {condition:.3g}, "
            f"sum of absolute risk weights {np.abs(weights).sum():.3g}; expect noisy estimates."
        )
        warnings.warn(message, ConditioningWarning, stacklevel=2)
    return weights

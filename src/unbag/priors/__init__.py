"""Class priors Θ: the share of every class in every bag, and what follows from them.

The generators make the settings of the paper; :func:`risk_weights` turns Θ and a test prior
into the weights W under which partial risks add up to the ordinary classification risk.
"""

from unbag.priors.errors import (
    SHARES_OF,
    ShareErrors,
    SharesOf,
    match_bags,
    read_shares_of,
)
from unbag.priors.generators import asymmetric, non_square, perturb, symmetric
from unbag.priors.labelled import read_labels, with_labelled
from unbag.priors.partly_known import partly_known
from unbag.priors.shares import (
    ILL_CONDITIONED,
    check_test_prior,
    prior_shift,
    priors_as_told,
    risk_weights,
)
from unbag.priors.table import RANK_TOLERANCE, ClassPriors

__all__ = [
    "ILL_CONDITIONED",
    "RANK_TOLERANCE",
    "SHARES_OF",
    "ClassPriors",
    "ShareErrors",
    "SharesOf",
    "asymmetric",
    "check_test_prior",
    "match_bags",
    "non_square",
    "partly_known",
    "perturb",
    "prior_shift",
    "priors_as_told",
    "read_labels",
    "read_shares_of",
    "risk_weights",
    "symmetric",
    "with_labelled",
]

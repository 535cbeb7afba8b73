"""Losses for learning from bags: ``nn.Module``s of (logits, bag_index) for any training loop.

>>> import unbag
>>> loss = unbag.objectives.get("u-prr", priors=[[0.8, 0.2], [0.3, 0.7]], test_prior=[0.5, 0.5])
>>> type(loss).__name__
'PartialRiskRegularized'
"""

import inspect
from typing import Any

from unbag.exceptions import InvalidInputError
from unbag.objectives.bag_likelihood import BagLikelihood, MatchedLikelihood
from unbag.objectives.base import Objective, RiskObjective
from unbag.objectives.biased import Biased
from unbag.objectives.consistency import ProportionConsistency
from unbag.objectives.corrected import Corrected
from unbag.objectives.counts import CountLikelihood
from unbag.objectives.flooded import Flooded
from unbag.objectives.losses import (
    GeneralizedCrossEntropy,
    cross_entropy,
    generalized_cross_entropy,
    get_loss,
)
from unbag.objectives.partial_risk import PartialRiskRegularized
from unbag.objectives.proportion import Proportion
from unbag.objectives.unbiased import Unbiased
from unbag.validation import check_choice, shorten

__all__ = [
    "OBJECTIVES",
    "BagLikelihood",
    "Biased",
    "Corrected",
    "CountLikelihood",
    "Flooded",
    "GeneralizedCrossEntropy",
    "MatchedLikelihood",
    "Objective",
    "PartialRiskRegularized",
    "Proportion",
    "ProportionConsistency",
    "RiskObjective",
    "Unbiased",
    "cross_entropy",
    "generalized_cross_entropy",
    "get",
    "get_loss",
]

OBJECTIVES: dict[str, type[Objective]] = {
    "biased": Biased,
    "prop": Proportion,
    "prop-cr": ProportionConsistency,
    "unbiased": Unbiased,
    "u-correct": Corrected,
    "u-flood": Flooded,
    "u-stop": Unbiased,  # its rule, when to stop, is the method's, not the objective's
    "u-prr": PartialRiskRegularized,
    "bag-likelihood": BagLikelihood,
    "matched-likelihood": MatchedLikelihood,
    "count-likelihood": CountLikelihood,
}


def get(name: str, /, priors: Any, **parameters: Any) -> Objective:
    """Build the objective of a method by name.

    Parameters
    ----------
    name : str
        One of the keys of ``OBJECTIVES``.
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    **parameters
        What the class of that objective takes; ``test_prior`` for those that start with ``u``.
    """
    check_choice("name", name, OBJECTIVES)
    cls = OBJECTIVES[name]
    signature = inspect.signature(cls)
    try:
        signature.bind(priors, **parameters)
    except TypeError as error:
        allowed = [p for p in signature.parameters if p != "priors"]
        message = f"{name} takes the parameters {shorten(allowed, limit=20)}: {error}."
        raise InvalidInputError(message) from None
    return cls(priors, **parameters)

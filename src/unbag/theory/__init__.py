r"""The estimation error bound: how much worse the learned classifier can be than the best one.

:func:`estimation_error_bound` is the second theorem of the paper, term by term. It needs the
constants of a bounded loss (:class:`LossConstants`) and the Rademacher complexity of the class of
functions, which :func:`mlp_complexity` bounds by the norms of a network. docs/how/theory.md has the
derivations and says what the bound is good for.
"""

from unbag.theory.bound import Complexity, EstimationErrorBound, estimation_error_bound
from unbag.theory.complexity import NormComplexity, fold_batch_norm, mlp_complexity
from unbag.theory.constants import LossConstants

__all__ = [
    "Complexity",
    "EstimationErrorBound",
    "LossConstants",
    "NormComplexity",
    "estimation_error_bound",
    "fold_batch_norm",
    "mlp_complexity",
]

"""Bound and Lipschitz constant of a loss."""

import math
from dataclasses import dataclass
from typing import Any, Self

from unbag.objectives.losses import GeneralizedCrossEntropy, get_loss
from unbag.validation import check_number, invalid

__all__ = ["LossConstants"]


@dataclass(frozen=True, slots=True)
class LossConstants:
    r"""The constants C_ℓ and L of a loss ℓ(z, k) ≥ 0 of logits z, which the bound needs.

    Parameters
    ----------
    bound : float
        :math:`C_\ell`, the largest value of the loss.
    lipschitz : float
        L in :math:`|\ell(z, k) - \ell(z', k)| \le L \|z - z'\|_2` for every class k.

    Examples
    --------
    >>> LossConstants.clipped_cross_entropy(level=5.0).bound
    5.0
    """

    bound: float
    lipschitz: float

    def __post_init__(self) -> None:
        check_number("bound", self.bound, low=0, low_open=True)
        check_number("lipschitz", self.lipschitz, low=0, low_open=True)

    @classmethod
    def of(cls, loss: Any) -> Self:
        """Constants of a loss of :mod:`unbag.objectives`, by name or by function.

        An instance is returned as it is. Cross-entropy is refused, since it has no bound.

        Examples
        --------
        >>> LossConstants.of("generalized-cross-entropy").bound  # q = 0.7
        1.4285714285714286
        >>> LossConstants.of("cross-entropy")
        Traceback (most recent call last):
        ...
        unbag.exceptions.InvalidInputError: loss must be bounded, got cross-entropy, which has no \
finite C_ℓ; clip it and give LossConstants.clipped_cross_entropy(level), or train with \
generalized-cross-entropy.
        """
        if isinstance(loss, cls):
            return loss
        function = get_loss(loss)
        if isinstance(function, GeneralizedCrossEntropy):
            return cls.generalized_cross_entropy(function.q)
        if function is get_loss("cross-entropy"):
            got = "cross-entropy, which has no finite C_ℓ"
            remedy = (
                "clip it and give LossConstants.clipped_cross_entropy(level), or train with "
                "generalized-cross-entropy."
            )
            raise invalid("loss", "bounded", got, remedy)
        remedy = "give its LossConstants(bound, lipschitz)."
        raise invalid("loss", "one with known constants", repr(loss), remedy)

    @classmethod
    def clipped_cross_entropy(cls, level: float) -> Self:
        r"""Cross-entropy clipped at a level c: :math:`\ell_k = \min(-\log \eta_k, c)`.

        .. math:: C_\ell = c, \qquad L = \sqrt{2} \, (1 - e^{-c})

        The gradient of :math:`-\log \eta_k` is :math:`\eta - e_k`, of length at most
        :math:`\sqrt{2} (1 - \eta_k)`, and it counts only where :math:`\eta_k > e^{-c}`.

        Examples
        --------
        >>> round(LossConstants.clipped_cross_entropy(level=5.0).lipschitz, 4)
        1.4047
        """
        check_number("level", level, low=0, low_open=True)
        return cls(float(level), -math.sqrt(2) * math.expm1(-level))

    @classmethod
    def generalized_cross_entropy(cls, q: float = 0.7) -> Self:
        r"""Generalised cross-entropy :math:`\ell_k = (1 - \eta_k^q) / q`.

        .. math:: C_\ell = \frac{1}{q}, \qquad L = \frac{\sqrt{2} \, q^q}{(1 + q)^{1 + q}}

        The gradient is :math:`\eta_k^q (\eta - e_k)`, of length at most
        :math:`\sqrt{2} \, \eta_k^q (1 - \eta_k)`, which is largest at :math:`\eta_k = q/(1+q)`.

        Examples
        --------
        >>> round(LossConstants.generalized_cross_entropy(q=1.0).lipschitz, 4)  # √2/4
        0.3536
        """
        check_number("q", q, low=0, high=1, low_open=True)
        return cls(1 / q, math.sqrt(2) * q**q / (1 + q) ** (1 + q))

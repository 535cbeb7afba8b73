"""Losses of every class: functions from logits (..., K) to losses (..., K)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unbag.validation import check_choice, check_number, invalid

__all__ = ["LossOfEveryClass", "cross_entropy", "generalized_cross_entropy", "get_loss"]

LossOfEveryClass = Callable[[Tensor], Tensor]


# Over a last axis shorter than a vector register torch's CPU kernel runs number by number; across
# the rows it does not, and the objective takes half the time (10 classes, 6,000 rows). Rows beyond
# the last whole register would be rounded otherwise than those before, so there are none: a row's
# numbers must not depend on its place.
_SHORT = 16


def _log_softmax(logits: Tensor) -> Tensor:
    if logits.ndim > 1 and logits.device.type == "cpu" and logits.shape[-1] < _SHORT:
        n = logits.shape[-2]
        across = nn.functional.pad(logits.movedim(-1, 0), (0, -n % _SHORT)).contiguous()
        return torch.log_softmax(across, 0)[..., :n].movedim(0, -1)
    return torch.log_softmax(logits, -1)


def cross_entropy(logits: Tensor) -> Tensor:
    r"""Cross-entropy :math:`\ell_k = -\log \eta_k`, with :math:`\eta` the softmax; unbounded.

    Examples
    --------
    >>> cross_entropy(torch.zeros(1, 2))
    tensor([[0.6931, 0.6931]])
    """
    return -_log_softmax(logits)


class GeneralizedCrossEntropy:
    r"""Generalised cross-entropy :math:`\ell_k = (1 - \eta_k^q) / q`, bounded by :math:`1/q`.

    Parameters
    ----------
    q : float in (0, 1]
        Between cross-entropy (q → 0) and the mean absolute error (q = 1).

    Examples
    --------
    >>> GeneralizedCrossEntropy(q=1.0)(torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    def __init__(self, q: float = 0.7) -> None:
        check_number("q", q, low=0, high=1, low_open=True)
        self.q = q

    def __call__(self, logits: Tensor) -> Tensor:
        # exp(q log η) instead of η**q: the gradient of the power is infinite at η = 0.
        return (1 - torch.exp(self.q * _log_softmax(logits))) / self.q

    def __repr__(self) -> str:
        return f"GeneralizedCrossEntropy(q={self.q})"


generalized_cross_entropy = GeneralizedCrossEntropy()

_LOSSES: dict[str, LossOfEveryClass] = {
    "cross-entropy": cross_entropy,
    "generalized-cross-entropy": generalized_cross_entropy,
}


def get_loss(loss: str | LossOfEveryClass) -> LossOfEveryClass:
    """Return the loss of that name, or the user's own function unchanged."""
    if callable(loss):
        return loss
    if not isinstance(loss, str):
        raise invalid("loss", "a name or a function of logits (n, K) to losses (n, K)", repr(loss))
    check_choice("loss", loss, _LOSSES)
    return _LOSSES[loss]

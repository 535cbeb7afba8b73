"""Steps of Adam, and of gradient descent with momentum, for all replicas of a stack at once."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["OPTIMIZERS"]

_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8
_MOMENTUM = 0.9
State = dict[str, Tensor]


def adam(state: State, gradient: Tensor, rate: Tensor, step: Tensor) -> Tensor:
    """Change of the weights, r m / c₁ / (√(v / c₂) + ε), in place of the gradient: (R, P).

    The moments m and v of ``state`` take a step; c₁ and c₂ correct their bias.
    """
    moment1 = state["moment1"].lerp_(gradient, 1 - _BETA1)
    moment2 = state["moment2"].mul_(_BETA2)
    moment2.addcmul_(gradient, gradient, value=1 - _BETA2)
    correction1 = 1 - torch.pow(_BETA1, step.double())
    correction2 = 1 - torch.pow(_BETA2, step.double())
    change = gradient.copy_(moment2).div_(correction2).sqrt_().add_(_EPS)
    return change.reciprocal_().mul_(moment1).mul_(rate / correction1)


def sgd(state: State, gradient: Tensor, rate: Tensor, step: Tensor) -> Tensor:  # noqa: ARG001
    """Change of the weights with Nesterov's momentum, in place of the gradient: (R, P)."""
    momentum = state["moment1"].mul_(_MOMENTUM).add_(gradient)
    return gradient.add_(momentum, alpha=_MOMENTUM).mul_(rate)


OPTIMIZERS: dict[str, Callable[[State, Tensor, Tensor, Tensor], Tensor]] = {
    "adam": adam,
    "sgd": sgd,
}

"""The proportion loss with virtual adversarial consistency."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from unbag.objectives.losses import LossOfEveryClass
from unbag.objectives.proportion import Proportion
from unbag.validation import check_number, invalid

__all__ = [
    "ProportionConsistency",
    "adversarial_perturbation",
    "consistency_weight",
    "divergences",
    "unit",
]


def divergences(logits: Tensor, perturbed_logits: Tensor) -> Tensor:
    r""":math:`KL(\eta \,\|\, \tilde\eta)` of every row, no gradient through η.

    Shapes: two of (..., n, K) to (..., n).
    """
    log_p = torch.log_softmax(logits.detach(), -1)
    log_q = torch.log_softmax(perturbed_logits, -1)
    return torch.sum(log_p.exp() * (log_p - log_q), -1)


def unit(direction: Tensor, row_dims: int) -> Tensor:
    """Scale the part of every row to length 1; ``row_dims`` axes come before a row's own."""
    flat = direction.flatten(row_dims)
    length: Tensor = torch.linalg.vector_norm(flat, dim=-1, keepdim=True)
    flat = flat / (length + 1e-8)
    return flat.view(direction.shape)


def adversarial_perturbation(
    divergence_at: Callable[[Tensor], Tensor],
    direction: Tensor,
    scale: Callable[[Tensor], Tensor],
) -> Tensor:
    """Perturbation of rows that changes predictions most, by one power step.

    Parameters
    ----------
    divergence_at : callable
        From directions to the sum over rows of the divergence there. Of a mean, the gradient
        would vanish with the number of rows.
    direction : Tensor
        Random directions of length 1 to start from, one per row.
    scale : callable
        From gradients to perturbations of the length that is wanted.
    """
    direction.requires_grad_()
    (gradient,) = torch.autograd.grad(divergence_at(direction), direction)
    with torch.no_grad():
        return scale(gradient)


def consistency_weight(progress: float, *, maximum: float = 0.05, rampup: float = 0.4) -> float:
    r"""Weight λ of the consistency term after a share t of training.

    .. math:: \lambda(t) = \lambda_{max} \exp\bigl(-5 (1 - \min(t/T, 1))^2\bigr)

    Examples
    --------
    >>> [round(consistency_weight(t), 5) for t in (0.0, 0.2, 0.4, 1.0)]
    [0.00034, 0.01433, 0.05, 0.05]
    """
    return maximum * math.exp(-5 * (1 - min(progress / rampup, 1.0)) ** 2)


@contextlib.contextmanager
def _no_running_statistics(model: nn.Module) -> Iterator[None]:
    """Batch normalisation uses the batch but does not remember it."""
    norms = (nn.modules.batchnorm._NormBase,)
    tracked = [m for m in model.modules() if isinstance(m, norms) and m.track_running_stats]
    try:
        for module in tracked:
            module.track_running_stats = False
        yield
    finally:
        for module in tracked:
            module.track_running_stats = True


class ProportionConsistency(Proportion):
    r"""Proportion loss plus virtual adversarial consistency (method ``prop-cr``).

    .. math::
        -\sum_{m,k} \theta_{mk} \log Q_{mk}
        + \lambda(t) \frac1n \sum_i KL\bigl(\eta(x_i) \,\|\, \eta(x_i + r_i)\bigr)

    where :math:`Q_{mk}` is the mean predicted probability of class k in bag m, :math:`r_i` the
    perturbation of length ε that changes the prediction of row i most (found by one power step
    of length ξ), and :math:`\lambda(t)` rises over the first 40% of training
    (``consistency_weight``; Tsai and Lin, 2020). Inputs are meant to lie in [0, 1].

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    probe : float, default=10.0
        ξ.
    radius : float, default=1.0
        ε.
    consistency : float, default=0.05
        The largest λ.
    loss : str or callable, default="cross-entropy"
        Only for the partial risks of the history.

    Examples
    --------
    >>> objective = ProportionConsistency([[0.8, 0.2], [0.3, 0.7]])
    >>> model = torch.nn.Linear(4, 2)
    >>> inputs = torch.rand(3, 4)
    >>> value = objective(
    ...     model(inputs), torch.tensor([0, 1, 1]), model=model, inputs=inputs, progress=0.5
    ... )
    >>> value.shape
    torch.Size([])
    """

    probe: Tensor
    radius: Tensor
    consistency: Tensor
    hyperparameters = ("consistency",)

    def __init__(
        self,
        priors: Any,
        *,
        probe: float = 10.0,
        radius: float = 1.0,
        consistency: float = 0.05,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, loss=loss)
        self._register_hyperparameter("probe", probe, low=0, low_open=True)
        self._register_hyperparameter("radius", radius, low=0, low_open=True)
        self._register_hyperparameter("consistency", consistency, low=0)

    def forward(
        self,
        logits: Tensor,
        bag_index: Tensor,
        weight: Tensor | None = None,
        inclusion: Tensor | None = None,
        *,
        model: nn.Module | None = None,
        inputs: Tensor | None = None,
        progress: float = 1.0,
    ) -> Tensor:
        """Value on a batch; needs the model and its inputs, and the share of training done."""
        if model is None or inputs is None:
            missing = "model" if model is None else "inputs"
            raise invalid(missing, "given, since prop-cr perturbs the inputs", "None")
        check_number("progress", progress, low=0, high=1)
        proportion = super().forward(logits, bag_index, weight, inclusion)
        with _no_running_statistics(model):
            probe, radius = self.probe.to(inputs), self.radius.to(inputs)
            perturbation = adversarial_perturbation(
                lambda d: divergences(logits, model(inputs + probe * d)).mean(-1) * len(inputs),
                unit(torch.rand_like(inputs) - 0.5, 1),
                lambda gradient: radius * unit(gradient, 1),
            )
            shift = divergences(logits, model(inputs + perturbation)).mean(-1)
        weight_now = self.consistency.to(shift) * consistency_weight(progress, maximum=1.0)
        return proportion + weight_now * shift

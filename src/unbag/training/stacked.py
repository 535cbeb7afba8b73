"""Networks of R replicas: all weights in one matrix, one forward pass for the stack.

Weights of replica r are row r of ``weights`` (R, P), and its floating-point buffers (running
means and variances) row r of ``buffers`` (R, Q). The optimizer, the freezing of replicas and
checkpoints see only those two matrices, whatever the architecture.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unbag.training.part import Part

__all__ = ["StackedNetwork"]


class StackedNetwork:
    """Base of the two kinds of stacks.

    Attributes
    ----------
    weights : Tensor of shape (R, P)
    buffers : Tensor of shape (R, Q)
    parameters : list of Tensor
        What gradients are taken of, in the order of the columns of ``weights``: views of it, or
        tensors in their place.
    gradient : Tensor of shape (R, P)
        In the type of ``parameters``.
    places : list of Tensor
        Views of ``gradient``, one for each of ``parameters``.
    counters : dict of Tensor
        Buffers that are no floating-point numbers, such as counts of batches.
    compute : torch.dtype
        Of matrix products and convolutions.
    n_output : int
        Weights of the last layer, which are the last columns.
    draws_numbers : bool
        Whether a pass in training draws random numbers from torch's generator. Such a step cannot
        be recorded as a CUDA graph.
    is_known : bool
        Whether the modules are unbag's, not the user's.
    part : Part
        The rows of every batch that this process has.
    """

    weights: Tensor
    buffers: Tensor
    parameters: list[Tensor]
    gradient: Tensor
    places: list[Tensor]
    counters: dict[str, Tensor]
    compute: torch.dtype
    n_output: int
    draws_numbers = False
    is_known = True
    part: Part

    def forward(
        self,
        x: Tensor,
        keys: Tensor,
        step: Tensor | int,
        *,
        training: bool,
        track: bool = True,
        learn: bool = True,
    ) -> Tensor:
        """Logits (R, n, K); in training, running statistics follow unless ``track`` is off.

        With ``learn`` off, gradients of the weights may be left out.
        """
        raise NotImplementedError

    def rate_factors(self, backbone_rates: Sequence[float]) -> Tensor:
        """Factors of the learning rate of every weight, (R, P): 1 for those of the last layer."""
        rates = torch.tensor(backbone_rates, dtype=self.weights.dtype, device=self.weights.device)
        if all(rate == 1 for rate in backbone_rates):
            return rates[:, None]  # the same for all weights
        factors = rates[:, None].repeat(1, self.weights.shape[1])
        factors[:, self.weights.shape[1] - self.n_output :] = 1
        return factors

    def join(self, gradients: Sequence[Tensor]) -> Tensor:
        """Join the gradients of ``parameters`` to one matrix like ``weights``."""
        if torch.compiler.is_compiling():  # which fuses what would be one more copy here
            return self._concatenate(gradients)
        for place, gradient in zip(self.places, gradients, strict=True):
            place.copy_(gradient)
        return self.gradient

    def _concatenate(self, gradients: Sequence[Tensor]) -> Tensor:
        raise NotImplementedError

    def extract(self, replica: int) -> nn.Module:
        """Return one replica as an ordinary module on the CPU."""
        raise NotImplementedError

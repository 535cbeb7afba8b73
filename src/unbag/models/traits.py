"""What a network is, told by its layers: rules of training look at these, not at types."""

import copy

import torch
from torch import nn

__all__ = [
    "draws_numbers",
    "is_convolutional",
    "is_normalized",
    "switch",
    "weights_of_last_layer",
]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def is_convolutional(module: nn.Module) -> bool:
    """Whether a network has convolutions over neighbouring places.

    Examples
    --------
    >>> is_convolutional(nn.Conv2d(3, 8, 3)), is_convolutional(nn.Conv2d(3, 8, 1))
    (True, False)
    """
    return any(
        isinstance(part, _CONVOLUTIONS) and max(part.kernel_size) > 1 for part in module.modules()
    )


def is_normalized(module: nn.Module) -> bool:
    """Whether batch normalisation, which is trained, holds the scale of activations.

    Examples
    --------
    >>> is_normalized(nn.BatchNorm2d(8)), is_normalized(nn.Linear(8, 2))
    (True, False)
    """
    return any(
        isinstance(part, nn.modules.batchnorm._BatchNorm)
        and any(p.requires_grad for p in part.parameters())
        for part in module.modules()
    )


def draws_numbers(module: nn.Module, row_shape: tuple[int, ...]) -> bool:
    """Whether two rows through a copy of the module, in training, change torch's generator.

    Examples
    --------
    >>> draws_numbers(nn.Dropout(0.5), (3,)), draws_numbers(nn.BatchNorm1d(3), (3,))
    (True, False)
    """
    copied = copy.deepcopy(module).cpu().train()
    dtype = next((p.dtype for p in copied.parameters()), torch.float32)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.random.get_rng_state()
        try:
            copied(torch.zeros(2, *row_shape, dtype=dtype))
        except (RuntimeError, ValueError):  # two rows may be too few for it
            return True
        return not torch.equal(before, torch.random.get_rng_state())


def weights_of_last_layer(module: nn.Module) -> int:
    """Count the trainable weights of the layer that comes last among the parameters."""
    layers = [
        sum(p.numel() for p in part.parameters(recurse=False) if p.requires_grad)
        for part in module.modules()
    ]
    return next((count for count in reversed(layers) if count), 0)


def switch(module: nn.Module, training: bool) -> nn.Module:
    """Set a module to training or not; normalisation that is frozen keeps its statistics."""
    module.train(training)
    if training:
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.affine:
                part.train(any(p.requires_grad for p in part.parameters()))
    return module

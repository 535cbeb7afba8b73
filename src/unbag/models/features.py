"""Features of a network: what its last layer is given."""

import copy

import torch
from torch import nn

__all__ = ["take_features", "with_projector"]

_WIDTH = 128  # of the projection


class Projector(nn.Sequential):
    """Two layers in the place of a last one, which features are learned through."""

    def __init__(self, n_features: int, width: int = _WIDTH) -> None:
        super().__init__(nn.Linear(n_features, n_features), nn.ReLU(), nn.Linear(n_features, width))
        self.in_features, self.out_features = n_features, width


def with_projector(module: nn.Module, seed: int) -> nn.Module | None:
    """Copy a network with a :class:`Projector` in the place of its last layer, if that is linear.

    Examples
    --------
    >>> from unbag.models import LeNet5
    >>> with_projector(LeNet5(1, 10), seed=0)(torch.zeros(2, 28, 28)).shape
    torch.Size([2, 128])
    """
    name = _name_of_last_layer(module)
    if not name:  # the whole network is one layer, or the last one is not linear
        return None
    changed = copy.deepcopy(module)
    parent, _, attribute = name.rpartition(".")
    last = changed.get_submodule(name)
    assert isinstance(last, nn.Linear)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        projector = Projector(last.in_features)
    setattr(changed.get_submodule(parent), attribute, projector.to(last.weight))
    return changed


def take_features(module: nn.Module, trained: nn.Module) -> nn.Module:
    """Copy a network, with all weights but those of its last layer from a trained one."""
    changed = copy.deepcopy(module)
    # Weights of a projector have names that the network does not know.
    changed.load_state_dict(trained.state_dict(), strict=False)
    return changed


def _name_of_last_layer(module: nn.Module) -> str | None:
    """Name of the linear layer that comes last among those with parameters."""
    layers = [
        (name, part)
        for name, part in module.named_modules()
        if any(p.requires_grad for p in part.parameters(recurse=False))
    ]
    name, last = layers[-1]
    return name if isinstance(last, nn.Linear) else None

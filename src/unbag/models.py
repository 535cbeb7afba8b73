"""Networks: linear, MLP and ResNet-20, or a module that the user gives."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbag.convolution import Conv3x3
from unbag.validation import check_choice, check_number, invalid, shorten

__all__ = ["MLP", "MLP_DEFAULTS", "MODELS", "ModuleFactory", "ResNet20", "build_model"]

MLP_DEFAULTS: dict[str, Any] = {"depth": 3, "width": 300, "dropout": 0.0}
ModuleFactory = Callable[[tuple[int, ...], int], nn.Module]


class MLP(nn.Module):
    """Fully connected network: blocks of Linear, ReLU, BatchNorm, then a Linear output.

    Parameters
    ----------
    n_features : int
        Numbers in a row; rows of any shape are flattened.
    n_classes : int
        K.
    depth : int, default=3
        Number of Linear layers; 1 is a linear model. The paper uses 3 and 5.
    width : int, default=300
        Units of each hidden layer.
    dropout : float in [0, 1), default=0.0
        Share of hidden units dropped after each block.

    Examples
    --------
    >>> MLP(16, 10, depth=3)(torch.zeros(2, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        depth: int = 3,
        width: int = 300,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_number("depth", depth, low=1, integer=True)
        check_number("width", width, low=1, integer=True)
        check_number("dropout", dropout, low=0, high=1, high_open=True)
        self.dropout = dropout
        sizes = [n_features, *[width] * (depth - 1), n_classes]
        pairs = list(itertools.pairwise(sizes))
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for _, b in pairs[:-1])

    @property
    def architecture(self) -> tuple[object, ...]:
        """What two MLPs must share to be trained in one stack (dropout may differ)."""
        return ("MLP", *(tuple(layer.weight.shape) for layer in self.blocks()[0]))

    def blocks(self) -> tuple[list[nn.Linear], list[nn.BatchNorm1d]]:
        """Linear layers and normalisations, in order."""
        linears = [m for m in self.linears if isinstance(m, nn.Linear)]
        return linears, [m for m in self.norms if isinstance(m, nn.BatchNorm1d)]

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, K) of rows (n, ...)."""
        x = x.flatten(1)
        for linear, norm in zip(self.linears[:-1], self.norms, strict=True):
            x = norm(torch.relu(linear(x)))
            x = nn.functional.dropout(x, self.dropout, self.training)
        out: Tensor = self.linears[-1](x)
        return out


class _Residual(nn.Module):
    """Two 3×3 convolutions around a shortcut without parameters (He et al., 2016, option A)."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.stride = channels // channels_in
        self.conv1 = Conv3x3(channels_in, channels, self.stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = Conv3x3(channels, channels)
        self.norm2 = nn.BatchNorm2d(channels)
        self.added = channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (n, C_in, H, W) to (n, C, H/stride, W/stride)."""
        out = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        if self.added:
            half = self.added // 2
            x = x[:, :, :: self.stride, :: self.stride]
            x = nn.functional.pad(x, [0, 0, 0, 0, half, self.added - half])
        return torch.relu(out + x)


class ResNet20(nn.Module):
    """Residual network of depth 20 in its CIFAR form: 16, 32, 64 channels, three blocks each.

    Shortcuts have no parameters and convolutions start from He's initialisation
    (He et al., 2016, section 4.2).

    Parameters
    ----------
    n_channels : int
        Channels of an image.
    n_classes : int
        K.

    Examples
    --------
    >>> net = ResNet20(3, 10)
    >>> sum(p.numel() for p in net.parameters())
    269722
    """

    def __init__(self, n_channels: int, n_classes: int) -> None:
        super().__init__()
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        self.conv = Conv3x3(n_channels, 16)
        self.norm = nn.BatchNorm2d(16)
        pairs = itertools.pairwise(widths)
        self.blocks = nn.Sequential(*(_Residual(a, b) for a, b in pairs))
        self.output = nn.Linear(64, n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
        nn.init.zeros_(self.output.bias)

    @property
    def architecture(self) -> tuple[object, ...]:
        """What two networks must share to be trained in one stack."""
        return ("ResNet20", self.conv.in_channels, self.output.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, K) of images (n, C, H, W) or (n, H, W)."""
        if x.ndim == 3:
            x = x[:, None]
        x = self.blocks(torch.relu(self.norm(self.conv(x))))
        out: Tensor = self.output(x.mean((2, 3)))
        return out


def _linear(row_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return MLP(int(np.prod(row_shape)), n_classes, depth=1)


def _mlp(row_shape: tuple[int, ...], n_classes: int, **options: Any) -> nn.Module:
    return MLP(int(np.prod(row_shape)), n_classes, **options)


def _resnet20(row_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    if len(row_shape) not in (2, 3):
        allowed = "images (n, C, H, W) or (n, H, W) for model='resnet20'"
        raise invalid("X", allowed, f"rows of shape {row_shape}", "use model='mlp' for tables.")
    return ResNet20(row_shape[0] if len(row_shape) == 3 else 1, n_classes)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    "resnet20": _resnet20,
}


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from the given seed inside, and leave the global generator as it was."""
    # torch.manual_seed would also seed every GPU, even one that is not in use yet.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if in_use else ()
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed_all(seed)
        yield


def build_model(
    model: str | nn.Module | ModuleFactory,
    row_shape: tuple[int, ...],
    n_classes: int,
    seed: int,
    **options: Any,
) -> nn.Module:
    """Build a network whose initial weights depend on the seed alone.

    Parameters
    ----------
    model : str, nn.Module or callable
        A name in ``MODELS``; a module, which is copied with its weights; or a factory
        ``f(row_shape, n_classes)`` that returns a module.
    row_shape : tuple of int
        Shape of one row.
    n_classes : int
        K.
    seed : int
        Seed of the initial weights.
    **options
        ``depth``, ``width`` and ``dropout`` of the MLP.
    """
    if isinstance(model, str):
        check_choice("model", model, MODELS)
        allowed = ("depth", "width", "dropout") if model == "mlp" else ()
        unknown = [name for name in options if name not in allowed]
        if unknown:
            got = f"{shorten(unknown)} for model={model!r}"
            raise invalid("model_options", f"of {shorten(allowed) or 'nothing'}", got)
        with _seeded(seed):
            return MODELS[model](row_shape, n_classes, **options)
    if isinstance(model, nn.Module):
        module = copy.deepcopy(model)
    elif callable(model):
        with _seeded(seed):
            module = model(row_shape, n_classes)
        if not isinstance(module, nn.Module):
            raise invalid("model", "a factory that returns an nn.Module", type(module).__name__)
    else:
        allowed_kinds = "a name, an nn.Module or a factory f(row_shape, n_classes)"
        raise invalid("model", allowed_kinds, repr(model))
    _check_shapes(module, row_shape, n_classes)
    return module


def _check_shapes(module: nn.Module, row_shape: tuple[int, ...], n_classes: int) -> None:
    """Refuse a module that does not turn two rows into logits of shape (2, K)."""
    parameters = list(module.parameters())
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in parameters):
        remedy = "run it on a row once, or give the sizes of its layers."
        raise invalid("model", "a module whose shapes are known", "a lazy one", remedy)
    if not any(p.requires_grad for p in parameters):
        raise invalid("model", "a module with parameters to train", "none that requires_grad")
    rows = torch.zeros(2, *row_shape, dtype=parameters[0].dtype, device=parameters[0].device)
    allowed = f"a module of rows (n, {', '.join(map(str, row_shape))}) to logits (n, {n_classes})"
    training = module.training
    try:
        with torch.no_grad():
            out = module.eval()(rows)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise invalid("model", allowed, f"one that fails on such rows ({error})") from error
    finally:
        module.train(training)
    if not isinstance(out, Tensor) or out.shape != (2, n_classes):
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise invalid("model", allowed, f"one that turns two rows into {shape}")

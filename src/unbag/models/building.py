"""Networks by name, and the checks of a module that the user gives."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbag.models.convolutional import LeNet5, ResNet18, ResNet20, WideResNet
from unbag.models.mlp import MLP
from unbag.validation import check_choice, invalid, shorten

__all__ = ["IMAGE_MODELS", "MODELS", "ModuleFactory", "build_model"]

ModuleFactory = Callable[[tuple[int, ...], int], nn.Module]


def _linear(row_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return MLP(int(np.prod(row_shape)), n_classes, depth=1)


def _mlp(row_shape: tuple[int, ...], n_classes: int, **options: Any) -> nn.Module:
    return MLP(int(np.prod(row_shape)), n_classes, **options)


def _of_images(
    name: str, kind: Callable[..., nn.Module], row_shape: tuple[int, ...], n_classes: int
) -> nn.Module:
    if len(row_shape) not in (2, 3):
        allowed = f"images (n, C, H, W) or (n, H, W) for model={name!r}"
        raise invalid("X", allowed, f"rows of shape {row_shape}", "use model='mlp' for tables.")
    channels = row_shape[0] if len(row_shape) == 3 else 1
    if kind is LeNet5:
        return LeNet5(channels, n_classes, size=row_shape[-2:])
    return kind(channels, n_classes)


_IMAGE_KINDS: dict[str, Callable[..., nn.Module]] = {
    "lenet5": LeNet5,
    "resnet18": ResNet18,
    "resnet20": ResNet20,
    "wrn28-2": WideResNet,
}
IMAGE_MODELS = tuple(_IMAGE_KINDS)
MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    **{name: partial(_of_images, name, kind) for name, kind in _IMAGE_KINDS.items()},
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

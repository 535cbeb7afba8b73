"""Batch normalisation over all rows of a batch, also where several processes share it."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from unbag.training.part import Part, SharedPart
from unbag.training.sums import sum_rows

__all__ = ["EPS", "rectify_and_normalize", "rectify_and_normalize_in_blocks", "share_layers"]

EPS = 1e-5  # as in nn.BatchNorm1d
# Few sums over many rows do not keep a GPU busy in one stage.
_MANY_ROWS, _MANY_SUMS = 1 << 11, 1 << 12
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def _sum_rows(x: Tensor) -> Tensor:
    """Sum over the rows of each replica: (R, n, units) to (R, 1, units)."""
    replicas, n, units = x.shape
    if x.is_cuda and n >= _MANY_ROWS and replicas * units < _MANY_SUMS:
        # In two stages, so that there are more sums to share out than a GPU has processors. With
        # fewer than nine parts the compiler would repeat the second stage for every row.
        parts = next((p for p in range(16, 8, -1) if n % p == 0), 1)
        x = x.view(replicas, parts, n // parts, units).sum(2)
    return x.sum(1, keepdim=True)


class _RectifyAndNormalize(torch.autograd.Function):
    """Bias, ReLU and batch normalisation of a stack, with the gradient in its closed form.

    With z = x + bias, a = relu(z), â = (a − mean) / deviation and the incoming gradient g, sums
    and means over the n rows of a batch give

    - d shift = Σ g,  d scale = Σ g â,
    - dz = [z > 0] · gain · (g − d shift / n − â · d scale / n),  gain = scale / deviation,
    - d bias = Σ dz, written out in sums that need no second pass over the rows.

    Automatic differentiation of the forward lines reads and writes memory twice as often. Where
    processes share a batch, moments and the sums in dz are those of all rows; gradients of bias,
    scale and shift are those of this part, since gradients of weights are added up later.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, part: SharedPart | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        n = max(x.shape[1], 1)
        positive = torch.relu(x + bias)
        mean = _sum_rows(positive) / n
        centred = positive - mean
        var = _sum_rows(centred.square()) / n
        if part is not None:
            mean, var = part.join_moments(mean, var)
            centred = positive - mean
        inverse = torch.rsqrt(var + EPS)
        normal = centred * inverse
        ctx.save_for_backward(normal, mean, inverse, scale)
        ctx.part = part
        ctx.input_dtype = x.dtype
        ctx.mark_non_differentiable(mean, var)
        return torch.addcmul(shift, normal, scale), mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        out, part = gradients[0], ctx.part
        n = out.shape[1] if part is None else part.n
        add = None if part is None else part.add
        grad_x, *others = _go_back(out, ctx.saved_tensors, n, _sum_rows, add)
        return grad_x.to(ctx.input_dtype), *others, None


def _go_back(
    out: Tensor,
    saved: tuple[Tensor, ...],
    n: int,
    total: Callable[[Tensor], Tensor],
    add: Callable[[Tensor], Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of rows, bias, scale and shift by their closed form.

    ``total`` sums over the rows of this process, ``add`` over those of all.
    """
    normal, mean, inverse, scale = saved  # normal: (R, n, units)
    # A unit was cut off by the ReLU exactly where its normalised value is that of zero.
    on = (normal > -mean * inverse).to(out.dtype)
    grad_shift = total(out)
    grad_scale = total(out * normal)
    first, second = grad_shift / n, grad_scale / n
    if add is not None:
        first, second = torch.split(add(torch.cat([first, second], 1)), 1, 1)
    gain = scale * inverse
    grad_x = (out - first.to(out.dtype) - normal * second.to(out.dtype)) * (on * gain)
    sums = total(on * out) - first * total(on) - second * total(on * normal)
    return grad_x, gain * sums, grad_scale, grad_shift


class _InBlocks(torch.autograd.Function):
    """The same with sums over rows in blocks; gradients of weights go to others in float64."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        affine: tuple[Tensor, Tensor, Tensor],
        part: Part,
        length: int,
        *_: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        bias, scale, shift = affine
        n = part.n_rows(x)
        positive = torch.relu(x + bias)
        mean = (part.add(sum_rows(positive, length)) / n).to(x.dtype)
        centred = positive - mean
        var = (part.add(sum_rows(centred.square(), length)) / n).to(x.dtype)
        inverse = torch.rsqrt(var + EPS)
        normal = centred * inverse
        ctx.save_for_backward(normal, mean, inverse, scale)
        ctx.part, ctx.n, ctx.length = part, n, length
        ctx.mark_non_differentiable(mean, var)
        return torch.addcmul(shift, normal, scale), mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        total = partial(sum_rows, length=ctx.length)
        part = ctx.part
        grad_x, *others = _go_back(gradients[0], ctx.saved_tensors, ctx.n, total, part.add)
        return grad_x, None, None, None, *others


def rectify_and_normalize(
    x: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, part: Part
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised ReLU of x (R, n, units), and the batch's mean and variance, (R, 1, units)."""
    shared = part if isinstance(part, SharedPart) else None
    out = _RectifyAndNormalize.apply(x, bias, scale, shift, shared)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor, Tensor], out)


def rectify_and_normalize_in_blocks(
    x: Tensor,
    affine: tuple[Tensor, Tensor, Tensor],
    of_affine: tuple[Tensor, Tensor, Tensor],
    part: Part,
    length: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do the same with bias, scale and shift whose gradients go to ``of_affine``."""
    out = _InBlocks.apply(x, affine, part, length, *of_affine)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor, Tensor], out)


# ------------------------------------------------------------------------- modules of any kind


def share_layers(module: nn.Module, part: Part) -> None:
    """Let layers of batch normalisation and of dropout work on the batch that processes share.

    Everything else in a module must treat every row by itself.
    """
    if not isinstance(part, SharedPart):
        return
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            _replace_training(layer, partial(_normalize, layer, part))
        elif isinstance(layer, _DROPOUTS):
            _replace_training(layer, partial(_drop_out, layer, part))


def _replace_training(layer: nn.Module, training: Callable[[Tensor], Tensor]) -> None:
    usual = layer.forward

    def forward(x: Tensor) -> Tensor:
        return training(x) if layer.training else cast(Tensor, usual(x))

    layer.forward = forward


def _normalize(layer: nn.modules.batchnorm._BatchNorm, part: SharedPart, x: Tensor) -> Tensor:
    """Batch normalisation in training, as the layer itself does it for a whole batch."""
    normal, mean, var = _Normalize.apply(x, layer.eps, part)  # type: ignore[no-untyped-call]
    if layer.running_mean is not None and layer.running_var is not None:
        assert layer.num_batches_tracked is not None
        with torch.no_grad():
            layer.num_batches_tracked.add_(1)
            share = layer.momentum
            if share is None:
                share = 1 / float(layer.num_batches_tracked)
            n = _n_numbers(x, part)
            layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), share)
            unbiased = var * (n / max(n - 1, 1))
            layer.running_var.lerp_(unbiased.to(layer.running_var.dtype), share)
    if layer.weight is None:
        return cast(Tensor, normal)
    shape = [1, -1, *[1] * (x.ndim - 2)]
    scale, shift = layer.weight.to(normal.dtype), layer.bias.to(normal.dtype)
    return cast(Tensor, normal * scale.view(shape) + shift.view(shape))


def _n_numbers(x: Tensor, part: SharedPart) -> float:
    """Count the numbers of a channel in the whole batch."""
    each = len(x) / max(len(part.rows), 1) * math.prod(x.shape[2:])
    return part.n * each


class _Normalize(torch.autograd.Function):
    """Numbers of every channel less their mean, by their deviation: (n, C, ...)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, part: SharedPart) -> tuple[Tensor, Tensor, Tensor]:
        flat = x.to(torch.promote_types(x.dtype, torch.float32))
        axes = [0, *range(2, x.ndim)]
        n = max(x.numel() // x.shape[1], 1)
        mean = flat.sum(axes, keepdim=True) / n
        var = (flat - mean).square().sum(axes, keepdim=True) / n
        mean, var = part.join_moments(mean, var)
        inverse = torch.rsqrt(var + eps)
        normal = (flat - mean) * inverse
        ctx.save_for_backward(normal, inverse)
        ctx.part, ctx.axes, ctx.n, ctx.dtype = part, axes, _n_numbers(x, part), x.dtype
        ctx.mark_non_differentiable(mean, var)
        return normal.to(x.dtype), mean.flatten(), var.flatten()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        normal, inverse = ctx.saved_tensors
        out = gradients[0].to(normal.dtype)
        sums = [v.sum(ctx.axes, keepdim=True) for v in (out, out * normal)]
        first, second = ctx.part.add(torch.stack(sums)) / max(ctx.n, 1)
        grad = (out - first - normal * second) * inverse
        return grad.to(ctx.dtype), None, None


def _drop_out(layer: nn.Module, part: SharedPart, x: Tensor) -> Tensor:
    """Draw for all rows of the batch, as one process would."""
    usual = type(layer).forward
    if len(x) != len(part.rows):  # no rows of the batch
        return cast(Tensor, usual(layer, x))
    kept = usual(layer, x.new_ones(part.n, *x.shape[1:]))
    return cast(Tensor, x * kept[part.rows])

"""3×3 convolutions of few channels, made wide for the matrix units of a GPU.

Matrix units work on tiles of 32 to 128 channels; with 16 they mostly multiply padding. In the
channels-last layout, f neighbouring pixels of an image row already lie together in memory, so
the same numbers are also an image of f times the channels and 1/f of the width. A convolution of
that image, with the weights spread out accordingly, gives the same result at several times the
speed, though it multiplies by many zeros.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

__all__ = ["Conv3x3"]

_WIDE = 64  # channels at which the matrix units are busy
_ALIGN = 8  # they read channels in groups of 16 bytes


def _packing(channels: int, width: int) -> int:
    """Return how many pixels to join: a power of two that divides the width."""
    factor = 1
    while channels * factor < _WIDE and width % (2 * factor) == 0:
        factor *= 2
    return factor


def _pack(x: Tensor, factor: int) -> Tensor:
    """Join pixels: (n, C, H, W) to (n, f·C, H, W/f), no copy for channels-last x."""
    n, c, h, w = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(n, h, w // factor, factor * c)
    return rows.permute(0, 3, 1, 2)


def _unpack(x: Tensor, factor: int) -> Tensor:
    """Undo :func:`_pack`."""
    n, c, h, w = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(n, h, w * factor, c // factor)
    return rows.permute(0, 3, 1, 2)


def _taps(factor: int, device: torch.device) -> Tensor:
    """Column of the kernel that joins pixel i of a packed input to pixel o of the output.

    Shape (f, f, 3), indexed by o, i and the packed column; 3 stands for none.
    """
    place = torch.arange(factor, device=device)
    shift = factor * torch.arange(-1, 2, device=device)
    tap = shift + place[None, :, None] - place[:, None, None] + 1
    return torch.where((tap >= 0) & (tap <= 2), tap, 3)


def _spread(weight: Tensor, factor: int) -> Tensor:
    """Weights for packed images: (O, C, 3, 3) to (f·O, f·C, 3, 3)."""
    o, c = weight.shape[:2]
    padded = nn.functional.pad(weight, [0, 1])  # (O, C, 3, 4): the last column is zero
    spread = padded[..., _taps(factor, weight.device)]  # (O, C, 3, f, f, 3)
    return spread.permute(3, 0, 4, 1, 2, 5).reshape(factor * o, factor * c, 3, 3)


def _gather(gradient: Tensor, factor: int) -> Tensor:
    """Gradient of :func:`_spread`: (f·O, f·C, 3, 3) to (O, C, 3, 3)."""
    o, c = gradient.shape[0] // factor, gradient.shape[1] // factor
    parts = gradient.view(factor, o, factor, c, 3, 3).permute(1, 3, 4, 0, 2, 5)
    chosen = nn.functional.one_hot(_taps(factor, gradient.device), 4).to(gradient.dtype)
    return torch.einsum("ocyabx,abxt->ocyt", parts, chosen)[..., :3]


class _WideConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        factor = _packing(weight.shape[0], x.shape[3])
        packed = torch.conv2d(_pack(x, factor), _spread(weight, factor), padding=1)
        return _unpack(packed, factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors
        factor = _packing(weight.shape[0], x.shape[3])
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            _pack(gradients[0], factor),
            _pack(x, factor),
            _spread(weight, factor),
            None,
            [1, 1],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            1,
            [ctx.needs_input_grad[0], True, False],
        )
        grad_weight = _gather(grad_weight.float(), factor).to(weight.dtype)
        return None if grad_x is None else _unpack(grad_x, factor), grad_weight


class Conv3x3(nn.Conv2d):
    """A 3×3 convolution with padding 1 and no bias, wide where that is faster.

    Parameters
    ----------
    channels_in, channels_out : int
    stride : int, default=1
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int = 1) -> None:
        super().__init__(channels_in, channels_out, 3, stride, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (n, C_in, H, W) to (n, C_out, H/stride, W/stride)."""
        narrow = self.out_channels < _WIDE and self.stride == (1, 1)
        if not (narrow and x.is_cuda and torch.is_autocast_enabled("cuda")):
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cuda")
        x, weight = x.to(dtype), self.weight.to(dtype)
        if missing := -self.in_channels % _ALIGN:
            x = nn.functional.pad(x, [0, 0, 0, 0, 0, missing])
            weight = nn.functional.pad(weight, [0, 0, 0, 0, 0, missing])
        out = _WideConvolution.apply(x, weight)  # type: ignore[no-untyped-call]
        return cast(Tensor, out)

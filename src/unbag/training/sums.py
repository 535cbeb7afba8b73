"""Sums over the rows of a batch that are the same however many processes share it.

Rows are added up in blocks, and the sums of the blocks in float64, so that their order plays no
part once the total is rounded to float32; rows of small batches are added up in float64 at once.
One, two and four processes have whole blocks of the same rows, and a row's own numbers do not
depend on the rows beside it. So they take the same steps to the last bit, where otherwise a
rounding error decides on which side of zero the input of a ReLU is, and the networks grow apart.
"""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor

__all__ = ["N_BLOCKS", "add_bias", "block_length", "multiply", "sum_rows"]

N_BLOCKS = 8  # of a batch
_FROM = 256  # rows; smaller batches have no blocks
_CACHED = 1 << 17  # numbers in products of blocks that are made at once


def block_length(n: int) -> int:
    """Rows of a block of a batch of n rows, 0 where it has no blocks."""
    return n // N_BLOCKS if n >= _FROM else 0


def _cut(x: Tensor, length: int) -> list[Tensor]:
    """Cut rows (R, n, d) into blocks (R, blocks, rows, d); what is left over is in the middle."""
    n = x.shape[1]
    each = n // (2 * length)
    if each == 0:
        return [x[:, None]]
    if n == 2 * each * length:
        return [torch.unflatten(x, 1, (2 * each, length))]
    side = each * length
    first, rest, last = torch.split(x, [side, n - 2 * side, side], 1)
    return [
        torch.unflatten(first, 1, (each, length)),
        rest[:, None],
        torch.unflatten(last, 1, (each, length)),
    ]


def sum_rows(x: Tensor, length: int) -> Tensor:
    """Sum over rows in blocks of this length, 0 for none: (R, n, d) to (R, 1, d), in float64."""
    if length == 0:
        return x.sum(1, keepdim=True, dtype=torch.float64)
    sums = [part.sum(2).sum(1, keepdim=True, dtype=torch.float64) for part in _cut(x, length)]
    return _add(sums)


def _sum_products(x: Tensor, y: Tensor, length: int) -> Tensor:
    """Sum the outer products of rows: (R, n, a) and (R, n, b) to (R, a, b), in float64."""
    if length == 0:
        return torch.bmm(x.double().transpose(1, 2), y.double())
    at_once = max(1, _CACHED // (len(x) * x.shape[2] * y.shape[2]))  # blocks
    products = (
        product
        for left, right in zip(_cut(x, length), _cut(y, length), strict=True)
        for some, others in zip(
            torch.split(left, at_once, 1), torch.split(right, at_once, 1), strict=True
        )
        for product in torch.matmul(some.transpose(2, 3), others).unbind(1)
    )
    return _add(products)


def _add(parts: Iterable[Tensor]) -> Tensor:
    parts = iter(parts)
    total = next(parts).double()
    for part in parts:
        total.add_(part)
    return total


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, of_weight: Tensor, length: int) -> Tensor:  # noqa: ARG004 - of torch
        ctx.save_for_backward(x, weight)
        ctx.length = length
        return torch.bmm(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (out,) = gradients
        of_x = torch.bmm(out, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        of_weight = _sum_products(x, out, ctx.length) if ctx.needs_input_grad[2] else None
        return of_x, None, of_weight, None


class _Bias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, of_bias: Tensor, length: int) -> Tensor:  # noqa: ARG004 - of torch
        ctx.length = length
        return x + bias

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = gradients
        return out, None, sum_rows(out, ctx.length), None


def multiply(x: Tensor, weight: Tensor, of_weight: Tensor, length: int) -> Tensor:
    """Multiply rows (R, n, a) by weights (R, a, b).

    The gradient goes to ``of_weight``, a tensor of float64 like the weights.
    """
    product = _Product.apply(x, weight, of_weight, length)  # type: ignore[no-untyped-call]
    return cast(Tensor, product)


def add_bias(x: Tensor, bias: Tensor, of_bias: Tensor, length: int) -> Tensor:
    """Add biases (R, 1, b) to rows (R, n, b); their gradient goes to ``of_bias``."""
    return cast(Tensor, _Bias.apply(x, bias, of_bias, length))  # type: ignore[no-untyped-call]

"""Random changes of rows that keep their class; they are computed on the device.

Weak ones are small: an image is moved by a few pixels and, where that is allowed, mirrored. Strong
ones make a row harder: an image is also turned, sheared, recoloured and covered in part; a row of
a table gets some of its numbers from other rows. Views, for features that are learned without bags,
show a part of an image in other colours.
"""

import torch
from torch import Tensor

from unbag.training.part import ALL_ROWS, Part
from unbag.training.randomness import derive, uniform

__all__ = ["augment", "view"]

_SHIFT = 8  # an eighth of the side
_CHANCE = 0.25  # of each further move, bend and change of colour
_MOVE = 0.25  # of the side
_BENDS = (0.52, 0.3, 0.3)  # largest turn in radians, and shears
_BRIGHTNESS, _CONTRAST, _SATURATION = 0.5, 0.6, 0.9
_CORRUPTED = 0.3  # of the numbers of a table's row
_GREY = (0.299, 0.587, 0.114)
_SMALLEST_VIEW = 0.2  # of the area of an image
_VIEW_CHANGES, _VIEW_TINT, _VIEW_GREY = 0.4, 0.2, 0.2


def augment(x: Tensor, keys: Tensor, *, strong: bool, flip: bool, part: Part = ALL_ROWS) -> Tensor:
    """Return changed rows.

    Parameters
    ----------
    x : Tensor of shape (R, B, d), (R, B, H, W) or (R, B, C, H, W)
        Rows of a table, or images.
    keys : Tensor of shape (R,)
        Random key of every replica.
    strong : bool
    flip : bool
        Whether images may be mirrored, left for right.
    part : Part, optional
        Which rows of the batch x has.
    """
    if x.ndim == 3:
        return _corrupt(x, keys, part) if strong else x
    images = x[:, :, None] if x.ndim == 4 else x
    draws = uniform(keys, part.numbers(images), 16).to(x.dtype)  # (R, B, 16)
    out = _warp(images, *_placement(images, draws, strong, flip))
    if strong:
        out = _cover(_recolour(out, draws[..., 8:12]), draws[..., 12:14])
    return out.view(x.shape)


def view(x: Tensor, keys: Tensor, *, flip: bool, part: Part = ALL_ROWS) -> Tensor:
    """Return a part of each image, at its full size and in other colours.

    Of a row of a table, some numbers are taken from other rows, as by :func:`augment`.

    Parameters
    ----------
    x : Tensor of shape (R, B, d), (R, B, H, W) or (R, B, C, H, W)
    keys : Tensor of shape (R,)
    flip : bool
        Whether images may be mirrored, left for right.
    part : Part, optional
    """
    if x.ndim == 3:
        return _corrupt(x, keys, part)
    images = x[:, :, None] if x.ndim == 4 else x
    draws = uniform(keys, part.numbers(images), 16).to(x.dtype)  # (R, B, 16)
    scale = torch.sqrt(_SMALLEST_VIEW + (1 - _SMALLEST_VIEW) * draws[..., 0])
    sides = draws.new_tensor(images.shape[-2:])
    shift = (2 * draws[..., 1:3] - 1) * (1 - scale[..., None]) * sides / 2
    sign = torch.where(draws[..., 3] < 0.5, -1.0, 1.0) if flip else torch.ones_like(scale)
    matrix = torch.diag_embed(torch.stack([scale, scale * sign], -1))
    out = _warp(images, matrix, shift)
    changes = 1 + _VIEW_CHANGES * (2 * draws[..., 4:6] - 1)
    contrast, brightness = (change[..., None, None, None] for change in changes.unbind(-1))
    mean = out.mean((2, 3, 4), keepdim=True)
    out = (mean + (out - mean) * contrast) * brightness
    if out.shape[2] == 3:
        tint = 1 + _VIEW_TINT * (2 * draws[..., 6:9] - 1)
        out = out * tint[..., None, None]
        red, green, blue = (share * out[:, :, i : i + 1] for i, share in enumerate(_GREY))
        is_grey = (draws[..., 9] < _VIEW_GREY)[..., None, None, None]
        out = torch.where(is_grey, red + green + blue, out)
    return out.view(x.shape)


def _corrupt(x: Tensor, keys: Tensor, part: Part) -> Tensor:
    """Take some numbers of a row from other rows of the batch, each column by itself."""
    n, rows, d = part.n_rows(x), part.numbers(x), x.shape[2]
    other = (uniform(derive(keys, 0), rows, d) * n).to(torch.int64).clamp_max(n - 1)
    chosen = uniform(derive(keys, 1), rows, d) < _CORRUPTED
    return torch.where(chosen, part.whole(x).gather(1, other), x)


def _signed(draw: Tensor) -> Tensor:
    """Uniform in [−1, 1] with a chance of one quarter, else 0; from one uniform number."""
    return torch.where(draw < _CHANCE, 2 / _CHANCE * draw - 1, 0.0)


def _placement(x: Tensor, draws: Tensor, strong: bool, flip: bool) -> tuple[Tensor, Tensor]:
    """Matrix (R, B, 2, 2) and shift (R, B, 2) from a pixel to the one that it is taken from."""
    shift, one = [], torch.ones_like(draws[..., 0])
    for axis, size in enumerate(x.shape[-2:]):
        reach = size // _SHIFT
        pixels = torch.floor(draws[..., axis] * (2 * reach + 1)) - reach
        shift.append(pixels + _MOVE * size * _signed(draws[..., 3 + axis]) if strong else pixels)
    rows = [[one, 0 * one], [0 * one, one]]
    if strong:
        angle, across, down = (size * _signed(draws[..., 5 + i]) for i, size in enumerate(_BENDS))
        cos, sin = torch.cos(angle), torch.sin(angle)
        rows = [[cos - sin * down, cos * across - sin], [sin + cos * down, sin * across + cos]]
    matrix = torch.stack([torch.stack(row, -1) for row in rows], -2)
    if flip:
        sign = torch.where(draws[..., 2] < 0.5, -one, one)
        matrix = matrix * torch.stack([one, sign], -1)[..., None, :]
    return matrix, torch.stack(shift, -1)


def _warp(x: Tensor, matrix: Tensor, shift: Tensor) -> Tensor:
    """Pixels at other places, between pixels by bilinear mixing, beyond the edge by reflection."""
    height, width = x.shape[-2:]
    rows = torch.arange(height, dtype=x.dtype, device=x.device) - (height - 1) / 2
    columns = torch.arange(width, dtype=x.dtype, device=x.device) - (width - 1) / 2

    def source(axis: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Two neighbouring places along an axis, and the share of the second: (R, B, H, W)."""
        part = matrix[..., axis, :, None, None]  # (R, B, 2, 1, 1)
        place = part[:, :, 0] * rows[:, None] + part[:, :, 1] * columns
        place = place + shift[..., axis, None, None] + (size - 1) / 2
        last = max(size - 1, 1)
        place = last - (torch.remainder(place, 2 * last) - last).abs()
        low = torch.floor(place).clamp(0, size - 1)
        first = low.to(torch.int64)
        return first, (first + 1).clamp_max(size - 1), place - low

    top, bottom, down = source(0, height)
    left, right, across = source(1, width)
    flat = x.flatten(3)  # (R, B, C, H W)

    def pixels(row: Tensor, column: Tensor) -> Tensor:
        index = (row * width + column).flatten(2)[:, :, None].expand(flat.shape)
        return flat.gather(3, index).view(x.shape)

    down, across = down[:, :, None], across[:, :, None]
    upper = torch.lerp(pixels(top, left), pixels(top, right), across)
    lower = torch.lerp(pixels(bottom, left), pixels(bottom, right), across)
    return torch.lerp(upper, lower, down)


def _recolour(x: Tensor, draws: Tensor) -> Tensor:
    """Change contrast and brightness, and the strength of colours where there are three."""
    factors = [
        1 + _signed(draws[..., i])[..., None, None, None] * size
        for i, size in enumerate((_CONTRAST, _BRIGHTNESS, _SATURATION))
    ]
    mean = x.mean((2, 3, 4), keepdim=True)
    x = mean + (x - mean) * factors[0]
    if x.shape[2] == 3:
        red, green, blue = (share * x[:, :, i : i + 1] for i, share in enumerate(_GREY))
        grey = red + green + blue
        x = grey + (x - grey) * factors[2]
    return x * factors[1]


def _cover(x: Tensor, draws: Tensor) -> Tensor:
    """Put the mean of the image in place of a rectangle of half its sides, at a random place."""
    inside = []
    for axis, size in ((0, x.shape[-2]), (1, x.shape[-1])):
        distance = torch.arange(size, device=x.device) - draws[..., axis, None] * size
        inside.append(distance.abs() <= size / 4)
    covered = inside[0][:, :, None, :, None] & inside[1][:, :, None, None, :]
    return torch.where(covered, x.mean((3, 4), keepdim=True), x)

"""Networks of R replicas: MLPs by batched products, other modules one after another."""

import copy
import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from unbag.models import MLP, draws_numbers, switch, weights_of_last_layer
from unbag.training.normalisation import (
    EPS,
    rectify_and_normalize,
    rectify_and_normalize_in_blocks,
    share_layers,
)
from unbag.training.part import ALL_ROWS, Part
from unbag.training.randomness import derive, uniform
from unbag.training.stacked import StackedNetwork
from unbag.training.sums import add_bias, block_length, multiply

__all__ = ["StackedMLP", "StackedModules", "StackedNetwork", "is_batched", "stack_modules"]

_MOMENTUM = 0.1  # of batch normalisation, as in nn.BatchNorm1d
_ALIGN = 8  # matrix units want rows of 16 bytes: 8 numbers of bfloat16


def _padded(size: int, aligned: bool) -> int:
    return -(-size // _ALIGN) * _ALIGN if aligned else size


class StackedMLP(StackedNetwork):
    """R multilayer perceptrons of the same layer sizes; a layer is one batched product.

    On CUDA, layer sizes are rounded up to multiples of 8 for the matrix units. The added weights
    start at zero and stay there: their inputs and gradients are zero.

    On the CPU, in float32, sums over rows are taken in blocks (see ``sums.py``). Gradients are then
    in float64 until those of all processes are added up: they are taken of tensors of that type,
    which stand for the weights and take no memory.

    Parameters
    ----------
    modules : sequence of MLP
    device : torch.device
    dtype : torch.dtype
        Of the weights.
    compute : torch.dtype
        Of the matrix products.
    part : Part, optional
    """

    def __init__(
        self,
        modules: Sequence[MLP],
        device: torch.device,
        dtype: torch.dtype,
        compute: torch.dtype,
        part: Part = ALL_ROWS,
    ) -> None:
        self.modules = list(modules)
        self.part = part
        self.counters = {}
        self.compute = compute
        self.n_replicas = len(modules)
        linears, norms = modules[0].blocks()
        aligned = device.type == "cuda"
        self.sizes = [linears[0].in_features, *(layer.out_features for layer in linears)]
        self.padded = [_padded(size, aligned) for size in self.sizes]
        self.hidden = len(norms)
        self.n_classes = self.sizes[-1]
        rates = [m.dropout for m in modules]
        self.dropout = torch.tensor(rates, device=device)[:, None, None] if any(rates) else None

        shapes: list[tuple[int, ...]] = []
        for layer, (a, b) in enumerate(zip(self.padded[:-1], self.padded[1:], strict=True)):
            shapes += [(a, b), (1, b)]
            if layer < self.hidden:
                shapes += [(1, b), (1, b)]
        lengths = [math.prod(shape) for shape in shapes]
        self.n_output = sum(lengths[-2:])
        self.weights = torch.zeros(self.n_replicas, sum(lengths), device=device, dtype=dtype)
        self.in_blocks = device.type == "cpu" and dtype == compute == torch.float32
        wide = torch.float64 if self.in_blocks else dtype
        self.gradient = torch.zeros_like(self.weights, dtype=wide)
        self.values, self.places = (
            [
                p.view(-1, *s)
                for p, s in zip(torch.split(matrix, lengths, dim=1), shapes, strict=True)
            ]
            for matrix in (self.weights, self.gradient)
        )
        widths = [b for b in self.padded[1:-1] for _ in range(2)]
        self.buffers = torch.zeros(self.n_replicas, sum(widths), device=device, dtype=dtype)
        self.running = (
            [p[:, None] for p in torch.split(self.buffers, widths, dim=1)] if widths else []
        )
        with torch.no_grad():
            for r, module in enumerate(modules):
                self._load(r, module)
        self.values = [p.detach() for p in self.values]
        self.parameters = [
            torch.zeros((), dtype=wide).expand(p.shape) if self.in_blocks else p
            for p in self.values
        ]
        for parameter in self.parameters:
            parameter.requires_grad_()
        self.pairs = list(zip(self.values, self.parameters, strict=True))

    def _concatenate(self, gradients: Sequence[Tensor]) -> Tensor:
        return torch.cat([g.flatten(1) for g in gradients], dim=1)

    def _tensors(self, module: MLP, replica: int) -> list[tuple[Tensor, Tensor]]:
        """Pairs of a tensor of the module and its place in the stack, equally shaped."""
        linears, norms = module.blocks()
        pairs = []
        params = iter(self.values)
        for layer, linear in enumerate(linears):
            a, b = self.sizes[layer], self.sizes[layer + 1]
            pairs.append((linear.weight, next(params)[replica, :a, :b].T))
            pairs.append((linear.bias, next(params)[replica, 0, :b]))
            if layer < self.hidden:
                norm = norms[layer]
                pairs.append((norm.weight, next(params)[replica, 0, :b]))
                pairs.append((norm.bias, next(params)[replica, 0, :b]))
                for i, name in enumerate(("running_mean", "running_var")):
                    pairs.append((getattr(norm, name), self.running[2 * layer + i][replica, 0, :b]))
        return pairs

    def _load(self, replica: int, module: MLP) -> None:
        for tensor, place in self._tensors(module, replica):
            place.copy_(tensor)

    def extract(self, replica: int) -> nn.Module:
        """Return one replica as an ordinary module on the CPU."""
        module = copy.deepcopy(self.modules[replica])
        with torch.no_grad():
            for tensor, place in self._tensors(module, replica):
                tensor.copy_(place)
        return module.eval()

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
        """Logits (R, n, K) of rows (R, n, ...)."""
        x = x.flatten(2).to(self.compute)
        if x.shape[2] < self.padded[0]:
            x = nn.functional.pad(x, [0, self.padded[0] - x.shape[2]])
        params = iter(self.pairs)
        length = block_length(self.part.n_rows(x))
        in_blocks = self.in_blocks and training and learn
        for layer in range(self.hidden + 1):
            # The bias is added where the result is read next: a batched product with a bias
            # would first fill its output with it.
            (weight, of_weight), (bias, of_bias) = next(params), next(params)
            weight = weight.to(self.compute)
            x = multiply(x, weight, of_weight, length) if in_blocks else torch.bmm(x, weight)
            if layer == self.hidden:
                x = x.to(bias.dtype)
                x = add_bias(x, bias, of_bias, length) if in_blocks else x + bias
                break
            (scale, of_scale), (shift, of_shift) = next(params), next(params)
            mean, var = self.running[2 * layer : 2 * layer + 2]
            if training:
                affine = (bias, scale, shift)
                if self.in_blocks:
                    x, batch_mean, batch_var = rectify_and_normalize_in_blocks(
                        x, affine, (of_bias, of_scale, of_shift), self.part, length
                    )
                else:
                    x, batch_mean, batch_var = rectify_and_normalize(x, *affine, self.part)
                if track:
                    n = self.part.n_rows(x)
                    with torch.no_grad():
                        mean.lerp_(batch_mean, _MOMENTUM)
                        var.lerp_(batch_var * (n / max(n - 1, 1)), _MOMENTUM)
            else:
                gain = torch.rsqrt(var + EPS) * scale
                x = torch.addcmul(shift - mean * gain, torch.relu(x + bias), gain)
            if training and self.dropout is not None:
                draw = uniform(derive(keys, step, layer), self.part.numbers(x), x.shape[2])
                x = x * (draw >= self.dropout).to(x.dtype) / (1 - self.dropout).to(x.dtype)
            x = x.to(self.compute)
        return x[..., : self.n_classes]


class StackedModules(StackedNetwork):
    """R modules of the same tensors, run one after another in each step.

    Each replica has a separate module on the device, whose trainable parameters and buffers are
    views of the rows of ``weights`` and ``buffers``. Parameters that were frozen stay as they are.

    Parameters
    ----------
    modules : sequence of nn.Module
    device : torch.device
    dtype : torch.dtype
        Of the weights.
    compute : torch.dtype
        Of the matrix products and convolutions.
    row_shape : tuple of int
        Shape of one row.
    part : Part, optional
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        device: torch.device,
        dtype: torch.dtype,
        compute: torch.dtype,
        row_shape: tuple[int, ...],
        part: Part = ALL_ROWS,
    ) -> None:
        self.originals = list(modules)
        self.part = part
        self.compute = compute
        # Randomness inside a module comes from torch's generator, which is set from the replica's
        # key before each pass.
        self.draws_numbers = draws_numbers(modules[0], row_shape)
        self.is_known = type(modules[0]).__module__.startswith("unbag.")
        self.n_output = weights_of_last_layer(modules[0])
        self.modules = [copy.deepcopy(m).to(device, dtype) for m in modules]
        for module in self.modules:
            share_layers(module, part)
        trained = [[p for p in m.parameters() if p.requires_grad] for m in self.modules]
        remembered = [[b for b in m.buffers() if b.is_floating_point()] for m in self.modules]
        self.weights = _move_into_matrix(trained, device, dtype)
        self.buffers = _move_into_matrix(remembered, device, dtype)
        self.parameters = [p for tensors in trained for p in tensors]
        self.gradient = torch.zeros_like(self.weights)
        self.places = [
            part
            for row, tensors in zip(self.gradient, trained, strict=True)
            for part in _views(row, tensors)
        ]
        self.counters = {
            f"{r}.{name}": buffer
            for r, module in enumerate(self.modules)
            for name, buffer in module.named_buffers()
            if not buffer.is_floating_point()
        }

    def _concatenate(self, gradients: Sequence[Tensor]) -> Tensor:
        return torch.cat([g.reshape(-1) for g in gradients]).view(self.weights.shape)

    def extract(self, replica: int) -> nn.Module:
        """Return one replica as an ordinary module on the CPU."""
        module = copy.deepcopy(self.originals[replica])
        trained = self.modules[replica]
        module.load_state_dict(trained.state_dict())
        with torch.no_grad():
            for buffer, source in zip(module.buffers(), trained.buffers(), strict=True):
                buffer.copy_(source)  # also those that are not part of the state
        return module.eval()

    def forward(
        self,
        x: Tensor,
        keys: Tensor,
        step: Tensor | int,
        *,
        training: bool,
        track: bool = True,
        learn: bool = True,  # noqa: ARG002 - of the base
    ) -> Tensor:
        """Logits (R, n, K) of rows (R, n, ...)."""
        logits = [
            self._run(switch(module, training), rows, derive(keys[r : r + 1], step), track)
            for r, (module, rows) in enumerate(zip(self.modules, x.unbind(0), strict=True))
        ]
        return torch.stack(logits).to(self.weights.dtype)

    def _run(self, module: nn.Module, rows: Tensor, key: Tensor, track: bool) -> Tensor:
        # Without tracking, copies of the buffers change in the place of the buffers.
        buffers = {} if track else {name: buffer.clone() for name, buffer in module.named_buffers()}
        device = rows.device
        if device.type == "cuda" and rows.ndim == 4:
            rows = rows.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.compute == torch.bfloat16):
            if not (self.draws_numbers and module.training):
                return cast(Tensor, torch.func.functional_call(module, buffers, (rows,)))
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(int(key))
                return cast(Tensor, torch.func.functional_call(module, buffers, (rows,)))


def _views(row: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Cut a row of numbers into views shaped like the tensors."""
    parts = torch.split(row, [t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def _move_into_matrix(
    tensors: Sequence[Sequence[Tensor]], device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Make the tensors of every replica views of one row of a matrix, which is returned."""
    width = sum(t.numel() for t in tensors[0])
    matrix = torch.zeros(len(tensors), width, device=device, dtype=dtype)
    for row, group in zip(matrix, tensors, strict=True):
        for place, tensor in zip(_views(row, group), group, strict=True):
            place.copy_(tensor.detach())
            tensor.data = place
    return matrix


def stack_modules(
    modules: Sequence[nn.Module],
    device: torch.device,
    dtype: torch.dtype,
    compute: torch.dtype,
    row_shape: tuple[int, ...],
    part: Part = ALL_ROWS,
) -> StackedNetwork:
    """Stack modules of one architecture in the form that trains them fastest."""
    modules = part.same_everywhere(modules)
    if dtype == torch.float64:  # trained weights come back in copies of these, with all digits
        modules = [copy.deepcopy(module).double() for module in modules]
    if all(map(is_batched, modules)):
        return StackedMLP(cast(list[MLP], modules), device, dtype, compute, part)
    return StackedModules(modules, device, dtype, compute, row_shape, part)


def is_batched(module: nn.Module) -> bool:
    """Whether modules like this one are trained by one batched product per layer.

    MLPs are, if nobody froze weights or changed the normalisation after they were made.
    """
    return (
        type(module) is MLP
        and all(p.requires_grad for p in module.parameters())
        and all(n.eps == EPS and n.momentum == _MOMENTUM for n in module.blocks()[1])
    )

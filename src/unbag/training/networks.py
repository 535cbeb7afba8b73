"""Networks of R replicas: all weights in one matrix, one forward pass for the stack.

Weights of replica r are row r of ``weights`` (R, P), and its floating-point buffers (running
means and variances) row r of ``buffers`` (R, Q). The optimizer, the freezing of replicas and
checkpoints see only those two matrices, whatever the architecture.
"""

import copy
import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from unbag.models import MLP, draws_numbers, switch, weights_of_last_layer
from unbag.training.normalisation import EPS, rectify_and_normalize, share_layers
from unbag.training.part import ALL_ROWS, Part
from unbag.training.randomness import derive, uniform

__all__ = ["StackedMLP", "StackedModules", "StackedNetwork", "is_batched", "stack_modules"]

_MOMENTUM = 0.1  # of batch normalisation, as in nn.BatchNorm1d
_ALIGN = 8  # matrix units want rows of 16 bytes: 8 numbers of bfloat16


def _padded(size: int, aligned: bool) -> int:
    return -(-size // _ALIGN) * _ALIGN if aligned else size


class StackedNetwork:
    """Base of the two kinds of stacks.

    Attributes
    ----------
    weights : Tensor of shape (R, P)
    buffers : Tensor of shape (R, Q)
    parameters : list of Tensor
        Views of ``weights`` that gradients are taken of, in the order of the columns.
    gradient : Tensor of shape (R, P)
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
        self, x: Tensor, keys: Tensor, step: Tensor | int, *, training: bool, track: bool = True
    ) -> Tensor:
        """Logits (R, n, K); in training, running statistics follow unless ``track`` is off."""
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


class StackedMLP(StackedNetwork):
    """R multilayer perceptrons of the same layer sizes; a layer is one batched product.

    On CUDA, layer sizes are rounded up to multiples of 8 for the matrix units. The added weights
    start at zero and stay there: their inputs and gradients are zero.

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
        self.gradient = torch.zeros_like(self.weights)
        self.parameters, self.places = (
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
        self.parameters = [p.detach().requires_grad_() for p in self.parameters]

    def _concatenate(self, gradients: Sequence[Tensor]) -> Tensor:
        return torch.cat([g.flatten(1) for g in gradients], dim=1)

    def _tensors(self, module: MLP, replica: int) -> list[tuple[Tensor, Tensor]]:
        """Pairs of a tensor of the module and its place in the stack, equally shaped."""
        linears, norms = module.blocks()
        pairs = []
        params = iter(self.parameters)
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
        self, x: Tensor, keys: Tensor, step: Tensor | int, *, training: bool, track: bool = True
    ) -> Tensor:
        """Logits (R, n, K) of rows (R, n, ...)."""
        x = x.flatten(2).to(self.compute)
        if x.shape[2] < self.padded[0]:
            x = nn.functional.pad(x, [0, self.padded[0] - x.shape[2]])
        params = iter(self.parameters)
        for layer in range(self.hidden + 1):
            # The bias is added where the result is read next: a batched product with a bias
            # would first fill its output with it.
            weight, bias = next(params).to(self.compute), next(params)
            x = torch.bmm(x, weight)
            if layer == self.hidden:
                x = x.to(bias.dtype) + bias
                break
            scale, shift = next(params), next(params)
            mean, var = self.running[2 * layer : 2 * layer + 2]
            if training:
                x, batch_mean, batch_var = rectify_and_normalize(x, bias, scale, shift, self.part)
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
        self, x: Tensor, keys: Tensor, step: Tensor | int, *, training: bool, track: bool = True
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

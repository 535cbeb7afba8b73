"""Networks of R replicas: all weights in one matrix, one forward pass for the stack.

Weights of replica r are row r of ``weights`` (R, P), and its floating-point buffers (running
means and variances) row r of ``buffers`` (R, Q). The optimizer, the freezing of replicas and
checkpoints see only those two matrices, whatever the architecture.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from unbag.models import MLP, ResNet20
from unbag.training.randomness import derive, uniform

__all__ = ["StackedMLP", "StackedModules", "StackedNetwork", "is_batched", "stack_modules"]

_MOMENTUM, _EPS = 0.1, 1e-5  # of batch normalisation, as in nn.BatchNorm1d
_ALIGN = 8  # matrix units want rows of 16 bytes: 8 numbers of bfloat16
# Few sums over many rows do not keep a GPU busy in one stage.
_MANY_ROWS, _MANY_SUMS = 1 << 11, 1 << 12


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
    capturable : bool
        Whether a step can be recorded as a CUDA graph.
    """

    weights: Tensor
    buffers: Tensor
    parameters: list[Tensor]
    gradient: Tensor
    places: list[Tensor]
    counters: dict[str, Tensor]
    compute: torch.dtype
    capturable = True

    def forward(
        self, x: Tensor, keys: Tensor, step: Tensor | int, *, training: bool, track: bool = True
    ) -> Tensor:
        """Logits (R, n, K); in training, running statistics follow unless ``track`` is off."""
        raise NotImplementedError

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

    Automatic differentiation of the forward lines reads and writes memory twice as often.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor, scale: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        n = x.shape[1]
        positive = torch.relu(x + bias)
        mean = _sum_rows(positive) / n
        centred = positive - mean
        var = _sum_rows(centred.square()) / n
        inverse = torch.rsqrt(var + _EPS)
        normal = centred * inverse
        ctx.save_for_backward(normal, mean, inverse, scale)
        ctx.input_dtype = x.dtype
        ctx.mark_non_differentiable(mean, var)
        return torch.addcmul(shift, normal, scale), mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        normal, mean, inverse, scale = ctx.saved_tensors  # normal: (R, n, units)
        out = gradients[0]
        n = out.shape[1]
        # A unit was cut off by the ReLU exactly where its normalised value is that of zero.
        on = (normal > -mean * inverse).to(out.dtype)
        weighted = out * normal
        grad_shift = _sum_rows(out)
        grad_scale = _sum_rows(weighted)
        first, second = grad_shift / n, grad_scale / n
        gain = scale * inverse
        grad_x = (out - first - normal * second) * (on * gain)
        sums = _sum_rows(on * out) - first * _sum_rows(on) - second * _sum_rows(on * normal)
        grad_bias = gain * sums
        return grad_x.to(ctx.input_dtype), grad_bias, grad_scale, grad_shift


def _rectify_and_normalize(
    x: Tensor, bias: Tensor, scale: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised ReLU of x (R, n, units), and the batch's mean and variance, (R, 1, units)."""
    out = _RectifyAndNormalize.apply(x, bias, scale, shift)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor, Tensor], out)


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
    """

    def __init__(
        self,
        modules: Sequence[MLP],
        device: torch.device,
        dtype: torch.dtype,
        compute: torch.dtype,
    ) -> None:
        self.modules = list(modules)
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
                x, batch_mean, batch_var = _rectify_and_normalize(x, bias, scale, shift)
                if track:
                    n = x.shape[1]
                    with torch.no_grad():
                        mean.lerp_(batch_mean, _MOMENTUM)
                        var.lerp_(batch_var * (n / max(n - 1, 1)), _MOMENTUM)
            else:
                gain = torch.rsqrt(var + _EPS) * scale
                x = torch.addcmul(shift - mean * gain, torch.relu(x + bias), gain)
            if training and self.dropout is not None:
                draw = uniform(derive(keys, step, layer), x.shape[1], x.shape[2])
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
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        device: torch.device,
        dtype: torch.dtype,
        compute: torch.dtype,
    ) -> None:
        self.originals = list(modules)
        self.compute = compute
        # Randomness inside a module of the user's comes from torch's generator, which is set from
        # the replica's key before each pass; that cannot be recorded in a CUDA graph.
        self.capturable = all(type(m) is ResNet20 for m in modules)
        self.modules = [copy.deepcopy(m).to(device, dtype) for m in modules]
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
            self._run(module.train(training), rows, derive(keys[r : r + 1], step), track)
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
            if self.capturable or not module.training:
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
    modules: Sequence[nn.Module], device: torch.device, dtype: torch.dtype, compute: torch.dtype
) -> StackedNetwork:
    """Stack modules of one architecture in the form that trains them fastest."""
    if dtype == torch.float64:  # trained weights come back in copies of these, with all digits
        modules = [copy.deepcopy(module).double() for module in modules]
    if all(map(is_batched, modules)):
        return StackedMLP(cast(list[MLP], modules), device, dtype, compute)
    return StackedModules(modules, device, dtype, compute)


def is_batched(module: nn.Module) -> bool:
    """Whether modules like this one are trained by one batched product a layer.

    MLPs are, if nobody froze weights or changed the normalisation after they were made.
    """
    return (
        type(module) is MLP
        and all(p.requires_grad for p in module.parameters())
        and all(n.eps == _EPS and n.momentum == _MOMENTUM for n in module.blocks()[1])
    )

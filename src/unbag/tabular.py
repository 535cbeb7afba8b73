"""Models of tables: penalised models of features, tree ensembles, and their mixture with shares."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unbag.learners import Layers, Scaled
from unbag.models import MLP
from unbag.trees import TreeEnsemble

__all__ = ["FEATURES", "Features", "Networks", "ShareModels", "TabularModel"]

_Floats = NDArray[np.float64]
_FARTHEST = 4.0  # standard deviations at which numbers are cut
_STEPS = 7  # per column, at its octiles
_MOST_STEPS = 1000
_WAVES = 300
_PAIRS = 1000  # of rows, for the distance that waves are as long as


class Features(nn.Module):
    r"""Columns that a linear model is built on, centred and scaled to a mean square of 1/D in all.

    So one penalty means the same for every kind: "linear" are the numbers of a row, "steps" say
    whether a number is above each octile of its column, and "waves" are random Fourier features,
    :math:`\cos(w \cdot x + b)`, whose mean approaches a Gaussian kernel (Rahimi and Recht, 2007).

    Parameters
    ----------
    kind : {"linear", "steps", "waves"}
    n_columns : int
        Numbers in a row, d.
    n_features : int
        D.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> features = Features.learn("steps", x, np.random.default_rng(0))
    >>> tuple(features(torch.as_tensor(x)).shape)
    (100, 21)
    """

    center: Tensor
    factor: Tensor
    mean: Tensor
    deviation: Tensor
    cut: Tensor
    column: Tensor
    direction: Tensor
    phase: Tensor

    def __init__(self, kind: str, n_columns: int, n_features: int) -> None:
        super().__init__()
        self.kind = kind
        self.farthest = _FARTHEST
        for name, size in (("center", n_features), ("factor", n_features)):
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64))
        if kind == "steps":
            self.register_buffer("cut", torch.zeros(n_features, dtype=torch.float64))
            self.register_buffer("column", torch.zeros(n_features, dtype=torch.int64))
        else:
            self.register_buffer("mean", torch.zeros(n_columns, dtype=torch.float64))
            self.register_buffer("deviation", torch.ones(n_columns, dtype=torch.float64))
        if kind == "waves":
            shape = (n_columns, n_features)
            self.register_buffer("direction", torch.zeros(shape, dtype=torch.float64))
            self.register_buffer("phase", torch.zeros(n_features, dtype=torch.float64))

    @classmethod
    def learn(cls, kind: str, x: _Floats, rng: np.random.Generator) -> Self | None:
        """Learn the features of a table (n, d); None where it has none of this kind."""
        values = _LEARNERS[kind](x, rng)
        n_features = len(values.get("cut", values.get("phase", values.get("mean", ()))))
        if not n_features:
            return None
        features = cls(kind, x.shape[1], n_features)
        with torch.no_grad():
            for name, value in values.items():
                features.get_buffer(name).copy_(torch.as_tensor(value))
            raw = features._raw(torch.as_tensor(x))
            deviation = raw.std(0, correction=0)
            differs = deviation > 1e-9
            features.center.copy_(raw.mean(0))
            features.factor.copy_(torch.where(differs, 1 / deviation.clamp_min(1e-9), 0.0))
            features.factor.div_(differs.sum().clamp_min(1).sqrt())
        return features

    def _raw(self, x: Tensor) -> Tensor:
        if self.kind == "steps":
            return (x[:, self.column] > self.cut).to(x.dtype)
        z = ((x - self.mean) / self.deviation).clamp(-self.farthest, self.farthest)
        return z if self.kind == "linear" else torch.cos(z @ self.direction + self.phase)

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, D) of rows (n, d)."""
        return (self._raw(x) - self.center) * self.factor


def _learn_linear(x: _Floats, rng: np.random.Generator) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    return {"mean": x.mean(0), "deviation": x.std(0) + 1e-9}


def _learn_steps(x: _Floats, rng: np.random.Generator) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """Octiles of every column; fewer quantiles where columns are many."""
    count = min(_STEPS, _MOST_STEPS // x.shape[1])
    levels = np.linspace(0, 1, count + 2)[1:-1]
    cuts = [np.unique(np.quantile(column, levels)) for column in x.T]
    cuts = [cut[cut < column.max()] for cut, column in zip(cuts, x.T, strict=True)]
    columns = np.repeat(np.arange(x.shape[1]), [len(cut) for cut in cuts])
    return {"cut": np.concatenate(cuts) if cuts else np.empty(0), "column": columns}


def _learn_waves(x: _Floats, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Directions as long as one over the median distance of two rows."""
    standard = _learn_linear(x, rng)
    z = np.clip((x - standard["mean"]) / standard["deviation"], -_FARTHEST, _FARTHEST)
    one, other = rng.integers(len(z), size=(2, _PAIRS))
    distance = np.sqrt(np.median(((z[one] - z[other]) ** 2).sum(1)) / 2) + 1e-9
    return {
        **standard,
        "direction": rng.normal(size=(x.shape[1], _WAVES)) / distance,
        "phase": rng.uniform(0, 2 * np.pi, _WAVES),
    }


_LEARNERS = {"linear": _learn_linear, "steps": _learn_steps, "waves": _learn_waves}
FEATURES = tuple(_LEARNERS)


class ShareModels(nn.Module):
    r"""Linear models of features at several strengths of the penalty, mixed with constant shares.

    .. math:: \log P(x) = \sum_c w_c \log \mathrm{softmax}(f(x) A_c + b_c) + w_0 \log p
        \quad \text{up to a constant}

    Parameters
    ----------
    kinds : sequence of (str, int)
        Kind and number of the features of each part.
    n_columns, n_strengths, n_classes : int

    Attributes
    ----------
    features : ModuleList of Features
    matrix, offset : ParameterLists
        A and b of each part: (J, D, K) and (J, K), for J strengths.
    mixing : Tensor of shape (parts, J)
        w_c.
    constant : Tensor of shape (K,)
        w_0 log p.
    """

    mixing: Tensor
    constant: Tensor

    def __init__(
        self,
        kinds: Sequence[tuple[str, int]],
        n_columns: int,
        n_strengths: int,
        n_classes: int,
    ) -> None:
        super().__init__()

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(shape, dtype=torch.float64))

        self.features = nn.ModuleList(Features(kind, n_columns, size) for kind, size in kinds)
        self.matrix = nn.ParameterList(zeros(n_strengths, size, n_classes) for _, size in kinds)
        self.offset = nn.ParameterList(zeros(n_strengths, n_classes) for _ in kinds)
        mixing = torch.zeros(len(kinds), n_strengths, dtype=torch.float64)
        self.register_buffer("mixing", mixing)
        self.register_buffer("constant", torch.zeros(n_classes, dtype=torch.float64))

    @property
    def sizes(self) -> dict[str, Any]:
        """Kinds and numbers of the features, and the number of strengths."""
        features = [[f.kind, len(f.center)] for f in self.features]  # type: ignore[arg-type]
        return {"features": features, "strengths": self.mixing.shape[1]}

    @classmethod
    def of_sizes(
        cls, n_columns: int, n_classes: int, features: Sequence[tuple[str, int]], strengths: int
    ) -> Self:
        """Make empty models of these sizes, whose tensors are then filled."""
        return cls(features, n_columns, strengths, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, d)."""
        total = self.constant.expand(len(x), -1)
        for features, matrix, offset, mixing in zip(
            self.features, self.matrix, self.offset, self.mixing, strict=True
        ):
            log_p = torch.log_softmax(features(x) @ matrix + offset[:, None], -1)  # (J, n, K)
            total = total + torch.einsum("j,jnk->nk", mixing, log_p)
        return torch.log_softmax(total, -1)


class Networks(nn.Module):
    """Mean of the log-probabilities of several MLPs.

    Parameters
    ----------
    networks : sequence of MLP
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks).double()

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, d)."""
        parts = [torch.log_softmax(network(x), -1) for network in self.networks]
        return torch.log_softmax(torch.stack(parts).mean(0), -1)

    @property
    def sizes(self) -> dict[str, Any]:
        """Number of networks, their depth and width."""
        first = self.networks[0]
        assert isinstance(first, MLP)
        linears, _ = first.blocks()
        return {
            "count": len(self.networks),
            "depth": len(linears),
            "width": linears[0].out_features,
        }

    @classmethod
    def of_sizes(cls, n_columns: int, n_classes: int, count: int, depth: int, width: int) -> Self:
        """Make networks of these sizes, whose weights are then filled."""
        return cls([MLP(n_columns, n_classes, depth=depth, width=width) for _ in range(count)])


# Kinds of parts: the class, and how an empty one is made of the numbers of columns and classes,
# and of its sizes.
_PARTS: dict[str, tuple[type[nn.Module], Callable[..., nn.Module]]] = {
    "shares": (ShareModels, ShareModels.of_sizes),
    "trees": (TreeEnsemble, lambda _, n_classes, **sizes: TreeEnsemble(n_classes, **sizes)),
    "layers": (Layers, Layers.of_sizes),
    "scaled": (Scaled, lambda d, k, inner: Scaled(d, empty_part(d, k, inner))),
    "networks": (Networks, Networks.of_sizes),
}


def empty_part(n_columns: int, n_classes: int, sizes: Mapping[str, Any]) -> nn.Module:
    """Make an empty part of a model of tables, whose tensors are then filled.

    Parameters
    ----------
    n_columns, n_classes : int
    sizes : mapping
        What :func:`part_sizes` gave.
    """
    _, make = _PARTS[sizes["kind"]]
    arguments = {name: value for name, value in sizes.items() if name != "kind"}
    return make(n_columns, n_classes, **arguments)


def part_sizes(part: nn.Module) -> dict[str, Any]:
    """Kind and sizes of a part, as plain values; a KeyError where it is no part of tensors."""
    sizes: Any = {"inner": part_sizes(part.inner)} if isinstance(part, Scaled) else part.sizes
    kinds = {kind: name for name, (kind, _) in _PARTS.items()}
    return {"kind": kinds[type(part)], **sizes}


class TabularModel(nn.Module):
    r"""Weighted log-probabilities of several models, mixed with the shares of all rows.

    .. math:: \log P(x) = a \sum_l w_l \log P_l(x) + (1 - a) \log p
        \quad \text{up to a constant}

    Parameters
    ----------
    parts : dict of name to module
        From rows (n, d) to log-probabilities (n, K).
    weights : sequence of float
        w, one per part; they sum to 1.
    shares : array of shape (K,)
        p, the shares of all rows together.
    trust : float
        a: 0 predicts the shares, 1 what the parts say.
    """

    weights: Tensor
    log_shares: Tensor
    trust: Tensor

    def __init__(
        self, parts: dict[str, nn.Module], weights: Sequence[float], shares: _Floats, trust: float
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.register_buffer("weights", torch.tensor(list(weights), dtype=torch.float64))
        self.register_buffer("log_shares", torch.as_tensor(np.log(shares), dtype=torch.float64))
        self.register_buffer("trust", torch.tensor(trust, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (n, K) of rows (n, ...)."""
        x = x.flatten(1).double()
        parts = torch.stack([part(x) for part in self.parts.values()])  # (L, n, K)
        mixed = torch.einsum("l,lnk->nk", self.weights, parts)
        return torch.log_softmax(self.trust * mixed + (1 - self.trust) * self.log_shares, -1)

    @property
    def sizes(self) -> dict[str, dict[str, Any]]:
        """Kind and sizes of every part, by its name."""
        return {name: part_sizes(part) for name, part in self.parts.items()}

    @classmethod
    def of_sizes(
        cls, n_columns: int, n_classes: int, parts: Mapping[str, Mapping[str, Any]]
    ) -> Self:
        """Make an empty model of parts of these sizes, whose tensors are then filled."""
        empty = {name: empty_part(n_columns, n_classes, sizes) for name, sizes in parts.items()}
        return cls(empty, [0.0] * len(empty), np.full(n_classes, 1 / n_classes), 0.0)

    def find_problem(self, n_columns: int) -> str:
        """Say what is wrong with tensors that were read from a file; empty where nothing is."""
        for part in self.modules():
            if isinstance(part, TreeEnsemble) and (problem := part.find_problem(n_columns)):
                return problem
            if isinstance(part, Features) and part.kind == "steps":
                column = part.column
                if bool((column < 0).any()) or bool((column >= n_columns).any()):
                    return f"a feature is of none of the {n_columns} columns"
        return ""

"""ONNX graphs while they are built, and the parts that several of them have."""

from typing import Any

import numpy as np
import torch
from torch import nn

from unbag.models import MLP
from unbag.validation import import_optional

__all__ = ["Graph", "add_linear", "add_mlp"]


class Graph:
    """Nodes and constants of an ONNX graph, in the order of computation."""

    def __init__(self) -> None:
        self.onnx = import_optional("onnx", "onnx")
        self.numpy_helper = import_optional("onnx.numpy_helper", "onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """Add an array and return its name; tensors become float32."""
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().float().numpy()
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operation: str, *inputs: str, output: str | None = None, **options: Any) -> str:
        """Add a node and return the name of its output."""
        output = output or f"{operation}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(operation, list(inputs), [output], **options)
        self.nodes.append(node)
        return output

    def cast(self, x: str, dtype: str) -> str:
        """Convert to FLOAT or DOUBLE."""
        return self.add("Cast", x, to=getattr(self.onnx.TensorProto, dtype))

    def normalize(self, x: str, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> str:
        """Apply the running statistics of a batch normalisation."""
        statistics = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        names = [self.constant(tensor) for tensor in statistics]
        return self.add("BatchNormalization", x, *names, epsilon=norm.eps)


def add_linear(graph: Graph, x: str, linear: nn.Linear) -> str:
    """Add a linear layer."""
    weight, bias = graph.constant(linear.weight), graph.constant(linear.bias)
    return graph.add("Gemm", x, weight, bias, transB=1)


def add_mlp(graph: Graph, module: MLP, x: str) -> str:
    """Add a multilayer perceptron."""
    linears, norms = module.blocks()
    x = graph.add("Flatten", x, axis=1)
    for linear, norm in zip(linears[:-1], norms, strict=True):
        x = graph.normalize(graph.add("Relu", add_linear(graph, x, linear)), norm)
    return add_linear(graph, x, linears[-1])

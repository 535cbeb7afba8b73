"""Compiled functions and recorded steps on CUDA."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["as_it_stands", "compiled", "record"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for the shapes at hand.

    Stacks differ in their shapes, and torch would soon take these for variable ones, which is
    slower, or stop compiling after eight of them.
    """
    fast = torch.compile(function, dynamic=False)

    def call(*arguments: Any) -> Any:
        with torch._dynamo.config.patch(recompile_limit=1 << 20):
            return fast(*arguments)

    return call


def as_it_stands(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile nothing."""
    return function


def record(step: Callable[[], None], kept: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
    """Record a step as a CUDA graph; tensors that it changes get their values back.

    Parameters
    ----------
    step : callable
        Works on tensors that stay where they are.
    kept : sequence of Tensor
        What the step changes.
    """
    copies = [value.clone() for value in kept]
    try:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    finally:
        with torch.no_grad():
            for value, copied in zip(kept, copies, strict=True):
                value.copy_(copied)
    return graph

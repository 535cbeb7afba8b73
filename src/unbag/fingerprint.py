"""Fingerprints: one hash of everything that a result depends on, so that no run resumes another's.

>>> fingerprint({"seed": 0, "rows": np.arange(3)}) == fingerprint({"seed": 1, "rows": np.arange(3)})
False
"""

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from datetime import date, time
from functools import partial, singledispatch
from types import BuiltinFunctionType, CodeType, EllipsisType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["fingerprint", "module_settings"]


def fingerprint(*values: object) -> str:
    """Hash values of any kind by what they hold, never by how they print.

    Known kinds are plain values, dates, paths, lists, tuples, sets, mappings, arrays, tensors,
    DataFrames, functions, modules (settings, weights and buffers), dataclasses (all fields but
    those whose metadata say ``fingerprint=False``), anything with ``get_params``, and objects, by
    their class and attributes. An object whose attributes do not say what it is gives its parts by
    a method ``_fingerprint_parts``. Anything else is a TypeError: a value that is left out without
    notice could resume the wrong run.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> long = np.zeros(5000)
    >>> other = long.copy()
    >>> other[2500] = 1.0
    >>> repr(long) == repr(other), fingerprint(long) == fingerprint(other)
    (True, False)
    """
    digest = _Digest()
    for value in values:
        digest.add(value)
    return digest.hexdigest()


class _Digest:
    """A running hash; an array that occurs again is named by its first place."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        # The arrays are kept, so that no other array takes the address of one that was freed.
        self._places: dict[object, tuple[int, np.ndarray[Any, Any]]] = {}

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def tag(self, kind: str, detail: object = "") -> None:
        """Add the kind of the value that follows, so that no two values run into each other."""
        text = f"{kind}:{detail}".encode()
        self._hash.update(len(text).to_bytes(8, "little") + text)

    def add(self, value: object) -> None:
        _add(value, self)

    def add_array(self, array: np.ndarray[Any, Any]) -> None:
        """Add shape, type and bytes of an array, which may be memory-mapped and large."""
        address = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
        known = address in self._places
        place, _ = self._places.setdefault(address, (len(self._places), array))
        self.tag("array", f"{array.dtype}{array.shape}#{place}")
        if known:
            return
        if array.dtype.hasobject:
            for item in array.reshape(-1):
                self.add(item)
        elif array.size:
            self._hash.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


@singledispatch
def _add(value: Any, digest: _Digest) -> None:
    if hasattr(value, "_fingerprint_parts"):
        digest.tag("object", type(value).__qualname__)
        digest.add(value._fingerprint_parts())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        digest.tag("dataclass", type(value).__qualname__)
        for field in dataclasses.fields(value):
            if field.metadata.get("fingerprint", True):
                digest.tag("field", field.name)
                digest.add(getattr(value, field.name))
    elif hasattr(value, "get_params") and not isinstance(value, type):
        digest.tag("estimator", type(value).__qualname__)
        digest.add(value.get_params(deep=False))
    elif hasattr(value, "columns") and hasattr(value, "to_numpy"):  # a pandas or polars DataFrame
        digest.tag("frame", type(value).__qualname__)
        digest.add([list(value.columns), getattr(value, "index", None)])
        digest.add([np.asarray(value[column]) for column in value.columns])
    elif hasattr(value, "__array__"):  # an index or a column of a DataFrame
        digest.add(np.asarray(value))
    elif hasattr(value, "__dict__") and type(value).__module__ != "builtins":
        digest.tag("object", type(value).__qualname__)
        digest.add(vars(value))
    else:
        kind = type(value).__name__
        message = f"A {kind} has no fingerprint; hash what it holds instead: {value!r:.80}"
        raise TypeError(message)


@_add.register(type(None))
@_add.register(bool)
@_add.register(int)
@_add.register(float)
@_add.register(complex)
@_add.register(str)
@_add.register(bytes)
@_add.register(date)
@_add.register(time)
@_add.register(os.PathLike)
@_add.register(EllipsisType)
def _add_plain(value: object, digest: _Digest) -> None:
    digest.tag(type(value).__name__, repr(value))


@_add.register(np.generic)
def _add_scalar(value: np.generic, digest: _Digest) -> None:
    digest.add(np.asarray(value).copy())


@_add.register(np.ndarray)
def _add_array(value: np.ndarray[Any, Any], digest: _Digest) -> None:
    digest.add_array(value)


@_add.register(Tensor)
def _add_tensor(value: Tensor, digest: _Digest) -> None:
    value = value.detach().cpu()
    if value.dtype == torch.bfloat16:
        digest.tag("bfloat16")
        value = value.float()
    digest.add_array(value.numpy())


@_add.register(list)
@_add.register(tuple)
def _add_sequence(value: list[object] | tuple[object, ...], digest: _Digest) -> None:
    digest.tag("sequence", len(value))
    for item in value:
        digest.add(item)


@_add.register(set)
@_add.register(frozenset)
def _add_set(value: set[object] | frozenset[object], digest: _Digest) -> None:
    digest.tag("set", sorted(fingerprint(item) for item in value))


@_add.register(Mapping)
def _add_mapping(value: Mapping[object, object], digest: _Digest) -> None:
    digest.tag("mapping", len(value))
    for key, item in sorted(value.items(), key=lambda pair: fingerprint(pair[0])):
        digest.add(key)
        digest.add(item)


@_add.register(torch.dtype)
@_add.register(torch.device)
@_add.register(np.dtype)
@_add.register(type)
def _add_name(value: object, digest: _Digest) -> None:
    digest.tag("name", getattr(value, "__qualname__", str(value)))


@_add.register(FunctionType)
@_add.register(BuiltinFunctionType)
def _add_function(value: Any, digest: _Digest) -> None:
    """Add a function's name, code, defaults and what it closes over."""
    digest.tag("function", f"{value.__module__}.{value.__qualname__}")
    if isinstance(value, FunctionType):
        digest.add([value.__code__, value.__defaults__, value.__kwdefaults__])
        digest.add([cell.cell_contents for cell in value.__closure__ or ()])


@_add.register(CodeType)
def _add_code(value: CodeType, digest: _Digest) -> None:
    """Add instructions, and the names and constants that they refer to by number."""
    digest.tag("code")
    digest.add([value.co_code, value.co_names, value.co_consts])


@_add.register(MethodType)
def _add_bound_method(value: MethodType, digest: _Digest) -> None:
    digest.tag("method")
    digest.add([value.__self__, value.__func__])


@_add.register(partial)
def _add_partial(value: "partial[object]", digest: _Digest) -> None:
    digest.tag("partial")
    digest.add([value.func, value.args, value.keywords])


@_add.register(nn.Module)
def _add_module(value: nn.Module, digest: _Digest) -> None:
    digest.tag("module", type(value).__qualname__)
    digest.add(module_settings(value))
    parts = getattr(type(value), "_fingerprint_parts", None)
    if parts is not None:
        digest.add(parts(value))
    for name, tensor in (*value.named_parameters(), *value.named_buffers()):
        digest.tag("tensor", name)
        digest.add(tensor)


def module_settings(module: nn.Module) -> tuple[object, ...]:
    """List what a module computes beside its weights: layers, their settings, shapes of weights."""
    simple = (bool, int, float, str, tuple, FunctionType, BuiltinFunctionType, type(None))
    layers = [
        (name, type(layer).__qualname__, key, _setting(value))
        for name, layer in module.named_modules()
        for key, value in vars(layer).items()
        if key != "training" and isinstance(value, simple)
    ]
    weights = [(n, tuple(p.shape), p.requires_grad) for n, p in module.named_parameters()]
    return (*layers, *weights)


def _setting(value: object) -> str:
    if isinstance(value, FunctionType):  # many have the same name, such as <lambda>
        return f"{value.__qualname__} {fingerprint(value.__code__)}"
    return str(getattr(value, "__qualname__", repr(value)))

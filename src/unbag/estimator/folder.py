"""The files of a saved model: read with suspicion, written whole or not at all.

A folder may come from anywhere. So only files of fixed names inside it are opened, links are
refused, JSON has a largest size, and the sizes of tensors are known before any is read.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unbag.estimator.description import FORMAT, Format
from unbag.exceptions import ModelFolderError
from unbag.files import (
    new_folder,
    read_regular,
    real_path,
    settle_folder,
    was_interrupted,
    write_whole,
)
from unbag.schema import SchemaError, decode
from unbag.validation import shorten

__all__ = [
    "DESCRIPTION",
    "ENCODING",
    "MLMODEL",
    "WEIGHTS",
    "TensorFile",
    "digest",
    "holds_model",
    "model_folder",
    "read_json",
    "refusal",
    "staged",
    "write_json",
]

DESCRIPTION, WEIGHTS, ENCODING = "model.json", "model.safetensors", "encoding.json"
MLMODEL = "MLmodel"  # for MLflow; written with a model, never read
_NAMES = (DESCRIPTION, WEIGHTS, ENCODING, MLMODEL)
_MAX_JSON = 1 << 25  # bytes; Python's objects are ten times as large
_MAX_NESTED = 1 << 20  # lists and objects in a file of JSON
_MAX_VALUES, _VALUES_PER_BAG = 400_000, 4  # in a file of JSON; ids are listed once or twice
_MAX_HEADER = 1 << 22  # bytes of names and shapes before the first tensor
_MAX_TENSORS = 10_000
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_T = TypeVar("_T")


def refusal(path: Path, reason: str, remedy: str = "") -> ModelFolderError:
    """Build the error for a folder or file that is not read or not replaced."""
    message = f"{path} is refused: {reason}"
    return ModelFolderError(f"{message}; {remedy}" if remedy else f"{message}.")


def model_folder(path: str | os.PathLike[str]) -> Path:
    """Check that a path is a folder that may hold a saved model."""
    folder = Path(path)
    if not folder.is_dir():
        got = "it is a file" if folder.exists() else "there is no such folder"
        raise refusal(folder, got, "give a folder that `unbag fit` or clf.save wrote.")
    if not (folder / DESCRIPTION).exists() and was_interrupted(folder):
        raise refusal(folder, "a save to it was interrupted", "save the model again.")
    return folder


def _check_file(path: Path) -> int:
    """Size of a regular file; anything else is refused, links too."""
    try:
        status = path.lstat()
    except OSError as error:
        reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error)
        raise refusal(path, reason, "save the model again.") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "not a file"
        raise refusal(path, f"it is {kind}", "the files of a model lie in its folder.")
    return status.st_size


def read_json(path: Path, kind: type[_T], n_bags: int = 0) -> _T:
    """Read a JSON file of bounded size and given form.

    It may hold some hundred thousand values, and more where a model has more bags than that.
    """
    _check_file(path)
    try:
        data = read_regular(path, _MAX_JSON)
    except OSError as error:
        raise refusal(path, str(error)) from None
    if data.count(b"[") + data.count(b"{") > _MAX_NESTED:
        raise refusal(path, f"it has more than {_MAX_NESTED:,} lists and objects")
    most = _MAX_VALUES + _VALUES_PER_BAG * n_bags
    if data.count(b",") > most:
        raise refusal(path, f"it has more than {most:,} values")
    try:
        return decode(data, kind)
    except SchemaError as error:
        raise refusal(path, str(error), "save the model again.") from None


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file of a size that :func:`read_json` takes."""
    data = msgspec.json.format(msgspec.json.encode(values), indent=1)
    if len(data) > _MAX_JSON:
        got = f"it would have {len(data):,} bytes, and {_MAX_JSON:,} are allowed"
        raise refusal(path, got, "use fewer bags, or shorter ids.")
    write_whole(path, data)


def digest(path: Path) -> str:
    """SHA-256 of a regular file."""
    _check_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _memory() -> int:
    """Bytes of memory of this machine, or of a large one where the system does not say."""
    if not hasattr(os, "sysconf"):
        return 1 << 40
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class TensorFile:
    """A safetensors file whose names, shapes and types are known before a tensor is read.

    Attributes
    ----------
    shapes : dict of str to tuple of int
    dtypes : dict of str to torch.dtype
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        size = _check_file(path)
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        if size < 8 or header > min(_MAX_HEADER, size - 8):
            raise self.refusal("it is truncated, or no safetensors file")
        if size > _memory() // 2:
            got = f"it has {size:,} bytes, more than half of the memory of this machine"
            raise refusal(path, got, "load it on a larger one.")
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        with self._opened() as file:
            names = list(file.keys())
            if len(names) > _MAX_TENSORS:
                raise self.refusal(f"it has {len(names):,} tensors, and {_MAX_TENSORS:,} are read")
            for name in names:
                part = file.get_slice(name)
                if part.get_dtype() not in _DTYPES:
                    raise self.refusal(f"{name!r} is of the unknown type {part.get_dtype()!r}")
                self.shapes[name] = tuple(part.get_shape())
                self.dtypes[name] = _DTYPES[part.get_dtype()]

    def refusal(self, reason: str) -> ModelFolderError:
        """Build the error for this file."""
        return refusal(self.path, reason, "save the model again.")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with safe_open(self.path, framework="pt", device="cpu") as file:
                yield file
        except (SafetensorError, OSError, RuntimeError) as error:
            text = str(error)
            if getattr(error, "errno", 0) == errno.ENOMEM or "allocate memory" in text:
                raise MemoryError(f"{self.path} cannot be read.") from None
            if isinstance(error, RuntimeError):
                raise
            raise self.refusal(f"it cannot be read ({text})") from None

    def difference(
        self, expected: dict[str, tuple[tuple[int, ...], torch.dtype]], prefix: str = ""
    ) -> str:
        """Say which tensor is missing, too many or of another shape or type; empty where none."""
        names = {name for name in self.shapes if name.startswith(prefix)}
        if missing := expected.keys() - names:
            return f"it lacks {shorten(sorted(missing))}"
        if extra := names - expected.keys():
            return f"it has {shorten(sorted(extra))}, of which this model has nothing"
        for name, (shape, dtype) in expected.items():
            got_shape, got_dtype = self.shapes[name], self.dtypes[name]
            if (got_shape, got_dtype) != (shape, dtype):
                want = f"{dtype} {list(shape)}"
                return f"{name!r} must be {want}, got {got_dtype} {list(got_shape)}"
        return ""

    def read(self) -> dict[str, Tensor]:
        """Copy all tensors to memory."""
        with self._opened() as file:
            return {name: file.get_tensor(name).clone() for name in self.shapes}


# -------------------------------------------------------------------------------------- writing


@contextlib.contextmanager
def staged(path: str | os.PathLike[str], others: Collection[str] = ()) -> Iterator[Path]:
    """Give a new folder to write a model to; its files appear in ``path`` when nothing failed.

    What may be there: nothing, an empty folder, or a saved model. Of a saved model, its files and
    the ``others`` named are replaced or removed, and the rest is kept. Everything else is refused
    before anything is written.
    """
    target = real_path(path)
    try:
        if target.is_dir():
            settle_folder(target, DESCRIPTION)
        _check_replaceable(target)
        with new_folder(target, (*_NAMES, *others), DESCRIPTION) as folder:
            yield folder
    except OSError as error:
        raise refusal(target, f"it cannot be written ({error.strerror or error})") from None


def _check_replaceable(target: Path) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    remedy = "nothing was written; give another path, or move the folder."
    if not target.is_dir():
        raise refusal(target, "it is a file", remedy)
    if not holds_model(target):
        raise refusal(target, "it is a folder that holds no model of unbag", remedy)


def holds_model(folder: Path) -> bool:
    """Whether a folder says that it holds a model of unbag, whole or not."""
    try:
        return read_json(folder / DESCRIPTION, Format, _MAX_JSON).format == FORMAT
    except ModelFolderError:
        return False

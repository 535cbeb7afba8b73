"""The files of a saved model: read with suspicion, written whole or not at all.

A folder may come from anywhere. So only files of fixed names inside it are opened, links are
refused, JSON has a largest size, and the sizes of tensors are known before any is read.
"""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unbag.exceptions import ModelFolderError
from unbag.files import sync
from unbag.validation import shorten

__all__ = [
    "DESCRIPTION",
    "ENCODING",
    "FORMAT",
    "WEIGHTS",
    "TensorFile",
    "digest",
    "model_folder",
    "read_json",
    "refusal",
    "staged",
    "sync",
    "write_json",
]

FORMAT = "unbag-model"
DESCRIPTION, WEIGHTS, ENCODING = "model.json", "model.safetensors", "encoding.json"
_OWN = (DESCRIPTION, WEIGHTS, ENCODING)
_MAX_JSON = 1 << 25  # bytes; Python's objects are ten times as large
_MAX_NESTED = 1 << 20  # lists and objects in a file of JSON
_MAX_HEADER = 1 << 22  # bytes of names and shapes before the first tensor
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


def refusal(path: Path, reason: str, remedy: str = "") -> ModelFolderError:
    """Build the error for a folder or file that is not read or not replaced."""
    message = f"{path} is refused: {reason}"
    return ModelFolderError(f"{message}; {remedy}" if remedy else f"{message}.")


def model_folder(path: str | os.PathLike[str]) -> Path:
    """Check that a path is a folder that may hold a saved model."""
    folder = Path(path)
    if folder.is_dir():
        return folder
    if _before(folder).is_dir():
        remedy = f"a save was interrupted: rename {_before(folder)} to get the model before it."
        raise refusal(folder, "there is no such folder", remedy)
    got = "it is a file" if folder.exists() else "there is no such folder"
    raise refusal(folder, got, "give a folder that `unbag fit` or clf.save wrote.")


def _check_file(path: Path) -> int:
    """Size of a regular file; anything else is refused, links too."""
    try:
        found = path.lstat()
    except OSError as error:
        reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error)
        raise refusal(path, reason, "save the model again.") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "not a file"
        raise refusal(path, f"it is {kind}", "the files of a model lie in its folder.")
    return found.st_size


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return values


def read_json(path: Path) -> Any:
    """Read a JSON file of bounded size, refusing what only Python takes for JSON."""
    size = _check_file(path)
    if size > _MAX_JSON:
        raise refusal(path, f"it has {size:,} bytes, and {_MAX_JSON:,} are allowed")
    with path.open("rb") as file:
        data = file.read(_MAX_JSON)
    if data.count(b"[") + data.count(b"{") > _MAX_NESTED:
        raise refusal(path, f"it has more than {_MAX_NESTED:,} lists and objects")
    try:
        return json.loads(data.decode(), parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except RecursionError:
        raise refusal(path, "its lists and objects are nested too deeply") from None
    except ValueError as error:  # of JSON, and of bytes that are no text
        raise refusal(path, f"it is no valid JSON ({error})", "save the model again.") from None


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file, checked to be one that :func:`read_json` takes, and sync it."""
    data = json.dumps(values, allow_nan=False, indent=1).encode()
    if len(data) > _MAX_JSON:
        got = f"it would have {len(data):,} bytes, and {_MAX_JSON:,} are allowed"
        raise refusal(path, got, "use fewer bags, or shorter ids.")
    path.write_bytes(data)
    sync(path)


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
            for name in file.keys():  # noqa: SIM118
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
        except (SafetensorError, OSError) as error:
            raise self.refusal(f"it cannot be read ({error})") from None

    def difference(
        self, expected: dict[str, tuple[tuple[int, ...], torch.dtype]], prefix: str = ""
    ) -> str:
        """Say which tensor is missing, too many or of another shape or type; empty where none."""
        found = {name for name in self.shapes if name.startswith(prefix)}
        if missing := expected.keys() - found:
            return f"it lacks {shorten(sorted(missing))}"
        if extra := found - expected.keys():
            return f"it has {shorten(sorted(extra))}, of which this model has nothing"
        for name, (shape, dtype) in expected.items():
            got_shape, got_dtype = self.shapes[name], self.dtypes[name]
            if (got_shape, got_dtype) != (shape, dtype):
                want = f"{dtype} {list(shape)}"
                return f"{name!r} must be {want}, got {got_dtype} {list(got_shape)}"
        return ""

    def read(self) -> dict[str, Tensor]:
        """Read all tensors to memory of their own."""
        with self._opened() as file:
            return {name: file.get_tensor(name).clone() for name in self.shapes}


# -------------------------------------------------------------------------------------- writing


def _before(target: Path) -> Path:
    """Where the model that is being replaced lies for a moment."""
    return target.with_name(f".{target.name}.before")


@contextlib.contextmanager
def staged(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new folder to write to, which takes the place of ``path`` where nothing failed.

    What may be there: nothing, an empty folder, or a saved model. Of a saved model, the own files
    are replaced and all others are kept. Everything else is refused before anything is written.
    """
    target = Path(path).resolve()
    temporary, before = target.with_name(f".{target.name}.saving"), _before(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _settle(target)
        _check_replaceable(target)
        _delete_own(temporary)  # of a save that was killed
        temporary.mkdir()
        yield temporary
        sync(temporary)
        if target.is_dir():
            target.rename(before)
        temporary.rename(target)
        _settle(target)
        sync(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            _delete_own(temporary)
            _settle(target)
        if isinstance(error, OSError):
            raise refusal(target, f"it cannot be written ({error})") from None
        raise


def _check_replaceable(target: Path) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    remedy = "nothing was written; give another path, or move what is there."
    if not target.is_dir():
        raise refusal(target, "it is a file", remedy)
    try:
        values = read_json(target / DESCRIPTION)
    except ModelFolderError:
        values = None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise refusal(target, "it is a folder that holds no model of unbag", remedy)


def _settle(target: Path) -> None:
    """Finish a replacement: keep what is not the model's from the folder before, delete the rest.

    It does nothing where none is going on, and may be called again after it was killed.
    """
    before = _before(target)
    if not before.is_dir():
        return
    if not target.exists():
        before.rename(target)
        return
    for entry in before.iterdir():
        if entry.name not in _OWN and not os.path.lexists(target / entry.name):
            entry.rename(target / entry.name)
    _delete_own(before)
    if before.is_dir():
        raise refusal(before, "a save left files there that are also in the model", "move them.")


def _delete_own(folder: Path) -> None:
    """Delete a folder with the files of a model; a file that is not one of them stays."""
    if not folder.is_dir():
        return
    for name in _OWN:
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()

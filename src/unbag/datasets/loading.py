"""Readers of the upstream file formats."""

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.validation import check_choice, invalid

__all__ = ["DATASETS", "Dataset", "load"]

_Part = tuple[NDArray[np.generic], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows, split as their authors split them.

    Attributes
    ----------
    X_train, X_test : arrays of shape (n, ...)
        Images are uint8, (n, H, W) or (n, C, H, W); tables are float32 scaled to [0, 1].
    y_train, y_test : int64 arrays of shape (n,)
    """

    name: str
    X_train: NDArray[np.generic]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.generic]
    y_test: NDArray[np.int64]

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.y_train.max()) + 1


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Read one of the datasets of ``DATASETS``.

    Parameters
    ----------
    name : str
        pendigits, usps, mnist, fashion-mnist, kmnist or cifar10.
    folder : path, optional
        The folder whose subfolder of that name holds the upstream files; by default what the
        environment variable ``UNBAG_DATA`` says.
    """
    check_choice("name", name, DATASETS)
    where = os.environ.get("UNBAG_DATA") if folder is None else folder
    if not where:
        message = f"{name}: set UNBAG_DATA to the folder that holds the datasets, or pass folder=."
        raise InvalidInputError(message)
    root = Path(where) / name
    try:
        (x_train, y_train), (x_test, y_test) = DATASETS[name](root)
    except FileNotFoundError as error:
        raise invalid("folder", f"one that holds {error.filename}", str(where)) from None
    return Dataset(name, x_train, y_train, x_test, y_test)


def _idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, the number of axes, their lengths, data."""
    raw = gzip.decompress(path.read_bytes())
    axes = raw[3] if len(raw) > 3 else 0
    start = 4 + 4 * axes
    shape = np.frombuffer(raw[4:start], ">u4").astype(int)
    if raw[:3] != b"\0\0\x08" or len(raw) - start != shape.prod():
        raise invalid(str(path), "a whole idx file of bytes", f"{len(raw)} bytes")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _mnist_like(root: Path) -> tuple[_Part, _Part]:
    train, test = (
        (
            _idx(root / f"{part}-images-idx3-ubyte.gz"),
            _idx(root / f"{part}-labels-idx1-ubyte.gz").astype(np.int64),
        )
        for part in ("train", "t10k")
    )
    return train, test


def _pendigits(root: Path) -> tuple[_Part, _Part]:
    def read(path: Path) -> _Part:
        table = np.loadtxt(path, delimiter=",", dtype=np.float32)
        return table[:, :-1] / np.float32(100), table[:, -1].astype(np.int64)

    return read(root / "pendigits.tra"), read(root / "pendigits.tes")


def _usps(root: Path) -> tuple[_Part, _Part]:
    def read(path: Path) -> _Part:
        table = np.loadtxt(path, dtype=np.float32)
        return (table[:, 1:] + 1) / 2, table[:, 0].astype(np.int64)

    return read(root / "zip.train.gz"), read(root / "zip.test.gz")


def _cifar10(root: Path) -> tuple[_Part, _Part]:
    def read(names: list[str]) -> _Part:
        folder = root / "cifar-10-batches-bin"
        raw = np.concatenate([np.fromfile(folder / f"{n}.bin", np.uint8) for n in names])
        rows = raw.reshape(-1, 3073)
        return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)

    return read([f"data_batch_{i}" for i in range(1, 6)]), read(["test_batch"])


DATASETS: dict[str, Callable[[Path], tuple[_Part, _Part]]] = {
    "pendigits": _pendigits,
    "usps": _usps,
    "mnist": _mnist_like,
    "fashion-mnist": _mnist_like,
    "kmnist": _mnist_like,
    "cifar10": _cifar10,
}

"""Readers of the upstream file formats."""

import gzip
import os
import shlex
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unbag.datasets.folder import data_folder
from unbag.validation import check_choice, invalid

__all__ = ["DATASETS", "Dataset", "load", "usps_table"]

_Floats = NDArray[np.float32]
_Part = tuple[NDArray[np.generic], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows, split as their authors split them.

    Attributes
    ----------
    X_train, X_test : arrays of shape (n, ...)
        Images are (n, H, W) or (n, C, H, W), uint8 but for USPS; that and tables are float32
        scaled to [0, 1].
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
        environment variable ``UNBAG_DATA`` says, else the user's cache, where
        :func:`unbag.datasets.fetch` puts them.
    """
    check_choice("name", name, DATASETS)
    where = data_folder(folder)
    try:
        (x_train, y_train), (x_test, y_test) = DATASETS[name](where / name)
    except (FileNotFoundError, NotADirectoryError) as error:
        option = "" if folder is None else f" --folder {shlex.quote(str(where))}"
        command = f"unbag datasets fetch {name}{option}"
        remedy = f"download it with `{command}`, or say where it is with UNBAG_DATA or folder=."
        raise invalid("folder", f"one that holds {error.filename}", where, remedy) from None
    return Dataset(name, x_train, y_train, x_test, y_test)


def _unzip(path: Path) -> bytes:
    raw = path.read_bytes()
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise invalid(str(path), "a whole gzip file", f"{len(raw)} bytes ({error})") from None


def _idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, type 8, the number of axes, their lengths, data."""
    raw = _unzip(path)
    start = 4 + 4 * axes
    shape = np.frombuffer(raw[4:start].ljust(4 * axes, b"\0"), ">u4").astype(int)
    if raw[:4] != bytes([0, 0, 8, axes]) or len(raw) - start != shape.prod():
        raise invalid(str(path), f"a whole idx file of bytes, {axes} axes", f"{len(raw)} bytes")
    # A copy, since torch wants memory it may write to.
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def _table(path: Path, text: bytes, columns: int, delimiter: str | None = None) -> _Floats:
    """Read lines of ``columns`` numbers each."""
    lines = text.decode("ascii", errors="replace").split("\n")
    lines = [line for line in lines if line.strip()]
    got = f"{len(lines)} lines"
    try:
        if lines:
            table = np.loadtxt(lines, delimiter=delimiter, dtype=np.float32, ndmin=2)
            if table.shape[1] == columns:
                return table
            got = f"{table.shape[1]} in each"
    except ValueError as error:
        got = str(error)
    raise invalid(str(path), f"lines of {columns} numbers", got)


def _labels(path: Path, values: NDArray[np.generic]) -> NDArray[np.int64]:
    bad = ~np.isin(values, np.arange(10))
    if bad.any():
        got = f"{values[bad][0]} in row {bad.argmax()}"
        raise invalid(str(path), "a file with classes 0 to 9", got)
    return values.astype(np.int64)


def _mnist_like(root: Path) -> tuple[_Part, _Part]:
    def read(part: str) -> _Part:
        images = _idx(root / f"{part}-images-idx3-ubyte.gz", axes=3)
        path = root / f"{part}-labels-idx1-ubyte.gz"
        labels = _labels(path, _idx(path, axes=1))
        if len(labels) != len(images):
            raise invalid(str(path), f"one label for each of {len(images)} images", len(labels))
        return images, labels

    return read("train"), read("t10k")


def _pendigits(root: Path) -> tuple[_Part, _Part]:
    def read(path: Path) -> _Part:
        table = _table(path, path.read_bytes(), columns=17, delimiter=",")
        return table[:, :-1] / np.float32(100), _labels(path, table[:, -1])

    return read(root / "pendigits.tra"), read(root / "pendigits.tes")


def usps_table(path: Path) -> _Floats:
    """Read the rows of a USPS file as they are: the label and 256 values in [-1, 1]."""
    return _table(path, _unzip(path), columns=257)


def _usps(root: Path) -> tuple[_Part, _Part]:
    def read(path: Path) -> _Part:
        table = usps_table(path)
        images = table[:, 1:].reshape(-1, 16, 16)
        return (images + 1) / 2, _labels(path, table[:, 0])

    return read(root / "zip.train.gz"), read(root / "zip.test.gz")


def _cifar10(root: Path) -> tuple[_Part, _Part]:
    def read(names: list[str]) -> _Part:
        images, labels = [], []
        for name in names:
            path = root / "cifar-10-batches-bin" / f"{name}.bin"
            raw = np.frombuffer(path.read_bytes(), np.uint8)
            if len(raw) == 0 or len(raw) % 3073:
                raise invalid(str(path), "whole records of 3073 bytes", f"{len(raw)} bytes")
            rows = raw.reshape(-1, 3073)
            images.append(rows[:, 1:].reshape(-1, 3, 32, 32))
            labels.append(_labels(path, rows[:, 0]))
        return np.concatenate(images), np.concatenate(labels)

    return read([f"data_batch_{i}" for i in range(1, 6)]), read(["test_batch"])


DATASETS: dict[str, Callable[[Path], tuple[_Part, _Part]]] = {
    "pendigits": _pendigits,
    "usps": _usps,
    "mnist": _mnist_like,
    "fashion-mnist": _mnist_like,
    "kmnist": _mnist_like,
    "cifar10": _cifar10,
}

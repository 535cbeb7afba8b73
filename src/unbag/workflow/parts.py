"""Predictions that are written in parts, so that a run which was stopped can go on."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
from numpy.typing import NDArray

from unbag.estimator.predictor import CLASS
from unbag.files import (
    digest,
    discard,
    discarded,
    is_real_folder,
    new_file,
    read_regular,
    remove_folder,
    sync,
    write_whole,
)
from unbag.schema import SchemaError, seal, unseal
from unbag.workflow.outputs import hidden_folder

__all__ = ["Parts", "parts_folder", "write_part"]

_STATE = "state.json"
_MAX_STATE = 1 << 26  # bytes
_MOST_FOLDERS = 1 << 15  # that one part of a dataset may be written to


class _Part(msgspec.Struct):
    counts: list[int]  # rows of every class
    digest: str


class _State(msgspec.Struct):
    """What is done, as it is kept in a file; None stands for a part that is not."""

    fingerprint: str
    parts: list[_Part | None]
    whole: str | None = None  # digest of all parts joined, once they are


def parts_folder(target: Path) -> Path:
    """Where the parts of an output lie until it is made."""
    return hidden_folder(target, "parts")


def write_part(path: Path, batches: Sequence[pa.RecordBatch]) -> str:
    """Write the predictions of one part, whole or not at all; return the SHA-256 of the file."""
    with new_file(path) as temporary:
        schema = batches[0].schema
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return str(digest(temporary))


class Parts:
    """Predictions that are done: each part in its file, and all up to the first gap in one.

    The file of all is what the target will be, or a folder of Parquet files. After a stop it is
    written anew from the parts, because it cannot be continued. Parts of other predictions are
    removed, and so are damaged ones, with a warning.

    Parameters
    ----------
    target : Path
        The file or folder to make; its :func:`parts_folder` must be there, held by this run.
    fingerprint : str
        What the predictions depend on.
    n_classes : int
    n_parts : int
        How many there will be.
    partition_by : sequence of str
        Columns whose values become names of folders, such as ``class=yes``, where the target is
        a folder.

    Attributes
    ----------
    target : Path
    counts : array of shape (K,)
        Rows predicted as each class.
    """

    def __init__(
        self,
        target: Path,
        fingerprint: str,
        n_classes: int,
        n_parts: int,
        partition_by: Sequence[str] = (),
    ) -> None:
        self.target = target
        self._folder = parts_folder(target)
        self._whole = self._folder / f"whole{target.suffix.lower()}"
        self._partition_by = list(partition_by)
        self._n_classes = n_classes
        self._n_parts = n_parts
        self._state = self._read(fingerprint)
        self._writer: Any = None  # of the file of all
        self._written = 0  # parts in it
        self.counts = np.zeros(n_classes, dtype=np.int64)
        for part in filter(None, self._state.parts):
            self.counts += part.counts

    @property
    def rows(self) -> int:
        """Rows that are done."""
        return int(self.counts.sum())

    @property
    def missing(self) -> list[int]:
        """Numbers of the parts that are not done."""
        return [i for i, part in enumerate(self._state.parts) if part is None]

    @property
    def has_its_name(self) -> bool:
        """Whether the file of all took the place of the target; only parts are to be removed."""
        return self._state.whole is not None and not self._whole.exists()

    def scratch(self) -> Path:
        """Name a file for a part; a process that outlives its run cannot harm a later one."""
        return self._folder / f"{secrets.token_hex(8)}.arrow"

    def keep(self, number: int, written: Path, counts: NDArray[np.int64], sha256: str) -> None:
        """Take over the file of a part that :func:`write_part` wrote."""
        written.replace(self._part(number))
        sync(self._folder)
        self._state.parts[number] = _Part(counts.tolist(), sha256)
        self.counts += counts
        self._write_state()
        self._join()

    def finish(self) -> None:
        """Give the file of all its name and remove the parts."""
        if self._state.whole is None:
            self._join()
            self.close()
            for path in _files_of(self._whole):
                sync(path)
            self._state.whole = _digest(self._whole)
            self._write_state()
        if self._whole.exists():  # else an earlier run was stopped after this
            self._whole.replace(self.target)
            sync(self.target.parent)
        remove_folder(self._folder, last=_STATE)

    def close(self) -> None:
        """Close the file of all, whole or not."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def discard(self) -> None:
        """Remove all that was kept."""
        for path in self._folder.iterdir():
            discard(path)

    def _join(self) -> None:
        """Write the parts to the file of all that are not in it yet, up to the first gap."""
        while self._written < self._n_parts and self._state.parts[self._written] is not None:
            with pa.memory_map(str(self._part(self._written))) as file:
                rows = _decoded(pa.ipc.open_file(file).read_all())
            if self._writer is None:
                self._writer = self._open_whole(rows.schema)
            self._writer.write_table(rows)
            self._written += 1

    def _open_whole(self, schema: pa.Schema) -> Any:
        if self._whole.suffix == ".csv":
            return pa.csv.CSVWriter(str(self._whole), schema)
        # A dictionary of numbers that are almost all different would only take time.
        repeated = [field.name for field in schema if not pa.types.is_primitive(field.type)]
        if not self._whole.suffix:
            return _Dataset(self._whole, self._partition_by, repeated)
        return pa.parquet.ParquetWriter(str(self._whole), schema, use_dictionary=repeated)

    def _write_state(self) -> None:
        write_whole(self._folder / _STATE, seal(self._state))

    def _part(self, number: int) -> Path:
        return self._folder / f"{number:06d}.arrow"

    def _read(self, fingerprint: str) -> _State:
        """Verify what an earlier run left, and remove all else."""
        state, keep = _State(fingerprint, [None] * self._n_parts), set[Path]()
        try:
            left = unseal(read_regular(self._folder / _STATE, _MAX_STATE), _State)
        except FileNotFoundError:
            left = None
        except (OSError, SchemaError):
            left = None
            discarded(f"What is kept for {self.target}", "was damaged")
        if left is not None and left.fingerprint == fingerprint:
            files = {self._part(i): part.digest for i, part in enumerate(left.parts) if part}
            if left.whole is not None:  # parts may be removed, and the whole may have its name
                place = self._whole if self._whole.exists() else self.target
                files = {place: left.whole}
            if self._is_sound(left) and all(_digest(p) == known for p, known in files.items()):
                state, keep = left, {self._folder / _STATE, *files}
            else:
                discarded(f"What is kept for {self.target}", "was damaged")
        for path in self._folder.iterdir():
            if path not in keep:
                discard(path)
        return state

    def _is_sound(self, state: _State) -> bool:
        return len(state.parts) == self._n_parts and all(
            len(part.counts) == self._n_classes and min(part.counts) >= 0
            for part in filter(None, state.parts)
        )


class _Dataset:
    """A folder of Parquet files, one per part, or one per part and partition."""

    def __init__(self, folder: Path, partition_by: Sequence[str], repeated: list[str]) -> None:
        self._folder = folder
        self._options: dict[str, Any] = {"format": "parquet", "max_partitions": _MOST_FOLDERS}
        if partition_by:
            by = {"partitioning": partition_by, "partitioning_flavor": "hive"}
            self._options |= by
            repeated = [name for name in repeated if name not in partition_by]
        form = pyarrow.dataset.ParquetFileFormat()
        self._options["file_options"] = form.make_write_options(use_dictionary=repeated)
        self._n_parts = 0
        folder.mkdir()

    def write_table(self, rows: pa.Table) -> None:
        """Write the next part."""
        pyarrow.dataset.write_dataset(
            rows,
            self._folder,
            basename_template=f"part-{self._n_parts:06d}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
            use_threads=False,
            **self._options,
        )
        self._n_parts += 1

    def close(self) -> None:
        """Do nothing: every part is whole."""


def _files_of(path: Path) -> Iterable[Path]:
    """List a file, or the files and folders in a folder."""
    return [*path.rglob("*"), path] if is_real_folder(path) else [path]


def _digest(path: Path) -> str | None:
    """SHA-256 of a file, or of the names and files in a folder; None where there is none."""
    if not is_real_folder(path):
        return digest(path)
    files = sorted(file for file in path.rglob("*") if not is_real_folder(file))
    lines = [f"{file.relative_to(path)} {digest(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _decoded(rows: pa.Table) -> pa.Table:
    """Classes as plain values instead of numbers and a dictionary."""
    position = rows.schema.get_field_index(CLASS)
    column = rows.column(position)
    return rows.set_column(position, CLASS, column.cast(column.type.value_type))

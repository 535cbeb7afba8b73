"""Predictions that are written in parts, so that a run which was stopped can go on."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from unbag.estimator.predictor import CLASS
from unbag.files import (
    digest,
    discard,
    discarded,
    new_file,
    read_regular,
    remove_folder,
    sync,
    write_whole,
)
from unbag.schema import SchemaError, seal, unseal
from unbag.workflow.outputs import hidden_folder

__all__ = ["Parts", "parts_folder"]

_STATE = "state.json"
_MAX_STATE = 1 << 26  # bytes


class _Part(msgspec.Struct):
    counts: list[int]  # rows of every class
    digest: str


class _State(msgspec.Struct):
    """What is done, as it is kept in a file."""

    fingerprint: str
    parts: list[_Part]
    whole: str | None = None  # digest of all parts joined, once they are


def parts_folder(target: Path) -> Path:
    """Where the parts of a file lie until it is made."""
    return hidden_folder(target, "parts")


class Parts:
    """Predictions that are done: each part in its file, and all so far in one.

    The file of all is what the target will be; after a stop it is written anew from the parts,
    because it cannot be continued. Parts of other predictions are removed, and so are damaged
    ones, with a warning.

    Parameters
    ----------
    target : Path
        The file to make; its :func:`parts_folder` must be there, held by this run.
    fingerprint : str
        What the predictions depend on.
    n_classes : int
    part_rows : int
        Rows after which what is done is kept.

    Attributes
    ----------
    target : Path
    counts : array of shape (K,)
        Rows predicted as each class.
    """

    def __init__(self, target: Path, fingerprint: str, n_classes: int, part_rows: int) -> None:
        self.target = target
        self._folder = parts_folder(target)
        self._whole = self._folder / f"whole{target.suffix.lower()}"
        self._part_rows = part_rows
        self._n_classes = n_classes
        self._state = self._read(fingerprint)
        self._batches: list[pa.RecordBatch] = []
        self._writer: Any = None  # of the file of all
        self._written = 0  # parts in it
        self.counts = np.zeros(n_classes, dtype=np.int64)
        for part in self._state.parts:
            self.counts += part.counts
        self._kept = self.counts.copy()

    @property
    def rows(self) -> int:
        """Rows that are done."""
        return int(self.counts.sum())

    @property
    def has_its_name(self) -> bool:
        """Whether the file of all took the place of the target; only parts are to be removed."""
        return self._state.whole is not None and not self._whole.exists()

    def add(self, batch: pa.RecordBatch, counts: NDArray[np.int64]) -> None:
        """Add predictions, and keep them once there are enough."""
        self._batches.append(batch)
        self.counts += counts
        if sum(map(len, self._batches)) >= self._part_rows:
            self._keep()
            self._join()

    def finish(self) -> None:
        """Give the file of all its name and remove the parts."""
        if self._batches:
            self._keep()
        if self._state.whole is None:
            self._join()
            self.close()
            sync(self._whole)
            self._state.whole = digest(self._whole)
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

    def _keep(self) -> None:
        """Write the batches that were added as a new part."""
        path = self._part(len(self._state.parts))
        schema = self._batches[0].schema
        with new_file(path) as temporary:
            with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as writer:
                for batch in self._batches:
                    writer.write_batch(batch)
            written = str(digest(temporary))
        self._state.parts.append(_Part((self.counts - self._kept).tolist(), written))
        self._kept = self.counts.copy()
        self._batches = []
        self._write_state()

    def _join(self) -> None:
        """Write the parts to the file of all that are not in it yet."""
        while self._written < len(self._state.parts):
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
        return pa.parquet.ParquetWriter(str(self._whole), schema, use_dictionary=repeated)

    def _part(self, number: int) -> Path:
        return self._folder / f"{number:06d}.arrow"

    def _write_state(self) -> None:
        write_whole(self._folder / _STATE, seal(self._state))

    def _read(self, fingerprint: str) -> _State:
        """Verify what an earlier run left, and remove all else."""
        state, keep = _State(fingerprint, []), set[Path]()
        try:
            left = unseal(read_regular(self._folder / _STATE, _MAX_STATE), _State)
        except FileNotFoundError:
            left = None
        except (OSError, SchemaError):
            left = None
            discarded(f"What is kept for {self.target}", "was damaged")
        if left is not None and left.fingerprint == fingerprint:
            files = {self._part(i): part.digest for i, part in enumerate(left.parts)}
            if left.whole is not None:  # parts may be removed, and the whole may have its name
                place = self._whole if self._whole.exists() else self.target
                files = {place: left.whole}
            if self._is_sound(left) and all(digest(p) == known for p, known in files.items()):
                state, keep = left, {self._folder / _STATE, *files}
            else:
                discarded(f"What is kept for {self.target}", "was damaged")
        for path in self._folder.iterdir():
            if path not in keep:
                discard(path)
        return state

    def _is_sound(self, state: _State) -> bool:
        return all(
            len(part.counts) == self._n_classes and min(part.counts) >= 0 for part in state.parts
        )


def _decoded(rows: pa.Table) -> pa.Table:
    """Classes as plain values instead of numbers and a dictionary."""
    position = rows.schema.get_field_index(CLASS)
    column = rows.column(position)
    return rows.set_column(position, CLASS, column.cast(column.type.value_type))

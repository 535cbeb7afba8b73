"""Predictions that are written in parts, so that a run which was stopped can go on."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from unbag.files import remove_folder, sync, write_whole

__all__ = ["CLASS", "Parts", "parts_folder"]

CLASS = "class"  # the column of predicted classes
_STATE = "state.json"


def parts_folder(target: Path) -> Path:
    """Where the parts of a file lie until it is made."""
    return target.resolve().parent / f".{target.name}.parts"


class Parts:
    """Predictions that are done: each part in a file of its own, and all so far in one.

    The file of all is what the target will be; after a stop it is written anew from the parts,
    because it cannot be continued.

    Parameters
    ----------
    target : Path
        The file to make; its :func:`parts_folder` must be there, held by this run.
    fingerprint : str
        What the predictions depend on; parts of anything else are thrown away.
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
        self._fingerprint = fingerprint
        self._part_rows = part_rows
        self._done, self._joined = self._read()  # rows of every class in each part
        self._batches: list[pa.RecordBatch] = []
        self._writer: Any = None  # of the file of all
        self._written = 0  # parts in it
        self.counts = np.zeros(n_classes, dtype=np.int64) + np.sum(
            self._done or [[0]], axis=0, dtype=np.int64
        )
        self._kept = self.counts.copy()

    @property
    def rows(self) -> int:
        """Rows that are done."""
        return int(self.counts.sum())

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
        if not self._joined:
            self._join()
            self.close()
            sync(self._whole)
            self._joined = True
            self._write_state()
        if self._whole.exists():  # else an earlier run was stopped after this
            self._whole.replace(self.target)
            sync(self.target.resolve().parent)
        remove_folder(self._folder, last=_STATE)

    def close(self) -> None:
        """Close the file of all, whole or not."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _keep(self) -> None:
        """Write what was added to a part of its own."""
        if not self._done:  # what is there is of another run
            for path in self._folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        path = self._part(len(self._done))
        partial = path.with_suffix(".partial")
        schema = self._batches[0].schema
        with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        sync(partial)
        partial.replace(path)
        self._done.append((self.counts - self._kept).tolist())
        self._kept = self.counts.copy()
        self._batches = []
        self._write_state()

    def _join(self) -> None:
        """Write the parts to the file of all that are not in it yet."""
        while self._written < len(self._done):
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
        state = {"fingerprint": self._fingerprint, "parts": self._done, "joined": self._joined}
        write_whole(self._folder / _STATE, json.dumps(state))

    def _read(self) -> tuple[list[list[int]], bool]:
        """Rows of every class in the parts that an earlier run left; whether it joined them."""
        try:
            state = json.loads((self._folder / _STATE).read_text(encoding="utf-8"))
            parts: list[list[int]] = state["parts"]
            joined = bool(state["joined"])
            same = state["fingerprint"] == self._fingerprint
        except (OSError, ValueError, KeyError, TypeError):
            return [], False
        if joined:  # parts may be removed already, and the whole may have its name
            there = self._whole.exists() or self.target.exists()
        else:
            there = all(self._part(number).exists() for number in range(len(parts)))
        return (parts, joined) if same and there else ([], False)


def _decoded(rows: pa.Table) -> pa.Table:
    """Classes as plain values instead of numbers and a dictionary."""
    position = rows.schema.get_field_index(CLASS)
    column = rows.column(position)
    return rows.set_column(position, CLASS, column.cast(column.type.value_type))

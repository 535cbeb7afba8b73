"""The rows to predict, in blocks that do not depend on where an earlier run was stopped."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unbag.estimator import UnbagClassifier
from unbag.io import Drift, TableEncoding, TableFiles, read_rows
from unbag.io.bag_column import BagColumn, bag_id_array
from unbag.io.stores import AnyPath
from unbag.io.tables import batch_rows_of
from unbag.progress import RowProgress
from unbag.validation import invalid, shorten
from unbag.workflow.reading import paths_of

__all__ = ["Blocks", "RowsToPredict", "bag_ids_of", "rows_to_predict"]

_ROW = "row"

Blocks: TypeAlias = Iterator[tuple[list[pa.Array], NDArray[Any]]]
"""The columns that name rows, and the encoded rows."""


@dataclass(frozen=True, eq=False)
class RowsToPredict:
    """The rows to predict.

    Attributes
    ----------
    files, fingerprint
        Where they come from, and what tells them from others.
    n_rows
        How many there are.
    keys
        Names and types of the columns that name rows.
    blocks
        Gives blocks from a row on, the same blocks wherever an earlier run was stopped.
    block_rows
        Rows of every block but the last.
    drift
        Compares them with the rows of training, where these came from a table.
    """

    files: tuple[Any, ...]
    fingerprint: str
    n_rows: int
    keys: pa.Schema
    blocks: Callable[[int], Blocks]
    block_rows: int
    drift: Drift | None = None


def rows_to_predict(
    clf: UnbagClassifier,
    rows: Any,
    key: list[str],
    images: str | os.PathLike[str] | None,
    where: str | None,
    block_rows: int,
    verbose: bool,
) -> RowsToPredict:
    """Open the rows of files; parameters are those of ``predict_files``, and the rows of a block.

    Wide tables have smaller blocks.
    """
    paths = paths_of(rows)
    encoding = clf.encoding_
    is_npz = paths[0].suffix.lower() == ".npz"
    if isinstance(encoding, TableEncoding) and not is_npz and images is None:
        return _of_table(encoding, paths, key, where, block_rows)
    if is_npz and key:
        raise invalid("key", "left out with an .npz file", shorten(key))
    with RowProgress("reading rows", verbose) as progress:
        X = read_rows(paths, images=images, encoding=encoding, where=where, progress=progress).X
    files: tuple[Any, ...] = tuple(paths)
    fingerprint = hashlib.sha256(np.ascontiguousarray(X).data).hexdigest()
    keys = pa.table({_ROW: np.arange(len(X))})
    if not is_npz:
        table = TableFiles(paths, ids=key)
        table.check_columns("key", key)
        files, fingerprint = table.files, fingerprint + table.fingerprint()
        if key:
            keys = pa.Table.from_batches(table.batches(key)).combine_chunks()

    def blocks(skip: int) -> Blocks:
        for start in range(skip, len(X), block_rows):
            block = keys.slice(start, block_rows)
            yield [column.combine_chunks() for column in block.columns], X[start:][:block_rows]

    return RowsToPredict(files, fingerprint, len(X), keys.schema, blocks, block_rows)


def bag_ids_of(clf: UnbagClassifier, rows: Any, bag: str, where: str | None) -> NDArray[Any]:
    """Read the bag id of every row, each that of a known bag."""
    paths = paths_of(rows)
    if paths[0].suffix.lower() == ".npz":
        ids = read_rows(paths, bag=bag, encoding=clf.encoding_).bag_ids
    else:
        table = TableFiles(paths, ids=(bag,), where=where)
        column = BagColumn(table, bag)
        for batch in table.batches([bag]):
            column.update(batch.column(0))
        ids = bag_id_array(*column.collected(), from_text=table.is_csv)
    assert ids is not None
    clf.known_priors_.encode(ids)
    return ids


def _of_table(
    encoding: TableEncoding,
    paths: list[AnyPath],
    key: list[str],
    where: str | None,
    block_rows: int,
) -> RowsToPredict:
    # A key that is also a feature is read as in training.
    ids = [name for name in key if name not in encoding.columns]
    table = TableFiles(paths, text=encoding.text_columns, ids=ids, where=where)
    table.check_columns("key", key)
    encoding.check_schema(table.schema)
    names = list(dict.fromkeys([*encoding.columns, *key]))
    size = min(block_rows, batch_rows_of(max(len(names), encoding.n_features)))
    drift = Drift(encoding)

    def blocks(skip: int) -> Blocks:
        for block in _rebatched(table.batches(names, batch_rows=size, skip_rows=skip), size):
            numbers = pa.array(np.arange(skip, skip + len(block)))
            yield (
                [block.column(name) for name in key] or [numbers],
                encoding.transform(block, drift),
            )
            skip += len(block)

    keys = [table.schema.field(name) for name in key] or [pa.field(_ROW, pa.int64())]
    schema = pa.schema(keys)
    fingerprint = table.fingerprint()
    return RowsToPredict(table.files, fingerprint, table.n_rows, schema, blocks, size, drift)


def _rebatched(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Cut batches anew, all of one size but the last: rounding may depend on the place of a row."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        while count >= size:
            block = _joined(waiting)
            rest = block.slice(size)
            yield block.slice(0, size)
            waiting, count = [rest], len(rest)
    if count:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

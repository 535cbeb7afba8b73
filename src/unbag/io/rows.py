"""Rows from files of every kind: tables, arrays, folders of images."""

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from unbag.io.arrays import ArrayEncoding, read_npz
from unbag.io.bag_column import BagColumn, bag_id_array
from unbag.io.cache import CachedRows, CacheWriter, open_cache
from unbag.io.drift import Drift
from unbag.io.encoding import TableEncoding
from unbag.io.images import ImageEncoding, read_images
from unbag.io.input_rows import Encoding, InputRows, Progress, check_kind, read_struct
from unbag.io.tables import TableFiles, batch_rows_of
from unbag.validation import invalid

__all__ = ["encoding_from_dict", "read_rows"]

_IN_MEMORY = 256 << 20  # bytes of encoded rows that are kept in memory without a cache
_FORMAT = 3  # of caches; another one for another encoding of the same table


def read_rows(
    paths: Any,
    *,
    bag: str | None = None,
    columns: Sequence[str] | None = None,
    leave_out: Collection[str] = (),
    encoding: Any = None,
    cache: str | os.PathLike[str] | None = None,
    images: str | os.PathLike[str] | None = None,
    where: str | None = None,
    progress: Progress | None = None,
) -> InputRows:
    r"""Read rows and their bag ids from Parquet or CSV files, an ``.npz`` file or images.

    Parameters
    ----------
    paths
        Files of a table or folders of them, as in :class:`TableFiles`; or one ``.npz`` file;
        or, with ``images``, the table that names the image files.
    bag
        The column (in ``.npz`` the array) of bag ids; every row must have one.
    columns
        Columns of a table to use; by default all that can be encoded.
    leave_out
        Columns of a table not to use.
    encoding
        The encoding of a trained model, so that new rows become the same features.
    cache
        Folder where a table is kept in encoded form and memory-mapped from. As long as files,
        columns and encoding are the same, it is not encoded again. Old content is never removed:
        delete the folder when it is no longer needed. Without it, up to 256 MB are kept in memory,
        and more in a temporary folder for as long as ``X`` is in use.
    images
        Folder of the images that the table in ``paths`` names.
    where
        A condition on columns of a table that rows must meet, as in :class:`TableFiles`.
    progress
        Called with the rows done and the rows in all; a row that is looked at twice, to choose
        the encoding and to encode it, counts twice.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rows.csv")
    ...     _ = file.write_text("age,district\n30,north\n50,south\n")
    ...     rows = read_rows(file, bag="district")
    >>> rows.X
    array([[-1.],
           [ 1.]], dtype=float32)
    >>> rows.bag_ids
    array(['north', 'south'], dtype=object)
    """
    only = paths[0] if isinstance(paths, Sequence) and len(paths) == 1 else paths
    is_npz = isinstance(only, str | os.PathLike) and Path(only).suffix.lower() == ".npz"
    if is_npz or images is not None:
        got = "an .npz file" if is_npz else "images"
        if columns is not None or len(leave_out):
            raise invalid("columns and leave_out", "for rows from a table", got)
        if where is not None:
            raise invalid("where", "for rows from a table", got)
    if images is not None:
        return read_images(only, images, bag=bag, encoding=encoding, progress=progress)
    if is_npz:
        return read_npz(only, bag=bag, encoding=encoding)
    return _read_table(paths, bag, columns, leave_out, encoding, cache, where, progress)


def encoding_from_dict(values: Any, row_shape: tuple[int, ...] | None = None) -> Encoding:
    """Make an encoding of what its ``to_dict`` gave, of any kind; refuse anything else.

    Parameters
    ----------
    values
        Plain values, as JSON holds them.
    row_shape
        Shape of the rows that the model was trained on, if the encoding must give such rows.
    """
    kinds: Any = TableEncoding | ArrayEncoding | ImageEncoding
    encoding: Encoding = read_struct("encoding", values, kinds)
    if row_shape is not None and encoding.row_shape != tuple(row_shape):
        got = f"one that makes rows of shape {encoding.row_shape}"
        raise invalid("encoding", f"one that makes rows of shape {tuple(row_shape)}", got)
    return encoding


def _read_table(
    paths: Any,
    bag: str | None,
    columns: Sequence[str] | None,
    leave_out: Collection[str],
    encoding: Any,
    cache: str | os.PathLike[str] | None,
    where: str | None,
    progress: Progress | None,
) -> InputRows:
    check_kind(encoding, TableEncoding)
    if encoding is not None and (columns is not None or len(leave_out)):
        got = "columns or leave_out together with an encoding"
        raise invalid("the columns to use", "chosen once", got, "the encoding knows its columns.")
    text = () if encoding is None else encoding.text_columns
    table = TableFiles(paths, text=text, ids=() if bag is None else (bag,), where=where)
    bags = None if bag is None else BagColumn(table, bag)
    if bag is not None and columns is not None and bag in columns:
        raise invalid("columns", "columns to learn from", f"the bag column {bag!r}")
    if encoding is not None:
        encoding.check_schema(table.schema)
    unused = {*leave_out} if bag is None else {bag, *leave_out}
    chosen = None if columns is None else list(columns)
    key = _cache_key(table, encoding, chosen, unused, bag)
    cached = None if cache is None else open_cache(Path(cache), key)
    if cached is None:
        steps = 1 if encoding is not None else 2
        fitted = encoding or TableEncoding.fit(
            table, columns=columns, leave_out=unused, progress=_part(progress, 0, 2)
        )
        cached = _encode(table, fitted, bags, bag, cache, key, _part(progress, steps - 1, steps))
    notes = table.notes
    if encoding is None:
        encoding = TableEncoding.from_dict(cached.about["encoding"])
        notes += encoding.notes
    ids = None if cached.bags is None else bag_id_array(*cached.bags, from_text=table.is_csv)
    return InputRows(cached.X, ids, encoding, notes)


def _encode(
    table: TableFiles,
    encoding: TableEncoding,
    bags: BagColumn | None,
    bag: str | None,
    cache: str | os.PathLike[str] | None,
    key: str,
    progress: Progress | None,
) -> CachedRows:
    """Encode all rows, to memory or to a cache."""
    shape = (table.n_rows, encoding.n_features)
    drift = Drift(encoding)
    blocks = _blocks(table, encoding, bags, bag, progress, drift)

    def about() -> dict[str, Any]:  # once all rows are in
        return {"encoding": msgspec.structs.replace(encoding, seen=drift.seen).to_dict()}

    if cache is None and 4 * shape[0] * shape[1] <= _IN_MEMORY:
        X = np.empty(shape, dtype=np.float32)
        done = 0
        for block in blocks:
            X[done : done + len(block)] = block
            done += len(block)
        return CachedRows(X, None if bags is None else bags.collected(), about())
    folder = Path(tempfile.mkdtemp(prefix="unbag-") if cache is None else cache)
    try:
        with CacheWriter(folder, key, shape) as writer:
            for block in blocks:
                writer.write(block)
            cached = writer.finish(about(), None if bags is None else bags.collected())
    except BaseException:
        if cache is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if cache is None:
        weakref.finalize(cached.X, shutil.rmtree, folder, ignore_errors=True)
    return cached


def _blocks(
    table: TableFiles,
    encoding: TableEncoding,
    bags: BagColumn | None,
    bag: str | None,
    progress: Progress | None,
    drift: Drift,
) -> Iterator[NDArray[np.float32]]:
    """Encode batch by batch, collecting the bag ids on the way."""
    done = 0
    columns = encoding.columns if bag is None else (*encoding.columns, bag)
    batch_rows = batch_rows_of(max(len(columns), encoding.n_features))
    for batch in table.batches(columns, batch_rows=batch_rows):
        if bags is not None:
            bags.update(batch.column(batch.num_columns - 1))
        yield encoding.transform(batch, drift)
        done += len(batch)
        if progress is not None:
            progress(done, table.n_rows)


def _part(progress: Progress | None, step: int, steps: int) -> Progress | None:
    """Make the progress of one step out of several part of the whole."""
    if progress is None:
        return None

    def of_all(done: int, total: int | None) -> None:
        progress(step * (total or 0) + done, None if total is None else steps * total)

    return of_all


def _cache_key(table: TableFiles, *settings: Any) -> str:
    """Name a cache by all that its content depends on."""
    plain = [s.to_dict() if isinstance(s, Encoding) else s for s in settings]
    plain = [sorted(s) if isinstance(s, set) else s for s in plain]
    content = json.dumps([_FORMAT, table.fingerprint(), plain], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]

"""Rows from files of every kind: tables, arrays, folders of images."""

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.io.bag_column import BagColumn, bag_id_array
from unbag.io.cache import CachedRows, CacheWriter, open_cache
from unbag.io.encoding import Progress, TableEncoding
from unbag.io.tables import TableFiles, batch_rows_of
from unbag.validation import check_choice, invalid

__all__ = ["InputRows", "encoding_from_dict", "other_kind", "read_rows"]

_IN_MEMORY = 256 << 20  # bytes of encoded rows that are kept in memory without a cache
_FORMAT = 1  # of caches; another one for another encoding of the same table


@dataclass(frozen=True, eq=False)
class InputRows:
    """Rows that were read from files.

    Attributes
    ----------
    X
        (n, d) float32, or images (n, C, H, W) of uint8; may be memory-mapped.
    bag_ids
        (n,) str, int, bool or dates; None where no bag column was named.
    encoding
        How the input became numbers; part of a model that is trained on it.
    notes
        What a user should know, one sentence each.
    """

    X: NDArray[Any]
    bag_ids: NDArray[Any] | None
    encoding: Any
    notes: tuple[str, ...]


def read_rows(
    paths: Any,
    *,
    bag: str | None = None,
    columns: Sequence[str] | None = None,
    leave_out: Collection[str] = (),
    encoding: Any = None,
    cache: str | os.PathLike[str] | None = None,
    images: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> InputRows:
    r"""Read rows and their bag ids from Parquet or CSV files, an ``.npz`` file or images.

    Parameters
    ----------
    paths
        Parquet or CSV files or folders of them, as in :class:`TableFiles`; or one ``.npz`` file;
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
    if (is_npz or images is not None) and (columns is not None or len(leave_out)):
        got = "an .npz file" if is_npz else "images"
        raise invalid("columns and leave_out", "for rows from a table", got)
    if images is not None:
        from unbag.io.images import read_images

        return read_images(only, images, bag=bag, encoding=encoding, progress=progress)
    if is_npz:
        from unbag.io.arrays import read_npz

        return read_npz(only, bag=bag, encoding=encoding)
    if encoding is not None and not isinstance(encoding, TableEncoding):
        raise other_kind(encoding, "a table")
    return _read_table(paths, bag, columns, leave_out, encoding, cache, progress)


def other_kind(encoding: Any, given: str) -> InvalidInputError:
    """Build the error for rows of another kind than the encoding of a model is for."""
    kinds = {"table": "a table", "array": "an .npz file", "images": "images"}
    if not hasattr(encoding, "to_dict"):
        return invalid("encoding", "that of a model", type(encoding).__name__)
    return invalid("rows", f"{kinds[encoding.to_dict()['kind']]}, as in training", given)


def encoding_from_dict(values: Any) -> Any:
    """Make an encoding of what its ``to_dict`` gave, whatever its kind; refuse anything else."""
    if not isinstance(values, Mapping):
        raise invalid("encoding", "a mapping", type(values).__name__)
    kind = values.get("kind")
    check_choice("kind of the encoding", kind, ("table", "array", "images"))
    if kind == "array":
        from unbag.io.arrays import ArrayEncoding

        return ArrayEncoding.from_dict(values)
    if kind == "images":
        from unbag.io.images import ImageEncoding

        return ImageEncoding.from_dict(values)
    return TableEncoding.from_dict(values)


def _read_table(
    paths: Any,
    bag: str | None,
    columns: Sequence[str] | None,
    leave_out: Collection[str],
    encoding: TableEncoding | None,
    cache: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> InputRows:
    if encoding is not None and (columns is not None or len(leave_out)):
        got = "columns or leave_out together with an encoding"
        raise invalid("the columns to use", "chosen once", got, "the encoding knows its columns.")
    text = () if encoding is None else encoding.text_columns
    table = TableFiles(paths, text=text, ids=() if bag is None else (bag,))
    if bag is not None:
        table.check_columns("bag", [bag])
        if columns is not None and bag in columns:
            raise invalid("columns", "columns to learn from", f"the bag column {bag!r}")
    if encoding is not None:
        encoding.check_schema(table.schema)
    unused = {*leave_out} if bag is None else {bag, *leave_out}
    key = _key(table, encoding, columns, unused, bag)
    cached = None if cache is None else open_cache(Path(cache), key)
    if cached is None:
        steps = 1 if encoding is not None else 2
        fitted = encoding or TableEncoding.fit(
            table, columns=columns, leave_out=unused, progress=_part(progress, 0, 2)
        )
        cached = _encode(table, fitted, bag, cache, key, _part(progress, steps - 1, steps))
    notes = table.notes
    if encoding is None:
        encoding = TableEncoding.from_dict(cached.about["encoding"])
        notes += encoding.notes
    ids = None
    if cached.codes is not None:
        ids = bag_id_array(cached.levels, cached.codes, from_text=table.is_csv)
    return InputRows(cached.X, ids, encoding, notes)


def _encode(
    table: TableFiles,
    encoding: TableEncoding,
    bag: str | None,
    cache: str | os.PathLike[str] | None,
    key: str,
    progress: Progress | None,
) -> CachedRows:
    """Encode all rows, to memory or to a cache."""
    shape = (table.n_rows, encoding.n_features)
    about = {"encoding": encoding.to_dict()}
    bags = None if bag is None else BagColumn(table, bag)
    if cache is None and 4 * shape[0] * shape[1] <= _IN_MEMORY:
        X = np.empty(shape, dtype=np.float32)
        done = 0
        for block in _blocks(table, encoding, bags, bag, progress):
            X[done : done + len(block)] = block
            done += len(block)
        return CachedRows(X, *_collected(bags), about)
    folder = Path(tempfile.mkdtemp(prefix="unbag-") if cache is None else cache)
    try:
        with CacheWriter(folder, key, shape) as writer:
            for block in _blocks(table, encoding, bags, bag, progress):
                writer.write(block)
            writer.finish(about, *_collected(bags))
        cached = open_cache(folder, key)
        if cached is None:
            raise invalid(f"cache {folder}", "a folder that keeps its files", "a damaged one")
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
) -> Iterator[NDArray[np.float32]]:
    """Encode batch by batch, collecting the bag ids on the way."""
    done = 0
    columns = encoding.columns if bag is None else (*encoding.columns, bag)
    batch_rows = batch_rows_of(max(len(columns), encoding.n_features))
    for batch in table.batches(columns, batch_rows=batch_rows):
        if bags is not None:
            bags.update(batch.column(batch.num_columns - 1))
        yield encoding.transform(batch)
        done += len(batch)
        if progress is not None:
            progress(done, table.n_rows)


def _collected(bags: BagColumn | None) -> tuple[NDArray[np.int32] | None, Any]:
    return (None, None) if bags is None else (bags.codes, bags.levels)


def _part(progress: Progress | None, step: int, steps: int) -> Progress | None:
    """Make the progress of one step out of several part of the whole."""
    if progress is None:
        return None

    def of_all(done: int, total: int | None) -> None:
        progress(step * (total or 0) + done, None if total is None else steps * total)

    return of_all


def _key(
    table: TableFiles,
    encoding: TableEncoding | None,
    columns: Sequence[str] | None,
    unused: Collection[str],
    bag: str | None,
) -> str:
    """Name a cache by all that its content depends on."""
    content = {
        "format": _FORMAT,
        "files": table.fingerprint(),
        "encoding": None if encoding is None else encoding.to_dict(),
        "columns": None if columns is None else list(columns),
        "unused": sorted(unused),
        "bag": bag,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]

"""Predictions for any number of rows, in bounded memory, in parts that survive a stop."""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from numpy.typing import NDArray

from unbag.estimator import UnbagClassifier
from unbag.estimator.predictor import class_column, output_names
from unbag.exceptions import NotFiniteError
from unbag.files import is_real_folder
from unbag.io import Drift, TableEncoding, TableFiles, read_rows
from unbag.io.bag_column import BagColumn, bag_id_array
from unbag.io.stores import AnyPath
from unbag.io.tables import batch_rows_of
from unbag.plain import to_plain
from unbag.priors import ClassPriors
from unbag.progress import RowProgress
from unbag.validation import check_choice, invalid, shorten
from unbag.workflow.outputs import check_free, check_not_input, hold
from unbag.workflow.parts import Parts, parts_folder
from unbag.workflow.reading import load_for_files, paths_of, shares_by_class

__all__ = ["PredictedFile", "predict_files"]

_BATCH_ROWS = 1 << 16
_PART_ROWS = 1 << 20  # rows after which what is done is kept
_SUFFIXES = (".parquet", ".csv")
_ROW = "row"


@dataclass(frozen=True)
class PredictedFile:
    """What :func:`predict_files` wrote.

    Attributes
    ----------
    output : Path
    rows, rows_before : int
        Rows in it, and how many of them an earlier run that was stopped had done.
    shares : dict
        Share of the rows predicted as each class.
    warnings : tuple of str
        Where the rows differ from those of training, one sentence each; of an earlier run that was
        stopped, these were told then or never.
    """

    output: Path
    rows: int
    rows_before: int
    shares: dict[str, float]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        plain: dict[str, Any] = to_plain(vars(self))
        return plain


def predict_files(
    model: str | os.PathLike[str],
    rows: Any,
    *,
    output: str | os.PathLike[str],
    key: Sequence[str] = (),
    prior: Mapping[str, float] | None = None,
    bag: str | None = None,
    probabilities: bool = True,
    images: str | os.PathLike[str] | None = None,
    where: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    verbose: bool = False,
) -> PredictedFile:
    """Predict the class of every row of a file of any size.

    Rows are read, encoded and predicted some ten thousand at a time. Every million rows, what is
    done is put in a hidden folder beside ``output``; the same call after a stop goes on from
    there. The output appears when all rows are done.

    Parameters
    ----------
    model : path
        A model folder.
    rows : path or list of paths
        Files like those of training; the column of bag ids is not needed.
    output : path
        A ``.parquet`` or ``.csv`` file, with the columns of ``key``, ``class``, and one of
        probabilities per class, ``p_`` and its name.
    key : sequence of str
        Columns of the input that name a row; by default ``row``, its number from 0.
    prior : dict, optional
        Class shares where the rows come from; by default those that the model was made for.
    bag : str, optional
        Column of bag ids: rows of a known bag get the probabilities under the shares of that bag.
    probabilities : bool, default=True
        Whether to write probabilities.
    images : path, optional
        Folder of the images that the table in ``rows`` names.
    where : str, optional
        A condition that rows must meet, such as ``"year = 2024 and age >= 18"``: comparisons,
        ``in``, ``between``, ``is null``, ``and``, ``or`` and ``not``, of columns of a table.
    device : str, default="auto"
    overwrite : bool, default=False
        Replace an output that is there.
    verbose : bool, default=False
        Show progress.

    Returns
    -------
    PredictedFile
    """
    if bag is not None and prior is not None:
        raise invalid("prior", "left out where bag is given", "both")
    target = Path(output)
    check_choice("output", target.suffix.lower(), _SUFFIXES)
    check_free("output", target, overwrite=overwrite or is_real_folder(parts_folder(target)))
    clf = load_for_files(model, device)
    with hold(parts_folder(target), target):
        source = _source(clf, rows, list(key), images, where, verbose)
        bag_ids = None if bag is None else _bag_ids(clf, rows, bag, where)
        if prior is not None:
            prior = shares_by_class("prior", prior, clf.classes_)
        settings = [source.fingerprint, prior and list(prior.values()), probabilities, list(key)]
        settings += [] if bag is None else [bag]
        parts = Parts(target, _fingerprint(Path(model), settings), len(clf.classes_), _PART_ROWS)
        check_free("output", target, overwrite=overwrite or parts.rows > 0)
        check_not_input(target, [file for file in source.files if isinstance(file, Path)])
        before = parts.rows
        try:
            chances = {"prior": prior, "bag_ids": bag_ids}
            _write(clf, source, chances, parts, probabilities=probabilities, verbose=verbose)
        except Exception:
            if not (before or parts.has_its_name):  # an error of a new run leaves nothing
                parts.discard()
            raise
    shares = (parts.counts / max(1, parts.rows)).tolist()
    by_class = dict(zip(map(str, clf.classes_), shares, strict=True))
    warnings = () if source.drift is None else source.drift.messages()
    return PredictedFile(target, parts.rows, before, by_class, warnings)


def _write(
    clf: UnbagClassifier,
    source: "_Source",
    given: Mapping[str, Any],
    parts: Parts,
    *,
    probabilities: bool,
    verbose: bool,
) -> None:
    """Predict the rows that are not done yet, and make the file."""
    header = output_names(clf.classes_, source.keys.names, probabilities)
    n_chances = len(clf.classes_) if probabilities else 0
    if parts.target.suffix.lower() == ".csv":
        _check_csv(source.keys)
    predicted = closing(_predicted(clf, source.blocks(parts.rows), parts.rows, **given))
    with RowProgress("predicting", verbose) as progress, closing(parts), predicted as blocks:
        progress(parts.rows, source.n_rows)
        for keys, chances in blocks:
            best = chances.argmax(1)
            columns = [*keys, class_column(clf.classes_, best)]
            columns += [pa.array(column) for column in chances.T.astype(np.float32)[:n_chances]]
            batch = pa.record_batch(columns, names=header)
            parts.add(batch, np.bincount(best, minlength=len(clf.classes_)))
            progress(parts.rows, source.n_rows)
        parts.finish()


def _predicted(
    clf: UnbagClassifier,
    blocks: "_Blocks",
    start: int,
    prior: Mapping[Any, float] | None,
    bag_ids: NDArray[Any] | None,
) -> Generator[tuple[list[pa.Array], NDArray[np.float64]], None, None]:
    """Yield keys and probabilities in order, from row ``start`` on, while more are predicted.

    Each block has its thread. Threads that share a block would wait for one another at
    every layer, and its rounding would depend on their number.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads)
    waiting: deque[tuple[list[pa.Array], Future[NDArray[np.float64]]]] = deque()

    def predict(X: NDArray[Any], start: int) -> NDArray[np.float64]:
        try:
            bags = None if bag_ids is None else bag_ids[start : start + len(X)]
            return clf.predict_proba(X, prior, bags)
        except NotFiniteError as error:  # rows of the file, not of the block
            raise NotFiniteError(tuple(start + row for row in error.rows)) from None

    try:
        for keys, X in blocks:
            waiting.append((keys, pool.submit(predict, X, start)))
            start += len(X)
            if len(waiting) > threads:
                first, chances = waiting.popleft()
                yield first, chances.result()
        for keys, chances in waiting:
            yield keys, chances.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


_Blocks: TypeAlias = Iterator[tuple[list[pa.Array], NDArray[Any]]]
"""The columns that name rows, and the encoded rows."""


@dataclass(frozen=True, eq=False)
class _Source:
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
    drift
        Compares them with the rows of training, where these came from a table.
    """

    files: tuple[Any, ...]
    fingerprint: str
    n_rows: int
    keys: pa.Schema
    blocks: Callable[[int], _Blocks]
    drift: Drift | None = None


def _source(
    clf: UnbagClassifier,
    rows: Any,
    key: list[str],
    images: str | os.PathLike[str] | None,
    where: str | None,
    verbose: bool,
) -> _Source:
    paths = paths_of(rows)
    encoding = clf.encoding_
    is_npz = paths[0].suffix.lower() == ".npz"
    if isinstance(encoding, TableEncoding) and not is_npz and images is None:
        return _table_source(encoding, paths, key, where)
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

    def blocks(skip: int) -> _Blocks:
        for start in range(skip, len(X), _BATCH_ROWS):
            block = keys.slice(start, _BATCH_ROWS)
            yield [column.combine_chunks() for column in block.columns], X[start:][:_BATCH_ROWS]

    return _Source(files, fingerprint, len(X), keys.schema, blocks)


def _bag_ids(clf: UnbagClassifier, rows: Any, bag: str, where: str | None) -> NDArray[Any]:
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
    (clf.priors_ if clf.priors is None else ClassPriors.of(clf.priors)).encode(ids)
    return ids


def _table_source(
    encoding: TableEncoding, paths: list[AnyPath], key: list[str], where: str | None
) -> _Source:
    # A key that is also a feature is read as in training.
    ids = [name for name in key if name not in encoding.columns]
    table = TableFiles(paths, text=encoding.text_columns, ids=ids, where=where)
    table.check_columns("key", key)
    encoding.check_schema(table.schema)
    names = list(dict.fromkeys([*encoding.columns, *key]))
    size = min(_BATCH_ROWS, batch_rows_of(max(len(names), encoding.n_features)))
    drift = Drift(encoding)

    def blocks(skip: int) -> _Blocks:
        for block in _rebatched(table.batches(names, batch_rows=size, skip_rows=skip), size):
            numbers = pa.array(np.arange(skip, skip + len(block)))
            yield (
                [block.column(name) for name in key] or [numbers],
                encoding.transform(block, drift),
            )
            skip += len(block)

    keys = [table.schema.field(name) for name in key] or [pa.field(_ROW, pa.int64())]
    schema = pa.schema(keys)
    return _Source(table.files, table.fingerprint(), table.n_rows, schema, blocks, drift)


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


def _check_csv(keys: pa.Schema) -> None:
    for field in keys:
        try:
            pa.csv.write_csv(pa.schema([field]).empty_table(), pa.BufferOutputStream())
        except pa.ArrowException:
            got = f"{field.name!r} of type {field.type}"
            remedy = "write a .parquet file, or choose another key."
            raise invalid("key", "columns that a CSV file can hold", got, remedy) from None


def _fingerprint(model: Path, settings: list[Any]) -> str:
    digest = hashlib.sha256((model / "model.json").read_bytes())  # it has those of the other files
    digest.update(json.dumps([settings, _BATCH_ROWS, _PART_ROWS], default=str).encode())
    return digest.hexdigest()

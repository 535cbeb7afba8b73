"""Predictions for any number of rows, in bounded memory, in parts that survive a stop."""

import contextlib
import hashlib
import itertools
import json
import os
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.typing import NDArray

from unbag.estimator import UnbagClassifier
from unbag.estimator.predictor import CLASS, class_column, output_names
from unbag.exceptions import NotFiniteError, WorkerLostError
from unbag.files import is_real_folder
from unbag.io import Drift
from unbag.plain import to_plain
from unbag.progress import RowProgress
from unbag.validation import check_number, invalid, shorten
from unbag.workflow.outputs import check_free, check_not_input, hold
from unbag.workflow.parts import Parts, parts_folder, write_part
from unbag.workflow.reading import load_for_files, shares_by_class
from unbag.workflow.rows_to_predict import Blocks, RowsToPredict, bag_ids_of, rows_to_predict

__all__ = ["PredictedFile", "predict_files"]

_BATCH_ROWS = 1 << 16
_PART_ROWS = 1 << 20  # rows after which what is done is kept
_SUFFIXES = (".parquet", ".csv", "")


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
    processes: int = 1,
    partition_by: Sequence[str] = (),
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
        probabilities per class, ``p_`` and its name; or, without a suffix, a new folder of Parquet
        files, one per million rows.
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
    processes : int, default=1
        Processes that predict, a million rows each at a time. One uses all cores for the network
        already; more take memory each. The output is the same.
    partition_by : sequence of str
        Columns of ``key``, or ``class``, whose values become folders such as ``class=yes``, where
        the output is a folder.
    overwrite : bool, default=False
        Replace an output file that is there.
    verbose : bool, default=False
        Show progress.

    Returns
    -------
    PredictedFile
    """
    if bag is not None and prior is not None:
        raise invalid("prior", "left out where bag is given", "both")
    check_number("processes", processes, low=1, integer=True)
    target = Path(output)
    _check_output(target, key, partition_by)
    if not is_real_folder(parts_folder(target)):
        _check_free(target, overwrite=overwrite)
    clf = load_for_files(model, device)
    with hold(parts_folder(target), target):
        source = rows_to_predict(clf, rows, list(key), images, where, _BATCH_ROWS, verbose)
        bag_ids = None if bag is None else bag_ids_of(clf, rows, bag, where)
        if prior is not None:
            prior = shares_by_class("prior", prior, clf.classes_)
        settings = [source.fingerprint, prior and list(prior.values()), probabilities, list(key)]
        settings += [] if bag is None else [bag]
        settings += [list(partition_by)] if partition_by else []
        names = output_names(clf.classes_, source.keys.names, probabilities)
        task = _Task(clf, source, prior, names, -(-_PART_ROWS // source.block_rows))
        fingerprint = _fingerprint(Path(model), settings)
        n_parts = -(-source.n_rows // task.part_rows)
        parts = Parts(target, fingerprint, len(clf.classes_), n_parts, partition_by)
        if not parts.rows:
            _check_free(target, overwrite=overwrite)
        check_not_input(target, [file for file in source.files if isinstance(file, Path)])
        before = parts.rows
        try:
            _write(task, bag_ids, parts, processes=processes, verbose=verbose)
        except Exception:
            if not (before or parts.has_its_name):  # an error of a new run leaves nothing
                parts.discard()
            raise
    shares = (parts.counts / max(1, parts.rows)).tolist()
    by_class = dict(zip(map(str, clf.classes_), shares, strict=True))
    told = () if source.drift is None else source.drift.messages()
    return PredictedFile(target, parts.rows, before, by_class, told)


def _write(
    task: "_Task", bag_ids: NDArray[Any] | None, parts: Parts, *, processes: int, verbose: bool
) -> None:
    """Predict the parts that are not done yet, and make the output."""
    source = task.source
    if parts.target.suffix.lower() == ".csv":
        _check_csv(source.keys)
    missing = parts.missing
    if processes > 1 and len(missing) > 1:
        done = _by_processes(task, bag_ids, parts, missing, processes)
    else:
        done = _by_threads(task, bag_ids, parts, missing)
    drifts: dict[int, Drift] = {}
    with RowProgress("predicting", verbose) as progress, closing(parts), closing(done) as results:
        progress(parts.rows, source.n_rows)
        for part in results:
            parts.keep(part.number, part.file, part.counts, part.digest)
            if part.drift is not None:
                drifts[part.number] = part.drift
            progress(parts.rows, source.n_rows)
        parts.finish()
    if source.drift is not None:
        for number in sorted(drifts):
            source.drift.add(drifts[number])


@dataclass(frozen=True, eq=False)
class _Done:
    """A part that was predicted, in a file that has no place yet.

    ``drift`` is what another process counted; in this one, it is in the source already.
    """

    number: int
    file: Path
    counts: NDArray[np.int64]
    digest: str
    drift: Drift | None = None


@dataclass(frozen=True, eq=False)
class _Task:
    """What is to be predicted, for this process and others."""

    clf: UnbagClassifier
    source: RowsToPredict
    prior: Mapping[Any, float] | None
    names: list[str]  # of the columns of the output
    part_blocks: int

    @property
    def part_rows(self) -> int:
        """Rows of every part but the last."""
        return self.part_blocks * self.source.block_rows

    def parts(
        self, first: int, count: int, bag_ids: NDArray[Any] | None
    ) -> Generator[tuple[list[pa.RecordBatch], NDArray[np.int64]], None, None]:
        """Yield batches of parts one after another, and how many rows of each class they have.

        ``bag_ids`` are those of the rows from the first of these parts on.
        """
        start = first * self.part_rows
        blocks = itertools.islice(self.source.blocks(start), count * self.part_blocks)
        n_chances = len(self.names) - len(self.source.keys) - 1
        n_classes = len(self.clf.classes_)
        with closing(_predicted(self.clf, blocks, start, self.prior, bag_ids)) as predicted:
            while part := list(itertools.islice(predicted, self.part_blocks)):
                batches, counts = [], np.zeros(n_classes, dtype=np.int64)
                for keys, chances in part:
                    best = chances.argmax(1)
                    counts += np.bincount(best, minlength=n_classes)
                    columns = [*keys, class_column(self.clf.classes_, best)]
                    columns += [pa.array(p) for p in chances.T.astype(np.float32)[:n_chances]]
                    batches.append(pa.record_batch(columns, names=self.names))
                yield batches, counts

    def run(self, number: int, bag_ids: NDArray[Any] | None, file: Path, folder: Path) -> _Done:
        """Predict one part in another process, and write it to a file.

        ``folder`` is the current one of this process, which paths of rows may start from.
        """
        with contextlib.chdir(folder):
            ((batches, counts),) = self.parts(number, 1, bag_ids)
        return _Done(number, file, counts, write_part(file, batches), self.source.drift)


def _by_threads(
    task: _Task, bag_ids: NDArray[Any] | None, parts: Parts, missing: list[int]
) -> Generator[_Done, None, None]:
    """Predict parts in this process; those that follow one another are read in one pass."""
    for _, group in itertools.groupby(enumerate(missing), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        ids = None if bag_ids is None else bag_ids[numbers[0] * task.part_rows :]
        with closing(task.parts(numbers[0], len(numbers), ids)) as predicted:
            for number, (batches, counts) in zip(numbers, predicted, strict=True):
                file = parts.scratch()
                yield _Done(number, file, counts, write_part(file, batches))


def _by_processes(
    task: _Task,
    bag_ids: NDArray[Any] | None,
    parts: Parts,
    missing: list[int],
    processes: int,
) -> Generator[_Done, None, None]:
    """Predict parts in several processes, in any order; the cores are shared out to them."""

    def calls() -> Iterator[Any]:
        for number in missing:
            rows = slice(number * task.part_rows, (number + 1) * task.part_rows)
            ids = None if bag_ids is None else bag_ids[rows]
            yield joblib.delayed(task.run)(number, ids, parts.scratch(), Path.cwd())

    pool = joblib.Parallel(
        n_jobs=min(processes, len(missing)),
        backend="loky",
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch="n_jobs",
    )
    results = pool(calls())
    try:
        yield from iter(results.__next__, None)  # not results, whose closing warns
    except TerminatedWorkerError:
        message = (
            "A process that predicted was killed, perhaps for lack of memory. What is done is "
            "kept: give the same command again, with fewer processes."
        )
        raise WorkerLostError(message) from None
    finally:
        with warnings.catch_warnings():  # of tasks that are given up, which is what is meant
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _predicted(
    clf: UnbagClassifier,
    blocks: Blocks,
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
    first = start

    def predict(X: NDArray[Any], start: int) -> NDArray[np.float64]:
        try:
            bags = None if bag_ids is None else bag_ids[start - first :][: len(X)]
            return clf.predict_proba(X, prior, bags)
        except NotFiniteError as error:  # rows of the file, not of the block
            raise NotFiniteError(tuple(start + row for row in error.rows)) from None

    try:
        for keys, X in blocks:
            waiting.append((keys, pool.submit(predict, X, start)))
            start += len(X)
            if len(waiting) > threads:
                done, chances = waiting.popleft()
                yield done, chances.result()
        for keys, chances in waiting:
            yield keys, chances.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _check_output(target: Path, key: Sequence[str], partition_by: Sequence[str]) -> None:
    if target.suffix.lower() not in _SUFFIXES:
        allowed = "a .parquet or .csv file, or a folder of Parquet files (a name without a suffix)"
        raise invalid("output", allowed, repr(target.name))
    if isinstance(partition_by, str):
        raise invalid("partition_by", "a sequence of column names", repr(partition_by))
    if partition_by and target.suffix:
        remedy = "give a name without a suffix."
        raise invalid("output", "a folder where partition_by is given", target, remedy)
    if unknown := [name for name in partition_by if name not in (*key, CLASS)]:
        remedy = "name the column in key too."
        raise invalid("partition_by", "columns of key, or 'class'", shorten(unknown), remedy)


def _check_free(target: Path, *, overwrite: bool) -> None:
    """Refuse an output that is there; a folder with files in it is never replaced."""
    if target.suffix or not is_real_folder(target):
        check_free("output", target, overwrite=overwrite)
    elif any(target.iterdir()):
        got = f"{target}, a folder with files"
        raise invalid("output", "a new folder", got, "choose another path, or remove it.")


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

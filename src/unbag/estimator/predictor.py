"""A saved model as a function of batches, for engines that call functions on batches of rows."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import nn

from unbag.estimator.classifier import UnbagClassifier
from unbag.estimator.folder import DESCRIPTION, ENCODING, WEIGHTS
from unbag.estimator.loading import load_model
from unbag.io.bag_column import BagColumn, bag_id_array
from unbag.io.frame_table import FrameTable
from unbag.models import ModuleFactory
from unbag.training import resolve_device
from unbag.validation import (
    arrow_table,
    invalid,
    is_frame,
    is_table,
    reads_tables,
    repeated,
    shorten,
)

__all__ = ["CLASS", "Predictor", "class_column", "output_names", "predictor"]

CLASS = "class"  # the column of predicted classes
_Files = tuple[tuple[str, bytes], ...]


def predictor(
    model: str | os.PathLike[str] | UnbagClassifier,
    *,
    key: Sequence[str] = (),
    prior: Mapping[Any, float] | None = None,
    bag: str | None = None,
    probabilities: bool = True,
    device: str = "auto",
    module: nn.Module | ModuleFactory | None = None,
) -> "Predictor":
    """Make a function that predicts batches of rows, to be sent to other processes and machines.

    It serves ``map_batches`` of Ray Data, ``mapInArrow`` of Spark, ``map_partitions`` of Dask and
    all else that calls a function on parts of a table. It holds the files of the model, so workers
    need no access to the folder, and loads them once in each process.

    Parameters
    ----------
    model : path or UnbagClassifier
        A model folder, or a fitted classifier.
    key : sequence of str
        Columns of the input that the output has too.
    prior : dict or array, optional
        Class shares where the rows come from; by default those that the model was made for.
    bag : str, optional
        Column of bag ids: rows of a known bag get the probabilities under the shares of that bag.
    probabilities : bool, default=True
        Whether the output has probabilities.
    device : str, default="auto"
    module : nn.Module or callable, optional
        As in :func:`unbag.load_model`, for a network of your own.

    Returns
    -------
    Predictor
        A table goes in, and one of the same kind comes out: a table or record batch of Arrow, a
        DataFrame of pandas (with its index) or polars, or a dict of arrays. It has the columns of
        ``key``, ``class``, and one of probabilities per class, ``p_`` and its name. Of an iterator
        of batches it makes an iterator.

    Examples
    --------
    >>> import pyarrow as pa, unbag
    >>> rows = pa.table({"id": [1, 2, 3, 4], "age": [30, 50, 31, 52]})
    >>> clf = unbag.UnbagClassifier(priors={"a": [1, 0], "b": [0, 1]}, epochs=40, random_state=0)
    >>> _ = clf.fit(rows.select(["age"]), ["a", "b", "a", "b"])
    >>> predict = unbag.predictor(clf, key=["id"], probabilities=False)
    >>> predict(rows).to_pydict()
    {'id': [1, 2, 3, 4], 'class': [0, 1, 0, 1]}
    """
    if bag is not None and prior is not None:
        raise invalid("prior", "left out where bag is given", "both")
    if isinstance(key, str):
        raise invalid("key", "a sequence of column names", repr(key))
    return Predictor(model, tuple(key), prior, bag, probabilities, device, module)


class Predictor:
    """A model as a function of batches; see :func:`unbag.predictor`."""

    def __init__(
        self,
        model: str | os.PathLike[str] | UnbagClassifier,
        key: tuple[str, ...],
        prior: Any,
        bag: str | None,
        probabilities: bool,
        device: str,
        module: nn.Module | ModuleFactory | None,
    ) -> None:
        self.key, self.prior, self.bag, self.probabilities = key, prior, bag, probabilities
        self.device, self.module = device, module
        if isinstance(model, UnbagClassifier):
            with tempfile.TemporaryDirectory() as folder:
                self._files = _read(model.save(Path(folder, "model")), module)
        else:
            self._files = _read(Path(model), module)
        output_names(self.classifier.classes_, key, probabilities)

    @property
    def classifier(self) -> UnbagClassifier:
        """The model; it is loaded once in each process."""
        clf = _load(self._files, self.module)
        clf.device = self.device
        resolve_device(self.device)
        return clf

    def __repr__(self) -> str:
        classes = shorten(self.classifier.classes_)
        size = sum(len(data) for _, data in self._files)
        return f"Predictor(classes {classes}, {size:,} bytes)"

    def __call__(self, batch: Any) -> Any:
        """Predict a batch of rows; see :func:`unbag.predictor`."""
        if isinstance(batch, Iterator):
            return map(self, batch)
        if isinstance(batch, dict):
            table = _of_arrays(batch)
        elif isinstance(batch, pa.RecordBatch):
            table = pa.Table.from_batches([batch])
        elif is_table(batch):
            table = arrow_table("batch", batch)
        else:
            allowed = "a table: Arrow, a DataFrame, a dict of arrays, or an iterator of these"
            raise invalid("batch", allowed, type(batch).__name__)
        return _like(batch, self._predict(table))

    def _predict(self, table: pa.Table) -> pa.Table:
        clf = self.classifier
        needed = (*self.key, *([] if self.bag is None else [self.bag]))
        if missing := [name for name in needed if name not in table.column_names]:
            got = f"{shorten(table.column_names, limit=20)}, without {shorten(missing)}"
            raise invalid("batch", "a table with the columns of key and bag", got)
        if table.num_rows:
            bags = None if self.bag is None else _bag_ids(table, self.bag)
            chances = clf.predict_proba(_rows(clf, table, needed), self.prior, bags)
        else:
            chances = np.empty((0, len(clf.classes_)))
        columns = [table.column(name) for name in self.key]
        columns.append(class_column(clf.classes_, chances.argmax(1)).dictionary_decode())
        names = output_names(clf.classes_, self.key, self.probabilities)
        columns += [pa.array(p) for p in chances.T.astype(np.float32)[: len(names) - len(columns)]]
        return pa.table(columns, names=names)


def output_names(classes: NDArray[Any], key: Sequence[str], probabilities: bool) -> list[str]:
    """Names of the columns of predictions, refusing a key that has one of them."""
    names = [*key, CLASS, *([f"p_{name}" for name in classes] if probabilities else [])]
    if twice := repeated(names):
        remedy = "rename the key columns."
        raise invalid("key", "columns whose names the output does not have", shorten(twice), remedy)
    return names


def class_column(classes: NDArray[Any], index: NDArray[np.int64]) -> pa.DictionaryArray:
    """Classes by their positions (n,), as a column of Arrow."""
    names = pa.array(classes.tolist())
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), names)


# ----------------------------------------------------------------------------------- the model


def _read(folder: Path, module: nn.Module | ModuleFactory | None) -> _Files:
    """Read the files of a model that can be loaded."""
    has_encoding = load_model(folder, module).encoding_ is not None
    names = (DESCRIPTION, WEIGHTS, *[ENCODING] * has_encoding)  # no other file is the model's
    return tuple((name, (folder / name).read_bytes()) for name in names)


@lru_cache(maxsize=2)
def _load(files: _Files, module: nn.Module | ModuleFactory | None) -> UnbagClassifier:
    """Load a model from the bytes of its files, with every check of :func:`load_model`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files:
            Path(folder, name).write_bytes(data)
        return load_model(folder, module)


# ------------------------------------------------------------------------------ tables and rows


def _rows(clf: UnbagClassifier, table: pa.Table, others: Sequence[str]) -> Any:
    """Rows as the classifier takes them: a table, or numbers where it was fitted on numbers."""
    if reads_tables(clf.encoding_):
        return table
    names = list(getattr(clf, "feature_names_in_", ()))
    if missing := [name for name in names if name not in table.column_names]:
        raise invalid("batch", "a table with the columns of training", f"no {shorten(missing)}")
    if names:
        return table.select(names)
    numbers = [name for name in table.column_names if name not in others]
    return np.column_stack([table.column(name).to_numpy() for name in numbers])


def _bag_ids(table: pa.Table, name: str) -> NDArray[Any]:
    frame = FrameTable(table, "batch")
    column = BagColumn(frame, name)
    for batch in frame.batches([name]):
        column.update(batch.column(0))
    return bag_id_array(*column.collected(), from_text=False)


def _of_arrays(batch: Mapping[str, Any]) -> pa.Table:
    try:
        return pa.table({name: pa.array(values) for name, values in batch.items()})
    except (pa.ArrowException, TypeError, ValueError) as error:
        got = " ".join(str(error).split())[:300]
        raise invalid("batch", "a dict of columns, each an array of one kind", got) from None


def _like(batch: Any, table: pa.Table) -> Any:
    """Turn the output into the kind of table that came in."""
    if isinstance(batch, pa.RecordBatch):
        arrays = [column.combine_chunks() for column in table.columns]
        return pa.RecordBatch.from_arrays(arrays, names=table.column_names)
    if isinstance(batch, dict):
        return {
            name: column.to_numpy()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    if hasattr(batch, "iloc"):
        frame = table.to_pandas()
        frame.index = batch.index
        return frame
    return type(batch)(table) if is_frame(batch) and not isinstance(batch, pa.Table) else table

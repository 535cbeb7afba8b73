"""Rows and class priors from files, matched by bag id."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from unbag.bags import Bags
from unbag.estimator import UnbagClassifier, load_model
from unbag.inspection import Inspection, inspect
from unbag.inspection.alike import columns_of_bags
from unbag.io import InputRows, TableEncoding, TableFiles, match_bags, read_priors, read_rows
from unbag.io.stores import AnyPath, StoreAddress, any_path
from unbag.io.where import parse_condition
from unbag.priors import ClassPriors, SharesOf
from unbag.progress import RowProgress
from unbag.training import resolve_device
from unbag.validation import invalid, shorten

__all__ = [
    "Inputs",
    "inspect_rows",
    "load_for_files",
    "paths_of",
    "read_inputs",
    "read_label_column",
    "read_training_inputs",
    "shares_by_class",
    "text_column",
]

_INSPECTED = 50_000  # rows that the test of the assumption looks at
_NPZ_BAGS = "bag_ids"


@dataclass(frozen=True, eq=False)
class Inputs:
    """Rows, their bags and the class priors of these.

    Attributes
    ----------
    rows
        As they were read.
    priors
        Of all bags in the file of priors.
    files
        Where rows and priors came from.
    notes
        What a user should know, one sentence each.
    """

    rows: InputRows
    priors: ClassPriors
    files: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def bag_ids(self) -> NDArray[Any]:
        """(n,) bag of every row."""
        assert self.rows.bag_ids is not None  # read_inputs always names the column
        return self.rows.bag_ids

    def bags(self) -> Bags:
        """Rows as Bags, without the priors of bags that have none."""
        here = np.isin(np.arange(self.priors.n_bags), self.priors.encode(self.bag_ids))
        encoding = self.rows.encoding
        return Bags(self.rows.X, self.bag_ids, self.priors.subset(here), encoding=encoding)


def paths_of(rows: Any) -> list[AnyPath]:
    """Name the files of the rows as a list of paths, or addresses of a store."""
    listed = [rows] if isinstance(rows, str | os.PathLike | StoreAddress) else list(rows)
    if not listed:
        raise invalid("rows", "at least one file or folder", "none")
    return [any_path(path) for path in listed]


def read_inputs(
    rows: Any,
    bag: str | None,
    priors: str | os.PathLike[str] | ClassPriors,
    columns: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    images: str | os.PathLike[str] | None = None,
    *,
    shares_of: SharesOf | None = None,
    where: str | None = None,
    verbose: bool = False,
    **options: Any,
) -> Inputs:
    """Read rows and priors and match them.

    Parameters
    ----------
    rows : path or list of paths
    bag : str or None
        Column of bag ids; in an ``.npz`` file the array, by default "bag_ids".
    priors : path or ClassPriors
    columns, leave_out, images
        As in :func:`unbag.io.read_rows`.
    shares_of : {"rows", "population"}, optional
        What the shares are of, where the priors do not say it or say something else.
    where : str, optional
        A condition that rows must meet.
    verbose : bool
        Show progress.
    **options
        Others of :func:`unbag.io.read_rows`.
    """
    paths = paths_of(rows)
    files = [str(path) for path in paths]
    if bag is None:
        if paths[0].suffix.lower() != ".npz":
            has = shorten(TableFiles(paths).schema.names, limit=20)
            remedy = f"name one with --bag (bag=); the rows have {has}."
            raise invalid("bag", "the name of the column of bag ids", "none", remedy)
        bag = _NPZ_BAGS
    notes: tuple[str, ...] = ()
    if not isinstance(priors, ClassPriors):
        files.append(str(priors))
        file = read_priors(priors, bag=bag)
        priors, notes = file.priors, file.notes
    options |= {"columns": columns, "leave_out": leave_out, "images": images, "where": where}
    with RowProgress("reading rows", verbose) as progress:
        read = read_rows(paths, bag=bag, progress=progress, **options)
    assert read.bag_ids is not None
    notes += (*read.notes, *match_bags(read.bag_ids, priors))
    return Inputs(read, priors.with_errors(shares_of=shares_of), tuple(files), notes)


def read_training_inputs(
    rows: Any,
    bag: str | None,
    priors: str | os.PathLike[str],
    columns: Sequence[str] | None,
    leave_out: Sequence[str],
    keep: Sequence[str],
    seed: int,
    **options: Any,
) -> Inputs:
    """Read rows and priors without columns that tell which bag a row is in.

    Parameters are those of :func:`read_inputs`. Columns of ``keep`` and ``columns`` are used all
    the same; ``seed`` draws the rows that are looked at.
    """
    inputs = read_inputs(rows, bag, priors, columns, leave_out, **options)
    encoding = inputs.rows.encoding
    if not isinstance(encoding, TableEncoding):
        return inputs
    known = {*encoding.columns, *encoding.left_out}
    if unknown := [name for name in keep if name not in known]:
        raise invalid("keep", "columns of the rows", shorten(unknown))
    chosen = {*keep, *(columns or ())}
    X, ids = _rows_to_inspect(inputs, seed)
    index = inputs.priors.encode(ids)
    found = columns_of_bags(X, index, inputs.priors, encoding.feature_columns, seed)
    copies = {name: reason for name, reason in found.items() if name not in chosen}
    if not copies or len(copies) == len(encoding.columns):  # inspect says what is left then
        return inputs
    inputs = read_inputs(rows, bag, priors, columns, [*leave_out, *copies], **options)
    reasons = {
        name: f"{reason}; to use it anyway, name it in keep (--keep)"
        for name, reason in copies.items()
    }
    notes = [f"Column {name!r} is left out: {reason}." for name, reason in reasons.items()]
    encoding = inputs.rows.encoding
    assert isinstance(encoding, TableEncoding)
    encoding = msgspec.structs.replace(encoding, left_out={**encoding.left_out, **reasons})
    read = replace(inputs.rows, encoding=encoding)
    return replace(inputs, rows=read, notes=(*inputs.notes, *notes))


def text_column(
    parameter: str, rows: Any, name: str, where: str | None = None, missing: Any = "missing"
) -> NDArray[Any]:
    """Values of a column of a table as text, (n,), with another for those that are missing."""
    # A condition is written for the column as it is everywhere else.
    text = () if where is not None and name in parse_condition(where).columns else (name,)
    table = TableFiles(paths_of(rows), text=text, where=where)
    table.check_columns(parameter, [name])
    values: list[Any] = []
    for batch in table.batches([name]):
        values += [missing if v is None else str(v) for v in batch.column(0).to_pylist()]
    return np.array(values, dtype=object)


def read_label_column(
    rows: Any, name: str, classes: NDArray[Any], where: str | None = None
) -> NDArray[Any]:
    """Classes of rows by a column, (n,); None where it is empty."""
    known: dict[str | None, Any] = {str(label): label for label in classes.tolist()}
    # Whole numbers are written as 1.0 where some are missing.
    floats = {f"{text}.0": label for text, label in known.items()}
    known = {None: None, "": None, "nan": None} | floats | known
    values = text_column("labels", rows, name, where, None)
    others = [value for value in dict.fromkeys(values.tolist()) if value not in known]
    if others:
        allowed = f"a column of the classes {shorten(classes)}, empty where they are not known"
        raise invalid("labels", allowed, f"{shorten(others)} in column {name!r}")
    labels = np.empty(len(values), dtype=object)
    labels[:] = [known[value] for value in values.tolist()]
    return labels


def load_for_files(model: str | os.PathLike[str], device: str) -> UnbagClassifier:
    """Load a model that knows how files become its rows."""
    clf = load_model(model)
    if clf.encoding_ is None:
        got = f"{model}, which was not"
        remedy = "use its predict in Python, or train it with `unbag fit`."
        raise invalid("model", "one that was trained from files", got, remedy)
    clf.device = device
    resolve_device(device)
    return clf


def shares_by_class(
    name: str, given: Mapping[str, float], classes: NDArray[Any]
) -> dict[Any, float]:
    """Shares by class, in the order of the classes; these may be named as text."""
    known = {str(label): label for label in classes.tolist()}
    shares = {str(label): share for label, share in given.items()}
    if sorted(shares) != sorted(known):
        allowed = f"a share of each of the classes {shorten(known, limit=20)}"
        raise invalid(name, allowed, shorten(shares, limit=20))
    return {label: shares[text] for text, label in known.items()}


def inspect_rows(inputs: Inputs, seed: int, **options: Any) -> Inspection:
    """Inspect priors and rows; of many rows, a sample serves for the test of the assumption."""
    index = inputs.priors.encode(inputs.bag_ids)
    sizes = np.bincount(index, minlength=inputs.priors.n_bags)
    X, ids = _rows_to_inspect(inputs, seed)
    columns = getattr(inputs.rows.encoding, "feature_columns", None)
    return inspect(
        inputs.priors, sizes, X=X, bag_ids=ids, columns=columns, random_state=seed, **options
    )


def _rows_to_inspect(inputs: Inputs, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and their bags: all, or a sample of many."""
    X, ids = inputs.rows.X, inputs.bag_ids
    if len(X) > _INSPECTED:
        chosen = np.sort(np.random.default_rng(seed).choice(len(X), _INSPECTED, replace=False))
        X, ids = X[chosen], ids[chosen]
    return np.asarray(X), ids

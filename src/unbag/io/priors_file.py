"""Class priors from a CSV or Parquet file, and whether they fit the bags of the rows."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unbag.ids import compare_ids, index_ids
from unbag.io.priors_cells import read_columns
from unbag.priors import ClassPriors
from unbag.priors.forms import read_table
from unbag.priors.units import Unit
from unbag.validation import invalid, shorten

__all__ = ["PriorsFile", "match_bags", "read_priors"]


@dataclass(frozen=True, eq=False)
class PriorsFile:
    """Class priors with how they were written.

    Attributes
    ----------
    priors
        The shares.
    form
        "wide": one row per bag and one column per class; "long": one row per bag and class.
    unit
        What the numbers were: "shares", "percent" or "counts".
    counts
        (M, K) counts as they were written, None for other units.
    notes
        How the file was read, one sentence each.
    """

    priors: ClassPriors
    form: Literal["wide", "long"]
    unit: Unit
    counts: NDArray[np.float64] | None
    notes: tuple[str, ...]


def read_priors(path: str | os.PathLike[str], *, bag: str | None = None) -> PriorsFile:
    r"""Read class priors from a CSV or Parquet file.

    The wide form has one row per bag and one column per class. Its bag ids are in the column
    ``bag`` if there is one, else in the only column that is not of numbers, else in a column
    without a name or called bag, else in the first. The long form has three columns in
    any order: bag, class and value.

    Numbers are shares where every row (bag) sums to 1, percent where it sums to 100, and counts
    where all are whole and sum to something else. Rounded figures may be off by half a unit of
    the last digit for each class (always by half a percent, never by more than five), and are
    then divided by their sum. The notes say how the file was read where it could have
    been read in another way; anything else is an error.

    Columns of the wide form may say how far the shares may be off, in the unit of these:
    ``rows_counted``, ``laplace_scale`` or ``gaussian_scale`` (one number per bag), or for every
    class, such as ``yes``, a standard error ``yes_error`` or a 95% interval ``yes_low``,
    ``yes_high``. A column ``shares_of`` says "rows" or "population"; see :class:`ClassPriors`.

    Parameters
    ----------
    path
        A ``.csv``, ``.txt`` or ``.tsv`` file (UTF-8; separated by commas, semicolons, tabs or
        bars, and with decimal commas only in the latter three), or a ``.parquet`` file. In a CSV,
        bag ids are whole numbers, ISO dates or text (007 is text), and class names are text.
    bag
        Column of the bag ids.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "shares.csv"
    >>> _ = path.write_text("district,yes,no\nnorth,30,70\nsouth,55.5,44.5\n")
    >>> read = read_priors(path, bag="district")
    >>> read.priors.values
    array([[0.3  , 0.7  ],
           [0.555, 0.445]])
    >>> read.unit, read.notes
    ('percent', ('Every row sums to 100: the numbers are read as percent.',))
    >>> folder.cleanup()
    """
    columns, notes = read_columns(Path(path))
    table = read_table(columns, bag)
    if bag is not None and bag not in [column.name for column in columns]:
        notes.append(f"The shares file has no column {bag!r}.")
    notes += table.notes
    priors = ClassPriors(**table.arguments())
    counts = table.values if table.unit == "counts" else None
    return PriorsFile(priors, table.form, table.unit, counts, tuple(notes))


def match_bags(bag_ids: Any, priors: ClassPriors) -> tuple[str, ...]:
    """Check that every row's bag has priors; return notes on priors without rows.

    Bag ids match strictly by kind and value, as everywhere; the error lists what does not match,
    both ways, and points at ids that would match if written alike.

    Parameters
    ----------
    bag_ids
        (n,) bag id of every row.
    priors
        Their class priors.

    Examples
    --------
    >>> priors = ClassPriors([[0.2, 0.8], [0.6, 0.4]], ["north", "south"])
    >>> match_bags(["south", "south"], priors)
    ("1 of 2 bags with shares has no rows: 'north'.",)
    """
    compared = compare_ids("bag_ids", bag_ids, index_ids("bag_ids", priors.bag_ids))
    n_absent, n_bags = len(compared.absent), priors.n_bags
    has = "has" if n_absent == 1 else "have"
    note = f"{n_absent} of {n_bags} bags with shares {has} no rows: {shorten(compared.absent)}."
    if compared.unknown:
        shown = ", ".join(
            f"{shorten([bag])} ({n} row{'s' if n > 1 else ''})" for bag, n in compared.unknown[:5]
        )
        more = f" and {len(compared.unknown) - 5} more" if len(compared.unknown) > 5 else ""
        n_rows = sum(n for _, n in compared.unknown)
        got = f"{n_rows} of {compared.n_rows} rows in bags without shares: {shown}{more}"
        remedy = " ".join(part for part in (compared.hint, note if n_absent else "") if part)
        raise invalid("bag_ids", "bags that have class shares", got, remedy)
    return (note,) if n_absent else ()

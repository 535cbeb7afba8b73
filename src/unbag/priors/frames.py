"""Tables of class shares that lie in memory: of pandas, polars and Arrow."""

from typing import Any

from unbag.priors.cells import Column, make_column
from unbag.priors.forms import BAG_NAMES, SharesTable, read_table, read_wide
from unbag.priors.told import split_told
from unbag.validation import arrow_table

__all__ = ["read_frame"]


def read_frame(frame: Any, *, any_sums: bool = False) -> SharesTable:
    """Read shares from a DataFrame or an Arrow table.

    An index of pandas holds the bag ids, unless it only counts the rows and a column holds them.
    """
    if not hasattr(frame, "index"):
        table = arrow_table("priors", frame)
        names = [name.strip() for name in table.column_names]
        cells = [column.to_pylist() for column in table.columns]
        columns = [make_column(*pair) for pair in zip(names, cells, strict=True)]
        return read_table(columns, any_sums=any_sums)
    columns = _columns_of_pandas(frame)
    counts_rows = list(frame.index) == list(range(len(frame)))
    if counts_rows and any(_holds_ids(column) for column in split_told(columns)[0]):
        return read_table(columns, any_sums=any_sums)
    return read_wide(frame.index.tolist(), columns, any_sums=any_sums)


def _columns_of_pandas(frame: Any) -> list[Column]:
    columns = []
    for i, name in enumerate(frame.columns.tolist()):
        cells, missing = frame.iloc[:, i].tolist(), frame.iloc[:, i].isna().tolist()
        present = [None if gap else cell for cell, gap in zip(cells, missing, strict=True)]
        columns.append(make_column(name, present))
    return columns


def _holds_ids(column: Column) -> bool:
    return len(column.odd) > 0 or str(column.name).casefold() in BAG_NAMES

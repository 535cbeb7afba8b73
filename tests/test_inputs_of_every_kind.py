"""Every kind of input, on the command line and in Python: it works, or says what it wants.

``python tests/test_inputs_of_every_kind.py`` prints the table.
"""

import datetime
import gzip
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from scipy import sparse

import unbag
from unbag.exceptions import UnbagError, UnbagWarning
from unbag.validation import is_table
from unbag.workflow import fit_files, predict_files

N = 90
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N)
DISTRICTS = np.where(
    Y,
    RNG.choice(["north", "south", "west"], N, p=[0.6, 0.3, 0.1]),
    RNG.choice(["north", "south", "west"], N, p=[0.2, 0.3, 0.5]),
)
NUMBERS = RNG.normal(size=(N, 3)) + Y[:, None]
TABLE = pd.DataFrame(
    {
        "district": DISTRICTS,
        "age": np.where(np.arange(N) % 9 == 0, np.nan, NUMBERS[:, 0]),
        "income": NUMBERS[:, 1],
        "city": np.where(Y, "Oulu", np.where(np.arange(N) % 4, "Turku", "")),
        "member": NUMBERS[:, 2] > 0,
        "day": [datetime.datetime(2024, 1, 1) + datetime.timedelta(int(d)) for d in 9 * (Y + 1)],
    }
)
SHARES = pd.crosstab(TABLE["district"], np.where(Y, "yes", "no"))
LONG = SHARES.rename_axis(columns="class").stack().rename("count").reset_index()


@dataclass(frozen=True)
class Input:
    """One kind of input.

    ``file`` writes it and returns its name; ``python`` makes it. A text is the message instead;
    None means that there is no such thing.
    """

    name: str
    file: Any
    python: Any


def written(name, write):
    def file():
        write(Path(name))
        return name

    return file


def as_csv(frame, **options):
    return lambda path: frame.to_csv(path, index=False, **options)


def as_parquet(frame):
    return lambda path: frame.to_parquet(path)


def excel(frame):
    def write(path):
        book = openpyxl.Workbook()
        book.active.append(list(frame.columns))
        for row in frame.itertuples(index=False):
            book.active.append([None if cell != cell else cell for cell in row])
        book.save(path)

    return write


def gzipped(path):
    with gzip.open(path, "wt") as file:
        TABLE.to_csv(file, index=False)


def in_parts():
    for i in range(2):
        TABLE[i * 45 : (i + 1) * 45].to_csv(f"part-{i}.csv", index=False)
    return "part-*.csv"


class Stream:
    """What any package may give."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.Table.from_pandas(TABLE).__arrow_c_stream__(requested_schema)


TEXT_DATES = TABLE.assign(day=TABLE["day"].dt.strftime("%d.%m.%Y"))
MIXED = TABLE.assign(city=[1, *TABLE["city"][1:]])
INFINITE = TABLE.assign(income=np.inf)

ROWS = [
    Input("Parquet file; pandas DataFrame", written("rows.parquet", as_parquet(TABLE)), TABLE),
    Input("CSV file; polars DataFrame", written("rows.csv", as_csv(TABLE)), pl.from_pandas(TABLE)),
    Input(
        "CSV of semicolons and decimal commas; Arrow table",
        written("rows.csv", as_csv(TABLE, sep=";", decimal=",")),
        pa.Table.from_pandas(TABLE),
    ),
    Input(".csv.gz; anything with __arrow_c_stream__", written("rows.csv.gz", gzipped), Stream()),
    Input(
        "JSON lines; pandas categories",
        written(
            "rows.jsonl",
            lambda path: TABLE.to_json(path, orient="records", lines=True, date_format="iso"),
        ),
        TABLE.astype({"city": "category"}),
    ),
    Input(
        "Feather; pandas nullable types",
        written("rows.feather", lambda path: pa.feather.write_feather(TABLE, path)),
        TABLE.convert_dtypes(),
    ),
    Input("Excel; pandas object columns", written("rows.xlsx", excel(TABLE)), TABLE.astype(object)),
    Input("pattern in quotes", in_parts, None),
    Input("dates as text, 31.01.2024", written("rows.csv", as_csv(TEXT_DATES)), TEXT_DATES),
    Input(
        "numbers alone",
        written("rows.csv", as_csv(TABLE[["district", "income"]])),
        TABLE[["district", "income"]],
    ),
    Input(
        ".npz; NumPy array",
        written("rows.npz", lambda path: np.savez(path, X=NUMBERS, bag_ids=DISTRICTS)),
        NUMBERS,
    ),
    Input("sparse matrix", None, sparse.csr_array(NUMBERS)),
    Input("torch tensor", None, torch.tensor(NUMBERS)),
    Input("nested lists", None, NUMBERS.tolist()),
    Input(
        "text and numbers in one column",
        written("rows.csv", as_csv(MIXED)),
        "X must be a table of which every column is of one kind",
    ),
    Input(
        "infinite numbers",
        "values of column 'income' must be finite numbers, got 90 infinite values",
        "values of column 'income' must be finite numbers, got 90 infinite values",
    ),
    Input("OpenDocument sheet", "must be a file that ends in .parquet", None),
]
MESSAGES = {  # what is given where a message is wanted
    "text and numbers in one column": (None, MIXED),
    "infinite numbers": (written("rows.csv", as_csv(INFINITE)), INFINITE),
    "OpenDocument sheet": (written("rows.ods", lambda path: path.write_text("PK")), None),
}
PERCENT = (100 * SHARES.div(SHARES.sum(axis=1), axis=0)).round(1)
PRIORS = [
    Input(
        "shares: counts",
        written("shares.csv", lambda path: SHARES.to_csv(path)),
        SHARES,
    ),
    Input(
        "shares: rounded percent",
        written("shares.xlsx", excel(PERCENT.reset_index())),
        PERCENT,
    ),
    Input("shares: long form", written("shares.csv", as_csv(LONG)), LONG),
    Input(
        "shares: polars, dict",
        written("shares.parquet", lambda path: pl.from_pandas(LONG).write_parquet(path)),
        pl.from_pandas(PERCENT.reset_index()),
    ),
    Input("shares: dict", None, {bag: dict(row) for bag, row in PERCENT.iterrows()}),
    Input(
        "shares that sum to 0.9",
        "priors must be shares that sum to 1 in every bag, percent that sum to 100, or whole",
        "priors must be shares that sum to 1 in every bag, percent that sum to 100, or whole",
    ),
]
WRONG = 0.9 * SHARES.div(SHARES.sum(axis=1), axis=0)
MESSAGES["shares that sum to 0.9"] = (
    written("shares.csv", lambda path: WRONG.to_csv(path)),
    WRONG,
)
OPTIONS = {"method": "prop", "epochs": 2, "width": 4}


def by_command(rows, shares="shares.csv"):
    """Train a model from files and predict them; give the predictions."""
    if not Path(shares).exists():
        SHARES.to_csv(shares)
    bag = None if str(rows).endswith(".npz") else "district"
    fit_files(rows, bag=bag, priors=shares, output="model", validation_share=0, **OPTIONS)
    predict_files("model", rows, output="p.csv")
    return pd.read_csv("p.csv")


def in_python(rows, shares=SHARES):
    """Train a model and predict the same rows, through a folder."""
    clf = unbag.UnbagClassifier(priors=shares, random_state=0, **OPTIONS)
    clf.fit(rows, bag="district") if is_table(rows) else clf.fit(rows, DISTRICTS)
    return unbag.load_model(clf.save("python")).predict_proba(rows)


def outcome(what, given, train):
    """What comes of an input: "works", "-" where there is none, or the message."""
    if what is None:
        return "-"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnbagWarning)
            train(given() if callable(given) else given)
    except UnbagError as error:
        return str(error)
    return "works"


def outcomes(case):
    """Outcome on the command line and in Python."""
    file, python = MESSAGES.get(case.name, (case.file, case.python))
    file, python = file or case.file, case.python if python is None else python
    if case in PRIORS:
        rows = written("rows.parquet", as_parquet(TABLE))
        return (
            outcome(case.file, file, lambda shares: by_command(rows(), shares)),
            outcome(case.python, python, lambda shares: in_python(TABLE, shares)),
        )
    return outcome(case.file, file, by_command), outcome(case.python, python, in_python)


@pytest.mark.parametrize("case", [*ROWS, *PRIORS], ids=lambda case: case.name)
def test_input(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for what, came in zip((case.file, case.python), outcomes(case), strict=True):
        if isinstance(what, str):
            assert what in came
        else:
            assert came == ("-" if what is None else "works")


def counts(cells):
    """How many inputs work, get a message, or are none."""
    works, none = cells.count("works"), cells.count("-")
    return f"{works} work, {len(cells) - works - none} get a message, {none} do not exist there"


def main():
    """Print the table, and the counts of both columns."""
    print("| input | command line | Python |\n|---|---|---|")  # noqa: T201
    table = []
    for case in [*ROWS, *PRIORS]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            table.append([" ".join(text.split())[:160] for text in outcomes(case)])
        print(f"| {case.name} | {' | '.join(table[-1])} |")  # noqa: T201
    for side, cells in zip(("command line", "Python"), zip(*table, strict=True), strict=True):
        print(f"{side}: {counts(cells)}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())

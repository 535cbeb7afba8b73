"""Files and tables of class shares: what is read is what was written, for every bag."""

import csv
import io
import random
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from fuzzing import outcome, seeds, sweep
from hypothesis import strategies as st

from unbag import ClassPriors
from unbag.io import read_priors
from unbag.priors import ShareErrors

BAGS = ["north", "south", "007", "1", "a b", "Ü", "x;y", 'q"', "2024-05-01", "NA", "l\nb", "-3"]
CLASSES = ["yes", "no", "maybe", "<b>", "c d", "ß", "class 4", "0"]
WRONG = [
    "",
    "x",
    "nan",
    "-1",
    "1e400",
    "inf",
    "1.5.2",
    "0,3,1",
    "1 000",
    "∞",
    "1e-400",
    "%",
    "9" * 400,
]


_CLEAR = ("shares", "percent signs")  # units that a row with an unknown share tells


@st.composite
def priors_files(draw):
    m, k = draw(st.integers(1, 6)), draw(st.integers(2, 5))
    unit = draw(st.sampled_from(["shares", "percent", "counts", "percent signs"]))
    form = draw(st.sampled_from(["wide", "wide", "long"]))
    kind = draw(st.sampled_from(["csv", "csv", "tsv", "parquet"]))
    delimiter = draw(st.sampled_from(",;|")) if kind == "csv" else "\t"
    comma = draw(st.booleans()) and delimiter != "," and kind != "parquet"
    damage = draw(st.sampled_from([None] * 5 + ["cell", "row", "column", "twice", "cut", "byte"]))
    mark, newline = draw(st.booleans()), draw(st.sampled_from(["\n", "\r\n"]))
    rng = random.Random(draw(seeds()))
    bags, classes = rng.sample(BAGS, m), rng.sample(CLASSES, k)
    parts = [[rng.choice([0, 0, 1, rng.randrange(1000)]) for _ in range(k)] for _ in range(m)]
    for row in parts:  # in thousandths
        row[rng.randrange(k)] += 1000 - min(1000, sum(row))
        while sum(row) > 1000:
            j = rng.randrange(k)
            row[j] -= min(row[j], sum(row) - 1000)
    theta = np.array(parts) / 1000
    cells = [[_cell(part, unit, comma) for part in row] for row in parts]
    if form == "wide":
        rows = [["bag", *classes], *([bag, *row] for bag, row in zip(bags, cells, strict=True))]
    else:
        pairs = [
            [bag, name, cell]
            for bag, row in zip(bags, cells, strict=True)
            for name, cell in zip(classes, row, strict=True)
        ]
        rng.shuffle(pairs)
        rows = [["bag", "class", "value"], *pairs]
    told = add_errors(rows, unit, rng) if form == "wide" and rng.random() < 0.3 else None
    unknown = set()
    if form == "wide" and len(rows[0]) == k + 1 and unit in _CLEAR and rng.random() < 0.3:
        unknown = {(rng.randrange(m), rng.randrange(k)) for _ in range(rng.randrange(1, 4))}
        for i, j in unknown:
            rows[1 + i][1 + j] = "?"
    if damage == "cell":
        rows[rng.randrange(1, len(rows))][rng.randrange(1, len(rows[0]))] = rng.choice(WRONG)
    elif damage == "row":
        del rows[rng.randrange(1, len(rows))]
    elif damage == "column":
        place = rng.randrange(len(rows[0]))
        rows = [row[:place] + row[place + 1 :] for row in rows]
    elif damage == "twice":
        rows.append(rows[rng.randrange(len(rows))])
    if kind == "parquet":
        data = _parquet(rows)
    else:
        file = io.StringIO()
        csv.writer(file, delimiter=delimiter, lineterminator=newline).writerows(rows)
        data = ("\ufeff" * mark + file.getvalue()).encode()
    if damage in ("cut", "byte"):
        place = rng.randrange(len(data))
        data = data[:place] + (bytes([rng.randrange(256)]) + data[place + 1 :]) * (damage == "byte")
    return f"shares.{kind}", data, bags, classes, theta, damage, told, unknown


def add_errors(rows: list[list[str]], unit: str, rng: random.Random):
    """Add columns of errors; what they say per bag: how it was told, and numbers as shares."""
    kind = rng.choice(["rows_counted", "laplace_scale", "gaussian_scale", "error"])
    whole, sign = {"shares": 1, "percent": 100, "percent signs": 100, "counts": 7000}[unit], ""
    sign = "%" if unit == "percent signs" and kind != "rows_counted" else ""
    numbers = [rng.choice([2, 3, 5, 10]) for _ in rows[1:]]
    if kind == "rows_counted":
        whole = 1
    elif unit == "shares":
        numbers = [Decimal(n) / 64 for n in numbers]
    names = [f"{name}_error" for name in rows[0][1:]] if kind == "error" else [kind]
    rows[0] += names
    for row, number in zip(rows[1:], numbers, strict=True):
        row += [f"{number}{sign}"] * len(names)
    if rng.random() < 0.2:  # what came there is refused, or as it is written
        rows[rng.randrange(1, len(rows))][-1] = rng.choice(WRONG)
        return None
    return kind, [float(number) / whole for number in numbers]


def check_errors(priors: ClassPriors, order: list[int], told) -> None:
    kind, numbers = told
    make = {
        "rows_counted": ShareErrors.from_rows,
        "laplace_scale": ShareErrors.laplace,
        "gaussian_scale": ShareErrors.gaussian,
        "error": lambda n: np.repeat(np.array(n)[:, None], len(priors.classes), 1),
    }[kind]
    values = priors.values[order]
    expected = ClassPriors(values, errors=make(numbers)).errors.standard_errors
    np.testing.assert_allclose(priors.errors.standard_errors[order], expected, atol=1e-12)


def _cell(part: int, unit: str, comma: bool) -> str:
    if unit == "counts":
        return str(part * 7)
    number = Decimal(part) / (1000 if unit == "shares" else 10)
    text = str(number).replace(".", "," if comma else ".")
    return text + "%" * (unit == "percent signs")


def _parquet(rows: list[list[str]]) -> bytes:
    def column(values):
        try:
            return pa.array([float(value) for value in values])
        except ValueError:
            return pa.array(values)

    names = rows[0]
    columns = [
        column([row[i] for row in rows[1:]]) if i else pa.array([r[0] for r in rows[1:]])
        for i in range(len(names))
    ]
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, names=names), out)
    return out.getvalue().to_pybytes()


def check_shares(priors: ClassPriors) -> None:
    assert (priors.values >= 0).all()
    np.testing.assert_allclose(priors.values.sum(1), 1, atol=1e-9)


def test_priors_files(tmp_path):
    def check(case) -> bool:
        name, data, bags, classes, theta, damage, told, unknown = case
        (tmp_path / name).write_bytes(data)
        read, error = outcome(lambda: read_priors(tmp_path / name))
        if error is not None:
            return False
        check_shares(read.priors)
        if damage is None:
            texts = [str(bag).removesuffix(" 00:00:00") for bag in read.priors.bag_ids]
            order = [texts.index(bag) for bag in bags]
            places = [list(read.priors.classes).index(name) for name in classes]
            values = read.priors.values[order][:, places]
            is_known = np.ones(theta.shape, dtype=bool)
            for i, j in unknown:  # a single one is what the others leave
                is_known[i, j] = sum(bag == i for bag, _ in unknown) == 1
            np.testing.assert_allclose(values[is_known], theta[is_known], atol=1e-12)
            if told is not None:
                check_errors(read.priors, order, told)
        return True

    sweep("shares files", priors_files(), check)


# ------------------------------------------------------------------------------- tables in memory

ODD = [None, "x", b"x", np.nan, -0.1, np.inf, 1e300, 2**70, 1j, object(), [], [0.5], {}, True]


@st.composite
def tables(draw):
    m, k = draw(st.integers(1, 6)), draw(st.integers(2, 5))
    form = draw(
        st.sampled_from(["array", "list", "dict", "dicts", "pandas", "polars", "torch", "priors"])
    )
    scale = draw(st.sampled_from([1, 1, 1, 1 + 1e-9, 1.01, 100]))
    odd = draw(st.sampled_from([None] * 4 + [*ODD]))
    ids = draw(
        st.sampled_from([["a", "b", "c", "d", "e", "f"], range(6), [True, 5, "5", 0.5, "x", None]])
    )
    rng = np.random.default_rng(draw(seeds()))
    theta = rng.dirichlet(np.ones(k), m) * scale
    return theta, list(ids)[:m], list("uvwxy")[:k], form, odd


def test_tables_of_priors():
    def check(case) -> bool:
        theta, ids, classes, form, odd = case
        rows = theta.tolist()
        if odd is not None:
            rows[-1][0] = odd
        forms = {
            "array": lambda: np.array(rows, dtype=object if odd is not None else float),
            "list": lambda: rows,
            "dict": lambda: dict(zip(ids, rows, strict=True)),
            "dicts": lambda: {
                b: dict(zip(classes, r, strict=True)) for b, r in zip(ids, rows, strict=True)
            },
            "pandas": lambda: pd.DataFrame(rows, index=ids, columns=classes),
            "polars": lambda: pl.DataFrame(
                {"bag": ids, **{c: [r[j] for r in rows] for j, c in enumerate(classes)}},
                strict=False,
            ),
            "torch": lambda: torch.tensor(theta),
            "priors": lambda: ClassPriors(rows, ids, classes),
        }
        if form == "polars":
            try:
                given = forms[form]()
            except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
                return False
        elif form == "priors":
            given, error = outcome(forms[form])
            if error is not None:
                return False
        else:
            given = forms[form]()
        table, error = outcome(lambda: ClassPriors.of(given))
        if error is not None:
            return False
        check_shares(table)
        if odd is None or form == "torch":
            np.testing.assert_allclose(table.values, theta / theta.sum(1, keepdims=True), atol=1e-8)
        assert table.values.shape == theta.shape
        if form not in ("array", "list", "torch"):
            assert list(table.bag_ids) == ids
        again = ClassPriors(table.values, table.bag_ids, table.classes)
        np.testing.assert_array_equal(again.values, table.values)
        return True

    sweep("tables of priors", tables(), check)

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from small_bags import SIZES, TABLE

from unbag.exceptions import InvalidInputError
from unbag.inspection import inspect
from unbag.priors import ClassPriors, symmetric

IN_ORDER = [100, 200, 300, 400]


@pytest.mark.parametrize(
    "sizes",
    [SIZES, pd.Series(SIZES), IN_ORDER, np.array(IN_ORDER, dtype=float), torch.tensor(IN_ORDER)],
    ids=["dict", "series", "list", "floats", "tensor"],
)
def test_every_source_of_sizes_gives_the_same(sizes):
    expected = inspect(TABLE, bag_ids=[bag for bag, n in SIZES.items() for _ in range(n)])
    assert inspect(TABLE, sizes) == expected
    assert expected.n_rows == 1000


ERRORS = np.arange(1, 13).reshape(4, 3) / 1000


@pytest.mark.parametrize(
    "errors",
    [
        pd.DataFrame(ERRORS, index=list(TABLE), columns=list("abc")).iloc[::-1, ::-1],
        pl.DataFrame({"bag": list(TABLE), "c": ERRORS[:, 2], "a": ERRORS[:, 0], "b": ERRORS[:, 1]}),
        dict(zip(reversed(TABLE), ERRORS[::-1], strict=True)),
        {
            bag: dict(zip("cba", row[::-1], strict=True))
            for bag, row in zip(TABLE, ERRORS, strict=True)
        },
        {bag: pd.Series(row, list("abc")) for bag, row in zip(TABLE, ERRORS, strict=True)},
    ],
    ids=["pandas", "polars", "dict", "dicts", "series"],
)
def test_every_source_of_prior_errors_gives_the_same(errors):
    table = ClassPriors.of(TABLE)
    expected, result = (inspect(table.with_errors(e)) for e in (ERRORS, errors))
    assert result.prior_error_half_width == pytest.approx(expected.prior_error_half_width)


def test_ids_of_another_kind_are_hinted_at():
    with pytest.raises(InvalidInputError, match=r"sizes have '.' \(str\): convert one"):
        inspect(symmetric(2, 0.5), {"0": 5, "1": 5})
    with pytest.raises(InvalidInputError, match="priors must be of at least two classes"):
        inspect([[1.0], [1.0]])

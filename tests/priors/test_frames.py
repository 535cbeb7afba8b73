"""Tables of class shares in memory are read as files of them are."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unbag.exceptions import InvalidInputError
from unbag.priors import ClassPriors

SHARES = np.array([[0.25, 0.75], [0.6, 0.4]])
WIDE = {"district": ["north", "south"], "no": SHARES[:, 0], "yes": SHARES[:, 1]}
LONG = {
    "district": ["north", "north", "south", "south"],
    "class": ["no", "yes", "no", "yes"],
    "share": SHARES.ravel(),
}


def counted(frame):
    return (frame.set_index("district") * 20).astype(int)


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame(WIDE),
        pd.DataFrame(WIDE).set_index("district"),
        pl.DataFrame(WIDE),
        pa.table(WIDE),
        pl.DataFrame(WIDE).with_columns(pl.col("no", "yes") * 100),
        counted(pd.DataFrame(WIDE)),
        counted(pd.DataFrame(WIDE)).astype("Int64"),
        pd.DataFrame(WIDE).set_index("district").map("{:.0%}".format),
        pd.DataFrame(LONG),
        pl.DataFrame(LONG),
        pa.table(LONG),
        pd.DataFrame(LONG).set_index(["district", "class"])["share"],
        pd.DataFrame(LONG).set_index(["district", "class"]),
        dict(zip(WIDE["district"], ({"no": a, "yes": b} for a, b in 100 * SHARES), strict=True)),
    ],
    ids=lambda given: type(given).__module__.split(".")[0],
)
def test_every_form_and_unit_gives_the_same_shares(given):
    priors = ClassPriors.of(given)
    np.testing.assert_allclose(priors.values, SHARES)
    assert priors.bag_ids.tolist() == ["north", "south"]
    assert priors.classes.tolist() == ["no", "yes"]


def test_rounded_sums_are_divided_and_larger_errors_are_named():
    rounded = ClassPriors.of([[0.25, 0.751], [0.6, 0.4]])
    np.testing.assert_allclose(rounded.values[0], np.array([0.25, 0.751]) / 1.001)
    np.testing.assert_allclose(ClassPriors.of([[33.3, 66.6], [50, 50]]).values[0], [1 / 3, 2 / 3])
    with pytest.raises(InvalidInputError, match=r"got the sum 0\.9 for bag 'south'"):
        ClassPriors.of(pd.DataFrame([[0.2, 0.8], [0.5, 0.4]], ["north", "south"], ["a", "b"]))


def test_an_index_that_counts_rows_holds_ids_unless_a_column_does():
    numbered = pd.DataFrame(SHARES)
    assert ClassPriors.of(numbered).bag_ids.tolist() == [0, 1]
    numbered.insert(0, "bag", [7, 9])
    assert ClassPriors.of(numbered).bag_ids.tolist() == [7, 9]


def test_normalize_divides_whatever_the_sums_are():
    estimates = pd.DataFrame([[1.5, 1.5], [0.7, 2.1]], ["north", "south"], ["a", "b"])
    np.testing.assert_allclose(
        ClassPriors.of(estimates, normalize=True).values, [[0.5, 0.5], [0.25, 0.75]]
    )
    with pytest.raises(InvalidInputError, match="or divide counts by the sum of their row"):
        ClassPriors.of(estimates)


def test_missing_numbers_and_columns_of_mixed_kinds_are_refused():
    with pytest.raises(InvalidInputError, match="none for bag 'south' and class 'no'"):
        ClassPriors.of(pl.DataFrame({**WIDE, "no": [0.2, None]}))
    with pytest.raises(InvalidInputError, match="column 'no' must be numbers, got 'few'"):
        ClassPriors.of(pd.DataFrame({**WIDE, "no": [0.2, "few"]}).set_index("district"))

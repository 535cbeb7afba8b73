"""Columns that say how far shares may be off, in files and in tables of memory."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unbag.exceptions import InvalidInputError
from unbag.io import read_priors
from unbag.priors import ClassPriors, ShareErrors

SHARES = {"yes": [30.0, 60.0], "no": [70.0, 40.0]}
PLAIN = ClassPriors([[0.3, 0.7], [0.6, 0.4]], ["n", "s"], ["yes", "no"])


def read(tmp_path, form, columns):
    table = {"bag": ["n", "s"], **SHARES, **columns}
    if form == "csv":
        path = tmp_path / "shares.csv"
        pd.DataFrame(table).to_csv(path, index=False)
        return read_priors(path, bag="bag").priors
    if form == "index":
        return ClassPriors.of(pd.DataFrame(table).set_index("bag"))
    return ClassPriors.of(pl.DataFrame(table))


@pytest.mark.parametrize("form", ["csv", "index", "polars"])
@pytest.mark.parametrize(
    ("columns", "errors"),
    [
        ({"rows_counted": [50, 400]}, ShareErrors.from_rows([50, 400])),
        ({"laplace_scale": [2.0, 1.0]}, ShareErrors.laplace([0.02, 0.01])),
        ({"gaussian_scale": [2.0, 0.0]}, ShareErrors.gaussian([0.02, 0.0])),
        ({"no_error": [2.0, 1.0], "yes_error": [2.0, 1.0]}, [[0.02, 0.02], [0.01, 0.01]]),
        (
            {
                "yes_low": [26.0, 58.0],
                "yes_high": [34.0, 62.0],
                "no_low": [66.0, 38.0],
                "no_high": [74.0, 42.0],
            },
            ShareErrors.from_intervals([[0.26, 0.66], [0.58, 0.38]], [[0.34, 0.74], [0.62, 0.42]]),
        ),
        ({}, None),
    ],
    ids=["rows", "laplace", "gaussian", "errors", "intervals", "none"],
)
def test_every_way_to_tell_errors(tmp_path, form, columns, errors):
    priors = read(tmp_path, form, {**columns, "shares_of": ["rows", "rows"]})
    expected = PLAIN.with_errors(errors, "rows")
    assert priors.shares_of == "rows"
    np.testing.assert_allclose(priors.values, expected.values)
    assert priors.classes.tolist() == ["yes", "no"]
    if errors is None:
        assert priors.errors is None
    else:
        np.testing.assert_allclose(priors.errors.variances, expected.errors.variances)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rows_counted": [50, 1]}, "rows of the errors must be at least 2 per bag, got 1.0"),
        ({"yes_error": [1, 1]}, "a column 'error' for every class or for none, got no 'no_error'"),
        ({"yes_low": [1, 1], "no_low": [1, 1]}, "both low and high of every class, got only 'low'"),
        (
            {"rows_counted": [50, 50], "laplace_scale": [1, 1]},
            "errors of the shares must be told in one way, got columns of 'rows_counted', 'lapl",
        ),
        ({"rows_counted": ["50%", "9"]}, "numbers without percent signs, got '50%'; write the"),
        ({"laplace_scale": ["2%", "1"]}, "numbers without percent signs, got '2%'; write the"),
        ({"rows_counted": [50, None]}, "column 'rows_counted' must be of a number in every row"),
        ({"yes_error": ["x", 1], "no_error": [1, 1]}, "'yes_error' must be of a number.*got 'x'"),
        (
            {"rows_counted": ["12.500", "900"]},
            "whole numbers without thousands marks, got '12.500'",
        ),
        ({"shares_of": ["rows", "population"]}, "the same for all bags, got 'rows', 'population'"),
        ({"shares_of": ["census", "census"]}, "shares_of must be one of 'rows', 'population'"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, columns, message):
    with pytest.raises(InvalidInputError, match=message):
        read(tmp_path, "csv", columns)


def test_errors_have_percent_signs_where_shares_have_them(tmp_path):
    path = tmp_path / "shares.csv"
    text = "bag,yes,no,laplace_scale\nn,30%,70%,2{0}\ns,60%,40%,1{0}\n"
    path.write_text(text.format("%"))
    expected = PLAIN.with_errors(ShareErrors.laplace([0.02, 0.01])).errors
    found = read_priors(path).priors.errors
    np.testing.assert_allclose(found.variances, expected.variances)
    path.write_text(text.format(""))
    with pytest.raises(InvalidInputError, match="of numbers with percent signs, got '2', '1'"):
        read_priors(path)


def test_the_long_form_tells_no_errors(tmp_path):
    path = tmp_path / "shares.csv"
    path.write_text("bag,class,value,rows_counted\nn,a,30,9\nn,b,70,9\ns,a,60,9\ns,b,40,9\n")
    with pytest.raises(InvalidInputError, match=r"one row per bag.*got the long form"):
        read_priors(path)


def test_an_index_that_counts_the_bags():
    frame = pd.DataFrame({**SHARES, "shares_of": "population"})
    priors = ClassPriors.of(frame)
    assert priors.bag_ids.tolist() == [0, 1]
    assert priors.shares_of == "population"


def test_two_rows_per_bag_are_enough_and_fewer_are_named():
    theta = np.array([[0.5, 0.5], [0.1, 0.9], [0.3, 0.7]])
    told = ClassPriors(theta, errors=ShareErrors.from_rows([2, 3, 2]))
    np.testing.assert_allclose(told.errors.variances[0], theta[0])
    with pytest.raises(InvalidInputError, match=r"at least 2 per bag, got 1\.0, 0\.0\.$"):
        ClassPriors(theta, errors=ShareErrors.from_rows([1, 2, 0]))

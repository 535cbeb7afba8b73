"""Text that is dates throughout is read as dates."""

import numpy as np
import pandas as pd
import pytest

from unbag.exceptions import InvalidInputError
from unbag.io.frames import encode_frame

DAYS = pd.Timestamp("2023-01-05") + pd.to_timedelta(
    np.random.default_rng(0).integers(0, 900, 60), unit="D"
)
BAGS = ["a", "b"] * 30


def encoded(days):
    return encode_frame(pd.DataFrame({"bag": BAGS, "day": days}), bag="bag")


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("%Y-%m-%d", "2024-01-31"),
        ("%Y-%m-%d %H:%M:%S", "2024-01-31"),
        ("%Y-%m-%dT%H:%M:%S.000Z", "2024-01-31"),
        ("%d.%m.%Y", "31.01.2024"),
        ("%d/%m/%Y", "31/01/2024"),
        ("%m/%d/%Y", "01/31/2024"),
        ("%d-%m-%Y", "31-01-2024"),
        ("%Y/%m/%d", "2024/01/31"),
    ],
)
def test_every_form_gives_what_dates_give(form, shown):
    expected = encoded(DAYS)
    read = encoded(DAYS.strftime(form))
    np.testing.assert_array_equal(read.X, expected.X)
    assert read.notes == (f"Column 'day' is text that is read as dates, such as {shown}.",)
    as_dates = pd.DataFrame({"day": DAYS})
    np.testing.assert_array_equal(read.encoding.transform(as_dates), expected.X)
    iso = pd.DataFrame({"day": DAYS.strftime("%Y-%m-%d")})
    np.testing.assert_array_equal(expected.encoding.transform(iso), expected.X)


def test_missing_dates_are_missing():
    read = encoded([None, "", *DAYS.strftime("%d.%m.%Y")[2:]])
    assert read.encoding.feature_names[-1] == "day is missing"
    assert read.X[:3, -1].tolist() == [1, 1, 0]


def test_day_and_month_that_cannot_be_told_apart_stay_text():
    read = encoded(["1/2/2024", "3/4/2024"] * 30)
    assert "may be dates, 31/01/2024 or 01/31/2024; it is read as text" in read.notes[0]
    assert read.encoding.feature_names == ("day=1/2/2024", "day=3/4/2024")


def test_one_value_that_is_no_date_makes_it_text():
    read = encoded(["soon", "soon", *["31.01.2024"] * 58])
    assert read.encoding.feature_names == ("day=31.01.2024", "day=soon")


def test_other_rows_must_be_dates_too():
    read = encoded(DAYS.strftime("%d.%m.%Y"))
    with pytest.raises(InvalidInputError, match=r"dates such as 31.01.2024, got 'soon'"):
        read.encoding.transform(pd.DataFrame({"day": ["soon"]}))


@pytest.mark.parametrize("day", ["30.02.2024", "31.4.2024", "29.02.2023"])
def test_days_that_do_not_exist_are_no_dates(day):
    read = encoded([day, day, *["31.01.2024"] * 58])
    assert f"day={day}" in read.encoding.feature_names
    assert not any("read as dates" in note for note in read.notes)


def test_other_rows_must_be_days_that_exist():
    read = encoded(DAYS.strftime("%Y-%m-%d"))
    with pytest.raises(InvalidInputError, match="got '2024-02-30'"):
        read.encoding.transform(pd.DataFrame({"day": ["2024-02-30"]}))

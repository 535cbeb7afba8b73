"""Shares that are known in part: guessed by the other bags, with the error of a guess."""

import re

import numpy as np
import pandas as pd
import pytest

from unbag.evaluation import evaluate_predictions
from unbag.exceptions import InvalidInputError
from unbag.io import read_priors
from unbag.priors import ClassPriors, ShareErrors, partly_known

KNOWN = {
    "north": {"a": 0.2, "b": 0.3, "c": 0.5},
    "south": {"a": 0.1, "b": 0.4, "c": 0.5},
    "mid": {"a": 0.3, "b": 0.3, "c": 0.4},
}


def written(tmp_path, text):
    path = tmp_path / "shares.csv"
    path.write_text(text)
    return read_priors(path)


def test_a_bag_without_shares_has_those_of_the_others_and_their_spread():
    priors = partly_known({**KNOWN, "west": {}})
    shares = np.array([list(row.values()) for row in KNOWN.values()])
    np.testing.assert_allclose(priors.values[3], shares.mean(0))
    spread = (shares.var(0, ddof=1) * (1 + 1 / 3)).sum()
    assert (priors.errors.standard_errors[3] ** 2).sum() == pytest.approx(spread)
    assert not priors.errors.standard_errors[:3].any()


def test_merged_classes_keep_their_sum_and_split_it_as_the_others_do():
    priors = partly_known({**KNOWN, "east": {("a", "b"): 0.8, "c": 0.2}})
    part = np.array([0.2 / 0.5, 0.1 / 0.5, 0.3 / 0.6])
    mean = 0.6 / 1.6
    np.testing.assert_allclose(priors.values[3], [0.8 * mean, 0.8 * (1 - mean), 0.2])
    square = np.array([0.5, 0.5, 0.6]) @ (part - mean) ** 2 / 1.6 * 3 / 2 * 4 / 3
    errors = priors.errors.standard_errors[3]
    np.testing.assert_allclose(errors, [0.8 * np.sqrt(square)] * 2 + [0], atol=1e-9)
    covariance = priors.errors.covariance[3]
    assert covariance[0, 1] == pytest.approx(-covariance[0, 0])  # what a gains b loses


def test_a_share_that_follows_from_the_others_has_no_error():
    priors = partly_known({**KNOWN, "east": {"a": 0.3, "b": 0.3}})
    np.testing.assert_allclose(priors.values[3], [0.3, 0.3, 0.4])
    assert priors.errors is None


def test_ranges_are_taken_in_their_middle_with_the_variance_of_an_even_chance():
    ranges = {"port": {"a": (0.1, 0.3), "b": (0.2, 0.4), "c": 0.5}}
    priors = partly_known({**KNOWN, **ranges})
    np.testing.assert_allclose(priors.values[3], [0.2, 0.3, 0.5])
    np.testing.assert_allclose(priors.errors.standard_errors[3, :2], 0.2 / np.sqrt(12))
    off_middle = partly_known({"port": {"a": (0.1, 0.3), "b": (0.2, 0.8), "c": (0.4, 0.5)}})
    assert off_middle.values.sum() == pytest.approx(1)
    assert (off_middle.values >= [[0.1, 0.2, 0.4]]).all()
    assert (off_middle.values <= [[0.3, 0.8, 0.5]]).all()


def test_a_file_says_the_same_as_a_dict(tmp_path):
    text = (
        "bag,a,b,c,a|b,a_low,a_high,b_low,b_high,c_low,c_high,shares_of\n"
        "north,20,30,50,,,,,,,,rows\nsouth,10,40,50,,,,,,,,rows\nmid,30,30,40,,,,,,,,rows\n"
        "east,?,?,20,80,,,,,,,rows\nwest,?,?,?,,,,,,,,rows\nport,?,?,?,,10,30,20,40,50,50,rows\n"
    )
    found = written(tmp_path, text)
    port = {"a": (0.1, 0.3), "b": (0.2, 0.4), "c": 0.5}
    bags = {**KNOWN, "east": {("a", "b"): 0.8, "c": 0.2}, "west": {}, "port": port}
    expected = partly_known(bags, shares_of="rows")
    np.testing.assert_allclose(found.priors.values, expected.values)
    np.testing.assert_allclose(
        found.priors.errors.standard_errors, expected.errors.standard_errors, atol=1e-12
    )
    assert found.priors.shares_of == "rows"
    assert "3 of 6 bags are not known or known in part ('east', 'west', 'port')" in found.notes[-1]


def test_a_table_in_memory_marks_what_is_not_known_as_a_file_does():
    frame = pd.DataFrame(
        {"a": [0.2, 0.1, "?"], "b": [0.8, 0.9, "?"]}, index=["north", "south", "west"]
    )
    priors = ClassPriors.of(frame)
    np.testing.assert_allclose(priors.values[2], [0.15, 0.85])
    assert priors.errors.standard_errors[2, 0] == pytest.approx(0.1 / np.sqrt(2) * np.sqrt(1.5))


def test_errors_that_are_told_of_known_shares_stay(tmp_path):
    text = "bag,a,b,c,rows_counted\nn,20,30,50,101\ns,10,40,50,101\ne,?,?,40,101\nw,?,?,?,\n"
    errors = written(tmp_path, text).priors.errors
    counted = ShareErrors.from_rows(101).bind(ClassPriors([[0.2, 0.3, 0.5], [0.1, 0.4, 0.5]]))
    np.testing.assert_allclose(errors.covariance[:2], counted.covariance)
    assert errors.standard_errors[2, 2] == pytest.approx(np.sqrt(0.4 * 0.6 / 100))
    assert (errors.standard_errors[3, :2] > 0).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bag,a,b\nn,20,80\ns,10,90\ne,,?\n", "one that is not known as ?"),
        ("bag,a,b,c\nn,20,30,50\ns,10,40,50\ne,80,?,40\n", "the sum 1.2 for bag 'e'"),
        (
            "bag,a,b,c,d,a|b\nn,10,10,30,50,\ns,10,20,20,50,\ne,?,?,?,?,40\n",
            "one group of unknown shares per bag, got 'a', 'b' and 'c', 'd' in bag 'e'",
        ),
        ("bag,a,b,c\nn,20,30,50\ns,?,?,50\n", "at least two bags with known shares of 'a', 'b'"),
        ("bag,a,b\nn,12,30\ns,11,55\ne,?,?\n", "got counts, and unknown ones for bag 'e'"),
        (
            "bag,a,b,c,a|b\nn,20,30,50,\ns,10,40,50,\ne,5,?,40,60",
            "a class is known by itself, or in one sum",
        ),
        (
            "bag,a,b,a_low,a_high,b_low,b_high\nn,20,80,,,,\ns,10,90,,,,\ne,?,?,10,20,30,40",
            "with 1 between the sums, got others for bag 'e'",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, text, message):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        written(tmp_path, text)


@pytest.mark.parametrize("given", ["much", (0.1, 0.2, 0.3), (0.4, 0.2), 1.4, None])
def test_shares_are_numbers_or_ranges(given):
    with pytest.raises(InvalidInputError, match=r"pairs \(low, high\) of them, got .* 'north'"):
        partly_known({"north": {"a": given, "b": 0.5}})


def test_a_bag_with_ranges_has_one_for_every_class():
    with pytest.raises(InvalidInputError, match=r"a range for every class .* bag 'port'"):
        partly_known({**KNOWN, "port": {"a": (0.1, 0.3), "b": 0.5}})


@pytest.mark.parametrize("given", [None, [[0.5, 0.5]], "x", {"a": [0.5, 0.5]}, {"a": None}])
def test_other_kinds_of_tables_are_refused(given):
    with pytest.raises(InvalidInputError, match="table must be a dict of bag id to dict of class"):
        partly_known(given)


def test_guesses_are_told_from_counts_wherever_the_errors_go():
    priors = partly_known({**KNOWN, "west": {}})
    assert priors.errors.is_guess.tolist() == [False, False, False, True]
    assert priors.subset([3, 0]).errors.is_guess.tolist() == [True, False]
    assert not ClassPriors(priors.values, errors=ShareErrors.from_rows(9)).errors.is_guess.any()
    counted = ClassPriors(priors.values, errors=priors.errors.standard_errors)
    assert counted.errors != priors.errors


def test_an_accuracy_with_guessed_shares_is_right_on_average():
    """A correction for errors of counts would take it two points too high."""
    rng = np.random.default_rng(0)
    confusion = np.array([[0.9, 0.1], [0.1, 0.9]])
    found = []
    for _ in range(20):
        first = rng.uniform(0.2, 0.8, 40)
        theta = np.column_stack([first, 1 - first])
        rows = {m: dict(zip("ab", t, strict=True)) if m % 2 else {} for m, t in enumerate(theta)}
        counts = rng.multinomial(100, theta @ confusion)
        bags = np.repeat(np.arange(40), 100)
        predicted = np.concatenate([np.repeat(["a", "b"], n) for n in counts])
        report = evaluate_predictions(predicted, bags, priors=partly_known(rows))
        found.append(float(report.accuracy))
    assert np.mean(found) == pytest.approx(0.9, abs=0.015)


def test_percent_signs_tell_the_unit_where_no_bag_is_whole(tmp_path):
    """0.1% was read as 10%, where every bag had an unknown share."""
    (tmp_path / "shares.csv").write_text("bag,a,b\nx,0.1%,?\ny,?,40%\n")
    priors = read_priors(tmp_path / "shares.csv").priors
    np.testing.assert_allclose(priors.values, [[0.001, 0.999], [0.6, 0.4]])


def test_ranges_reach_from_0_to_1_and_no_further():
    nothing = partly_known({**KNOWN, "port": dict.fromkeys("abc", (0.0, 1.0))})
    np.testing.assert_allclose(nothing.values[3], 1 / 3)
    np.testing.assert_allclose((nothing.errors.standard_errors[3] ** 2).sum(), 3 / 12, rtol=0.01)
    for low, high in ((-0.01, 1.0), (0.0, 1.01), (0.5, 0.4)):
        with pytest.raises(InvalidInputError, match="port"):
            partly_known({**KNOWN, "port": {"a": (low, high), "b": (0.0, 1.0), "c": (0.0, 1.0)}})

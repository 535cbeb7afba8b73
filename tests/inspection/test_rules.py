import numpy as np
import pytest
from small_bags import SIZES, TABLE, THETA

from unbag.inspection import inspect
from unbag.priors import ClassPriors


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0], [0.4, 0.6, 0.0]], "No bag contains class 2: add a bag"),
        (
            [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]],
            "2 bags for 3 classes: add at least 1 whose class shares differ",
        ),
        (
            [[0.4, 0.4, 0.2], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]],
            "Classes 0, 1 cannot be told apart: in every bag the share of 0 equals that of 1. Add "
            "a bag in which this is not so, such as 65% of 0, 15% of 1, 20% of 2. Or merge",
        ),
        ([[0.6, 0.3, 0.1], [0.2, 0.1, 0.7], [0.4, 0.2, 0.4]], "share of 1 is 0.5 times that of 0"),
        ([[0.5, 0.2, 0.3], [0.3, 0.2, 0.5], [0.6, 0.2, 0.2]], "share of 1 is 0.2 in every bag"),
        ([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]], "the share of 0 is 0.5 in every bag"),
        (
            np.full((3, 4), 0.25),
            "In all, 3 more bags with other shares are needed; suggested_bags lists",
        ),
        (
            np.random.default_rng(0).dirichlet(np.ones(7), 6),
            "is the same function of the other shares",
        ),
    ],
)
def test_without_rank_it_stops_and_says_what_would_help(priors, message):
    inspection = inspect(priors, 1000)
    assert inspection.verdict == "stop"
    assert any(message in reason for reason in inspection.reasons), inspection.reasons
    assert "methods with risk weights cannot be trained" in inspection.reasons[-1]
    assert inspection.condition_number == np.inf
    assert inspection.half_width is inspection.rows_needed is inspection.inflation is None
    more = np.vstack([np.asarray(priors), inspection.suggested_bags])
    assert inspect(more, 1000).rank == len(inspection.classes)


def test_prior_errors_bring_care_and_then_stop():
    def with_errors(size):
        return inspect(ClassPriors.of(TABLE).with_errors(np.full((4, 3), size)), 3000)

    assert [with_errors(size).verdict for size in (0.005, 0.05, 0.2)] == ["go", "care", "stop"]
    care = with_errors(0.05)
    assert "errors of the shares put the estimated accuracy off by ± 12" in care.reasons[0]
    twice = with_errors(0.1).prior_error_half_width
    assert twice == pytest.approx(2 * care.prior_error_half_width, rel=1e-3)


def test_few_rows_bring_care_and_then_stop():
    verdicts = [inspect(TABLE, size).verdict for size in (3000, 300, 12)]
    assert verdicts == ["go", "care", "stop"]
    assert "For ± 5 points, use" in inspect(TABLE, 300).reasons[0]
    exact = inspect(TABLE, 500, shares_of="rows")
    assert (exact.verdict, inspect(TABLE, 500).verdict) == ("go", "care")
    assert sum(exact.rows_needed) < sum(inspect(TABLE, 500).rows_needed)


def test_tiny_dominating_and_empty_bags_and_rare_classes():
    inspection = inspect(TABLE, {"north": 9000, "south": 12, "east": 3000, "west": 2000})
    assert (inspection.tiny_bags, inspection.dominating_bag) == (["south"], "north")
    assert any("1 bag with fewer than 20 rows: 'south'. Merge" in r for r in inspection.reasons)
    assert any("'north' holds more than 50% of all rows" in r for r in inspection.reasons)
    many = np.tile(THETA, (10, 1))
    assert inspect(many, [12] + [3000] * 39).verdict == "go"  # one in forty does no harm

    empty = inspect(TABLE, {**SIZES, "north": 0})
    assert (empty.empty_bags, empty.n_bags, empty.rank) == (["north"], 3, 3)
    assert any(
        "1 bag with shares but without rows, which are left out here: 'north'" in r
        for r in empty.reasons
    )
    assert inspect(TABLE, [0, 0, 3, 4]).verdict == "stop"

    rare = inspect([[0.6, 0.399, 0.001], [0.3, 0.7, 0.0], [0.1, 0.8, 0.1]], [2000, 2000, 150])
    assert rare.rare_classes == [2]
    assert rare.thin_cells == 1
    assert any("fewer than 20 rows of class 2" in r for r in rare.reasons)


def test_two_groups_of_classes_are_explained_and_classes_of_no_bag_are_not():
    pairs = np.repeat(np.random.default_rng(0).dirichlet(np.ones(3), 8), 2, axis=1) / 2
    reasons = inspect(pairs, 1000).reasons
    assert sum("cannot be told apart" in reason for reason in reasons) == 2
    absent = inspect([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0], [0.4, 0.6, 0.0]], 1000).reasons
    assert not any("cannot be told apart" in reason for reason in absent)


@pytest.mark.parametrize(("n_classes", "shown"), [(5, "10% of 4"), (6, "and otherwise the shares")])
def test_the_shares_of_a_suggested_bag_are_listed_for_few_classes(n_classes, shown):
    priors = np.full((n_classes, n_classes), 1 / n_classes)
    reason = next(r for r in inspect(priors, 1000).reasons if "such as" in r)
    assert shown in reason


def test_groups_of_equal_bags_are_counted():
    north, south, east = ([0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7])
    notes = inspect([north, south, east, north, south], 3000).notes
    assert notes[0].startswith("Bags 0, 3 (and 1 more group) have the same shares")


def test_of_two_bags_none_dominates():
    theta = [[0.9, 0.1], [0.1, 0.9]]
    assert inspect(theta, [9000, 1000]).dominating_bag is None
    assert inspect([*theta, [0.5, 0.5]], [9000, 1000, 1000]).dominating_bag == 0

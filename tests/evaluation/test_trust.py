"""Whether numbers say so where they are not to be trusted."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from populations import PURE, SQUARE, THREE, rows_of

import unbag
from unbag.evaluation import accuracy_warning, evaluate_predictions
from unbag.evaluation.trust import beyond_limits_warning, row_drift_warning
from unbag.exceptions import ImplausibleEstimateWarning
from unbag.priors import SHARES_OF, ClassPriors, symmetric

IMPOSSIBLE = np.array([[95, 5], [5, 95]])  # predictions in bags of 60% and 40%


def evaluated(table, theta, **options):
    predicted, bag = rows_of(np.asarray(table))
    return evaluate_predictions(predicted, bag, priors=theta, **options)


def test_an_impossible_accuracy_is_marked_everywhere():
    report = evaluated(IMPOSSIBLE, symmetric(2, a=0.2))
    assert report.accuracy == pytest.approx(2.75)
    assert not report.trustworthy
    (warning,) = report.warnings
    assert "estimated as 275.0%" in warning
    assert "standard errors above 100%" in warning
    printed = str(report)
    assert warning in printed
    assert printed.count("not to be trusted\n") == 5  # three numbers and two recalls
    assert "% to " not in printed
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert values["trustworthy"] is False
    assert values["warnings"] == [warning]


def test_an_accuracy_far_below_zero_is_marked_too():
    report = evaluated(IMPOSSIBLE[::-1], symmetric(2, a=0.2))
    assert report.accuracy == pytest.approx(-1.75)
    assert "standard errors below 0%" in report.warnings[0]


def test_numbers_that_nothing_speaks_against():
    report = evaluate_predictions(THREE.predicted, THREE.bag, priors=THREE.priors)
    assert report.trustworthy
    assert (report.warnings, report.notes) == ((), ())
    assert "warning" not in str(report)
    assert "not to be trusted" not in str(report)
    assert str(report).count("% to") == 6
    assert report.to_dict()["trustworthy"] is True


def test_a_little_beyond_the_limit_is_chance():
    """1.04 from few rows is nothing strange, and its interval is not narrow by being cut."""
    theta = symmetric(2, a=0.5)
    at_limit = evaluated([[75, 25], [25, 75]], theta)
    beyond = evaluated([[76, 24], [24, 76]], theta)
    assert at_limit.accuracy == pytest.approx(1)
    assert beyond.accuracy == pytest.approx(1.02)
    assert beyond.trustworthy
    assert beyond.accuracy.high == 1
    assert beyond.accuracy.low == pytest.approx(at_limit.accuracy.low, abs=0.01)


@pytest.mark.parametrize("shares_of", SHARES_OF)
def test_no_interval_of_an_impossible_number_is_narrow_and_possible(shares_of):
    """Whatever the excess, an interval within [0, 1] is as wide as that of an estimate of 1."""
    theta, n, widths = symmetric(2, a=0.3), 400, []
    for right in range(260, 340):
        report = evaluated([[right, n - right], [n - right, right]], theta, shares_of=shares_of)
        assert report.accuracy > 1 - 1e-9
        if report.accuracy.high <= 1:
            widths.append(report.accuracy.high - report.accuracy.low)
        else:
            assert report.accuracy.high > 1  # no possible value explains it: that is visible
            assert not report.trustworthy
    assert len(widths) > 1
    assert min(widths) > 0.8 * widths[0]
    assert not report.trustworthy


def test_few_perfect_models_are_marked():
    """By chance fewer than one in ten; and of models right in 90% none here."""
    rng = np.random.default_rng(0)
    theta, n = symmetric(3, a=0.5), 200
    marked = {}
    for accuracy in (1.0, 0.9):
        confusion = accuracy * np.eye(3) + (1 - accuracy) / 2 * (1 - np.eye(3))
        tables = (rng.multinomial(n, row) for _ in range(150) for row in theta @ confusion)
        reports = [evaluated(table, theta) for table in zip(*[tables] * 3, strict=True)]
        marked[accuracy] = np.mean([not r.trustworthy for r in reports])
    assert 0 < marked[1.0] < 0.12
    assert marked[0.9] < 0.02


def test_the_threshold():
    assert beyond_limits_warning(1.2, 1.5) is None
    assert "2.0 standard errors above" in beyond_limits_warning(1.2, 2.0)
    assert "99.0 standard errors below" in beyond_limits_warning(-1.2, np.inf)


def test_what_cannot_be_tested_is_said_once():
    report = evaluate_predictions(SQUARE.predicted, SQUARE.bag, priors=SQUARE.priors)
    (note,) = report.notes
    assert "as many bags as classes" in note
    assert str(report).count("as many bags as classes") == 1
    assert report.trustworthy  # nothing speaks against them; nothing could
    pure = evaluate_predictions(PURE.predicted, PURE.bag, priors=PURE.priors)
    assert pure.notes == ()  # labels need no assumption


class Fixed(unbag.UnbagClassifier):
    """A fitted classifier that predicts the bag it is asked about."""

    def __init__(self, priors=None):
        super().__init__(priors)
        self.module_, self.encoding_, self.classes_ = None, None, np.array([0, 1])
        self.priors_ = ClassPriors.of(priors)

    def _log_odds(self, X, prior=None, bag_ids=None):  # noqa: ARG002 - the base names it
        yield np.log(np.clip(np.c_[1 - X[:, 0], X[:, 0]], 1e-9, 1))


def test_score_warns():
    predicted, bag = rows_of(IMPOSSIBLE)
    model, X = Fixed(symmetric(2, a=0.2)), predicted[:, None].astype(float)
    with pytest.warns(ImplausibleEstimateWarning, match=r"275\.0%.*unbag\.inspect") as caught:
        assert model.score(X, bag) == pytest.approx(2.75)
    assert caught[0].filename == __file__
    predicted, bag = rows_of(np.array([[61, 39], [39, 61]]))  # 105%, but from few rows
    X = predicted[:, None].astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.score(X, bag) == pytest.approx(1.05)


def test_weights_count_as_fewer_rows():
    """A row of weight 2 tells no more than one: few rows of large weights prove little."""
    priors = ClassPriors(symmetric(2, a=0.2))
    predicted, bag = rows_of(np.array([[85, 15], [15, 85]]))
    assert accuracy_warning(predicted, bag, priors) is not None
    same = accuracy_warning(predicted, bag, priors, None, np.full(200, 7.0))
    assert same == accuracy_warning(predicted, bag, priors)
    weight = np.where(np.arange(200) % 33 == 0, 1.0, 1e-6)  # four rows of bag 0, three of bag 1
    assert accuracy_warning(predicted, bag, priors, None, weight) is None
    assert accuracy_warning(1 - predicted, bag, priors, np.array([0.5, 0.5])) is not None


@pytest.mark.parametrize(("part", "words"), [(1, "So all of how"), (0.4, "So up to 40% of how")])
def test_a_drift_of_rows_says_how_much_it_may_explain(part, words):
    drift = SimpleNamespace(part=part, p_value=0.001, deviation=0.5, accuracy=0.6)
    assert words in row_drift_warning(drift)
    assert row_drift_warning(SimpleNamespace(part=0)) is None

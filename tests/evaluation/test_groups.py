"""Numbers of groups of rows."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from unbag.evaluation import evaluate, evaluate_predictions
from unbag.evaluation.groups import _of_groups
from unbag.evaluation.variances import BagSample
from unbag.exceptions import InvalidInputError
from unbag.priors import ClassPriors

THETA = np.array([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8], [0.35, 0.65]])
# Per class: share of women, and recall among women and men.
WOMEN, RECALL = np.array([0.3, 0.7]), np.array([[0.9, 0.6], [0.7, 0.85]])


def draw(seed=0, rows=2000):
    rng = np.random.default_rng(seed)
    bag = np.repeat(np.arange(4), rows)
    y = (rng.random(len(bag)) < THETA[bag, 1]).astype(int)
    man = (rng.random(len(bag)) >= WOMEN[y]).astype(int)
    right = rng.random(len(bag)) < RECALL[y, man]
    return bag, y, np.array(["woman", "man"])[man], np.where(right, y, 1 - y)


def test_numbers_of_groups_are_those_with_labels():
    bag, y, sex, predicted = draw(rows=50_000)
    report = evaluate_predictions(predicted, bag, priors=THETA, by=sex)
    assert {g.group for g in report.groups} == {"woman", "man"}
    for group in report.groups:
        here = sex == group.group
        assert group.n_rows == here.sum()
        assert group.accuracy == pytest.approx((predicted == y)[here].mean(), abs=0.02)
        for k in (0, 1):
            recall = (predicted == k)[here & (y == k)].mean()
            assert group.recall[k] == pytest.approx(recall, abs=0.03)
            assert group.class_share[k] == pytest.approx((y == k)[here].mean(), abs=0.02)
            share = (predicted == k)[here].mean()
            assert group.predicted_share[k] == pytest.approx(share, abs=0.02)
    assert "accuracy of woman" in str(report)
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert plain["groups"][0]["accuracy"].keys() == {"value", "low", "high"}


def test_intervals_hold_for_all_groups_at_once():
    truth = {}
    hits = []
    shares = THETA.mean(0)
    for g, name in enumerate(("woman", "man")):
        weight = shares * (WOMEN if g == 0 else 1 - WOMEN)
        truth[name] = weight @ RECALL[:, g] / weight.sum()
    for seed in range(150):
        bag, _, sex, predicted = draw(seed, rows=400)
        report = evaluate_predictions(predicted, bag, priors=THETA, by=sex, test_prior=shares)
        hits.append(all(g.accuracy.low <= truth[g.group] <= g.accuracy.high for g in report.groups))
    assert np.mean(hits) > 0.91


def test_one_group_is_the_whole_and_more_groups_have_wider_intervals():
    bag, _, sex, predicted = draw()
    all_rows = evaluate_predictions(predicted, bag, priors=THETA, by=np.zeros(len(bag), int))
    (whole,) = all_rows.groups
    assert whole.accuracy == pytest.approx(float(all_rows.accuracy))
    assert np.diff(whole.accuracy.interval) == pytest.approx(
        np.diff(all_rows.accuracy.interval), rel=0.1
    )
    eight = [f"{s}{i % 4}" for i, s in enumerate(sex)]
    two, more = (evaluate_predictions(predicted, bag, priors=THETA, by=b) for b in (sex, eight))
    widths = [np.diff(max(r.groups, key=lambda g: g.n_rows).accuracy.interval) for r in (two, more)]
    assert widths[1] > 1.5 * widths[0]


def test_a_column_of_a_table_or_what_is_wrong_with_it():
    bag, _, sex, predicted = draw(rows=200)

    class Model:
        def predict(self, X):
            return predicted[: len(X)]

    frame = pd.DataFrame({"x": np.zeros(len(bag)), "sex": sex})
    report = evaluate(Model(), frame, bag, priors=THETA, by="sex")
    assert len(report.groups) == 2
    table = pa.Table.from_pandas(frame.assign(bag=bag))
    coded = table.set_column(1, "sex", table["sex"].dictionary_encode())
    readers = [frame.assign(bag=bag), table, coded, coded.to_reader()]  # the last is read once
    for given in readers:
        of_table = evaluate(Model(), given, bag="bag", priors=THETA, by="sex")
        assert float(of_table.accuracy) == float(report.accuracy)
        assert len(of_table.groups) == 2
    for wrong in ({"bag_ids": bag}, {"X": np.zeros((len(bag), 1))}):
        with pytest.raises(InvalidInputError, match="bag must be given where X is a table"):
            evaluate(Model(), **{"X": frame, "bag": "bag"} | wrong, priors=THETA)
    with pytest.raises(InvalidInputError, match="bag must be a column of X, got 'bags'"):
        evaluate(Model(), table, bag="bags", priors=THETA)
    with pytest.raises(InvalidInputError, match="by must be a column of X, got 'age'"):
        evaluate(Model(), frame, bag, priors=THETA, by="age")
    with pytest.raises(InvalidInputError, match="by must be of at most 100 groups"):
        evaluate_predictions(predicted, bag, priors=THETA, by=np.arange(len(bag)))
    with pytest.raises(InvalidInputError, match="by must be one group for each of"):
        evaluate_predictions(predicted, bag, priors=THETA, by=[1, 2])


def test_the_drift_of_a_class_is_that_of_its_groups_together():
    directions = np.array([[1.0, -1.0], [-0.5, 0.5]])
    sample = BagSample.of(ClassPriors(THETA), np.full(4, 100.0))
    assert _of_groups(sample, np.zeros((2, 3, 2))) is sample
    likely = np.random.default_rng(0).dirichlet(np.ones(6), 2).reshape(2, 3, 2)
    moved = _of_groups(replace(sample, directions=directions), likely).directions
    moved = moved.reshape(2, 3, 2)  # class, group, predicted class
    np.testing.assert_allclose(moved.sum(1), directions)
    np.testing.assert_allclose(moved[:, :, 0] / directions[:, None, 0], likely.sum(2))

"""Models of the shares of bags, and what bags that were left out say of them."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from unbag.methods.evidence import Slope, evidence_weights
from unbag.methods.share_models import (
    STRENGTHS,
    BagData,
    fit_path,
    mix_paths,
    predict_left_out,
    slope_of_paths,
)
from unbag.tabular import FEATURES, Features

K = 3


def table(n=400, n_bags=20, seed=0, signal=3.0):
    """Rows in random bags; the class moves the first K columns by the signal."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    x = rng.normal(size=(n, 5)) + signal * np.eye(K, 5)[y]
    bag = np.arange(n) % n_bags
    theta = np.zeros((n_bags, K))
    np.add.at(theta, (bag, y), n_bags / n)
    return x, y, bag, theta


def paths(x, data, kinds=FEATURES):
    rng = np.random.default_rng(0)
    return [fit_path(Features.learn(kind, x, rng), x, data) for kind in kinds]


def test_the_gradient_is_that_of_the_loss(monkeypatch):
    x, _, bag, theta = table(60, 6)
    calls = []

    def spy(fun, start, **_):
        rng = np.random.default_rng(1)
        point = start + 0.3 * rng.normal(size=start.shape)
        _, gradient = fun(point)
        step = rng.normal(size=point.shape)
        ahead, behind = fun(point + 1e-5 * step)[0], fun(point - 1e-5 * step)[0]
        calls.append((gradient @ step, (ahead - behind) / 2e-5))
        return type("Result", (), {"x": start})

    monkeypatch.setattr("unbag.methods.share_models.minimize", spy)
    weight = np.random.default_rng(2).uniform(0.5, 2, 60)
    paths(x, BagData.of(bag, theta, weight, 0), ("linear",))
    assert len(calls) == len(STRENGTHS) * 6  # five folds, and all bags
    for analytic, numeric in calls:
        assert analytic == pytest.approx(numeric, rel=1e-4, abs=1e-4)


def test_models_of_shares_learn_the_classes_of_rows():
    x, _, bag, theta = table()
    data = BagData.of(bag, theta, None, 0)
    model = mix_paths(paths(x, data), np.full(K, 1 / K), x.shape[1])
    new, labels, *_ = table(seed=1)
    with torch.no_grad():
        log_p = model(torch.as_tensor(new)).numpy()
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1)
    assert (log_p.argmax(1) == labels).mean() > 0.8


def test_a_bag_that_is_left_out_is_predicted_by_models_that_never_saw_it():
    x, _, bag, theta = table()
    data = BagData.of(bag, theta, None, 0)
    (path,) = paths(x, data, ("linear",))
    fold = data.fold == data.fold[3]
    changed = theta.copy()
    changed[fold] = np.roll(theta[fold], 1, 1)  # the shares of its fold are wrong
    (other,) = paths(x, dataclasses.replace(data, theta=changed), ("linear",))
    own = np.isin(bag, np.flatnonzero(fold))
    np.testing.assert_allclose(path.left_out[:, own], other.left_out[:, own], atol=1e-5)
    assert np.abs(path.left_out[:, ~own] - other.left_out[:, ~own]).max() > 1e-2


def test_gains_compare_the_shares_of_a_left_out_bag_with_those_of_the_others():
    x, _, bag, theta = table(n=200, n_bags=8)
    data = BagData.of(bag, theta, None, 0)
    (path,) = paths(x, data, ("linear",))
    m = 5
    predicted = softmax(path.left_out[2, bag == m], axis=1).mean(0)
    others = data.fold != data.fold[m]
    constant = theta[others].mean(0)  # bags are of one size
    expected = (bag == m).sum() * (theta[m] * np.log(predicted / constant)).sum()
    assert path.gains[2, m] == pytest.approx(expected, rel=1e-4)


def test_rows_of_bags_left_out_are_predicted_by_models_and_the_constant_shares():
    x, _, bag, theta = table(n=200, n_bags=8, signal=0.7)
    data = BagData.of(bag, theta, None, 0)
    (path,) = paths(x, data, ("linear",))
    own = data.fold == data.fold[3]
    rows = own[bag]
    *weights, last = evidence_weights(np.vstack([path.gains, np.zeros(8)])[:, ~own])
    assert 0.01 < last < 0.99
    constant = np.log(theta[~own].mean(0))  # bags are of one size
    mixed = sum(w * log_p[rows] for w, log_p in zip(weights, path.left_out, strict=True))
    expected = log_softmax(mixed + last * constant, axis=1)
    np.testing.assert_allclose(predict_left_out([path], data)[rows], expected, atol=1e-9)


def test_strong_penalties_are_constant_and_weights_of_rows_count():
    x, _, bag, theta = table()
    (path,) = paths(x, BagData.of(bag, theta, None, 0), ("linear",))
    norms = np.linalg.norm(path.matrix, axis=(1, 2))
    assert (np.diff(norms) > 0).all()
    weight = np.where(bag < 10, 5.0, 1.0)
    (weighted,) = paths(x, BagData.of(bag, theta, weight, 0), ("linear",))
    assert not np.allclose(path.matrix, weighted.matrix, rtol=1e-2)


def test_the_slope_is_one_where_bags_tell_classes_and_not_shown_where_they_do_not():
    x, _, bag, theta = table()
    data = BagData.of(bag, theta, None, 0)
    slope = slope_of_paths(paths(x, data), data)
    assert slope.is_positive
    assert slope.value == pytest.approx(1, abs=0.2)
    noise = np.random.default_rng(5).permutation(x)
    assert not slope_of_paths(paths(noise, data), data).is_positive


def test_bags_judge_where_the_others_tell_as_much_apart():
    index, few = np.arange(12) % 3, np.eye(3) * 0.7 + 0.1
    assert not BagData.of(index, few, None, 0).judging.any()
    more = np.vstack([few, few[:2]])  # only the third bag tells the third class apart
    judging = BagData.of(np.arange(20) % 5, more, None, 0).judging
    np.testing.assert_array_equal(judging, [True, True, False, True, True])


def test_shares_that_were_counted_in_rows_are_worth_as_many_more():
    theta = np.array([[0.5, 0.5], [0.5, 0.5]])
    data = BagData.of(np.repeat([0, 1], 60), theta, None, 0, np.full(2, 1 / 30))
    np.testing.assert_allclose(data.information, 1 / (1 / 60 + 1 / 30))


def test_two_bags_have_two_folds_and_one_bag_has_no_evidence():
    x, _, bag, theta = table(60, 2)
    data = BagData.of(bag, theta, None, 0)
    assert data.n_folds == 2
    single = BagData.of(np.zeros(60, int), theta[:1], None, 0)
    (path,) = paths(x, single, ("linear",))
    assert (path.gains == 0).all()
    assert np.isfinite(path.matrix).all()


def test_the_gains_of_a_fold_have_no_say_in_how_it_is_predicted(monkeypatch):
    x, _, bag, theta = table()
    data = BagData.of(bag, theta, None, 0)
    (path,) = paths(x, data, ("linear",))
    fold, kept = data.fold == 2, []

    monkeypatch.setattr(Slope, "of", lambda _, predicted, __: kept.append(predicted))
    flattered = path.gains.copy()
    flattered[-1, fold] += 1e3  # the weakest penalty, on these bags alone
    for changed in (path, dataclasses.replace(path, gains=flattered)):
        slope_of_paths([changed], data)
    np.testing.assert_allclose(kept[0][fold], kept[1][fold])
    assert not np.allclose(kept[0][~fold], kept[1][~fold])


def test_the_strongest_penalty_predicts_the_shares_of_the_other_bags():
    rng = np.random.default_rng(0)
    y, bag = rng.choice(K, 400, p=[0.7, 0.2, 0.1]), np.arange(400) % 20
    theta = np.zeros((20, K))
    np.add.at(theta, (bag, y), 1 / 20)
    data = BagData.of(bag, theta, None, 0)
    (path,) = paths(rng.normal(size=(400, 5)), data, ("linear",))
    np.testing.assert_allclose(softmax(path.left_out[0], axis=1).mean(0), theta.mean(0), atol=0.05)

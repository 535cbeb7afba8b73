"""Label-free reliability against the same numbers with labels."""

import numpy as np
import pytest

import unbag
from unbag.evaluation import reliability_diagram
from unbag.exceptions import InvalidInputError

THETA = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])


def draw(rng, sizes, sharpness=2.0, theta=THETA):
    """Rows of three classes whose probabilities hold under the pooled prior if sharpness is 1."""
    bag = np.repeat(np.arange(len(theta)), sizes)
    label = (rng.random(len(bag))[:, None] > theta[bag].cumsum(1)).sum(1)
    x = rng.normal(size=(len(bag), 3)) + 1.5 * np.eye(3)[label]
    pooled = sizes @ theta / np.sum(sizes)
    logits = sharpness * (1.5 * x + np.log(pooled))
    chances = np.exp(logits - logits.max(1, keepdims=True))
    return bag, label, chances / chances.sum(1, keepdims=True)


def with_labels(values, true, n_bins):
    place = np.clip((values * n_bins).astype(int), 0, n_bins - 1)
    rows = np.bincount(place, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, weights=values, minlength=n_bins) / rows
        return rows, mean, np.bincount(place, weights=true, minlength=n_bins) / rows


def test_pure_bags_give_the_plain_frequencies():
    rng = np.random.default_rng(0)
    bag, label, chances = draw(rng, np.array([300, 200, 100]), theta=np.eye(3))
    assert (bag == label).all()
    result = reliability_diagram(chances, bag, priors=np.eye(3), n_bins=5)
    right = chances.argmax(1) == label
    curves = [(result.overall, chances.max(1), right)]
    curves += [(result.by_class[k], chances[:, k], label == k) for k in range(3)]
    for curve, values, true in curves:
        rows, mean, frequency = with_labels(values, true, 5)
        np.testing.assert_array_equal(curve.rows, rows)
        np.testing.assert_allclose(curve.predicted, mean)
        np.testing.assert_allclose(curve.frequency, frequency)
        np.testing.assert_allclose(curve.share, np.where(rows, rows / 600, np.nan))


def test_mixed_bags_give_the_frequencies_of_the_labels():
    rng = np.random.default_rng(1)
    sizes = np.array([40_000, 30_000, 50_000, 20_000])
    bag, label, chances = draw(rng, sizes)
    result = reliability_diagram(chances, bag, priors=THETA)
    right = chances.argmax(1) == label
    curves = [(result.overall, chances.max(1), right)]
    curves += [(result.by_class[k], chances[:, k], label == k) for k in range(3)]
    off = []
    for curve, values, true in curves:
        rows, mean, frequency = with_labels(values, true, 10)
        many = rows > 1000
        np.testing.assert_allclose(curve.predicted[many], mean[many], atol=1e-9)
        off += ((curve.frequency - frequency) / curve.error)[many].tolist()
    assert len(off) > 20
    assert np.max(np.abs(off)) < 4
    top = result.overall.frequency[-1]
    assert top + 5 * result.overall.error[-1] < result.overall.predicted[-1]  # too sure of itself


def test_standard_errors_are_the_spread_over_repeats():
    rng = np.random.default_rng(2)
    sizes = np.array([400, 300, 500, 1])
    runs = []
    for _ in range(300):
        bag, _, chances = draw(rng, sizes, sharpness=1.0)
        result = reliability_diagram(chances, bag, priors=THETA, n_bins=4)
        runs.append([result.overall, *result.by_class])
    for c in range(4):
        frequency = np.array([run[c].frequency for run in runs])[:, 1:]
        error = np.array([run[c].error for run in runs])[:, 1:]
        np.testing.assert_allclose(error.mean(0), frequency.std(0), rtol=0.2)


def test_another_test_prior_reweights_the_classes():
    rng = np.random.default_rng(3)
    sizes = np.full(4, 50_000)
    bag, label, chances = draw(rng, sizes)
    pi = np.array([0.1, 0.3, 0.6])
    result = reliability_diagram(chances, bag, priors=THETA, test_prior=pi, n_bins=4)
    weight = (pi / (np.bincount(label) / len(label)))[label]
    inside = chances[:, 2] >= 0.75
    expected = (weight * (label == 2))[inside].sum() / weight[inside].sum()
    curve = result.by_class[2]
    assert abs(curve.frequency[-1] - expected) < 4 * curve.error[-1]
    assert curve.error[-1] < 0.02
    low, high = curve.interval(0.9)
    np.testing.assert_allclose(high - low, 2 * 1.6448536 * curve.error)


def test_bags_without_rows_and_empty_bins():
    chances = np.tile([[0.95, 0.04, 0.01], [0.02, 0.03, 0.95], [0.0, 1.0, 0.0]], (10, 1))
    bag = np.array(["a", "c", "b"] * 10)
    priors = unbag.ClassPriors(THETA, ["a", "b", "c", "d"])
    result = reliability_diagram(chances, bag, priors=priors)
    assert result.overall.rows.tolist() == [0] * 9 + [30]
    assert np.isnan(result.overall.frequency[:9]).all()
    assert np.isfinite(result.overall.frequency[9])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bag_ids": []}, "bag_ids"),
        ({"n_bins": 0}, "n_bins"),
        ({"probabilities": np.full((4, 3), 0.5)}, "probabilities"),
        ({"n_bins": 0}, r"n_bins must be a whole number in \[1, 1000\], got 0"),
        ({"priors": THETA[:2]}, "bag_ids"),
        ({"bag_ids": [0, 0, 1, 1]}, "cannot be told apart"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"probabilities": np.full((4, 3), 1 / 3), "bag_ids": [0, 1, 2, 3], "priors": THETA}
    arguments |= change
    with pytest.raises(unbag.exceptions.UnbagError, match=message):
        reliability_diagram(arguments.pop("probabilities"), arguments.pop("bag_ids"), **arguments)


@pytest.mark.parametrize("level", [0, 1, 1.5])
def test_levels_of_intervals_lie_between_0_and_1(level):
    bag, _, chances = draw(np.random.default_rng(0), np.array([30, 20, 10, 20]))
    curve = reliability_diagram(chances, bag, priors=THETA).overall
    with pytest.raises(InvalidInputError, match="level must be a number"):
        curve.interval(level)
    assert np.nanmax(curve.interval(0.5)[1] - curve.interval(0.9)[1]) < 0

import numpy as np
import pytest

from unbag.exceptions import InvalidInputError
from unbag.inspection import trivial_model
from unbag.priors import symmetric


def predictions(theta, accuracy, size=300, seed=0):
    rng = np.random.default_rng(seed)
    bag = np.repeat(np.arange(len(theta)), size)
    y = (rng.random(len(bag))[:, None] > theta.cumsum(1)[bag]).sum(1)
    wrong = rng.integers(0, theta.shape[1], len(y))
    return np.where(rng.random(len(y)) < accuracy, y, wrong), bag


def test_trivial_models_are_recognised():
    theta = symmetric(3, 0.5)
    good, bag = predictions(theta, 0.8)
    trivial = trivial_model(good, bag, theta)
    assert not trivial.trivial
    assert trivial.p_value < 1e-6
    assert trivial.slope == pytest.approx(0.8, abs=0.15)
    rng = np.random.default_rng(0)
    for bad in (np.full(len(good), 2), rng.permutation(good)):
        trivial = trivial_model(bad, bag, theta)
        assert trivial.trivial
        assert trivial.p_value > 0.05
        assert abs(trivial.slope) < 0.1
    nearly = np.where(np.arange(len(good)) % 120, 2, good)
    assert "Class 2 is predicted for 99" in trivial_model(nearly, bag, theta).reasons[0]


def test_trivial_probabilities_are_recognised():
    theta = symmetric(3, 0.5)
    good, bag = predictions(theta, 0.8)
    soft = 0.7 * np.eye(3)[good] + 0.1
    noise = np.random.default_rng(0).dirichlet(np.ones(3), len(good))
    assert not trivial_model(soft, bag, theta).trivial
    assert trivial_model(noise, bag, theta).trivial
    assert trivial_model(np.full((len(good), 3), 1 / 3), bag, theta).p_value == 1
    cheating = np.eye(3)[bag] * 0.4 + 0.2  # knows the bag, and nothing else
    assert trivial_model(cheating, bag, theta).p_value == 0


def test_differences_too_small_to_matter_are_trivial_in_any_number_of_rows():
    theta = symmetric(2, 0.8)
    predicted = np.r_[np.arange(100_000) < 51_000, np.arange(100_000) < 49_000].astype(int)
    trivial = trivial_model(predicted, np.repeat([1, 0], 100_000), theta)
    assert trivial.p_value < 1e-6
    assert trivial.trivial
    assert "hardly follow the known ones" in trivial.reasons[0]


def test_equal_priors_do_not_make_a_model_trivial():
    predicted, bag = predictions(np.full((3, 2), 0.5), 0.9)
    trivial = trivial_model(predicted, bag, np.full((3, 2), 0.5))
    assert (trivial.slope, trivial.trivial) == (None, False)
    rare = trivial_model(np.zeros(200, dtype=int), np.repeat([0, 1], 100), [[0.999, 0.001]] * 2)
    assert not rare.trivial


@pytest.mark.parametrize(
    ("predicted", "bag_ids", "message"),
    [
        ([0, 5], [0, 1], "predictions must be classes of the priors, got unknown 5"),
        ([0, 1], [0, 0], "bag_ids must be of at least two bags, got 0"),
        ([0], [0, 1], "predictions must be of length 2"),
        ([[0.5, 0.5, 0.0]] * 2, [0, 1], r"of shape \(2, 2\), got shape \(2, 3\)"),
        ([[0.5, 0.6]] * 2, [0, 1], "the sum 1.1 in row 0; apply a softmax first"),
        ([[-0.5, 1.5]] * 2, [0, 1], "probabilities from 0 to 1, got negative"),
        (
            [[0.5, 0.5]] * 31,
            [0, 1] + [0] * 29,
            "at least 32 rows for 2 bags, got 31; give predicted",
        ),
    ],
)
def test_bad_predictions_say_what_is_wrong(predicted, bag_ids, message):
    with pytest.raises(InvalidInputError, match=message):
        trivial_model(predicted, bag_ids, symmetric(2, 0.5))


def test_as_few_rows_as_can_be_tested():
    chances = np.random.default_rng(0).dirichlet([1, 1], 32)
    assert 0 < trivial_model(chances, np.arange(32) % 2, symmetric(2, 0.5)).p_value < 1

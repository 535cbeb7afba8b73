import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unbag.evaluation import error_table, label_free_accuracy
from unbag.exceptions import RankError
from unbag.priors import ClassPriors, asymmetric, non_square

quick = settings(deadline=None, max_examples=50)


def exact_bags(counts):
    """Bag and label of every row of bags that hold these (M, K) counts."""
    m, k = np.indices(counts.shape)
    return np.repeat(m.ravel(), counts.ravel()), np.repeat(k.ravel(), counts.ravel())


def priors_of(counts):
    return ClassPriors(counts, normalize=True)


tables = st.integers(2, 4).flatmap(
    lambda k: st.lists(
        st.lists(st.integers(0, 20), min_size=k, max_size=k).filter(any),
        min_size=k,
        max_size=2 * k,
    ).map(np.array)
)


@given(counts=tables, data=st.data())
@quick
def test_predictions_that_depend_on_the_class_alone(counts, data):
    """With exact counts, Θ C = V holds exactly, so the estimate is the accuracy itself."""
    priors = priors_of(counts)
    if priors.rank < priors.n_classes or priors.condition_number > 1e4:
        return
    k = priors.n_classes
    mapping = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=k, max_size=k)))
    bag, label = exact_bags(counts)
    predicted = mapping[label]
    accuracy = (predicted == label).mean()
    assert label_free_accuracy(predicted, bag, priors) == pytest.approx(accuracy, abs=1e-9)
    pi = np.arange(1, k + 1) / np.arange(1, k + 1).sum()
    balanced = pi @ (mapping == np.arange(k))
    estimate = label_free_accuracy(predicted, bag, priors, pi)
    assert estimate == pytest.approx(balanced, abs=1e-9)


def test_a_known_confusion():
    """Bags in which every class is predicted right in 80%, and else as the next class."""
    counts = np.array([[50, 10, 20], [10, 60, 10], [5, 15, 60], [20, 20, 40]])
    bag, label = exact_bags(counts)
    place = np.concatenate([np.arange(n) / n for n in counts.ravel()])
    predicted = np.where(place < 0.8, label, (label + 1) % 3)
    assert (predicted == label).mean() == pytest.approx(0.8)
    assert label_free_accuracy(predicted, bag, priors_of(counts)) == pytest.approx(0.8)


def test_pure_bags_give_plain_accuracy():
    rng = np.random.default_rng(0)
    label, predicted = rng.integers(0, 3, 200), rng.integers(0, 3, 200)
    estimate = label_free_accuracy(predicted, label, ClassPriors(np.eye(3)))
    assert estimate == pytest.approx((label == predicted).mean())
    weight = rng.uniform(0, 2, 200)
    estimate = label_free_accuracy(predicted, label, ClassPriors(np.eye(3)), None, weight)
    assert estimate == pytest.approx(np.average(label == predicted, weights=weight))


def test_integer_weights_are_repeated_rows():
    rng = np.random.default_rng(0)
    priors = ClassPriors(non_square(3, 0))
    bag, predicted = rng.integers(0, 6, 100), rng.integers(0, 3, 100)
    weight = rng.integers(0, 4, 100)
    one = label_free_accuracy(predicted, bag, priors, None, weight.astype(float))
    other = label_free_accuracy(predicted.repeat(weight), bag.repeat(weight), priors)
    assert one == pytest.approx(other)


def test_a_missing_bag_is_left_out():
    counts = np.array([[50, 10, 20], [10, 60, 10], [5, 15, 60], [20, 20, 40]])
    bag, label = exact_bags(counts)
    here = bag != 1
    mapping = np.array([0, 1, 1])
    estimate = label_free_accuracy(mapping[label[here]], bag[here], priors_of(counts))
    assert estimate == pytest.approx((mapping[label[here]] == label[here]).mean())


def test_lost_rank_is_refused():
    priors = ClassPriors(asymmetric(3, 0))
    with pytest.raises(RankError, match="at least 3 bags are needed, and there are 2"):
        label_free_accuracy(np.array([0, 1, 2]), np.array([0, 1, 1]), priors)


def test_the_estimate_is_not_clipped():
    priors = ClassPriors([[0.6, 0.4], [0.4, 0.6]])
    bag = np.repeat([0, 1], 50)
    assert label_free_accuracy(bag, bag, priors) == pytest.approx(3.0)
    assert label_free_accuracy(1 - bag, bag, priors) == pytest.approx(-2.0)


@pytest.mark.parametrize("test_prior", [None, np.array([0.2, 0.5, 0.3])])
def test_the_table_of_errors_sums_to_the_label_free_error(test_prior):
    rng = np.random.default_rng(0)
    priors = ClassPriors(rng.dirichlet(np.ones(3), 5))
    bag_index = rng.choice([0, 1, 3, 4], 200, p=[0.1, 0.2, 0.3, 0.4])  # bag 2 has no rows
    predicted = rng.integers(0, 3, 200)
    table = error_table(np.bincount(bag_index, minlength=5), priors, test_prior)
    expected = 1 - label_free_accuracy(predicted, bag_index, priors, test_prior)
    assert table[bag_index, predicted].mean() == pytest.approx(expected, abs=1e-12)
    assert not table[2].any()

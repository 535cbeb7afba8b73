import numpy as np

from unbag.methods.evidence import evidence_weights


def test_the_model_with_more_gain_on_every_part_gets_nearly_all():
    gains = np.array([np.full(20, 1.0), np.full(20, 0.5), np.zeros(20)])
    weights = evidence_weights(gains)
    assert weights[0] > 0.95
    assert weights[0] > weights[1] > weights[2]
    np.testing.assert_allclose(weights.sum(), 1)


def test_a_gain_of_few_parts_is_not_believed():
    one_part = np.zeros((2, 20))
    one_part[0, 0] = 6.0  # the same total as 0.3 on each of 20 parts
    everywhere = np.zeros((2, 20))
    everywhere[0] = 0.3
    assert evidence_weights(one_part)[0] < evidence_weights(everywhere)[0] - 0.05


def test_equal_models_share_the_weight_and_losses_count():
    np.testing.assert_allclose(evidence_weights(np.zeros((4, 7))), 0.25)
    assert evidence_weights(np.array([np.full(10, -1.0), np.zeros(10)]))[0] < 0.01


def test_the_seed_decides():
    gains = np.random.default_rng(0).normal(size=(3, 8))
    np.testing.assert_array_equal(evidence_weights(gains, 1), evidence_weights(gains, 1))
    assert not np.array_equal(evidence_weights(gains, 1), evidence_weights(gains, 2))

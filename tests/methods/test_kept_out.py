"""What rows that no network was trained on say of a round."""

import numpy as np
import pytest
import torch

from unbag.evaluation import likeliest_temperature
from unbag.methods.kept_out import KeptOut
from unbag.methods.regimes import find_regime

CLEAR, WEAK = (find_regime(weak_shares=weak, sequential=False) for weak in (False, True))
N = 400


def kept_out(regime):
    return KeptOut(np.ones((N, 2)), regime)


@pytest.mark.parametrize(("regime", "share"), [(CLEAR, 0.01), (WEAK, 0.05)])
def test_the_second_round_may_lose_a_little_of_what_the_first_seemed_to_gain(regime, share):
    judge, gain = kept_out(regime), np.full(N, 0.5)
    judge.accept(-gain, 0)
    assert not judge.is_worse(-(1 - 0.8 * share) * gain, 1)
    assert judge.is_worse(-(1 - 1.2 * share) * gain, 1)
    assert judge.is_worse(-(1 - 0.8 * share) * gain, 2)
    assert not judge.is_worse(-1.01 * gain, 2)
    assert not judge.is_worse(-gain, 2)  # equal is not worse


def test_a_first_round_without_a_gain_leaves_nothing_to_lose():
    judge = kept_out(CLEAR)
    judge.accept(np.full(N, 0.5), 0)
    assert judge.is_worse(np.full(N, 0.501), 1)
    assert not judge.is_worse(np.full(N, 0.499), 1)


@pytest.mark.parametrize(("regime", "errors"), [(CLEAR, 1), (WEAK, 3)])
def test_rounds_may_be_worse_by_standard_errors(regime, errors):
    judge, noise = kept_out(regime), np.tile([1.0, -1.0], N // 2)
    judge.accept(np.zeros(N), 1)
    error = 1 / np.sqrt(N)
    assert not judge.is_worse(noise + 0.9 * errors * error, 2)
    assert judge.is_worse(noise + 1.1 * errors * error, 2)


@pytest.mark.parametrize(
    ("regime", "references"), [(CLEAR, [0.3, 0.5, 0.2, 0.4]), (WEAK, [0.3, 0.5, 0.2, 0.2])]
)
def test_rounds_are_compared_with_the_last_or_with_the_best_since_the_second(regime, references):
    judge = kept_out(regime)
    for number, (loss, reference) in enumerate(zip([0.3, 0.5, 0.2, 0.4], references, strict=True)):
        judge.accept(np.full(N, loss), number)
        np.testing.assert_array_equal(judge.reference, reference)


def test_losses_and_temperature_are_of_the_bags_of_these_rows():
    rng = np.random.default_rng(0)
    log_eta = np.log(rng.dirichlet([0.2, 0.2], N))
    ratios = np.array([[1.6, 0.4], [0.4, 1.6]])[rng.integers(0, 2, N)]
    judge = KeptOut(ratios)
    np.testing.assert_allclose(judge.losses(log_eta), -np.log((ratios * np.exp(log_eta)).sum(1)))
    expected = likeliest_temperature(torch.from_numpy(log_eta), torch.from_numpy(ratios))
    assert judge.temperature(log_eta) == float(expected) > 1.5  # random guesses that are sure

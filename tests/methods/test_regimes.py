"""The table of cross-fitting's defaults."""

import pytest

from unbag.methods.regimes import find_regime


@pytest.mark.parametrize(
    ("weak", "sequential", "networks", "folds", "rounds", "step", "sharpening"),
    [
        (False, False, 3, 5, 3, 0.5, 1.0),
        (True, False, 5, 5, 6, 1.0, 2.0),
        (False, True, 1, 3, 3, 0.5, 1.0),
        (True, True, 3, 3, 3, 1.0, 2.0),
    ],
)
def test_the_table(weak, sequential, networks, folds, rounds, step, sharpening):
    regime = find_regime(weak_shares=weak, sequential=sequential)
    assert (regime.start_networks, regime.folds, regime.rounds) == (networks, folds, rounds)
    assert (regime.step, regime.sharpening) == (step, sharpening)
    slow = weak and not sequential
    assert (regime.start_rate, regime.start_decay) == ((1e-3, 3e-3) if slow else (2e-3, None))
    assert regime.keeps_best == weak
    assert (regime.standard_errors, regime.early_loss) == ((3, 0.05) if weak else (1, 0.01))

import math

import pytest
import torch

from unbag.exceptions import InvalidInputError
from unbag.objectives.losses import GeneralizedCrossEntropy, cross_entropy
from unbag.theory import (
    LossConstants,
)


def gradient_lengths(loss, logits):
    """(n, K) lengths of the gradients of the loss of every class."""
    logits = logits.double().requires_grad_()
    losses = loss(logits)
    lengths = [
        torch.autograd.grad(losses[:, k].sum(), logits, retain_graph=True)[0].norm(dim=1)
        for k in range(logits.shape[1])
    ]
    return torch.stack(lengths, 1), losses.detach()


@pytest.mark.parametrize(
    ("loss", "constants", "steepest"),
    [
        *(
            (GeneralizedCrossEntropy(q), LossConstants.generalized_cross_entropy(q), q / (1 + q))
            for q in (0.05, 0.4, 0.7, 1.0)
        ),
        *(
            (
                lambda z, c=c: cross_entropy(z).clamp(max=c),
                LossConstants.clipped_cross_entropy(c),
                math.exp(-c) * (1 + 1e-9),
            )
            for c in (0.5, 3.0, 10.0)
        ),
    ],
)
def test_constants_of_losses_against_gradients(loss, constants, steepest):
    logits = (
        torch.randn(4000, 3, generator=torch.manual_seed(0))
        * torch.logspace(-1, 1.5, 4000)[:, None]
    )
    lengths, losses = gradient_lengths(loss, logits)
    assert lengths.max() <= constants.lipschitz * (1 + 1e-12)
    assert losses.min() >= 0
    assert losses.max() <= constants.bound
    # Both are reached: of two classes, at the probability where the gradient is longest.
    at = torch.tensor([[math.log(steepest), math.log1p(-steepest)]])
    lengths, _ = gradient_lengths(loss, at.double())
    assert lengths[0, 0] == pytest.approx(constants.lipschitz, rel=1e-6)
    assert loss(torch.tensor([[-2000.0, 2000.0]]))[0, 0] == pytest.approx(constants.bound)


def test_constants_of_named_losses():
    unit = LossConstants(bound=1.0, lipschitz=1.0)
    assert LossConstants.of(unit) is unit
    default = LossConstants.generalized_cross_entropy(0.7)
    assert LossConstants.of("generalized-cross-entropy") == default
    assert LossConstants.of(GeneralizedCrossEntropy(0.3)).bound == pytest.approx(1 / 0.3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LossConstants(math.inf, 1.0), "bound must be a number above 0, got inf"),
        (lambda: LossConstants(1.0, 0.0), "lipschitz must be a number above 0"),
        (lambda: LossConstants.clipped_cross_entropy(0), "level must be a number above 0"),
        (lambda: LossConstants.generalized_cross_entropy(2), r"q must be a number in \(0, 1\]"),
    ],
)
def test_messages(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()

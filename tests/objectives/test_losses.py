"""Losses of every class."""

import pytest
import torch
import torch.nn.functional as F

import naive
import unbag
from unbag.objectives import (
    GeneralizedCrossEntropy,
    cross_entropy,
    generalized_cross_entropy,
    get_loss,
)


@pytest.mark.parametrize("n_classes", [4, 20])  # short rows take another way on the CPU
def test_losses_of_every_class(n_classes):
    logits = torch.randn(8, n_classes, dtype=torch.float64)
    for loss in ("cross_entropy", "generalized_cross_entropy"):
        of_class = [getattr(naive, loss)(logits, k) for k in range(n_classes)]
        losses = getattr(unbag.objectives, loss)(logits)
        torch.testing.assert_close(losses, torch.stack(of_class, 1))
        stacked = getattr(unbag.objectives, loss)(logits.view(2, 4, n_classes))
        assert torch.equal(stacked.flatten(0, 1), losses)
        assert torch.equal(getattr(unbag.objectives, loss)(logits[0]), losses[0])
    eta = logits.softmax(1)
    torch.testing.assert_close(GeneralizedCrossEntropy(q=1.0)(logits), 1 - eta)
    torch.testing.assert_close(
        GeneralizedCrossEntropy(q=1e-7)(logits), cross_entropy(logits), rtol=1e-5, atol=0
    )


def test_generalized_cross_entropy_is_bounded_and_its_gradient_finite():
    logits = torch.tensor([[500.0, -500.0, 0.0]], requires_grad=True)
    losses = generalized_cross_entropy(logits)
    assert losses.min() >= 0
    assert losses.max() <= 1 / 0.7
    losses.sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_losses_by_name():
    assert get_loss("cross-entropy") is cross_entropy
    assert repr(get_loss("generalized-cross-entropy")) == "GeneralizedCrossEntropy(q=0.7)"
    assert get_loss(F.softplus) is F.softplus

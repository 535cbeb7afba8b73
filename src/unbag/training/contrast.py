"""Learning features without bags: views of one row look alike, views of two rows do not."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unbag.training.augmentation import view
from unbag.training.losses import BatchLoss, Values
from unbag.training.randomness import derive
from unbag.training.replica import Replica

__all__ = ["ContrastiveLoss"]

_VIEWS = (106, 107)  # what a derived key is for


class ContrastiveLoss(BatchLoss):
    r"""Cross-entropy of finding the other view of a row among all views of a batch.

    .. math:: -\frac1{2B} \sum_{i=1}^{2B} \log
        \frac{e^{z_i \cdot z_{j(i)} / \tau}}{\sum_{l \ne i} e^{z_i \cdot z_l / \tau}}

    where each of B rows has two views, z is the output of the network for a view, of length 1,
    j(i) is the other view of the same row and τ the temperature (Chen et al., ICML 2020, equation
    1). Bags play no part, so there are no partial risks.
    """

    def __init__(self, replicas: Sequence[Replica], *arguments: Any) -> None:
        super().__init__(replicas, *arguments)
        options = replicas[0].contrast
        assert options is not None
        self.options = options
        shape = (len(replicas), self.batches.n_bags, 1)
        self.nothing = torch.zeros(shape, dtype=self.rows.dtype, device=self.keys.device)

    def evaluate(self, positions: Tensor) -> Values:
        """Forward passes of two views, and the loss."""
        x = self.rows.batch(positions)
        both = []
        for number in _VIEWS:
            keys = derive(self.keys, number, self.step)
            z = self._forward(view(x, keys, flip=self.options.flip, part=self.part))
            both.append(self.part.whole(torch.nn.functional.normalize(z, dim=-1)))
        z = torch.cat(both, 1)  # (R, 2 B, d)
        return _contrast(z, self.options.temperature), self.nothing, self.nothing[..., 0]


def _contrast(z: Tensor, temperature: float) -> Tensor:
    """Loss of views (R, 2 B, d), of which number i and B + i are of one row: (R,)."""
    n = z.shape[1]
    similarity = z @ z.mT / temperature
    self_pairs = torch.eye(n, dtype=torch.bool, device=z.device)
    log_chance = torch.log_softmax(similarity.masked_fill(self_pairs, -torch.inf), -1)
    other = torch.arange(n, device=z.device).roll(n // 2)
    found = log_chance.gather(-1, other.expand(len(z), n)[..., None])
    return -found.squeeze(-1).mean(1)

"""The proportion loss."""

import torch
from torch import Tensor

from unbag.objectives.base import Objective
from unbag.statistics import BagStatistics

__all__ = ["Proportion"]


class Proportion(Objective):
    r"""Cross-entropy between known and predicted class shares of every bag (method ``prop``).

    .. math:: -\sum_{m,k} \theta_{mk} \log Q_{mk}

    where :math:`Q_{mk}` is the mean predicted probability of class k in bag m: probabilities are
    averaged, not logits (Yu et al., 2015). It asks for right shares, not for right rows, so the
    output is no posterior under any prior by theory. ``loss`` plays no part in it.

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame of shape (M, K)
    loss : str or callable, default="cross-entropy"
        Only for the partial risks of the history.

    Examples
    --------
    >>> objective = Proportion([[0.8, 0.2], [0.3, 0.7]])
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> round(objective(logits, torch.tensor([0, 1, 1])).item(), 4)
    1.2201
    """

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value on a batch's statistics."""
        q = statistics.mean_probabilities
        # An absent bag has q = 0 and counts for nothing; a probability that underflowed is held
        # at the smallest normal number so that the loss stays finite.
        log_q = torch.log(q.clamp_min(torch.finfo(q.dtype).tiny))
        terms = self.theta.to(q) * log_q * statistics.presence[..., None]
        return -terms.sum((-2, -1))

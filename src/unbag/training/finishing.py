"""What comes back of a stack whose training has ended."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unbag.training.fit import Fit, describe_end

if TYPE_CHECKING:
    from unbag.training.engine import Stack

__all__ = ["finish"]

_SAMPLED_ROWS = 256  # that tell whether a network gives all rows the same probabilities


@torch.no_grad()
def finish(stack: "Stack") -> list[Fit]:
    """Make the fits of the replicas of a stack, in its order."""
    logits, information = _predict(stack), _measure_information(stack).tolist()
    return [
        _fit(stack, r, of_rows, known)
        for r, (of_rows, known) in enumerate(zip(logits, information, strict=True))
    ]


def _predict(stack: "Stack") -> list[NDArray[np.float64] | None]:
    """Logits of the rows that every replica is to predict."""
    if stack.rows.predicted is None:
        return [None] * len(stack.replicas)
    sizes = [r.predicted.n_rows for r in stack.replicas if r.predicted is not None]
    joined = stack.loss.predict(stack.rows.predicted, "cpu").double().numpy()
    return [logits[:size].copy() for logits, size in zip(joined, sizes, strict=True)]


def _measure_information(stack: "Stack") -> Tensor:
    """How much the probabilities of some rows differ from their mean, in nats: (R,)."""
    sizes = torch.tensor([r.bags.n_rows for r in stack.replicas], device=stack.device)
    places = torch.linspace(0, 1, _SAMPLED_ROWS, device=stack.device, dtype=torch.float64)
    positions = ((sizes[:, None] - 1) * places).round().long()
    x = stack.rows.batch(positions)
    logits = stack.model.forward(x, stack.keys, 0, training=False)
    log_eta = torch.log_softmax(logits.double(), -1)
    mean = log_eta.exp().mean(1, keepdim=True)
    return (log_eta.exp() * (log_eta - mean.log())).nansum(-1).mean(1)


def _fit(stack: "Stack", r: int, logits: NDArray[np.float64] | None, information: float) -> Fit:
    replica, ended = stack.replicas[r], stack.ended[r]
    n_epochs = ended or stack.history.n_epochs
    diverged = not bool(stack.state["finite"][r])
    history = stack.history.of(r, n_epochs, replica.bags.priors.n_bags)
    why = None
    if stack.timed_out[r]:
        why = "the time was up"
    elif ended and replica.stop_when_negative and history["empirical_risk"][-1] < 0:
        why = "the mean empirical risk was negative"
    elif ended:
        why = f"the label-free error no longer fell (patience {replica.patience})"
    return Fit(
        stack.model.extract(r),
        history,
        n_epochs,
        describe_end(n_epochs, why, diverged=diverged),
        diverged,
        best_epoch=None if stack.patience is None else int(stack.state["best_epoch"][r]),
        logits=logits,
        information=information,
        pooled_prior=replica.pooled_prior,
        test_prior=replica.test_prior,
        output_prior=replica.output_prior,
    )

"""What comes back of a model that was trained."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unbag.evaluation import Calibration
from unbag.exceptions import NothingLearnedError, TrainingDivergedError

__all__ = ["Fit", "describe_end"]

_LEAST_INFORMATION = 1e-6  # nats; a network that says the same of all rows has less


@dataclass(frozen=True, eq=False)
class Fit:
    """One trained model, and the priors that its probabilities rest on.

    Attributes
    ----------
    module : nn.Module
        On the CPU, in evaluation mode.
    history : dict of arrays
        One entry per epoch: ``epoch``, ``objective``, ``empirical_risk`` (R_U), ``negative_share``
        (share of batches with R_U below 0), ``partial_risks`` (epochs, M, K); with a test set
        ``test_error``, with rows held out ``label_free_error`` (both not a number in epochs
        without a test).
    n_epochs : int
        Epochs run.
    stop_reason : str
        Why training ended, as sentences.
    diverged : bool
        The loss was not finite; the weights are the last finite ones.
    seconds : float
        Time of its stack, start-up included, divided by the models in it.
    logits : array of shape (n, K) or None
        Logits of the rows that were to be predicted.
    information : float
        How much the probabilities of some training rows differ from their mean, as the mean
        divergence in nats; not a number for models that are no networks.
    best_epoch : int or None
        The epoch whose weights were kept, with early stopping. None means the last.
    pooled_prior, test_prior, output_prior : arrays of shape (K,) or None
        Class shares of the rows, where the model will be used, and under which its softmax is a
        posterior; those of the replica.
    calibration : Calibration or None
        Calibration of its probabilities, where the method has one.
    method : str
        Name of the method that trained it.
    settings : dict
        Settings of that method.
    training_settings : dict
        Values that the training of its network used, also where the job left them open.
    """

    module: nn.Module
    history: dict[str, NDArray[np.float64]] = field(repr=False)
    n_epochs: int
    stop_reason: str
    diverged: bool
    seconds: float = math.nan
    best_epoch: int | None = None
    logits: NDArray[np.float64] | None = field(default=None, repr=False)
    information: float = math.nan
    pooled_prior: NDArray[np.float64] | None = None
    test_prior: NDArray[np.float64] | None = None
    output_prior: NDArray[np.float64] | None = None
    calibration: Calibration | None = None
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    training_settings: dict[str, Any] = field(default_factory=dict)

    def raise_if_failed(self, *, may_be_constant: bool = False) -> None:
        """Raise an error with the likely cause if training diverged, or nothing was learned.

        With labels, ``may_be_constant``, the same probabilities for all rows may be the best.
        """
        if not self.diverged:
            if not may_be_constant and self.information < _LEAST_INFORMATION:
                raise NothingLearnedError(
                    f"Nothing was learned: the network gives all rows the same probabilities. "
                    f"{self.stop_reason} Bags whose shares differ more, more bags, more epochs "
                    "(effort='best') or a lower learning_rate may help; method='tables' gives the "
                    "most frequent class where rows tell nothing."
                )
            return
        message = f"Training failed. {self.stop_reason} "
        risk = self.history["empirical_risk"]
        last = risk[np.isfinite(risk)][-1:]
        if len(last) and last[0] < -math.sqrt(np.finfo(np.float32).max):
            message += (
                "The empirical risk fell towards minus infinity; use method='u-prr' or 'u-stop'."
            )
        else:
            message += (
                "The likely cause is a learning rate that is too high, or very large values in X; "
                "lower learning_rate or scale the features."
            )
        raise TrainingDivergedError(message)


def describe_end(n_epochs: int, why: str | None, *, diverged: bool) -> str:
    """Say why training ended; ``why`` is what ended it before its last epoch.

    Examples
    --------
    >>> describe_end(3, "the time was up", diverged=False)
    'Stopped after 3 epochs: the time was up.'
    """
    if diverged:
        return f"The objective or its gradient was not finite in epoch {n_epochs}."
    if why is not None:
        return f"Stopped after {'1 epoch' if n_epochs == 1 else f'{n_epochs} epochs'}: {why}."
    return "Its one epoch was run." if n_epochs == 1 else f"All {n_epochs} epochs were run."

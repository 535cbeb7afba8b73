"""``consistency``: one training on augmented rows and on labels of the network's own."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from unbag.evaluation import Calibration
from unbag.identity import identify
from unbag.methods.recipes import (
    DESCENT,
    has_mirror_images,
    likelihood_gain,
    log_gains,
    row_ratios,
)
from unbag.training import Outcome, PseudoLabels, Replica
from unbag.training.temperature import likeliest_temperature
from unbag.validation import invalid

__all__ = ["add_pseudo_labels", "calibrate", "epochs_of_steps"]

_KEPT_OUT, _MOST_KEPT_OUT, _KEPT_OUT_ROWS = 0.05, 0.3, 200
_STEPS, _FEW_EPOCHS, _MANY_EPOCHS = 10_000, 60, 200
_RATE, _SHRINKAGE = 2e-3, 0.05


def epochs_of_steps(n_rows: int, batch_size: int) -> int:
    """Epochs of 10,000 steps, but 60 to 200.

    Examples
    --------
    >>> epochs_of_steps(50_000, 500), epochs_of_steps(600, 512)
    (100, 200)
    """
    steps = max(1, n_rows // batch_size)
    return int(np.clip(_STEPS // steps, _FEW_EPOCHS, _MANY_EPOCHS))


def add_pseudo_labels(
    replica: Replica,
    options: dict[str, Any],
    *,
    batch_size: int,
    given: dict[str, Any],
    by_descent: bool,
) -> Replica:
    """Keep some rows out, and train on pseudo-labels beside the objective.

    Parameters
    ----------
    replica : Replica
        Of all rows.
    options : dict
        Hyperparameters of the method.
    batch_size : int
        Where none is given.
    given : dict
        ``batch_size``, ``epochs`` and ``learning_rate`` as the user gave them, or None.
    by_descent : bool
        Whether by gradient descent with momentum, and not by Adam.
    """
    bags = replica.bags
    # Shares of small bags are known of the whole only, so these are kept out as a whole.
    whole = replica.batching == "whole-bags"
    unit = bags.bag_index if whole else identify(bags.source, bags.rows)
    n = int(unit.max()) + 1
    share = np.clip(_KEPT_OUT_ROWS / bags.n_rows, _KEPT_OUT, _MOST_KEPT_OUT)
    order = np.random.default_rng(replica.seed).permutation(n)
    out = (order < share * n)[unit]
    if out.all():
        raise invalid("bags", "two different rows at least", f"{n}")
    flip = has_mirror_images(bags.row_shape)
    rows = int((~out).sum())
    batch = given["batch_size"] or min(batch_size, rows)
    weight = replica.sample_weight
    adam = {"learning_rate": given["learning_rate"] or _RATE, "shrinkage": _SHRINKAGE}
    return replace(
        replica,
        bags=bags.take(np.flatnonzero(~out)),
        predicted=bags.take(np.flatnonzero(out)),
        sample_weight=None if weight is None else weight[~out],
        pseudo_labels=PseudoLabels(**{"flip": flip, **options}),
        batch_size=batch,
        epochs=given["epochs"] or epochs_of_steps(rows, batch),
        annealed=True,
        **(DESCENT if by_descent else adam),
    )


def calibrate(
    replica: Replica, outcome: Outcome, pooled: NDArray[np.float64]
) -> tuple[Calibration, str]:
    """Find the temperature of the probabilities on the rows kept out, and say what they confirm."""
    assert replica.predicted is not None
    assert outcome.logits is not None
    ratios = row_ratios(replica.predicted, pooled)
    logits, ratio = torch.from_numpy(outcome.logits), torch.from_numpy(ratios)
    temperature = float(likeliest_temperature(logits, ratio))
    log_eta = log_softmax(outcome.logits / temperature, axis=1)
    said = likelihood_gain(log_gains(log_eta, ratios))
    return Calibration(temperature, np.zeros(len(pooled))), said

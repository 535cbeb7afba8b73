"""Batches, epochs and optimizers of trainings on soft labels."""

from typing import Any

from torch import nn

from unbag.methods.sizes import LEAST_BATCH, limited_epochs
from unbag.models import is_convolutional, is_normalized

__all__ = [
    "DESCENT",
    "DESCENT_BATCH",
    "MIXUP_NUMBERS",
    "has_mirror_images",
    "learns_by_descent",
    "soft_batch_size",
    "soft_epochs",
    "soft_weight_decay",
]

# With momentum, this decoupled decay is one of 5e-4 in the L2 form.
DESCENT: dict[str, Any] = {
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "decoupled_weight_decay": 5e-3,
}
DESCENT_BATCH = 128
MIXUP_NUMBERS = 8  # between two rows of fewer numbers there may lie the region of another class
_DESCENT_ROWS = 10_000
_STEPS, _FEW_EPOCHS, _MANY_EPOCHS = 1400, 12, 150
_DECAY_ROWS, _MOST_DECAY = 280.0, 0.01
_SMALLEST_BATCH = 32
_COLOURS = 3


def learns_by_descent(module: nn.Module, n_rows: int, learning_rate: float | None) -> bool:
    """Whether a network learns labels by gradient descent with momentum, and not by Adam.

    Convolutional networks with batch normalisation reach smaller errors then. In few steps, as on
    small datasets, they learn nothing; without normalisation, large steps do harm.
    """
    is_steady = is_convolutional(module) and is_normalized(module)
    return is_steady and learning_rate is None and n_rows >= _DESCENT_ROWS


def has_mirror_images(row_shape: tuple[int, ...]) -> bool:
    """Whether rows may be mirrored, left for right: colour images, but not letters or tables.

    Examples
    --------
    >>> has_mirror_images((3, 32, 32)), has_mirror_images((1, 28, 28)), has_mirror_images((16,))
    (True, False, False)
    """
    return len(row_shape) == 3 and row_shape[0] == _COLOURS


def soft_batch_size(n_rows: int, n_trained: int) -> int:
    """Batch size on soft labels: a tenth of all rows, but near 32 and at most 512.

    Where that would be 32, the rows that are trained on, ``n_trained``, are divided equally.

    Examples
    --------
    >>> soft_batch_size(7_480, 5_386), soft_batch_size(60_000, 60_000), soft_batch_size(150, 100)
    (512, 512, 33)
    """
    target = min(n_rows // 10, LEAST_BATCH)
    if target >= _SMALLEST_BATCH:
        return target
    return max(1, n_trained // max(1, round(n_trained / _SMALLEST_BATCH)))


def soft_epochs(n_rows: int, longer: float = 1.0) -> int:
    """Epochs on soft labels: 1,400 steps, but 12 to 150 epochs; or ``longer`` times as many.

    Examples
    --------
    >>> soft_epochs(1000), soft_epochs(7_480), soft_epochs(60_000), soft_epochs(60_000, 10 / 3)
    (140, 100, 12, 40)
    """
    least, most = (round(longer * epochs) for epochs in (_FEW_EPOCHS, _MANY_EPOCHS))
    batch = soft_batch_size(n_rows, n_rows)
    return limited_epochs(round(longer * _STEPS), n_rows, batch, least, most)


def soft_weight_decay(n_rows: int) -> float:
    """Weight decay of an MLP of several layers on soft labels: (280 / n)^1.5, but 0.01 at most.

    Examples
    --------
    >>> [round(soft_weight_decay(n), 5) for n in (1000, 7_480, 60_000)]
    [0.01, 0.00724, 0.00032]
    """
    return float(min(_MOST_DECAY, (_DECAY_ROWS / n_rows) ** 1.5))

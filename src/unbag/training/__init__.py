"""Training: replicas in, fits out, many at once.

``replica`` says what a model to train is, ``run`` groups replicas into stacks, ``engine`` holds
the one loop; ``batches``, ``networks``, ``randomness``, ``checkpoint`` and ``progress`` serve it.
"""

from unbag.training.engine import PRECISIONS
from unbag.training.fit import Fit
from unbag.training.replica import Augmentation, Contrast, PseudoLabels, Replica, TestSet
from unbag.training.run import resolve_device, train

__all__ = [
    "PRECISIONS",
    "Augmentation",
    "Contrast",
    "Fit",
    "PseudoLabels",
    "Replica",
    "TestSet",
    "resolve_device",
    "train",
]

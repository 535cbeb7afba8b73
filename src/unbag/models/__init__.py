"""Networks by name or as classes, and what rules of training know of any module."""

from unbag.models.building import IMAGE_MODELS, MODELS, ModuleFactory, build_model
from unbag.models.convolutional import LeNet5, ResNet18, ResNet20, WideResNet
from unbag.models.features import take_features, with_projector
from unbag.models.mlp import MLP, MLP_DEFAULTS
from unbag.models.traits import (
    draws_numbers,
    is_convolutional,
    is_normalized,
    switch,
    weights_of_last_layer,
)

__all__ = [
    "IMAGE_MODELS",
    "MLP",
    "MLP_DEFAULTS",
    "MODELS",
    "LeNet5",
    "ModuleFactory",
    "ResNet18",
    "ResNet20",
    "WideResNet",
    "build_model",
    "draws_numbers",
    "is_convolutional",
    "is_normalized",
    "switch",
    "take_features",
    "weights_of_last_layer",
    "with_projector",
]

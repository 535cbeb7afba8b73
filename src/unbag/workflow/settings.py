"""Settings of the classifier from options, checked before any file is read, which may take long."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from unbag.bags import Bags
from unbag.estimator import UnbagClassifier
from unbag.methods import get_method, rehearse
from unbag.models import IMAGE_MODELS
from unbag.priors import SHARES_OF, SharesOf, read_shares_of
from unbag.training import resolve_device
from unbag.training.engine import PRECISIONS
from unbag.validation import check_choice, check_number, invalid
from unbag.workflow.config import METHOD_SETTINGS

__all__ = ["check_intervals", "check_settings", "check_shares", "make_classifier"]

_LARGEST_SEED = 2**32 - 1  # that Optuna takes


def make_classifier(options: Mapping[str, Any]) -> UnbagClassifier:
    """Make the classifier of these options.

    This is the one place that knows how a method and its settings become a classifier.

    Parameters
    ----------
    options : dict
        Constructor arguments of the classifier, and in ``method_settings`` those of the method.
    """
    arguments = dict(options)
    settings = arguments.pop(METHOD_SETTINGS, None) or {}
    if settings:
        arguments["method"] = get_method(arguments.get("method", "auto"), **settings)
    return UnbagClassifier(**arguments)


def check_intervals(
    shares_of: SharesOf | None, sampling: str | None, level: float
) -> SharesOf | None:
    """Check what intervals are made by; return what the shares are said to be of."""
    if shares_of is not None:
        check_choice("shares_of", shares_of, SHARES_OF)
    check_number("level", level, low=0, high=1, low_open=True, high_open=True)
    return read_shares_of(shares_of, sampling)


def check_shares(evaluation: float, validation: float, *, low_open: bool) -> None:
    """Check the shares of the rows that are not trained on; whether they may be 0."""
    for name, share in (("evaluation_share", evaluation), ("validation_share", validation)):
        check_number(name, share, low=0, high=1, low_open=low_open, high_open=True)
    if evaluation + validation >= 1:
        got = f"{evaluation + validation:g} together with validation_share"
        raise invalid("evaluation_share", "below 1 together with validation_share", got)


def check_settings(options: Mapping[str, Any], seed: int) -> None:
    """Check settings of the classifier, as far as they do not depend on rows and priors."""
    check_number("seed", seed, low=0, high=_LARGEST_SEED, integer=True)
    check_number("n_iter_no_change", options.get("n_iter_no_change", 1), low=1, integer=True)
    clf = make_classifier(options)
    resolve_device(clf.device)
    check_choice("precision", clf.precision, PRECISIONS)
    _rehearse(clf)


def _rehearse(clf: UnbagClassifier) -> None:
    """Prepare the training of two rows, up to where it would start: that checks the rest."""
    clf.test_prior = None  # its classes are not known yet
    if callable(clf.model):  # as modules are
        clf.model = "linear"  # the user's own is made for other rows
    # Images for a network of images; everything else takes a table.
    is_of_images = clf.model in IMAGE_MODELS
    shape, kind = ((2, 1, 12, 12), np.uint8) if is_of_images else ((2, 1), np.float32)
    bags = Bags(np.zeros(shape, dtype=kind), [0, 1], np.eye(2))
    rehearse(clf.prepare_bags(bags, held_out=bags))

"""Settings that are checked before any file is read."""

import pytest
import torch

from unbag.exceptions import InvalidInputError
from unbag.workflow.settings import check_settings


def network_of_three_features(row_shape, n_classes):
    assert row_shape == (3,)
    return torch.nn.Linear(3, n_classes)


@pytest.mark.parametrize("model", [network_of_three_features, torch.nn.Linear(3, 2)])
def test_the_users_network_is_not_tried_on_other_rows(model):
    check_settings({"model": model, "method": "prop"}, 0)


def test_other_settings_are_checked_with_the_users_network():
    with pytest.raises(InvalidInputError, match="epochs must be"):
        check_settings({"model": network_of_three_features, "epochs": -1}, 0)

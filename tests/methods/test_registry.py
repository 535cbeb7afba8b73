import numpy as np
import pytest

from unbag.exceptions import InvalidInputError
from unbag.methods import METHODS, get_method

EIGHT = ["biased", "prop", "prop-cr", "unbiased", "u-correct", "u-flood", "u-stop", "u-prr"]


def test_the_eight_methods_of_the_paper():
    assert list(METHODS)[:8] == EIGHT
    for name in EIGHT:
        method = get_method(name)
        assert method.name == name
        assert method.summary
        assert method.stop_when_negative == (name == "u-stop")


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(InvalidInputError, match=r"method must be one of 'biased'.*got 'u-pr'"):
        get_method("u-pr")


@pytest.mark.parametrize("name", EIGHT)
def test_the_rewritten_risk_gives_posteriors_under_the_test_prior(name):
    rewritten = name.startswith("u")
    assert get_method(name).needs_rank == rewritten
    assert get_method(name).output_prior == ("test" if rewritten else "pooled")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("u-prr", ("alpha", "ascent_scale")),
        ("u-flood", ("flood_level",)),
        ("prop-cr", ("consistency",)),
        ("biased", ()),
        ("matched-likelihood", ("matching",)),
        (
            "crossfit",
            (
                "matching",
                "folds",
                "rounds",
                "start",
                "mixup",
                "smoothing",
                "balanced",
                "calibrated",
                "augment",
            ),
        ),
    ],
)
def test_hyperparameters(name, own):
    method = get_method(name)
    assert method.hyperparameters == own
    method.check_hyperparameters(dict.fromkeys(own, np.float64(0.1)))
    listed = ", ".join(map(repr, own)) or "none"
    with pytest.raises(InvalidInputError) as caught:
        method.check_hyperparameters({"other": 1})
    assert f"method {name!r} has no hyperparameter 'other'; it has: {listed}" in str(caught.value)

"""What a search draws from: values of each parameter, and the checks of what users give."""

from collections.abc import Mapping
from typing import Any

from unbag.estimator import UnbagClassifier
from unbag.methods import METHODS, Method, get_method
from unbag.validation import check_choice, check_number, invalid

__all__ = ["DEFAULT_SEARCH", "OF_METHOD", "check_search", "settings_of"]

# A list means a choice; a pair of numbers a range; with "log" a range on a logarithmic scale.
# Methods of one training; crossfit takes 11 to 19 or more.
DEFAULT_SEARCH: dict[str, Any] = {
    "method": ["matched-likelihood", "u-prr", "prop"],
    "learning_rate": (1e-4, 1e-2, "log"),
    "weight_decay": (1e-6, 1e-2, "log"),
    "dropout": [0.0, 0.2, 0.5],
    "method__alpha": (0.1, 0.95),
    "method__ascent_scale": (0.5, 10.0, "log"),
}
OF_METHOD = "method__"  # before the settings of methods


def check_search(search: Mapping[str, Any], estimator: UnbagClassifier) -> dict[str, Any]:
    """Return a copy of a search of which all parameters and values can be drawn."""
    if not isinstance(estimator, UnbagClassifier):
        raise invalid("estimator", "an UnbagClassifier", type(estimator).__name__)
    if not isinstance(search, Mapping) or not search:
        raise invalid("search", "a dict of at least one parameter", repr(search))
    for name, values in search.items():
        if not isinstance(name, str):
            raise invalid("search", "keyed by names of parameters", repr(name))
        _check_values(name, values)
    methods = search.get("method", [estimator.method])
    known = [name for name in estimator.get_params(deep=False) if name not in _FIXED]
    known += [name for method in methods for name in settings_of(method)]
    for name in search:
        if name not in known and search is not DEFAULT_SEARCH:
            if name in {s for m in METHODS for s in get_method(m).settings}:
                remedy = f"settings of methods are named as {OF_METHOD}{name}."
            else:
                remedy = "search for the method too." if name.startswith(OF_METHOD) else ""
            raise invalid("search", "parameters that can be tuned here", repr(name), remedy)
    return dict(search)


_FIXED = ("priors", "test_prior", "random_state")


def settings_of(method: str | Method) -> list[str]:
    """Names of the settings of a method, as a search has them."""
    return [OF_METHOD + name for name in get_method(method).settings]


def _check_values(name: str, values: Any) -> None:
    if isinstance(values, list) and values:
        if name == "method":
            for method in values:
                check_choice("method", method, METHODS)
        return
    allowed = f"for {name!r} a list, (low, high) or (low, high, 'log')"
    if not isinstance(values, tuple) or not (len(values) == 2 or values[2:] == ("log",)):
        raise invalid("search", allowed, repr(values))
    low, high = values[:2]
    for number in (low, high):
        check_number(f"each end of {name!r} in search", number)
    if not low <= high or (len(values) == 3 and low <= 0):
        raise invalid(
            "search", f"{allowed}, with low <= high and, for 'log', above 0", repr(values)
        )

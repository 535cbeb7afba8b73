"""Parameters of the classifier that became settings of methods."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

from unbag.exceptions import InvalidInputError

__all__ = ["SETTINGS_OF_METHODS", "naming_new_places", "refuse_settings_of_methods"]

_P = ParamSpec("_P")
SETTINGS_OF_METHODS = ("alpha", "ascent_scale", "flood_level")  # parameters in unbag 0.1


def refuse_settings_of_methods(params: Mapping[str, Any]) -> None:
    """Refuse parameters that became settings of methods, naming their new place."""
    for name in [name for name in SETTINGS_OF_METHODS if name in params]:
        kind, value = "UFlood" if name == "flood_level" else "UPRR", params[name]
        message = (
            f"{name} is a setting of the method: give method=unbag.methods.{kind}({name}="
            f"{value!r}), or set_params(method__{name}={value!r})."
        )
        raise InvalidInputError(message)


def naming_new_places(init: Callable[_P, None]) -> Callable[_P, None]:
    """Name the new place of parameters that moved; the signature stays that of ``init``."""

    @wraps(init)
    def checked(*arguments: _P.args, **params: _P.kwargs) -> None:
        refuse_settings_of_methods(params)
        init(*arguments, **params)

    return checked

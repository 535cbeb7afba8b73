"""Methods by name: those of unbag, and those that other packages register."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from unbag.exceptions import InvalidInputError
from unbag.methods import single
from unbag.methods.auto import Auto
from unbag.methods.base import Method
from unbag.methods.consistency import Consistency
from unbag.methods.crossfit import CrossFit
from unbag.methods.self_training import SelfTraining
from unbag.methods.tables import Tables
from unbag.validation import check_choice, invalid, shorten

__all__ = ["METHODS", "get_method"]

_GROUP = "unbag.methods"
_BUILT_IN: tuple[type[Method], ...] = (
    single.Biased,
    single.Prop,
    single.PropCR,
    single.Unbiased,
    single.UCorrect,
    single.UFlood,
    single.UStop,
    single.UPRR,
    single.BagLikelihood,
    single.MatchedLikelihood,
    single.CountLikelihood,
    CrossFit,
    Consistency,
    SelfTraining,
    Tables,
    Auto,
)


class _Methods(Mapping[str, type[Method]]):
    """Names to classes: those of unbag, and of other packages, imported when asked for."""

    def __init__(self) -> None:
        self._built_in = {kind.name: kind for kind in _BUILT_IN}

    @staticmethod
    @cache
    def _others() -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=_GROUP)}

    def __getitem__(self, name: str) -> type[Method]:
        if name in self._built_in:
            return self._built_in[name]
        point = self._others()[name]
        try:
            kind = point.load()
        except Exception as error:  # the package of another may fail in any way
            message = f"The method {name!r} ({point.value}) cannot be imported: {error!r}."
            raise InvalidInputError(message) from error
        if not (isinstance(kind, type) and issubclass(kind, Method) and kind.name == name):
            allowed = f"a subclass of unbag.methods.Method with the name {name!r}"
            raise invalid(f"entry point {point.value}", allowed, repr(kind))
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(
            [*self._built_in, *(name for name in self._others() if name not in self._built_in)]
        )

    def __len__(self) -> int:
        return len(list(iter(self)))


METHODS: Mapping[str, type[Method]] = _Methods()


def get_method(method: str | Method, **settings: Any) -> Method:
    """Return a method by name or as it is, with some settings changed.

    Examples
    --------
    >>> get_method("u-prr", alpha=0.5)
    UPRR(alpha=0.5, ascent_scale=5.0)
    >>> get_method(get_method("crossfit"), rounds=1).settings["rounds"]
    1
    """
    if isinstance(method, Method):
        kind, settings = type(method), {**method.settings, **settings}
    else:
        if not isinstance(method, str):
            raise invalid("method", "a name or an object of unbag.methods", repr(method))
        check_choice("method", method, METHODS)
        kind = METHODS[method]
    known = [field.name for field in fields(kind)]
    if unknown := [name for name in settings if name not in known]:
        names = shorten(known, limit=20) if known else "none"
        message = f"The method {kind.name!r} has no setting {shorten(unknown)}; it has: {names}."
        raise InvalidInputError(message)
    return kind(**settings)

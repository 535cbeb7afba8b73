"""Files of JSON and options whose form is declared: what does not fit is named in our words."""

import hashlib
import re
from typing import Any, TypeVar

import msgspec

__all__ = ["SchemaError", "convert", "decode", "seal", "unseal"]

_T = TypeVar("_T")
_PLACE = re.compile(r"^(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected (.*?)(?:, got (.*))?$", re.DOTALL)
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class SchemaError(ValueError):
    """What is wrong with a value: its key, what is allowed, and what came."""


def decode(data: bytes, kind: type[_T]) -> _T:
    """Read JSON that must be of a type."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise SchemaError(_sentence(str(error))) from None
    except RecursionError:
        raise SchemaError("its lists and objects are nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"it is no valid JSON ({error})") from None


def convert(value: Any, kind: type[_T]) -> _T:
    """Check that a plain value is of a type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise SchemaError(_sentence(str(error))) from None


def seal(value: Any) -> bytes:
    """Write a value as JSON, after a line with the digest of that.

    Examples
    --------
    >>> sealed = seal([1, 2])
    >>> unseal(sealed, list)
    [1, 2]
    >>> unseal(sealed.replace(b"1", b"3"), list)
    Traceback (most recent call last):
    ...
    unbag.schema.SchemaError: it is not as it was written (its SHA-256 differs)
    """
    data = msgspec.json.encode(value)
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def unseal(sealed: bytes, kind: type[_T]) -> _T:
    """Read what :func:`seal` wrote, if nothing of it has changed."""
    digest, _, data = sealed.partition(b"\n")
    if digest != hashlib.sha256(data).hexdigest().encode():
        raise SchemaError("it is not as it was written (its SHA-256 differs)")
    return decode(data, kind)


def _sentence(message: str) -> str:
    """Say in the words of all our messages what msgspec says in its own.

    Examples
    --------
    >>> _sentence("Expected `int | null`, got `str` - at `$.network.width`")
    'network.width must be a whole number or null, got text'
    """
    problem, place = _PLACE.match(message).groups()  # type: ignore[union-attr] # fits all texts
    where = place or "it"
    if found := re.fullmatch(r"Object missing required field `(.*)`", problem):
        return f"{f'{place}.' if place else ''}{found[1]} must be given, got nothing"
    if found := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return f"{where} must be of known fields, got {found[1][:80]!r}"
    if found := _EXPECTED.match(problem):
        allowed = re.sub(r"`([^`]*)`", lambda name: _words(name[1]), found[1])
        return f"{where} must be {allowed}, got {_words((found[2] or 'another').strip('`'))}"
    return f"{where} must be one of those allowed, got another ({problem[:100]})"


def _words(names: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in names.split(" | "))

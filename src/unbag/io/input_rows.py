"""What rows from every kind of file share: an encoding that is kept as JSON, and the rows read."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeVar

import msgspec
from numpy.typing import NDArray

from unbag.schema import SchemaError, convert
from unbag.validation import invalid

__all__ = ["Encoding", "InputRows", "Progress", "check_kind", "read_struct"]

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the rows done, and with the rows in all where they are known."""

T = TypeVar("T")


class Encoding(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """How the rows of a file become numbers. A model that is trained on them keeps it as JSON."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one encoded row: (d,), or (C, H, W) for images."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Number of features of one encoded row."""
        return math.prod(self.row_shape)

    def to_dict(self) -> dict[str, Any]:
        """Give the encoding as plain values for JSON; :meth:`from_dict` gives it back exactly."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return values

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Read what :meth:`to_dict` gave; anything else is an error."""
        return read_struct("encoding", values, cls)


@dataclass(frozen=True, eq=False)
class InputRows:
    """Rows that were read from files.

    Attributes
    ----------
    X
        (n, d) float32, or images (n, C, H, W) of uint8; may be memory-mapped.
    bag_ids
        (n,) str, int, bool or dates; None where no bag column was named.
    encoding
        How the input became numbers; part of a model that is trained on it.
    notes
        What a user should know, one sentence each.
    """

    X: NDArray[Any]
    bag_ids: NDArray[Any] | None
    encoding: Encoding
    notes: tuple[str, ...]


def read_struct(name: str, values: Any, kind: type[T]) -> T:
    """Make a msgspec type of plain values, refusing all that does not fit its fields.

    Examples
    --------
    >>> read_struct("sizes", [28, 32], tuple[int, int])
    (28, 32)
    """
    try:
        return convert(values, kind)
    except SchemaError as error:
        raise invalid(name, "one that unbag wrote", f"an error ({error})") from None


def check_kind(encoding: object, expected: type[Encoding]) -> None:
    """Refuse the encoding of a model that was trained on rows of another kind of file."""
    if encoding is None or isinstance(encoding, expected):
        return
    if not isinstance(encoding, Encoding):
        raise invalid("encoding", "that of a model", type(encoding).__name__)
    kinds = {"table": "a table", "array": "an .npz file", "images": "images"}
    trained, rows_kind = (
        kinds[str(kind.__struct_config__.tag)] for kind in (type(encoding), expected)
    )
    raise invalid("rows", f"{trained}, as in training", rows_kind)

"""What ``model.json`` holds: its form, with limits, and ids and settings as plain values."""

import datetime
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, field
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.ids import check_length
from unbag.priors import SharesOf
from unbag.schema import SchemaError, convert
from unbag.validation import invalid, shorten

__all__ = [
    "ERROR_FIELDS",
    "FORMAT",
    "FORMAT_VERSION",
    "GUESSED",
    "NOT_PLAIN",
    "NO_SETTINGS",
    "DeepResNet",
    "Description",
    "Format",
    "Ids",
    "LeNet",
    "Linear",
    "Mlp",
    "Module",
    "Network",
    "NotSaved",
    "ResNet",
    "Tabular",
    "WideResNet",
    "check_settings",
    "plain_setting",
]

FORMAT = "unbag-model"
FORMAT_VERSION = 1
# Kept elsewhere in the folder, or, as a path could be anyone's, not at all.
ERROR_FIELDS = ("variances", "weights")  # of ShareErrors
GUESSED = "guessed"  # the field that is there only if a bag has shares that are guesses
NO_SETTINGS = ("priors", "test_prior", "checkpoint", "callbacks")
NOT_PLAIN = ("loss", "model", "random_state", "learner")  # may be objects that have no plain value
_TEXTS = ("method", "loss", "model", "batching", "effort", "device", "precision")
_TEXTS_OR_NONE = ("learner",)
_FLAGS = ("early_stopping", "standardize", "warm_start", "verbose")

Text = Annotated[str, Meta(max_length=1000)]
Number = int | float | None
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Size = Annotated[int, Meta(ge=1, lt=2**31)]


# -------------------------------------------------------------------------------------------- ids


def _datetime64(text: str) -> np.datetime64:
    if re.fullmatch(r"-?\d+(-\d\d){0,2}(T[\d:.]+)?", text):  # not "now" or "2024-05-01Z"
        value = np.datetime64(text)
        if str(value) == text:
            return value
    raise ValueError(f"{shorten([text[:40]])} is no date")


# Kind of an id: what it is in Python, what it is in JSON, and the way there and back.
_KINDS: dict[str, tuple[Any, type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bool": (bool | np.bool_, bool, bool, bool),
    "int": (int | np.integer, int, int, int),
    "float": (float | np.floating, float, float, float),
    "str": (str, str, str, str),
    "datetime64": (np.datetime64, str, str, _datetime64),
    "datetime": (
        datetime.datetime,
        str,
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    "date": (datetime.date, str, datetime.date.isoformat, datetime.date.fromisoformat),
}


class Ids(Struct, forbid_unknown_fields=True):
    """Ids of one kind, or pairs of a kind and an id where kinds are mixed.

    Examples
    --------
    >>> Ids.of(np.array(["a", "b"]))
    Ids(kind='str', values=['a', 'b'])
    >>> Ids.of(np.array([1, "a"], dtype=object))
    Ids(kind='mixed', values=[['int', 1], ['str', 'a']])
    >>> Ids("date", ["2024-05-01"]).array("bags")
    array([datetime.date(2024, 5, 1)], dtype=object)
    """

    kind: Literal["bool", "int", "float", "str", "datetime64", "datetime", "date", "mixed"]
    values: Annotated[list[Any], Meta(min_length=1)]

    @classmethod
    def of(cls, ids: NDArray[Any]) -> "Ids":
        """Describe an array of ids."""
        pairs = [_pair(value) for value in ids]
        kinds: set[Any] = {kind for kind, _ in pairs}
        if len(kinds) == 1:
            return cls(kinds.pop(), [value for _, value in pairs])
        return cls("mixed", pairs)

    def array(self, name: str) -> NDArray[Any]:
        """Array of objects, each of its kind; ``name`` is for messages."""
        pairs = self.values if self.kind == "mixed" else [[self.kind, v] for v in self.values]
        ids = np.empty(len(pairs), dtype=object)
        for i, pair in enumerate(pairs):
            try:
                kind, value = convert(pair, tuple[str, Any])
                _, plain, _, back = _KINDS[kind]
                if type(value) is not plain:
                    raise SchemaError(f"{value!r}"[:80])
                ids[i] = back(value)
            except (KeyError, ValueError, OverflowError) as error:
                allowed = f"ids of the kinds {shorten(_KINDS, limit=10)}"
                raise invalid(name, allowed, f"a wrong id {i} ({error})") from None
        check_length(name, ids)  # before they are copied
        return ids


def _pair(value: Any) -> list[Any]:
    for kind, (types, _, forth, _) in _KINDS.items():
        if isinstance(value, types):
            return [kind, forth(value)]
    remedy = "convert them to str before fitting."
    raise invalid("ids", "str, int, bool, float or dates to be saved", repr(value), remedy)


# --------------------------------------------------------------------------------------- networks


class Linear(Struct, tag_field="kind", tag="linear"):
    """A network of one layer."""


class Mlp(Struct, tag_field="kind", tag="mlp"):
    """A multilayer perceptron."""

    depth: Annotated[int, Meta(ge=1, le=1000)]
    width: Size
    dropout: Annotated[float, Meta(ge=0, lt=1)]


class LeNet(Struct, tag_field="kind", tag="lenet5"):
    """LeNet-5."""


class ResNet(Struct, tag_field="kind", tag="resnet20"):
    """The residual network of depth 20."""


class DeepResNet(Struct, tag_field="kind", tag="resnet18"):
    """The residual network of depth 18."""


class WideResNet(Struct, tag_field="kind", tag="wrn28-2"):
    """The wide residual network of depth 28 and width 2."""


class Shares(Struct, tag_field="kind", tag="shares", forbid_unknown_fields=True):
    """Models of shares: kinds and numbers of features, strengths of the penalty."""

    features: Annotated[list[tuple[Literal["linear", "steps", "waves"], Size]], Meta(max_length=3)]
    strengths: Annotated[int, Meta(ge=1, le=100)]


class Trees(Struct, tag_field="kind", tag="trees", forbid_unknown_fields=True):
    """An ensemble of trees."""

    n_trees: Size
    n_nodes: Size
    depth: Annotated[int, Meta(ge=0, le=10_000)]
    is_boosted: bool
    in_float32: bool


class Layers(Struct, tag_field="kind", tag="layers", forbid_unknown_fields=True):
    """Linear layers with an activation between them."""

    hidden: Annotated[list[Size], Meta(max_length=100)]
    activation: Literal["identity", "logistic", "relu", "tanh"]


class Scaled(Struct, tag_field="kind", tag="scaled", forbid_unknown_fields=True):
    """Trees or layers of columns that are scaled."""

    inner: Trees | Layers


class Networks(Struct, tag_field="kind", tag="networks", forbid_unknown_fields=True):
    """Several multilayer perceptrons."""

    count: Annotated[int, Meta(ge=1, le=1000)]
    depth: Annotated[int, Meta(ge=1, le=100)]
    width: Size


PartName = Annotated[str, Meta(pattern="^[a-z_]{1,40}$")]


class Tabular(Struct, tag_field="kind", tag="tabular"):
    """A model of tables, of several parts."""

    parts: Annotated[
        dict[PartName, Shares | Trees | Layers | Scaled | Networks],
        Meta(min_length=1, max_length=20),
    ]


class Module(Struct, tag_field="kind", tag="module"):
    """A module of the user's own, which is given to ``load_model``."""

    name: str = field(default="", name="class")


Network = Linear | Mlp | LeNet | ResNet | DeepResNet | WideResNet | Tabular | Module


# -------------------------------------------------------------------------------- the description


class Format(Struct):
    """The part of ``model.json`` that will never change."""

    format: str = ""
    format_version: Any = None


class Description(Struct):
    """What ``model.json`` holds."""

    format: str
    format_version: int
    versions: dict[str, Text]
    files: dict[str, str]
    settings: dict[str, Any]
    not_saved: list[Literal["loss", "model", "random_state", "learner"]]
    classes: Ids
    bags: Ids
    given_bags: Literal["used"] | Ids | None
    given_test_prior: list[float] | None
    test_prior: list[float]
    output_prior: list[float]
    row_shape: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=7)]
    bytes: bool
    feature_names: list[str] | None
    scaler_rows: Count | None
    calibrated: bool
    network: Network
    n_iter: Count
    best_epoch: Count | None
    stop_reason: str
    method: Text
    # Folders of unbag 0.1 lack these.
    method_settings: dict[str, Any] = field(default_factory=dict)
    given_method_settings: dict[str, Any] | None = None  # of a method that was given as an object
    shares_of: SharesOf | None = None
    given_shares_of: SharesOf | None = None


# --------------------------------------------------------------------------------------- settings


class NotSaved:
    """Stands where an object was that is not part of a saved model; using it is an error.

    Parameters
    ----------
    name : str
        The parameter.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any) -> Any:
        """Refuse to be a function."""
        message = (
            f"{self.name} was an object, which is not part of a saved model; give it again by "
            f"clf.set_params({self.name}=...) before another fit."
        )
        raise InvalidInputError(message)

    def __repr__(self) -> str:
        return f"NotSaved({self.name!r})"


def plain_setting(name: str, value: Any) -> Any:
    """Turn a constructor argument into a plain value; a SchemaError where it has none."""
    if isinstance(value, np.generic):
        value = value.item()
    if name in _FLAGS:
        value = bool(value)
    if name == "device":
        value = str(value)
    if isinstance(value, float) and not np.isfinite(value):
        raise SchemaError("it must be finite")
    return convert(value, _kind(name))


def check_settings(settings: dict[str, Any], known: list[str], not_saved: list[str]) -> None:
    """Refuse settings that are unknown or of another kind; ``fit`` checks their values."""
    if unknown := [name[:80] for name in settings if name not in known]:
        raise invalid("settings", "of this unbag", f"{shorten(unknown)}", "update unbag.")
    for name in settings.keys() - set(not_saved):
        try:
            convert(settings[name], _kind(name))
        except SchemaError as error:
            raise invalid("settings", "plain values", f"{name}, where {error}") from None


def _kind(name: str) -> Any:
    if name in _TEXTS_OR_NONE:
        return Text | None
    return Text if name in _TEXTS else bool if name in _FLAGS else Number

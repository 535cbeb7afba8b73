"""What a model folder holds, in words."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from unbag.estimator import UnbagClassifier, load_model
from unbag.files import read_regular
from unbag.plain import to_plain
from unbag.schema import SchemaError, decode
from unbag.validation import shorten
from unbag.workflow.judging import REPORT, pages

__all__ = ["ShownModel", "show_model"]

_MOST, _MOST_TEXT = 1 << 26, 1 << 20  # bytes of a report, and of its answers
_NAMES = 20  # shown of classes, bags and columns


class _Answer(msgspec.Struct):
    question: str
    answer: str
    points: list[str] = msgspec.field(default_factory=list)


class _Answers(msgspec.Struct):
    questions: list[_Answer] = msgspec.field(default_factory=list)


class _Versions(msgspec.Struct):
    unbag: str = ""


class _Report(msgspec.Struct):
    """The report without what takes much memory once it is read."""

    created: str = ""
    answers: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    versions: _Versions = msgspec.field(default_factory=_Versions)


@dataclass(frozen=True)
class ShownModel:
    """What a model is; print it to read it.

    Attributes
    ----------
    folder : Path
    method, stop_reason : str
        How it was trained, and why training ended.
    classes, bags : list
        Names of the classes, and ids of the bags that it was trained on.
    columns : dict
        Every column that it reads, and what that is to it: "number", "category", ...; empty where
        it reads arrays or images.
    row_shape : tuple of int
        Of the rows that its network takes.
    left_out : dict
        Columns of the training table that it does not read, and why.
    created, unbag : str
        When its report was written, and by which version; empty without a report.
    answers : list of dict
        ``question``, ``answer`` and ``points`` of the report: how good it is, whether to trust
        that, and what to do next; empty without a report.
    """

    folder: Path
    method: str
    stop_reason: str
    classes: list[Any]
    bags: list[Any]
    columns: dict[str, str]
    row_shape: tuple[int, ...]
    left_out: dict[str, str]
    created: str = ""
    unbag: str = ""
    answers: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        plain: dict[str, Any] = to_plain(vars(self))
        return plain

    def __str__(self) -> str:
        lines = [f"Model {self.folder}: method {self.method}. {self.stop_reason}"]
        if self.created:
            lines.append(f"Made on {self.created[:10]} by unbag {self.unbag or 'unknown'}.")
        lines.append(f"{len(self.classes)} classes: {shorten(self.classes, limit=_NAMES)}.")
        lines.append(f"{len(self.bags)} bags in training: {shorten(self.bags, limit=_NAMES)}.")
        if self.columns:
            lines += [self._line(kind) for kind in dict.fromkeys(self.columns.values())]
        else:
            lines.append(f"Its rows have the shape {self.row_shape}; their columns have no names.")
        lines += [f"Column {name} is not used: {why}." for name, why in self.left_out.items()]
        for answer in self.answers:
            lines += ["", f"{answer['question']} {answer['answer']}"]
            lines += [f"  - {point}" for point in answer["points"]]
        if not self.answers:
            lines.append("The model has no report. To judge it, use `unbag evaluate`.")
        return "\n".join(lines)

    def _line(self, kind: str) -> str:
        """List the columns of a kind."""
        names = [name for name, of in self.columns.items() if of == kind]
        more = f", and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
        noun = "column" if len(names) == 1 else "columns"
        return f"{len(names):,} {noun} of kind {kind}: {', '.join(names[:_NAMES])}{more}."


def show_model(model: str | os.PathLike[str]) -> ShownModel:
    """Tell what a model folder holds: the model, what it reads, and what its report says of it.

    Parameters
    ----------
    model : path
        A model folder.
    """
    folder = Path(model)
    clf = load_model(folder)
    report, answers = _Report(), _Answers()
    with suppress(OSError, SchemaError):  # a model that was saved in Python has none
        report = decode(read_regular(folder / pages(REPORT)[1], _MOST), _Report)
        if len(bytes(report.answers)) <= _MOST_TEXT:
            answers = decode(bytes(report.answers), _Answers)
    encoding = clf.encoding_
    return ShownModel(
        folder=folder,
        method=clf.method_,
        stop_reason=clf.stop_reason_,
        classes=clf.classes_.tolist(),
        bags=clf.priors_.bag_ids.tolist(),
        columns=_columns(clf),
        row_shape=tuple(clf.row_shape_),
        left_out=dict(getattr(encoding, "left_out", {})),
        created=report.created,
        unbag=report.versions.unbag,
        answers=[msgspec.to_builtins(answer) for answer in answers.questions],
    )


def _columns(clf: UnbagClassifier) -> dict[str, str]:
    """Every column, and what it is."""
    kinds: dict[str, str] = {}
    for encoder in getattr(clf.encoding_, "encoders", ()):
        kinds.setdefault(encoder.column, str(encoder.__struct_config__.tag))
    names = getattr(clf, "feature_names_in_", ())
    return kinds or dict.fromkeys(map(str, names), "number")

"""What a run writes must not replace anything by accident."""

from collections.abc import Iterable
from pathlib import Path

from unbag.validation import invalid, shorten

__all__ = ["check_free", "check_not_input"]


def check_free(name: str, path: Path, *, overwrite: bool) -> None:
    """Refuse a folder, and a file that is there unless it may be replaced."""
    if path.is_dir():
        raise invalid(name, "a file to write", f"{path}, which is a folder")
    if path.exists() and not overwrite:
        remedy = "replace it with --overwrite (overwrite=True), or name another file."
        raise invalid(name, "a free path", f"{path}, which is there", remedy)


def check_not_input(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over a file that is read."""
    target = path.resolve()
    if any(target == other.resolve() for other in inputs):
        remedy = "name another file."
        raise invalid("output", "another file than the rows", shorten([str(path)]), remedy)

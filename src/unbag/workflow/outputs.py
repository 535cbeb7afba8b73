"""What a run writes must not replace anything by accident, nor be written by two runs at once."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unbag.validation import invalid, shorten

if sys.platform != "win32":
    import fcntl

__all__ = ["check_free", "check_not_input", "hold"]


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


@contextmanager
def hold(folder: Path, output: Path) -> Iterator[None]:
    """Make the hidden folder of an output, and refuse if another run holds it.

    The lock is the system's, on the folder itself: nothing is left of it when a process is killed.
    There is none on Windows, nor on file systems that cannot lock folders. In the end the folder
    is removed if it is empty, and so are folders above it that were made.
    """
    new = [path for path in folder.parents if not path.exists()]
    try:
        descriptor = _lock(folder)
    except BlockingIOError:
        got = f"{output}, which another run is making"
        remedy = "wait until it has ended, or name another output."
        raise invalid("output", "made by one run at a time", got, remedy) from None
    try:
        yield
    finally:
        for path in (folder, *new):
            with suppress(OSError):  # it stays where something is in it
                path.rmdir()
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Lock a folder that is made if need be; returns what to close in the end."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":
            return None
        with suppress(FileNotFoundError):  # removed by the run that held it: make it again
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                _flock(descriptor)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)


def _flock(descriptor: int) -> None:
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # the file system has no such locks
            return

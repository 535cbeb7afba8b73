"""What a run writes must not replace anything by accident, nor be written by two runs at once."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unbag.files import discard, discarded, is_real_folder, lock, real_path
from unbag.validation import invalid, shorten

__all__ = ["check_free", "check_not_input", "hidden_folder", "hold"]


def check_free(name: str, path: Path, *, overwrite: bool) -> None:
    """Refuse a folder, and a file that is there unless it may be replaced."""
    if path.is_dir():
        raise invalid(name, "a file to write", f"{path}, which is a folder")
    if os.path.lexists(path) and not overwrite:
        remedy = "choose another path, or replace it with --overwrite (overwrite=True)."
        raise invalid(name, "a path that does not exist yet", str(path), remedy)


def check_not_input(path: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over a file that is read."""
    target = real_path(path)
    if any(target == real_path(other) for other in inputs):
        remedy = "choose another path."
        raise invalid("output", "a file other than the rows", shorten([str(path)]), remedy)


def hidden_folder(output: Path, suffix: str = "work") -> Path:
    """Name the folder beside an output that holds unfinished work, and is locked while one runs.

    Where the output is a link it stays beside the link: that is what will be replaced.
    """
    return real_path(output.parent) / f".{output.name}.{suffix}"


@contextmanager
def hold(folder: Path, output: Path) -> Iterator[None]:
    """Make the hidden folder of an output, and refuse if another run holds it.

    Only this user can enter the folder. What is there and is a link, or was open to others, is
    removed with a warning. The lock is the system's, on the folder itself: nothing is left of it
    when a process is killed. There is none on Windows, nor on file systems that cannot lock
    folders. In the end the folder is removed if it is empty, and so are folders above it that
    were made.
    """
    new = [path for path in folder.parents if not path.exists()]
    try:
        descriptor = _lock(folder)
    except BlockingIOError:
        got = f"{output}, which another run is writing"
        remedy = "wait until it has ended, or choose another path."
        raise invalid("output", "written by one run at a time", got, remedy) from None
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
        if folder.is_symlink():
            discard(folder)
            discarded(f"{folder}, which holds unfinished work,", "was a link")
        is_new = not is_real_folder(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sys.platform == "win32":
            return None
        with suppress(FileNotFoundError):  # removed by the run that held it: make it again
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                lock(descriptor)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    if not is_new:
                        _make_private(descriptor, folder)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def _make_private(descriptor: int, folder: Path) -> None:
    """Refuse a folder of another user; empty one that others could write to."""
    if sys.platform == "win32":
        return
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        got = f"{folder}, which belongs to another user"
        remedy = "remove that folder, or choose another path."
        raise invalid("folder of unfinished work", "of this user", got, remedy)
    if status.st_mode & 0o077:
        os.fchmod(descriptor, 0o700)
        if not os.fstat(descriptor).st_mode & 0o077:  # some file systems have no such modes
            for path in folder.iterdir():
                discard(path)
            discarded(f"Unfinished work in {folder}", "was open to other users")

"""Files and folders that are written whole or not at all, and folders of unfinished work.

What lies in a folder may come from a stranger. So nothing is written to a name that could be known
before, no link is followed, and a name is given only to what is whole and on the disk.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from unbag.exceptions import DiscardedWorkWarning

if sys.platform != "win32":
    import fcntl

__all__ = [
    "digest",
    "discard",
    "discarded",
    "is_real_folder",
    "lock",
    "new_file",
    "new_folder",
    "read_regular",
    "real_path",
    "remove_folder",
    "scratch_file",
    "settle_folder",
    "sweep",
    "sync",
    "was_interrupted",
    "write_tensors",
    "write_together",
    "write_whole",
]

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for its other end
_OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINKS
_IS_POSIX = os.name == "posix"


# ------------------------------------------------------------------------------------------ files


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a path to write to; the file takes the place of ``path`` when nothing failed.

    The path given is in a folder of an unpredictable name beside it, which only this user can
    enter. A link at ``path`` is replaced, not followed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_file(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    with scratch_file(path) as (temporary, mode):
        yield temporary
        _finish(temporary, mode)
        temporary.replace(path)
        sync(path.parent)


def _finish(temporary: Path, mode: int) -> None:
    """Bring what was written to the disk, and let those read it who may."""
    descriptor = os.open(temporary, os.O_RDWR | _NO_LINKS)  # the writer may have replaced it
    try:
        if _IS_POSIX:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def scratch_file(path: Path) -> Iterator[tuple[Path, int]]:
    """Give an empty file of the same name, which is gone afterwards, and the mode for others.

    The file lies in a new folder beside ``path``, which has an unpredictable name and which only
    this user can enter. The mode is the one that the user's umask gives to new files. What killed
    writes of ``path`` left is removed before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    folder, held = _scratch_folder(path)
    try:
        temporary = folder / path.name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS
        descriptor = os.open(temporary, flags, 0o666)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        temporary.chmod(0o600)
        yield temporary, mode
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            if held is not None:
                os.close(held)


def _scratch_folder(path: Path) -> tuple[Path, int | None]:
    """Make a folder to write a file in, and lock it, so that nobody takes it for a leftover."""
    while True:
        folder = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}.tmp")
        folder.mkdir(mode=0o700)
        if not _IS_POSIX:
            return folder, None
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # swept: make another
            descriptor = os.open(folder, _OPEN_FOLDER)
            try:
                lock(descriptor)
                if os.path.samestat(os.fstat(descriptor), folder.lstat()):
                    return folder, descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def sweep(path: Path) -> None:
    """Remove what killed writes of a file left beside it.

    That is folders of the form that :func:`scratch_file` gives them, of this user, that nobody
    else can enter and no process has locked. Where folders cannot be locked, all stay.
    """
    if not _IS_POSIX:
        return
    name = re.compile(re.escape(_prefix(path)) + r"[0-9a-f]{16}\.tmp")
    with contextlib.suppress(OSError):
        for folder in path.parent.iterdir():
            if name.fullmatch(folder.name):
                _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, _OPEN_FOLDER)
        try:
            status = os.fstat(descriptor)
            is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
            if is_private and lock(descriptor):
                shutil.rmtree(folder)
        finally:
            os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Lock what is open, until it is closed; False where the file system has no locks.

    Another process that holds it is a BlockingIOError.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            return False
    return sys.platform != "win32"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file such that a crash leaves the old one or the new one."""
    data = content.encode() if isinstance(content, str) else content
    with new_file(path) as temporary:
        temporary.write_bytes(data)


def write_together(contents: Mapping[Path, str]) -> None:
    """Write several files: all are on the disk before the first gets its name.

    Where a name cannot be given, those of the new files that had none before are removed again.
    """
    with contextlib.ExitStack() as written:
        temporaries = []
        for path, content in contents.items():
            temporary, mode = written.enter_context(scratch_file(path))
            temporary.write_text(content, encoding="utf-8", newline="")
            _finish(temporary, mode)
            temporaries.append(temporary)
        new = [path for path in contents if not os.path.lexists(path)]
        try:
            for temporary, path in zip(temporaries, contents, strict=True):
                temporary.replace(path)
        except BaseException:
            for temporary, path in zip(temporaries, contents, strict=True):
                if path in new and not temporary.exists():
                    path.unlink(missing_ok=True)
            raise
        for folder in {path.parent for path in contents}:
            sync(folder)


def write_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    """Write tensors as a safetensors file; what fails is an OSError."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with new_file(path) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # such as a full disk
            raise OSError(str(error)) from None


def _prefix(path: Path) -> str:
    return f".{path.stem[:40]}."  # a longer one may be more than a name can hold


def read_regular(path: Path, largest: int) -> bytes:
    """Read a regular file (no link, no pipe) of at most this many bytes."""
    descriptor = os.open(path, os.O_RDONLY | _NO_LINKS | _AT_ONCE)
    with open(descriptor, "rb") as file:  # noqa: PTH123 — a descriptor has no path
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a file")
        if status.st_size > largest:
            raise OSError(f"it has {status.st_size:,} bytes, and {largest:,} are allowed")
        return file.read(largest)


def digest(path: Path) -> str | None:
    """SHA-256 of a regular file; None where there is none."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Wait until a file is on the disk, or, where the system can do that, the names in a folder.

    What fails for a folder is no error: after a crash, the old names may be there.
    """
    if path.is_dir():
        with contextlib.suppress(OSError):
            _sync(path)
    else:
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------------------------- folders


def real_path(path: str | os.PathLike[str]) -> Path:
    """Follow all links; those that lead to themselves stay, and nothing can be opened there."""
    return Path(os.path.realpath(path))


def is_real_folder(path: Path) -> bool:
    """Whether this is a folder itself, and not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def discard(path: Path) -> None:
    """Remove a file, link or folder with all that is in it; where a link leads to stays."""
    if is_real_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def discarded(what: str, why: str) -> None:
    """Warn that unfinished work is not used."""
    message = f"{what} {why}. It was removed, and this run starts anew."
    warnings.warn(message, DiscardedWorkWarning, stacklevel=2)


def remove_folder(folder: Path, last: str) -> None:
    """Remove a folder, and the file of this name last: without it, the rest means nothing."""
    for path in folder.iterdir():
        if path.name != last:
            discard(path)
    shutil.rmtree(folder)


@contextlib.contextmanager
def new_folder(target: Path, names: Collection[str], last: str) -> Iterator[Path]:
    """Give an empty folder to write to; its files appear in ``target`` when nothing failed.

    A folder that is not there yet appears at once. In one that is there, files of the given names
    are replaced or removed, all others stay, and the folder itself stays too: it may be the
    current one, or a mounted disk.

    Parameters
    ----------
    target : Path
    names : collection of str
        Files that the new ones stand for, whether there are new ones of these names or not.
    last : str
        The file without which the others mean nothing: it leaves first and comes last.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    settle_folder(target, last)
    place = _Places(target)
    stage = place.stage if target.is_dir() else place.beside
    stage.mkdir()
    try:
        yield stage
        sync(stage)
        if stage == place.beside:
            stage.rename(target)
            sync(target.parent)
        else:
            place.leaving.mkdir()
            for name in sorted(names, key=last.__ne__):
                if os.path.lexists(target / name):
                    (target / name).rename(place.leaving / name)
            place.leaving.rename(place.left)  # from here on, only forward
            settle_folder(target, last)
    except BaseException:
        with contextlib.suppress(OSError):
            settle_folder(target, last)
        raise


def settle_folder(target: Path, last: str) -> None:
    """Undo or finish what a :func:`new_folder` began that was stopped."""
    place = _Places(target)
    if is_real_folder(place.left) and is_real_folder(place.stage):
        _move(place.stage, target, last)
        sync(target)
    elif is_real_folder(place.leaving):
        _move(place.leaving, target, last)
        sync(target)
    for path in (place.stage, place.beside, place.leaving, place.left):
        discard(path)


def was_interrupted(target: Path) -> bool:
    """Whether a :func:`new_folder` was stopped while files were being replaced."""
    place = _Places(target)
    return is_real_folder(place.left) or is_real_folder(place.leaving)


def _move(source: Path, target: Path, last: str) -> None:
    for path in sorted(source.iterdir(), key=lambda path: path.name == last):
        path.replace(target / path.name)


class _Places:
    """Where the files of a folder lie while they are being replaced."""

    def __init__(self, target: Path) -> None:
        whole = target.absolute()  # the current folder has no name of its own
        self.beside = whole.parent / f".{whole.name}.saving"
        self.stage = target / ".unbag.new"
        self.leaving, self.left = target / ".unbag.leaving", target / ".unbag.left"

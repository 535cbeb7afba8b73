"""Files that are written whole or not at all."""

import os
import shutil
from pathlib import Path

__all__ = ["remove_folder", "sync", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a file such that a crash leaves the old one or the new one.

    What a crash left beside it is written over the next time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    if path.is_dir() and os.name != "posix":  # only there a folder can be synced
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_folder(folder: Path, last: str) -> None:
    """Remove a folder, and the file of this name last: without it, nothing of weight is left."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != last:
            path.unlink()
    shutil.rmtree(folder)

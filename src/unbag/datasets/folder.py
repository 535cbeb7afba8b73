"""Where the datasets lie."""

import os
import sys
from pathlib import Path

__all__ = ["data_folder"]


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Name the folder with one subfolder per dataset; it need not exist.

    Parameters
    ----------
    folder : path, optional
        By default what the environment variable ``UNBAG_DATA`` says, and where that is not set
        the user's cache: ``~/.cache/unbag``, or where ``XDG_CACHE_HOME``, macOS or Windows keep
        caches.
    """
    where = os.environ.get("UNBAG_DATA") or _cache() / "unbag" if folder is None else folder
    return Path(where).expanduser()


def _cache() -> Path:
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache)
    if sys.platform == "darwin":
        return Path("~/Library/Caches")
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    return Path("~/.cache")

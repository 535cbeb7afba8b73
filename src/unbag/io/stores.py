"""Files that are not on this machine: in S3, Google Cloud Storage, HDFS or another store."""

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs

from unbag.exceptions import InvalidInputError
from unbag.validation import import_optional, invalid

__all__ = ["AnyPath", "Fetched", "StoreAddress", "StoredFile", "any_path", "list_store"]

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_OF_ARROW = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_OF_GOOGLE = ("gs", "gcs")  # whose library asks again for 15 minutes where nothing answers
_ANSWER = "retry_limit_seconds=10"  # for the first answer; later ones may take their time
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class StoreAddress:
    """An address of a file or folder, such as ``s3://bucket/rows``."""

    text: str

    def __post_init__(self) -> None:
        """Refuse addresses with a password, which results would show."""
        if ":" in urlsplit(self.text).netloc.rpartition("@")[0]:
            remedy = "give credentials as the store's own environment variables or files."
            raise invalid("an address", "one without credentials", "some", remedy)

    def __str__(self) -> str:
        return self.text

    @property
    def suffix(self) -> str:
        """End of the name, such as ``.parquet``."""
        return PurePosixPath(urlsplit(self.text).path).suffix


@dataclass(frozen=True)
class StoredFile:
    """A file in a store.

    Attributes
    ----------
    filesystem
        Of pyarrow.
    path
        Within it.
    store
        Its kind, such as "s3".
    size
        In bytes.
    changed
        What the store gives that is another where the file is written anew, such as the time.
    """

    filesystem: Any = field(compare=False)
    path: PurePosixPath
    store: str
    size: int
    changed: str

    def __str__(self) -> str:
        return f"{self.store}://{self.path}"

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.name

    @property
    def suffix(self) -> str:
        """End of the name."""
        return self.path.suffix

    @property
    def parent(self) -> PurePosixPath:
        """The folder."""
        return self.path.parent


AnyPath: TypeAlias = Path | StoreAddress


def any_path(given: Any) -> AnyPath:
    """Make a path of this machine or the address of a store."""
    if isinstance(given, StoreAddress):
        return given
    text = os.fspath(given)
    if not isinstance(text, str) or not _ADDRESS.match(text):
        return Path(text)
    return Path(urlsplit(text).path) if text.lower().startswith("file://") else StoreAddress(text)


def list_store(address: StoreAddress) -> tuple[PurePosixPath, list[StoredFile]]:
    """List the file of an address, or the visible files of a folder and of its partitions.

    Returns
    -------
    The folder, and the files by name.
    """
    try:
        filesystem, path, kind = _opened(address)
        folder = PurePosixPath(path)
        pattern = folder.name if _PATTERN.search(folder.name) else None
        folder = folder.parent if pattern else folder
        (info,) = filesystem.get_file_info([str(folder)])
        if info.type == pa.fs.FileType.File:
            return folder.parent, [_stored(filesystem, kind, info)]
        if info.type == pa.fs.FileType.NotFound:
            raise invalid(f"table {address}", "an existing file or folder", "nothing of that name")
        selector = pa.fs.FileSelector(str(folder), recursive=pattern is None)
        infos = [i for i in filesystem.get_file_info(selector) if i.type == pa.fs.FileType.File]
    except (OSError, pa.ArrowException, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        got = " ".join(str(error).split())[:300].rstrip(".")
        remedy = "check the address, the network and the credentials of the store."
        raise invalid(f"table {address}", "where a store can be read", got, remedy) from None
    files = [_stored(filesystem, kind, info) for info in infos]
    if pattern:
        files = [file for file in files if fnmatchcase(file.name, pattern)]
        if not files:
            raise invalid(f"table {address}", "a pattern of existing files", "none that match")
    shown = [file for file in files if _is_shown(file.path.relative_to(folder).parts)]
    return folder, sorted(shown, key=lambda file: str(file.path))


class Fetched:
    """A copy of a file in a store, which is there for as long as this object is.

    Attributes
    ----------
    path
        The copy.
    """

    def __init__(self, file: StoredFile) -> None:
        folder = tempfile.mkdtemp(prefix="unbag-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, file.name)
        with file.filesystem.open_input_stream(str(file.path)) as source, self.path.open("wb") as f:
            shutil.copyfileobj(source, f, 1 << 20)


def _opened(address: StoreAddress) -> tuple[Any, str, str]:
    """Open the store of an address; returns it, the path in it, and its kind."""
    kind = urlsplit(address.text).scheme.lower()
    if kind in _OF_ARROW:
        if kind in _OF_GOOGLE and "retry_limit_seconds" not in address.text:
            limited = f"{address}{'&' if '?' in address.text else '?'}{_ANSWER}"
            filesystem, path = pa.fs.FileSystem.from_uri(limited)
            filesystem.get_file_info([path])
        filesystem, path = pa.fs.FileSystem.from_uri(address.text)
        return filesystem, path, kind
    fsspec: Any = import_optional("fsspec", "stores")
    try:
        filesystem, path = fsspec.core.url_to_fs(address.text)
    except (ImportError, ValueError) as error:
        allowed = f"of a store that pyarrow or an installed package of fsspec can open ({kind}://)"
        raise invalid(f"address {address}", allowed, str(error).rstrip(".")) from None
    return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(filesystem)), path, kind


def _stored(filesystem: Any, kind: str, info: Any) -> StoredFile:
    changed = str(info.mtime_ns)
    if isinstance(filesystem, pa.fs.PyFileSystem):  # whose times pyarrow does not know
        changed = filesystem.handler.fs.ukey(info.path)
    return StoredFile(filesystem, PurePosixPath(info.path), kind, info.size or 0, changed)


def _is_shown(parts: Sequence[str]) -> bool:
    *folders, name = parts
    return name[0] not in "._" and all("=" in part and part[0] not in "._=" for part in folders)

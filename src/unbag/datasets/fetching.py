"""Downloads of the upstream files, checked before they get their names."""

import functools
import hashlib
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unbag.datasets.folder import data_folder
from unbag.datasets.loading import usps_table
from unbag.datasets.sources import SOURCES, Source
from unbag.exceptions import DownloadError, InvalidInputError
from unbag.files import new_file, scratch_file
from unbag.progress import DownloadProgress
from unbag.validation import check_choice, import_optional, invalid

__all__ = ["fetch"]

_TIMEOUT = 30.0  # seconds without a byte


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    progress: bool = False,
) -> Path:
    """Download one of the datasets of ``SOURCES``, so that :func:`unbag.datasets.load` reads it.

    Files that are there and whole are left alone. A file gets its name only when its checksum is
    right, so a download that was cut off is never taken for a whole one.

    Parameters
    ----------
    name : str
        pendigits, usps, mnist, fashion-mnist, kmnist or cifar10.
    folder : path, optional
        The files go into its subfolder of that name; by default as for ``load``.
    force : bool
        Download everything anew, also in place of a wrong file.
    progress : bool
        Show a progress bar, where standard error is a terminal.

    Returns
    -------
    Path
        The folder of the dataset.

    Raises
    ------
    DownloadError
        The server did not give the file, or gave another one.
    InvalidInputError
        A file that is there is not the upstream one.
    """
    check_choice("name", name, SOURCES)
    source, root = SOURCES[name], data_folder(folder) / name
    try:
        files = {
            root / file: checksum
            for file, checksum in source.files.items()
            if force or not _is_whole(root / file, checksum)
        }
        if files:
            with DownloadProgress(progress) as bar:
                _fetch_files(source, root, files, force, bar)
    except OSError as error:
        got = f"{root} ({error})"
        remedy = "pass another with folder= (--folder) or UNBAG_DATA."
        raise invalid("folder", "one with room that can be read and written", got, remedy) from None
    return root


def _fetch_files(
    source: Source, root: Path, files: Mapping[Path, str], force: bool, bar: DownloadProgress
) -> None:
    if source.archive is None:
        for path, checksum in files.items():
            with new_file(path) as part:
                _download(source.address + path.name, part, path, checksum, bar)
        return
    name, checksum = source.archive.name, source.archive.checksum
    if not force and _is_whole(root / name, checksum):  # downloaded by hand
        _unpack(root / name, name, root, files)
    else:
        with scratch_file(root / name) as (part, _):
            _download(source.address + name, part, root / name, checksum, bar)
            _unpack(part, name, root, files)


def _unpack(archive: Path, name: str, root: Path, files: Mapping[Path, str]) -> None:
    """Take the wanted files out of the archive, and nothing else that may be in it."""
    wanted = {path.relative_to(root).as_posix(): path for path in files}
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            path = wanted.get(member.name) if member.isreg() else None
            content = tar.extractfile(member) if path else None
            if path is None or content is None:
                continue
            with new_file(path) as part:
                with part.open("wb") as file:
                    shutil.copyfileobj(content, file)
                _check(part, files[path], f"{member.name} in {name}")
            del wanted[member.name]
    if wanted:
        raise DownloadError(f"{name} must hold {', '.join(wanted)}; upstream may have changed it.")


def _download(url: str, part: Path, path: Path, checksum: str, bar: DownloadProgress) -> None:
    """Download to ``part``, which is to become ``path``, and check the bytes."""
    pooch = import_optional("pooch", "datasets")
    requests = import_optional("requests", "datasets")
    bar.start(path.name)
    get = pooch.HTTPDownloader(
        progressbar=bar,
        chunk_size=2**16,
        timeout=_TIMEOUT,
        headers={"Accept-Encoding": "identity"},
        hooks={"response": _as_stored},
    )
    try:
        get(url, str(part), None)
    except requests.RequestException as error:
        if error.response is not None:
            error.response.close()
        reason = _reason(error, requests)
        message = f"{url}: {reason}; try again, or download it by hand to {path}"
        raise DownloadError(f"{message} and run the same again.") from None
    _check(part, checksum, url)


def _as_stored(response: Any, **_: object) -> None:
    """Have a .gz stay packed where the server declares it to be merely packed for transport."""
    response.raw.headers.pop("Content-Encoding", None)


def _reason(error: Exception, requests: Any) -> str:
    """Say in a few words why a download failed."""
    kinds = requests.exceptions
    if isinstance(error, kinds.HTTPError):
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, kinds.Timeout):
        return f"no answer for {_TIMEOUT:g} seconds"
    if isinstance(error, kinds.ChunkedEncodingError):
        return "the connection was cut off"
    if isinstance(error, kinds.ConnectionError):
        first: BaseException = error
        while first.__context__:
            first = first.__context__
        return f"the connection failed ({getattr(first, 'strerror', None) or first})"
    return str(error)


def _checksum(path: Path, kind: str) -> str:
    if kind == "values":
        try:
            table = usps_table(path) + np.float32(0)  # so that -0 is 0
        except InvalidInputError:
            kind = "sha256"
        else:
            return f"values:{hashlib.sha256(table.astype('<f4').tobytes()).hexdigest()}"
    with path.open("rb") as file:
        new = functools.partial(hashlib.new, kind, usedforsecurity=False)
        return f"{kind}:{hashlib.file_digest(file, new).hexdigest()}"


def _is_whole(path: Path, checksum: str) -> bool:
    """Whether the file is there; one that is there and wrong is an error."""
    if not path.exists():
        return False
    actual = _checksum(path, checksum.partition(":")[0])
    if actual != checksum:
        remedy = "delete it, or download it anew with force=True (--force)."
        raise invalid(str(path), f"the upstream file, {checksum}", actual, remedy)
    return True


def _check(part: Path, checksum: str, what: str) -> None:
    actual = _checksum(part, checksum.partition(":")[0])
    if actual != checksum:
        got = f"{part.stat().st_size} bytes of {actual}"
        cause = "it was cut off, or something on the way answered in its place"
        raise DownloadError(f"{what} must be {checksum}, got {got}; {cause}: try again.")

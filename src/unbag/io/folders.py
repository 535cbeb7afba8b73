"""The files of a table in folders, and the columns that stand in the names of subfolders."""

import glob
import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from unbag.io.stores import AnyPath, StoreAddress, StoredFile, any_path, list_store
from unbag.text_ids import ids_from_text
from unbag.validation import invalid, shorten

__all__ = ["list_files", "partition_columns"]


def list_files(
    paths: Any, suffixes: Sequence[str]
) -> tuple[tuple[Path | StoredFile, ...], list[PurePath], list[str]]:
    """List the files with these suffixes among the paths or addresses, and in their folders.

    Returns
    -------
    The files; for each of them the folder that was given; names of other files in the folders.
    """
    kinds = (str, os.PathLike, StoreAddress)
    listed = [paths] if isinstance(paths, kinds) else paths
    if not isinstance(listed, Sequence) or not all(isinstance(path, kinds) for path in listed):
        raise invalid("paths", "a path or a sequence of paths", repr(paths))
    if not listed:
        raise invalid("paths", "at least one file or folder", "none")
    files: list[Path | StoredFile] = []
    roots: list[PurePath] = []
    ignored: list[str] = []
    *most, last = suffixes
    endings = f"{', '.join(most)} or {last}"
    for path in _matching(listed):
        inside: Sequence[Path | StoredFile]
        root: PurePath
        if isinstance(path, StoreAddress):
            root, inside = list_store(path)
        else:
            if not path.exists():
                raise invalid(f"table {path}", "an existing file or folder", "nothing of that name")
            root = path if path.is_dir() else path.parent
            inside = _files_below(path) if path.is_dir() else [path]
        is_table = [file.name.lower().endswith(tuple(suffixes)) for file in inside]
        tables = [file for file, wanted in zip(inside, is_table, strict=True) if wanted]
        if not tables and len(inside) == 1 and str(root) != str(path):
            got = f"the suffix {inside[0].suffix!r}"
            raise invalid(f"table {path}", f"a file that ends in {endings}", got)
        if not tables:
            got = shorten(file.name for file in inside) if inside else "none"
            raise invalid(f"folder {path}", f"a folder with {endings} files", got)
        files += tables
        roots += [root] * len(tables)
        ignored += [file.name for file, wanted in zip(inside, is_table, strict=True) if not wanted]
    counts = Counter(files)
    twice = {file.name for file, count in counts.items() if count > 1}
    if twice:
        raise invalid("paths", "different files", f"{shorten(sorted(twice))} more than once")
    return tuple(files), roots, ignored


def partition_columns(
    files: Sequence[Path | StoredFile], roots: Sequence[PurePath], text: Collection[str] = ()
) -> dict[str, pa.Array]:
    """Read columns from the names of subfolders: one value per file, by the name of the column.

    Values are whole numbers, dates, bool or text, as bag ids of CSV files are; those of the
    columns in ``text`` are always text.

    Examples
    --------
    >>> files = [Path("t/year=2024/a.csv"), Path("t/year=2025/a.csv")]
    >>> partition_columns(files, [Path("t")] * 2)["year"].to_pylist()
    [2024, 2025]
    """
    folders = [file.parent.relative_to(root) for file, root in zip(files, roots, strict=True)]
    names = [[part.partition("=")[0] for part in folder.parts] for folder in folders]
    if any(other != names[0] for other in names):
        got = " and ".join(repr(str(folder)) for folder in dict.fromkeys(folders))[:200]
        raise invalid("the subfolders of a table", "of the same names, such as year=2024", got)
    schema = pa.schema([(name, pa.string()) for name in names[0]])
    hive = pyarrow.dataset.HivePartitioning(schema)
    rows = [
        pyarrow.dataset.get_partition_keys(hive.parse((folder / "file").as_posix()))
        for folder in folders
    ]
    columns = {}
    for name in names[0]:
        texts = [row.get(name) for row in rows]  # None for Hive's default partition
        present = [value for value in texts if value is not None]
        values = iter(present if name in text else ids_from_text(present))
        columns[name] = pa.array([None if value is None else next(values) for value in texts])
    return columns


def _matching(paths: Sequence[Any]) -> list[AnyPath]:
    """Take the files that match, where a path is a pattern such as ``part-*.csv``."""
    found: list[AnyPath] = []
    for path in map(any_path, paths):
        is_there = isinstance(path, StoreAddress) or path.exists()
        matches = [] if is_there else sorted(glob.glob(str(path)))  # noqa: PTH207
        found += map(Path, matches) if matches else [path]
    return found


def _files_below(folder: Path) -> list[Path]:
    """List the visible files of a folder and of its subfolders that are partitions."""

    def refuse(error: OSError) -> None:
        raise invalid(f"folder {folder}", "a readable folder", str(error.strerror)) from None

    files: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if "=" in name and name[0] not in "._="]
        files += [Path(place, name) for name in names if name[0] not in "._"]
    return sorted(file for file in files if file.is_file())

"""Rows from a folder of images and a table that says which bag each file belongs to."""

import os
import struct
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.io.bag_column import BagColumn, bag_id_array
from unbag.io.column_types import empty_as_null, is_text
from unbag.io.input_rows import Encoding, InputRows, Progress, check_kind
from unbag.io.tables import TableFiles
from unbag.validation import check_choice, check_number, import_optional, invalid, shorten

__all__ = ["ImageEncoding", "read_images"]

CHANNELS = {"L": 1, "RGB": 3}
# What Pillow calls images of bytes, and what they are read as; alpha is left out.
MODES: dict[str, Literal["L", "RGB"]] = {
    **dict.fromkeys(("1", "L", "LA", "La"), "L"),
    **dict.fromkeys(("RGB", "RGBA", "RGBa", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV"), "RGB"),
}
MAX_SIDE = 10_000
ORIENTATION = 0x0112  # the EXIF tag; values of 5 and more exchange height and width
# What Pillow's decoders raise at damaged files.
DAMAGED = (OSError, SyntaxError, ValueError, TypeError, EOFError, LookupError, struct.error)


Side = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIDE)]


class ImageEncoding(Encoding, frozen=True, tag="images"):
    """What images are turned into: one size and one mode.

    Parameters
    ----------
    size
        (height, width) in pixels.
    mode
        "L" (grey, one channel) or "RGB".

    Examples
    --------
    >>> ImageEncoding((28, 32), "RGB").row_shape
    (3, 28, 32)
    """

    size: tuple[Side, Side]
    mode: Literal["L", "RGB"]

    @property
    def row_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        return (CHANNELS[self.mode], *self.size)

    def transform(self, image: Any) -> NDArray[np.uint8]:
        """Turn an upright Pillow image into (C, H, W) bytes of this size and mode."""
        if image.mode in ("P", "PA"):
            image = image.convert("RGBA")  # Pillow asks for this detour where there is alpha
        image = image.convert(self.mode)
        if (image.height, image.width) != self.size:
            image = image.resize(self.size[::-1], resample=2)  # bilinear, smooth when it shrinks
        pixels = np.asarray(image, dtype=np.uint8)
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def read_images(
    table: Any,
    folder: str | os.PathLike[str],
    *,
    bag: str | None,
    file_column: str = "file",
    size: int | tuple[int, int] | None = None,
    mode: Literal["L", "RGB"] | None = None,
    encoding: ImageEncoding | None = None,
    progress: Progress | None = None,
) -> InputRows:
    """Read images as rows of bytes, one image at a time; needs Pillow (the extra ``images``).

    Images are turned upright as their EXIF data say, and alpha channels are left out.

    Parameters
    ----------
    table
        CSV or Parquet file(s) with one row per image.
    folder
        Where the images are; the table has paths relative to it.
    bag
        Column of the bag ids; None where ids are not needed.
    file_column
        Column of the file names.
    size
        (height, width) to bring all images to, one number for squares. By default images must be
        of one size.
    mode
        "L" (grey) or "RGB", to turn all images into. By default images must be all grey or all
        in colour.
    encoding
        Size and mode at once, of a model fitted before.
    progress
        Called with the numbers of images read and of all.

    Returns
    -------
    InputRows, with (n, C, H, W) uint8 rows.
    """
    pillow = import_optional("PIL.Image", "images")
    check_kind(encoding, ImageEncoding)
    names, bag_ids, notes = _read_table(table, file_column, bag)
    paths = _find_files(names, Path(folder))
    notes += _notes_on_files(pillow, names, Path(folder))
    if encoding is not None:
        size, mode = encoding.size, encoding.mode
    if mode is not None:
        check_choice("mode", mode, CHANNELS)
    target = None if size is None else _check_size(size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        with _opened(pillow, paths[0], names[0]) as first:
            encoding = ImageEncoding(target or _upright_size(first), mode or MODES[first.mode])
        X = np.empty((len(paths), *encoding.row_shape), dtype=np.uint8)
        resized = converted = 0
        for i, (path, name) in enumerate(zip(paths, names, strict=True)):
            with _opened(pillow, path, name) as image:
                other_size = _upright_size(image) != encoding.size
                other_mode = MODES[image.mode] != encoding.mode
                if other_size and target is None:
                    raise _different_sizes(pillow, paths, names)
                if other_mode and mode is None:
                    kinds = {"L": "grey", "RGB": "in colour"}
                    got = f"{names[0]!r} {kinds[encoding.mode]} and {name!r} not"
                    remedy = "choose with mode='L' or mode='RGB'."
                    raise invalid("images", "all grey or all in colour", got, remedy)
                upright = import_optional("PIL.ImageOps", "images").exif_transpose(image)
                X[i] = encoding.transform(upright)
            resized += other_size
            converted += other_mode
            if progress is not None:
                progress(i + 1, len(paths))
    if resized:
        height, width = encoding.size
        notes.append(f"{resized} of {len(X)} images were resized to {height}×{width} pixels.")
    if converted:
        notes.append(f"{converted} of {len(X)} images were converted to mode {encoding.mode}.")
    if caught:
        first_warning = f"{caught[0].message}".strip().rstrip(".")
        notes.append(f"Pillow warned about some images. The first warning: {first_warning}.")
    return InputRows(X, bag_ids, encoding, tuple(notes))


def _check_size(size: Any) -> tuple[int, int]:
    sides = [size, size] if isinstance(size, int | np.integer) else size
    if not isinstance(sides, tuple | list) or len(sides) != 2:
        raise invalid("size", "a number or a pair (height, width)", repr(size)[:80])
    for side in sides:
        check_number("size", side, low=1, high=MAX_SIDE, integer=True)
    return int(sides[0]), int(sides[1])


def _read_table(
    paths: Any, file_column: str, bag: str | None
) -> tuple[list[str], NDArray[Any] | None, list[str]]:
    """Read file names and bag ids of all rows, and notes on the table."""
    columns = (file_column,) if bag is None else (file_column, bag)
    table = TableFiles(paths, ids=columns)
    table.check_columns("the column of file names", [file_column])
    bags = None if bag is None else BagColumn(table, bag)
    dtype = table.schema.field(file_column).type
    if not is_text(dtype):
        raise invalid(f"values of column {file_column!r}", "file names", f"type {dtype}")
    names: list[str] = []
    for batch in table.batches(columns):
        names += empty_as_null(batch.column(0)).to_pylist()
        if bags is not None:
            bags.update(batch.column(1))
    missing = [i for i, name in enumerate(names) if name is None]
    if missing:
        got = f"none in {len(missing):,} rows, the first in {table.locate(missing[0])}"
        raise invalid(f"column {file_column!r}", "a file name in every row", got)
    ids = None if bags is None else bag_id_array(*bags.collected(), from_text=table.is_csv)
    return names, ids, list(table.notes)


def _find_files(names: list[str], folder: Path) -> list[Path]:
    """Find every file in the folder, refusing names that lead out of it."""
    if not folder.is_dir():
        got = "a file" if folder.exists() else "nothing of that name"
        raise invalid(f"images {folder}", "a folder of images", got)
    outside = [name for name in names if _leads_out(name)]
    if outside:
        raise invalid("file names", "relative paths within the folder", shorten(outside))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        got = f"{len(missing)} of {len(names)} missing: {shorten(missing)}"
        remedy = f"names are relative to {str(folder)!r}."
        raise invalid("file names", "files in the folder", got, remedy)
    return [folder / name for name in names]


def _notes_on_files(pillow: ModuleType, names: list[str], folder: Path) -> list[str]:
    """Say which files come more than once, and which images of the folder are not used."""
    notes = []
    listed = Counter(PurePosixPath(name) for name in names)
    repeated = [str(name) for name, count in listed.items() if count > 1]
    if repeated:
        notes.append(f"Some files are in the table more than once: {shorten(repeated)}.")
    suffixes = set(pillow.registered_extensions())
    below = (Path(parent, file) for parent, _, files in os.walk(folder) for file in files)
    images = {PurePosixPath(p.relative_to(folder)) for p in below if p.suffix.lower() in suffixes}
    if unlisted := sorted(map(str, images - listed.keys())):
        notes.append(f"Some images in the folder are not in the table: {shorten(unlisted)}.")
    return notes


def _leads_out(name: str) -> bool:
    """Whether a path is absolute or climbs, on any system."""
    windows = PureWindowsPath(name)
    parts = {*windows.parts, *PurePosixPath(name).parts}
    return bool(windows.anchor) or ".." in parts or "\0" in name or not parts


@contextmanager
def _opened(pillow: ModuleType, path: Path, name: str) -> Iterator[Any]:
    """Open an image; what is wrong with it, now or when it is decoded, is said in words."""
    try:
        with pillow.open(path) as image:
            # MPO is what cameras write; its further frames are previews.
            frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
            if frames > 1:
                raise invalid(f"file {name!r}", "a single image", f"{frames} frames")
            if image.mode not in MODES:
                allowed = "an image of 8 bits per channel"
                raise invalid(f"file {name!r}", allowed, f"mode {image.mode}", "convert it.")
            yield image
    except InvalidInputError:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        allowed = f"an image of at most {pillow.MAX_IMAGE_PIXELS:,} pixels"
        raise invalid(f"file {name!r}", allowed, "more", "make it smaller.") from None
    except DAMAGED as error:
        got = f"an error ({str(error).replace(str(path), path.name)})"
        raise invalid(f"file {name!r}", "a whole image", got) from None


def _upright_size(image: Any) -> tuple[int, int]:
    turned = image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
    return (image.width, image.height) if turned else (image.height, image.width)


def _different_sizes(pillow: ModuleType, paths: list[Path], names: list[str]) -> InvalidInputError:
    """Name the sizes of all images, most frequent first."""
    sizes: Counter[tuple[int, int]] = Counter()
    for path, name in zip(paths, names, strict=True):
        with _opened(pillow, path, name) as image:
            sizes[_upright_size(image)] += 1
    shown = [f"{h}×{w} ({count})" for (h, w), count in sizes.most_common(5)]
    more = f" and {len(sizes) - 5} more" if len(sizes) > 5 else ""
    got = f"height×width {', '.join(shown)}{more}"
    height, width = sizes.most_common(1)[0][0]
    remedy = f"resize them, or use read_images with size=({height}, {width}) in Python."
    return invalid("images", "of one size", got, remedy)

import datetime
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from unbag.exceptions import InvalidInputError, MissingDependencyError
from unbag.io.images import ImageEncoding, read_images

rng = np.random.default_rng(0)
GREY = rng.integers(0, 256, (3, 4, 5), dtype=np.uint8)
COLOUR = rng.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
NAMES = ["a.png", "b.png", "sub/c.png"]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pictures"
    (folder / "sub").mkdir(parents=True)
    return folder


@pytest.fixture
def table(tmp_path):
    def write(names=NAMES, bags=("x", "y", "x"), header="file,bag"):
        path = tmp_path / "bags.csv"
        rows = [f"{name},{bag}" for name, bag in zip(names, bags, strict=True)]
        path.write_text("\n".join([header, *rows]) + "\n")
        return path

    return write


def save(folder, pixels, names=NAMES):
    for name, image in zip(names, pixels, strict=True):
        Image.fromarray(image).save(folder / name)


def error(*args, **options):
    with pytest.raises(InvalidInputError) as caught:
        read_images(*args, **{"bag": "bag"} | options)
    return str(caught.value)


def test_grey_images(folder, table):
    save(folder, GREY)
    rows = read_images(table(), folder, bag="bag")
    assert rows.X.dtype == np.uint8
    np.testing.assert_array_equal(rows.X, GREY[:, None])
    assert rows.bag_ids.tolist() == ["x", "y", "x"]
    assert rows.encoding == ImageEncoding((4, 5), "L")
    assert rows.encoding.n_features == 20
    assert rows.notes == ()


def test_colour_images(folder, table):
    save(folder, COLOUR)
    rows = read_images(table(), folder, bag=None)
    np.testing.assert_array_equal(rows.X, COLOUR.transpose(0, 3, 1, 2))
    assert rows.bag_ids is None
    assert rows.encoding.row_shape == (3, 4, 5)


def test_tables_of_any_kind_keep_their_bag_ids(folder, table, tmp_path):
    save(folder, GREY)
    for bags, ids in (
        ((1, 2, 1), [1, 2, 1]),
        (("007", "7", "007"), ["007", "7", "007"]),
        (("NA", "DE", "NA"), ["NA", "DE", "NA"]),
    ):
        assert read_images(table(bags=bags), folder, bag="bag").bag_ids.tolist() == ids
    day = datetime.date(2024, 1, 31)
    for ids in ([1, 2, 1], ["1", "2", "1"], [day, day, day]):
        path = tmp_path / "bags.parquet"
        pq.write_table(pa.table({"g": ids, "path": NAMES}), path)
        rows = read_images(path, folder, bag="g", file_column="path")
        assert rows.bag_ids.tolist() == ids


def test_progress_counts_images(folder, table):
    save(folder, GREY)
    calls = []
    read_images(table(), folder, bag="bag", progress=lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_sizes_must_agree_unless_one_is_chosen(folder, table):
    save(folder, [GREY[0], GREY[1][:3], GREY[2]])
    message = error(table(), folder)
    assert "of one size, got height×width 4×5 (2), 3×5 (1); resize them, or" in message
    assert "size=(4, 5)" in message
    rows = read_images(table(), folder, bag="bag", size=(4, 5))
    assert rows.notes == ("1 of 3 images were resized to 4×5 pixels.",)
    np.testing.assert_array_equal(rows.X[[0, 2], 0], GREY[[0, 2]])
    expected = Image.fromarray(GREY[1][:3]).resize((5, 4), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(rows.X[1, 0], np.asarray(expected))
    assert read_images(table(), folder, bag="bag", size=2).X.shape == (3, 1, 2, 2)
    encoding = ImageEncoding((6, 2), "RGB")
    rows = read_images(table(), folder, bag="bag", encoding=encoding)
    assert rows.X.shape == (3, 3, 6, 2)
    assert rows.encoding == encoding
    assert rows.notes == (
        "3 of 3 images were resized to 6×2 pixels.",
        "3 of 3 images were converted to mode RGB.",
    )


def test_modes_must_agree_unless_one_is_chosen(folder, table):
    save(folder, [GREY[0], COLOUR[1], GREY[2]])
    message = error(table(), folder)
    assert "all grey or all in colour, got 'a.png' grey and 'b.png' not; choose with" in message
    rows = read_images(table(), folder, bag="bag", mode="RGB")
    np.testing.assert_array_equal(rows.X[1], COLOUR[1].transpose(2, 0, 1))
    np.testing.assert_array_equal(rows.X[0], np.repeat(GREY[:1], 3, 0))
    assert rows.notes == ("2 of 3 images were converted to mode RGB.",)


def test_palettes_alpha_and_orientation(folder, table):
    opaque = np.dstack([COLOUR[0], np.full((4, 5), 7, np.uint8)])
    Image.fromarray(opaque).save(folder / "a.png")
    palette = Image.fromarray(COLOUR[1]).quantize(20)
    palette.save(folder / "b.png", transparency=bytes(range(20)))
    turned = Image.fromarray(COLOUR[2].transpose(1, 0, 2)[:, ::-1])
    exif = Image.Exif()
    exif[0x0112] = 8  # to be turned by 90° to the left
    turned.save(folder / "sub/c.png", exif=exif)
    rows = read_images(table(), folder, bag="bag")
    np.testing.assert_array_equal(rows.X[0], COLOUR[0].transpose(2, 0, 1))
    np.testing.assert_array_equal(rows.X[1].transpose(1, 2, 0), np.asarray(palette.convert("RGB")))
    np.testing.assert_array_equal(rows.X[2].transpose(1, 2, 0), COLOUR[2])
    assert rows.notes == ()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_camera_says(folder, table, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    shot = Image.fromarray(COLOUR[0])
    for name in ("a.png", "b.png", "sub/c.png"):
        shot.save(folder / name, exif=exif)
    with Image.open(folder / "a.png") as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    rows = read_images(table(), folder, bag="bag")
    assert rows.X.shape[1:] == (3, *upright.shape[:2])
    np.testing.assert_array_equal(rows.X[0].transpose(1, 2, 0), upright)


def test_other_files_and_repeated_ones_are_noted(folder, table):
    save(folder, GREY)
    save(folder, GREY[:2], ["z.png", "sub/y.PNG"])
    (folder / "notes.txt").write_text("no image")
    rows = read_images(table(["a.png", "./a.png", "b.png"]), folder, bag="bag")
    assert rows.notes == (
        "Some files are in the table more than once: 'a.png'.",
        "Some images in the folder are not in the table: 'sub/c.png', 'sub/y.PNG', 'z.png'.",
    )


@pytest.mark.parametrize(
    "name",
    ["../a.png", "sub/../../a.png", "/etc/a.png", "..\\a.png", "C:\\a.png", "C:a.png", ".", ".."],
)
def test_names_that_lead_out_of_the_folder(folder, table, name):
    save(folder, GREY)
    save(folder.parent, GREY[:1], ["a.png"])
    message = error(table([name, "a.png", "b.png"]), folder)
    assert f"relative paths within the folder, got {name!r}." in message


def test_missing_files_and_folders(folder, table):
    save(folder, GREY[:1], NAMES[:1])
    message = error(table(), folder)
    assert "files in the folder, got 2 of 3 missing: 'b.png', 'sub/c.png'; names are" in message
    assert "must be a folder of images, got nothing of that name" in error(table(), folder / "none")
    assert "got 3 of 3 missing: 'sub'" in error(table(["sub"] * 3), folder)


@pytest.mark.parametrize(
    ("names", "bags", "options", "message"),
    [
        (NAMES, "xyz", {"bag": "group"}, "bag must be in the table, got unknown 'group'"),
        (NAMES, "xyz", {"file_column": "f"}, "column of file names must be in the table, got unk"),
        (
            ["a.png", "", "b.png"],
            "xyz",
            {},
            "column 'file' must be a file name in every row, got none in 1",
        ),
        (NAMES, ["x", "", ""], {}, "none in 2 of 3 rows; the first is row 2 of bags.csv"),
        (NAMES, "xyz", {"size": 0}, "size must be a whole number in [1, 10000], got 0"),
        (NAMES, "xyz", {"size": (4, 5, 3)}, "a number or a pair (height, width), got (4, 5, 3)"),
        (NAMES, "xyz", {"size": (4, 10**9)}, "in [1, 10000], got 1000000000"),
        (NAMES, "xyz", {"encoding": 7}, "encoding must be that of a model, got int"),
        (NAMES, "xyz", {"mode": "CMYK"}, "mode must be one of 'L', 'RGB', got 'CMYK'"),
    ],
)
def test_bad_tables_and_options(folder, table, names, bags, options, message):
    save(folder, GREY)
    assert message in error(table(names, bags), folder, **options)


def test_file_names_that_are_numbers(folder, tmp_path):
    pq.write_table(pa.table({"file": [1, 2], "bag": [1, 2]}), tmp_path / "bags.parquet")
    assert "values of column 'file' must be file names, got type int64" in error(
        tmp_path / "bags.parquet", folder
    )


def test_broken_images(folder, table):
    save(folder, GREY)
    (folder / "b.png").write_text("no image")
    message = error(table(), folder)
    assert "file 'b.png' must be a whole image, got an error (cannot identify" in message
    assert str(folder) not in message
    noise = rng.integers(0, 256, (4, 5), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "b.png")
    whole = (folder / "b.png").read_bytes()
    (folder / "b.png").write_bytes(whole[: whole.index(b"IDAT") + 12])
    assert "file 'b.png' must be a whole image" in error(table(), folder)


def test_warnings_of_pillow_become_a_note(folder, table):
    save(folder, GREY)
    exif = Image.Exif()
    exif[0x0112] = 1
    Image.fromarray(GREY[0]).save(folder / "a.png", exif=exif.tobytes()[:-6])
    rows = read_images(table(), folder, bag="bag")
    assert "Pillow warned about some images. The first warning: Corrupt EXIF data" in rows.notes[0]
    np.testing.assert_array_equal(rows.X, GREY[:, None])


def test_images_that_are_none_of_ours(folder, table):
    save(folder, GREY)
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(folder / "b.png")
    message = error(table(), folder)
    assert "file 'b.png' must be an image of 8 bits per channel, got mode I;16" in message
    frames = [Image.fromarray(image) for image in GREY]
    frames[0].save(folder / "b.png", save_all=True, append_images=frames[1:])
    assert "file 'b.png' must be a single image, got 3 frames" in error(table(), folder)


@pytest.mark.parametrize("limit", [15, 5])  # Pillow warns above the limit and refuses above twice
@pytest.mark.parametrize("bomb", [0, 1])
def test_bombs_are_refused_unread(folder, table, monkeypatch, limit, bomb):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    pixels = [image[:1] for image in GREY]
    pixels[bomb] = GREY[bomb]
    save(folder, pixels)
    message = error(table(), folder)
    assert f"file {NAMES[bomb]!r} must be an image of at most {limit} pixels, got more" in message


def test_without_pillow(folder, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'unbag\[images\]'"):
        read_images(table(), folder, bag="bag")


@pytest.mark.parametrize("encoding", [ImageEncoding((4, 5), "L"), ImageEncoding((32, 32), "RGB")])
def test_encodings_survive_json(encoding):
    assert ImageEncoding.from_dict(json.loads(json.dumps(encoding.to_dict()))) == encoding


GOOD = {"kind": "images", "size": [4, 5], "mode": "L"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (7, "it must be an object, got a whole number"),
        ({"kind": "images", "mode": "L"}, "size must be given, got nothing"),
        (GOOD | {"kind": "array"}, "kind must be one of those allowed"),
        (GOOD | {"size": 4}, "size must be a list, got a whole number"),
        (GOOD | {"size": [4]}, "size must be a list of length 2, got 1"),
        (GOOD | {"size": [4, True]}, "size[1] must be a whole number, got true or false"),
        (GOOD | {"size": [4, 10**9]}, "size[1] must be a whole number <= 10000"),
        (GOOD | {"size": [0, 4]}, "size[0] must be a whole number >= 1"),
        (GOOD | {"mode": "CMYK"}, "mode must be one of those allowed"),
        (GOOD | {"mode": ["L"]}, "mode must be text, got a list"),
    ],
)
def test_bad_encodings(values, message):
    with pytest.raises(InvalidInputError) as caught:
        ImageEncoding.from_dict(values)
    assert message in str(caught.value)

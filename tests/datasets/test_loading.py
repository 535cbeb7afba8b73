from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_files import CIFAR, idx, random_bytes, tiny, write

from unbag.datasets import DATASETS, data_folder, load
from unbag.exceptions import InvalidInputError

# --------------------------------------------------------------------------------- the real files


@pytest.mark.parametrize(
    ("name", "row_shape", "train", "test"),
    [
        (
            "pendigits",
            (16,),
            [780, 779, 780, 719, 780, 720, 720, 778, 719, 719],
            [363, 364, 364, 336, 364, 335, 336, 364, 336, 336],
        ),
        (
            "usps",
            (16, 16),
            [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644],
            [359, 264, 198, 166, 200, 160, 170, 147, 166, 177],
        ),
        (
            "mnist",
            (28, 28),
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
        ),
        ("kmnist", (28, 28), [6000] * 10, [1000] * 10),
    ],
)
def test_real_datasets_have_their_published_sizes(dataset, name, row_shape, train, test):
    data = dataset(name)
    assert np.bincount(data.y_train).tolist() == train
    assert np.bincount(data.y_test).tolist() == test
    assert data.X_train.shape == (sum(train), *row_shape)
    assert data.X_test.shape == (sum(test), *row_shape)
    assert data.n_classes == 10
    highest = 255 if data.X_train.dtype == np.uint8 else 1
    for part in (data.X_train, data.X_test):
        assert (part.min(), part.max()) == (0, highest)


# ------------------------------------------------------------------------------------ the readers


@pytest.mark.parametrize("name", DATASETS)
def test_readers_on_tiny_files(name, tmp_path, monkeypatch):
    files, images, labels = tiny(name)
    write(tmp_path, name, files)
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    data = load(name)
    np.testing.assert_allclose(data.X_train, images["train"], atol=1e-6)
    np.testing.assert_allclose(data.X_test, images["test"], atol=1e-6)
    assert data.y_train.tolist() == labels["train"].tolist()
    assert data.y_test.tolist() == labels["test"].tolist()
    assert data.y_train.dtype == np.int64
    assert data.X_train.dtype == (np.float32 if name in ("pendigits", "usps") else np.uint8)
    for part in (data.X_train, data.X_test, data.y_train, data.y_test):
        assert part.flags.writeable  # torch warns about memory that it may not write to


@pytest.mark.parametrize("name", DATASETS)
def test_every_absent_file_is_named(name, tmp_path):
    files, _, _ = tiny(name)
    for file in files:
        folder = write(tmp_path, name, files)
        (folder / file).unlink()
        with pytest.raises(InvalidInputError, match="folder must be one that holds") as error:
            load(name, tmp_path)
        assert str(folder / file) in str(error.value)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("kept", [0, 1, 0.5, -1], ids=["empty", "a byte", "half", "all but a byte"])
def test_every_cut_file_is_named(name, kept, tmp_path):
    files, _, _ = tiny(name)
    for file in files:
        folder = write(tmp_path, name, files)
        whole = (folder / file).read_bytes().rstrip()
        # Half a line further, because a table cut at the end of a line is still a table.
        cut = len(whole) // 2 + 3 if kept == 0.5 else kept
        if file.startswith("pendigits") and kept == -1:
            cut = -2  # the last line without its label
        (folder / file).write_bytes(whole[:cut])
        with pytest.raises(InvalidInputError) as error:
            load(name, tmp_path)
        assert str(error.value).startswith(str(folder / file))


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("mnist", "train-images-idx3-ubyte.gz", b"", "idx file of bytes, 3 axes"),
        ("mnist", "train-images-idx3-ubyte.gz", b"\0\0\x08\x03\0\0", "idx file of bytes"),
        ("mnist", "train-images-idx3-ubyte.gz", b"\0\0\x0d\x03" + b"\0" * 12, "idx file of bytes"),
        ("mnist", "train-images-idx3-ubyte.gz", idx(random_bytes(5)), "3 axes"),
        ("mnist", "train-images-idx3-ubyte.gz", idx(random_bytes(5, 4, 3))[:-1], "got 75 bytes"),
        ("mnist", "t10k-labels-idx1-ubyte.gz", idx(np.zeros(3, np.uint8)), "each of 2 images"),
        (
            "kmnist",
            "train-labels-idx1-ubyte.gz",
            idx(np.array([1, 2, 3, 4, 10], np.uint8)),
            "10 in",
        ),
        ("usps", "zip.train.gz", b"1 2 3\n", "lines of 257 numbers, got 3 in each"),
        ("usps", "zip.test.gz", b"\xff\xfe", "lines of 257 numbers"),
        ("pendigits", "pendigits.tra", b"\n \n", "lines of 17 numbers, got 0 lines"),
        ("pendigits", "pendigits.tes", b"a" + b",1" * 16, "lines of 17 numbers"),
        ("pendigits", "pendigits.tes", b"1," * 16 + b"2.5", "classes 0 to 9, got 2.5 in row 0"),
        ("cifar10", f"{CIFAR}/data_batch_2.bin", bytes(3072), "3073 bytes, got 3072 bytes"),
        ("cifar10", f"{CIFAR}/test_batch.bin", b"\x0a" + bytes(3072), "classes 0 to 9, got 10"),
    ],
)
def test_wrong_content_is_told(name, file, content, message, tmp_path):
    folder = write(tmp_path, name, tiny(name)[0] | {file: content})
    with pytest.raises(InvalidInputError, match=message) as error:
        load(name, tmp_path)
    assert str(error.value).startswith(str(folder / file))


def test_a_file_that_only_claims_to_be_packed_is_named(tmp_path):
    folder = write(tmp_path, "usps", tiny("usps")[0])
    (folder / "zip.train.gz").write_bytes(b"plain text")
    with pytest.raises(InvalidInputError, match=r"zip.train.gz must be a whole gzip file"):
        load("usps", tmp_path)


def test_a_missing_dataset_is_told_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.delenv("UNBAG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"with `unbag datasets fetch mnist`, or .*folder="):
        load("mnist")
    place = tmp_path / "my data"
    with pytest.raises(InvalidInputError, match=rf"fetch usps --folder '{place}'`, or "):
        load("usps", place)
    with pytest.raises(InvalidInputError, match=r"name must be one of 'pendigits', .*got 'svhn'"):
        load("svhn", tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"folder must be one that holds .*pendigits.tra"):
        load("pendigits", tmp_path / "file")


def test_the_default_folder_is_unbag_data_or_else_the_cache(monkeypatch, tmp_path):
    write(tmp_path / "cache/unbag", "usps", tiny("usps")[0])
    monkeypatch.delenv("UNBAG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(load("usps").y_train) == 5
    monkeypatch.setenv("UNBAG_DATA", str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"zip.train.gz"):
        load("usps")
    assert len(load("usps", tmp_path / "cache/unbag").y_train) == 5


@pytest.mark.parametrize(
    ("system", "variables", "expected"),
    [
        ("linux", {}, "/home/me/.cache/unbag"),
        ("linux", {"XDG_CACHE_HOME": "/scratch"}, "/scratch/unbag"),
        ("darwin", {}, "/home/me/Library/Caches/unbag"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/unbag"),
        ("win32", {}, "/home/me/AppData/Local/unbag"),
        ("linux", {"UNBAG_DATA": "~/data", "XDG_CACHE_HOME": "/scratch"}, "/home/me/data"),
        ("linux", {"UNBAG_DATA": ""}, "/home/me/.cache/unbag"),
    ],
)
def test_where_the_cache_is(monkeypatch, system, variables, expected):
    for name in ("UNBAG_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/me"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("unbag.datasets.folder.sys", SimpleNamespace(platform=system))
    assert data_folder() == Path(expected)
    assert data_folder("here") == Path("here")
